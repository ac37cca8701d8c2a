"""From a region to the program of a fused node.

Statements come in the order in which the outputs need them, equal ones once, and inputs are numbered as they appear, so
that equal regions give equal programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from onnxfuse.custom_ops.program import (
    FIRST_ROLL,
    ONE,
    Apply,
    Const,
    Entry,
    Input,
    Kernel,
    Output,
    Program,
    Roll,
    Statement,
)
from onnxfuse.custom_ops.runtime_axes import RuntimeAxes
from onnxfuse.custom_ops.types import value_type
from onnxfuse.custom_ops.verify import MAX_ROLL_PARTS, MAX_ROLLS
from onnxfuse.rewrites import cost
from onnxfuse.rewrites.dims import Shape
from onnxfuse.rewrites.fragment import RefusalError, Value
from onnxfuse.rewrites.idioms import improve
from onnxfuse.rewrites.layout import Layout
from onnxfuse.rewrites.space import Entries, Place

__all__ = ["Emitted", "emit"]


@dataclass(frozen=True)
class Emitted:
    """A program, the tensors that are the fused node's inputs, in order, and what the user should know of it."""

    program: Program
    inputs: tuple[str, ...]
    notes: tuple[str, ...]


def emit(layout: Layout, outputs: list[tuple[str, str]]) -> Emitted:
    """The program that computes `outputs` (names and element types). Raises RefusalError where it exceeds a limit."""
    return _Emission(layout).run(outputs)


class _Emission:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.space = layout.space
        self.order = layout.space.walk()
        self.position = {d: k for k, d in enumerate(self.order)}
        self.statements: list[Statement] = []
        self.numbers: dict[Statement, int] = {}
        self.value_numbers: dict[Value, int] = {}
        # Axes that arrive with a run are the first input.
        self.tensors: dict[str, int] = {} if self.space.given is None else {self.space.given.tensor: 0}
        self.rolls: dict[Roll, int] = {}

    def run(self, outputs: list[tuple[str, str]]) -> Emitted:
        results = []
        for k, (name, storage) in enumerate(outputs):
            value = self.layout.produced[name]
            entries = self.layout.laid_out(value)
            base = base_value = self.layout.behind(value)
            if entries is None:
                raise RefusalError("it only passes on what it reads")
            if not self.layout.fully_shown(value):
                raise RefusalError(f"no tensor that it reads is known to show the shape of {name}")
            if (
                base.op == f"round_{storage}"
                and (before := self.layout.behind(base.operands[0])) in self.layout.entries
            ):
                base = before  # storing rounds
            number = self.number(base)
            if value_type(storage) != value.type:
                raise RefusalError(f"{name} has another element type than its computation gives")
            squeezed = base_value in self.layout.squeezed
            self._check_left(name, base_value, value.shape, entries)
            self._check_stored(name, base_value)
            results.append(Output(k, storage, self.stored(entries), number, squeezed))
        order = self.order
        reduced = [k for k, d in enumerate(order) if d in self.space.reduced]
        if len(self.tensors) > cost.MAX_TENSORS or len(outputs) > cost.MAX_TENSORS:
            raise RefusalError(f"it would have more than {cost.MAX_TENSORS} inputs or outputs")
        if len(order) > 8:
            raise RefusalError("its iteration space has more than 8 dimensions")
        if len(self.tensors) <= (self.space.given is not None):
            raise RefusalError("it reads no tensor")
        extents = tuple(e if isinstance(e, int) else None for e in (self.space.extents[d] for d in order))
        kernel = Kernel(
            extents=extents,
            outer=reduced[0] if reduced else len(order),
            reduced=len(reduced),
            statements=tuple(self.statements),
            outputs=tuple(results),
            rolls=tuple(self.rolls),
            axes=self.axes(),
        )
        if len(kernel.rolls) > MAX_ROLLS or prod(2 * len(roll.dims) for roll in kernel.rolls) > MAX_ROLL_PARTS:
            raise RefusalError("it rolls more dimensions than a kernel may")
        self._check_extents(kernel)
        kernel, notes = improve(kernel)
        program = Program((kernel,))
        if len(program.text()) > 60000:
            raise RefusalError("its program would be too long")
        return Emitted(program, tuple(self.tensors), notes)

    def axes(self) -> RuntimeAxes | None:
        given = self.space.given
        if given is None:
            return None
        dims = tuple(self.position[d] for d in self.space.named)
        return RuntimeAxes(given.type, given.count, dims, given.scalar, given.noop)

    def _check_left(self, name: str, value: Value, shape: Shape, entries: Entries) -> None:
        """Refuses a result of which a run's axes may leave something else than its shape says."""
        if self.space.given is None:
            return
        if sorted(entries) != sorted((d,) for d in self.space.order):
            raise RefusalError(f"{name} has not all dimensions that the axes of a run may name")
        if value in self.layout.squeezed:
            return
        for extent, (d,) in zip(shape, entries, strict=True):
            left = self.space.symbols.whole(extent) is not None
            if self.space.extents[d] != 1 and left == (d in self.layout.depends[value]):
                raise RefusalError(f"what the axes of a run leave of {name} is not known")

    def _check_stored(self, name: str, value: Value) -> None:
        """Refuses a result along some of the reduced dimensions, where another may be empty: nothing would store it."""
        reduced = self.space.reduced if self.space.given is None else frozenset(self.space.named)
        along = set(self.space.bases(self.layout.depends[value])) & reduced
        others = [self.space.extents[d] for d in reduced - along]
        if along and any(not isinstance(extent, int) or extent == 0 for extent in others):
            raise RefusalError(f"{name} is not computed along a dimension that is reduced and may be empty")

    def _check_extents(self, kernel: Kernel) -> None:
        read = [e for s in kernel.statements if isinstance(s, Input) for e in s.map]
        shown = {e.plain for e in read} | {counted[0] for e in read if (counted := kernel.counted(e))}
        stored = [e for output in kernel.outputs for e in output.map]
        if any(len(e.terms) > 1 and e.extent is None and not kernel.counted(e) for e in stored):
            raise RefusalError("it reshapes along a dimension whose extent is not static")
        if any(extent is None and k not in shown for k, extent in enumerate(kernel.extents)):
            raise RefusalError("the extent of one of its dimensions shows in none of its inputs")

    def affine(self, place: Place) -> Entry:
        """The entry of a map: row-major over the place's dimensions, of which all but the first must be static."""
        terms: list[tuple[int, int]] = []
        stride = place.step
        dims = self.space.current(place.dims)
        for d in reversed(dims):
            terms.append((self.index(d), stride))
            extent = self.space.extents[d]
            if d != dims[0]:
                if not isinstance(extent, int):
                    raise RefusalError("it reshapes along a dimension whose extent is not static")
                if extent == 0:  # no coefficient says what comes next
                    raise RefusalError("it reshapes along an empty dimension")
                stride *= extent
        return Entry(tuple(sorted(terms)), place.start)

    def index(self, d: int) -> int:
        """The number of a dimension in a map."""
        if d not in self.space.rolled:
            return self.position[d]
        base, shift = self.space.rolled[d]
        roll = Roll(shift, tuple(self.position[b] for b in self.space.current(base)))
        return FIRST_ROLL + self.rolls.setdefault(roll, len(self.rolls))

    def stored(self, entries: Entries) -> tuple[Entry, ...]:
        """The map of an output, with the extents that cannot be read off it."""
        result = []
        for dims in entries:
            entry = self.affine(Place(dims)) if dims else ONE
            if len(dims) > 1 or any(d in self.space.rolled for d in self.space.current(dims)):
                extent = self.space.extent(self.space.current(dims))
                if isinstance(extent, int):
                    entry = Entry(entry.terms, entry.offset, extent)
                elif len(dims) < 2 or any(d in self.space.rolled for d in self.space.current(dims)):
                    raise RefusalError("it reshapes along a dimension whose extent is not static")
            result.append(entry)
        return tuple(result)

    def put(self, statement: Statement) -> int:
        if statement not in self.numbers:
            self.numbers[statement] = len(self.statements)
            self.statements.append(statement)
        return self.numbers[statement]

    def number(self, value: Value) -> int:
        """The number of a value that the region computes; without recursion."""
        stack = [value]
        while stack:
            v = stack[-1]
            if v in self.value_numbers:
                stack.pop()
                continue
            waiting = []
            operands: list[tuple[Value, tuple[Place, ...] | None]] = []
            for k, operand in enumerate(v.operands):
                base = self.layout.behind(operand)
                if base.op == "const":
                    operands.append((base, None))
                elif base in self.layout.entries:
                    operands.append((base, None))
                    if base not in self.value_numbers:
                        waiting.append(base)
                else:
                    operands.append((base, self.layout.reads[v, k]))
            if waiting:
                stack.extend(reversed(waiting))
                continue
            numbers = tuple(self.operand(base, entries) for base, entries in operands)
            same = v in self.layout.passed or self.is_rounded(v, numbers)
            self.value_numbers[v] = numbers[0] if same else self.put(Apply(v.op, v.type, numbers, v.flags))
            stack.pop()
        return self.value_numbers[value]

    def is_rounded(self, value: Value, numbers: tuple[int, ...]) -> bool:
        """Whether a rounding step changes nothing, because its operand was just read from, or rounded to, that type."""
        before = self.statements[numbers[0]]
        if isinstance(before, Input):
            return value.op == f"round_{before.type}"
        return value.op in ("round_f16", "round_bf16") and isinstance(before, Apply) and before.op == value.op

    def operand(self, base: Value, places: tuple[Place, ...] | None) -> int:
        if base.op == "const":
            return self.put(Const(base.type, base.const))
        return self.value_numbers[base] if places is None else self.read(base, places)

    def read(self, tensor: Value, places: tuple[Place, ...]) -> int:
        for place, extent in zip(places, tensor.shape, strict=True):
            # Only a plain dimension is broadcast at run time; this one was split after the read was laid out.
            dims = self.space.current(place.dims)
            known = self.space.extent(dims)
            first_part = isinstance(extent, int) and isinstance(known, int) and extent > known
            if len(dims) > 1 and place == Place(place.dims) and extent != known and not first_part:
                raise RefusalError(f"{tensor.tensor} may be broadcast along a reshaped dimension")
        number = self.tensors.setdefault(tensor.tensor, len(self.tensors))
        entries = [self.part(self.affine(p), extent) for p, extent in zip(places, tensor.shape, strict=True)]
        return self.put(Input(number, tensor.storage, tuple(entries)))

    def part(self, entry: Entry, extent: int | str) -> Entry:
        """The entry of an input, with the extent of the tensor's dimension where it reads only the first part of it."""
        if entry.plain is None or not isinstance(extent, int):
            return entry  # only a dimension of known extent is cut
        known = self.space.extents[self.order[entry.plain]]
        return Entry(entry.terms, 0, extent) if isinstance(known, int) and extent > known else entry
