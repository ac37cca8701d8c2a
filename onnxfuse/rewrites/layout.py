"""Lays the values of a region out in one iteration space.

The space is an ordered list of dimensions, of which one contiguous block may be reduced. Each dimension of each value
is either one of the space's (as an ONNX operator aligns them: trailing dimensions together) or of extent 1. Adding a
fragment either succeeds as a whole or raises RefusalError and changes nothing.

Rules
1. Operands of an element-wise step that lie in the region must agree on the dimension at each position; what is read
   from outside goes along with them. A position that no operand in the region decides takes a dimension of the space
   with the same extent, else a new one.
2. A new dimension repeats what was laid out before it, for each of its indices: only cheap work, and no reduction, may
   be repeated.
3. A reduction's axes must be a contiguous block of the space, the same block for all reductions of the region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from onnxfuse.rewrites import cost
from onnxfuse.rewrites.dims import Dim, Shape, Symbols
from onnxfuse.rewrites.fragment import Fragment, RefusalError, Value

__all__ = ["Entries", "Layout"]

# For each dimension of a value: the number of a space dimension, or None where its extent is 1.
Entries: TypeAlias = tuple[int | None, ...]


@dataclass
class Layout:
    """A space and the values laid out in it.

    `order` lists the space's dimensions (numbers that stay when others are inserted), `extents` theirs, `distance` how
    far from the right end each stood where it first came up. `entries` has the values that steps compute, `reads` the
    entries of each operand that is read from outside, by (step, operand number); `produced` the value of each tensor
    that the region computes, `passed` the reductions over extents of 1 only.
    """

    symbols: Symbols
    order: list[int] = field(default_factory=list)
    extents: dict[int, Dim] = field(default_factory=dict)
    distance: dict[int, int] = field(default_factory=dict)
    reduced: frozenset[int] = frozenset()
    entries: dict[Value, Entries] = field(default_factory=dict)
    reads: dict[tuple[Value, int], Entries] = field(default_factory=dict)
    produced: dict[str, Value] = field(default_factory=dict)
    passed: set[Value] = field(default_factory=set)
    work: int = 0  # cost of all steps, each counted once

    def add(self, fragment: Fragment) -> None:
        """Lays out a fragment whose inputs come from outside or from fragments added before. Raises RefusalError."""
        attempt = Layout(
            self.symbols, list(self.order), dict(self.extents), dict(self.distance), self.reduced, work=self.work
        )
        pending = _Pending(self, attempt)
        for step in fragment.steps:
            if step.op != "view":
                pending.lay_out(step)
        for value in fragment.outputs.values():
            pending.settle(value)
        self.order, self.extents, self.distance = attempt.order, attempt.extents, attempt.distance
        self.reduced, self.work = attempt.reduced, attempt.work
        self.entries.update(attempt.entries)
        self.reads.update(attempt.reads)
        self.passed.update(attempt.passed)
        self.produced.update(fragment.outputs)

    def resolve(self, value: Value) -> tuple[Value, Entries]:
        """The value behind views and tensors that the region computes, and which of its dimensions each one shows."""
        mapping: Entries = tuple(range(len(value.shape)))
        while True:
            if value.op == "view":
                mapping = tuple(None if m is None else value.view[m] for m in mapping)
                value = value.operands[0]
            elif value.op == "tensor" and value.tensor in self.produced:
                value = self.produced[value.tensor]
            else:
                return value, mapping

    def laid_out(self, value: Value) -> Entries | None:
        """The entries of a value that the region computes; None for one that is read from outside or constant."""
        base, mapping = self.resolve(value)
        found = self.entries.get(base)
        if found is None:
            return None
        if any(found[k] is not None for k in range(len(found)) if k not in mapping):
            raise RefusalError("a dimension that a reduction needs is squeezed away")
        return tuple(None if m is None else found[m] for m in mapping)


class _Pending:
    """One attempt to add a fragment: reads from the layout and the attempt, writes to the attempt only."""

    def __init__(self, base: Layout, attempt: Layout) -> None:
        self.base, self.attempt = base, attempt

    def laid_out(self, value: Value) -> Entries | None:
        behind, mapping = self.base.resolve(value)
        found = self.attempt.entries.get(behind)
        if found is None:
            return self.base.laid_out(value)
        if any(found[k] is not None for k in range(len(found)) if k not in mapping):
            raise RefusalError("a dimension that a reduction needs is squeezed away")
        return tuple(None if m is None else found[m] for m in mapping)

    def lay_out(self, step: Value) -> None:
        operands = [self.laid_out(o) for o in step.operands]
        result = self._reduction(step, operands[0]) if step.reduces else self._elementwise(step, operands)
        self.attempt.entries[step] = result
        self.attempt.work += cost.step_cost(step)

    def settle(self, value: Value) -> None:
        """Gives entries to an output that is only a view of what is read from outside."""
        base, _ = self.base.resolve(value)
        if base in self.attempt.entries or base in self.base.entries or base.op == "const":
            return
        entries = self._fill(base.shape, [None] * len(base.shape), ())
        self.attempt.entries[base] = entries
        self.attempt.reads[base, 0] = entries

    def _elementwise(self, step: Value, operands: Sequence[Entries | None]) -> Entries:
        rank = len(step.shape)
        fixed: list[int | None] = [None] * rank
        for entries in operands:
            for k, e in enumerate(entries or ()):
                p = rank - len(entries or ()) + k
                if e is not None:
                    if fixed[p] not in (None, e):
                        raise RefusalError("its operands lie along different dimensions of the region")
                    fixed[p] = e
        for p, e in enumerate(fixed):
            if e is not None and step.shape[p] != self.attempt.extents[e]:
                extent = self.attempt.extents[e]
                raise RefusalError(
                    f"its shape is not known to be that of the region ({step.shape[p]} against {extent})"
                )
        result = self._fill(step.shape, fixed, ())
        for k, (operand, entries) in enumerate(zip(step.operands, operands, strict=True)):
            if entries is None and operand.op != "const":
                self._read(step, k, operand, result)
        return result

    def _reduction(self, step: Value, entries: Entries | None) -> Entries:
        operand, a = step.operands[0], self.attempt
        gone = set(step.axes)
        if entries is None:
            axes = [k for k in step.axes if operand.shape[k] != 1] or [step.axes[0]]
            fixed: list[int | None] = [None] * len(operand.shape)
            if a.reduced:
                block = [d for d in a.order if d in a.reduced]
                if [operand.shape[k] for k in axes] != [a.extents[d] for d in block]:
                    raise RefusalError("it reduces other axes than the rest of the region")
                for k, d in zip(axes, block, strict=True):
                    fixed[k] = d
            entries = self._fill(operand.shape, fixed, axes)
            self._read(step, 0, operand, entries)
        block_set = frozenset(e for k in step.axes if (e := entries[k]) is not None)
        if not block_set:
            a.passed.add(step)  # every axis has extent 1: the result is the operand
        elif a.reduced and block_set != a.reduced:
            raise RefusalError("it reduces other axes than the rest of the region")
        else:
            positions = sorted(a.order.index(d) for d in block_set)
            if positions != list(range(positions[0], positions[0] + len(positions))):
                raise RefusalError("the axes that it reduces are not next to each other")
            a.reduced = block_set
        return tuple(None if k in gone else e for k, e in enumerate(entries) if step.keepdims or k not in gone)

    def _read(self, step: Value, k: int, operand: Value, result: Entries) -> None:
        """Records how operand `k` of a step is read from outside, given the entries of the step's result."""
        base, mapping = self.base.resolve(operand)
        shift = len(result) - len(operand.shape)
        seen: list[int | None] = []
        for p, extent in enumerate(operand.shape):
            entry = result[p + shift]
            if entry is not None and not self.attempt.symbols.fits(extent, self.attempt.extents[entry]):
                raise RefusalError(f"the shape of {base.tensor} is not known to fit the region's")
            seen.append(None if extent == 1 and not (entry is not None and self.attempt.extents[entry] == 1) else entry)
        entries: list[int | None] = [None] * len(base.shape)
        for p, m in enumerate(mapping):
            if m is not None:
                entries[m] = seen[p]
        self.attempt.reads[step, k] = tuple(entries)

    def _fill(self, shape: Shape, fixed: Sequence[int | None], forced: Sequence[int]) -> Entries:
        """Space dimensions for the positions that nothing decides yet; `forced` ones get one even at extent 1.

        Of several dimensions with the right extent, the one is taken that stood as far from the right end where it
        first came up, as ONNX aligns shapes; else the last one.
        """
        a = self.attempt
        result = list(fixed)
        for p in reversed(range(len(shape))):
            extent, distance = shape[p], len(shape) - p
            if result[p] is not None or (extent == 1 and p not in forced):
                continue
            before = max((a.order.index(e) for e in result[:p] if e is not None), default=-1)
            after = min((a.order.index(e) for e in result[p + 1 :] if e is not None), default=len(a.order))
            free = [d for d in a.order[before + 1 : after] if d not in result and a.extents[d] == extent]
            if free:
                result[p] = next((d for d in free if a.distance[d] == distance), free[-1])
                continue
            if a.reduced:
                raise RefusalError("its shape is not that of the region, whose reduction would have to be repeated")
            if a.order and a.work > cost.REPEATED_WORK:
                raise RefusalError("it broadcasts the region to a larger shape, where its work would be repeated")
            new = len(a.extents)
            a.extents[new], a.distance[new] = extent, distance
            # Next to its neighbours; of the free places there, after the dimensions that stood further left.
            place = next((k for k in range(before + 1, after) if a.distance[a.order[k]] < distance), after)
            a.order.insert(place, new)
            result[p] = new
        return tuple(result)
