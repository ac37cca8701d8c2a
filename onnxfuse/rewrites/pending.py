"""One attempt to lay a fragment out in a region, by the rules of layout.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.rewrites import cost
from onnxfuse.rewrites.dims import Dim, Shape
from onnxfuse.rewrites.fragment import GivenAxes, RefusalError, Value
from onnxfuse.rewrites.space import Entries, Place, Shown

if TYPE_CHECKING:
    from onnxfuse.rewrites.layout import Layout

__all__ = ["Pending"]


class Pending:
    """One attempt to add a fragment: a space of its own, and what it adds to the layout."""

    def __init__(self, base: Layout) -> None:
        self.base, self.space, self.work = base, base.space.copy(), base.work
        self.entries: dict[Value, Entries] = {}
        self.depends: dict[Value, tuple[int, ...]] = {}
        self.shown: dict[Value, Shown] = {}
        self.reads: dict[tuple[Value, int], tuple[Place, ...]] = {}
        self.passed: set[Value] = set()
        self.scanned: set[Value] = set()
        self.squeezed: set[Value] = set()

    def laid_out(self, value: Value) -> Entries | None:
        """As `Layout.laid_out`."""
        if value.op == "tensor" and value.tensor in self.base.produced:
            return self.laid_out(self.base.produced[value.tensor])
        if value.op == "view" and self.is_squeezed(value):
            raise RefusalError("it rearranges dimensions of which some go when the model runs")
        found = self.entries.get(value, self.base.entries.get(value))
        if found is None and value.op == "view" and (source := self.laid_out(value.operands[0])) is not None:
            # Kept: an expansion that is laid out again may not find the dimensions that it was given.
            found = self.entries[value] = self.forward(value, source)
        return None if found is None else tuple(map(self.space.current, found))

    def forward(self, value: Value, source: Entries) -> Entries:
        """The entries of a view, given those of what it shows."""
        view = value.view
        if view.cuts:
            raise RefusalError("it cuts out a part of what the region computes")
        parts: dict[int, tuple[int, ...]] = {}
        for dims, pieces in zip(source, view.source, strict=True):
            self.space.assign(dims, pieces, view, parts)
            if len(pieces) == 1 and dims and self.space.extent(self.space.current(dims)) != view.extents[pieces[0]]:
                raise RefusalError("it is not known which dimensions it expands")
        fixed = [
            tuple(d for p in pieces for d in self.space.current(parts[p])) if all(p in parts for p in pieces) else None
            for pieces in view.target
        ]
        for axis, shift in view.rolls.items():
            fixed[axis] = self.space.roll(fixed[axis] or (), -shift)
        return self.fill(value.shape, [f if f or d == 1 else None for f, d in zip(fixed, value.shape, strict=True)])

    def lay_out(self, step: Value) -> None:
        """Lays out a step whose operands are laid out, lie outside or are constant."""
        operands = [self.laid_out(o) for o in step.operands]
        # Laying out one operand may have split dimensions of another.
        operands = [None if e is None else tuple(map(self.space.current, e)) for e in operands]
        collective = step.reduces or step.scans
        if any(map(self.is_squeezed, step.operands)) or step.op == "squeeze":
            self.entries[step] = self.left(step, operands)
        elif step.given is not None:
            self.entries[step] = self.over_given(step, step.given, operands[0])
        else:
            self.entries[step] = self.collective(step, operands[0]) if collective else self.elementwise(step, operands)
        depends = {d for k in range(len(operands)) for d in self.dependence(step, k)}
        if step.given is not None and collective:
            if depends != set(self.space.order):
                raise RefusalError("what it reduces does not vary along all dimensions that its axes may name")
            depends = set() if step.reduces else depends
        elif collective and step not in self.passed:
            depends = depends - self.space.reduced if step.reduces else depends | self.space.reduced
        self.depends[step] = tuple(depends)
        if (step.scans and step not in self.passed) or any(self.after_scan(o) for o in step.operands):
            self.scanned.add(step)
        self.shown[step] = self.show(step)
        self.work += cost.step_cost(step)

    def after_scan(self, value: Value) -> bool:
        """Whether a value is a scan or depends on one."""
        base = self.base.behind(value)
        return base in self.scanned or base in self.base.scanned

    def dependence(self, step: Value, k: int) -> tuple[int, ...]:
        """The dimensions on which operand `k` of a step depends."""
        if (step, k) in self.reads:
            return self.space.bases(d for place in self.reads[step, k] for d in place.dims)
        base = self.base.behind(step.operands[k])
        return self.space.bases(self.depends.get(base) or self.base.depends.get(base, ()))

    def show(self, step: Value) -> Shown:
        """What a step's operands show together."""
        wholly: set[int] = set()
        partly: dict[int, frozenset[Dim]] = {}
        for k, operand in enumerate(step.operands):
            base = self.base.behind(operand)
            if (step, k) in self.reads:
                found: list[tuple[tuple[int, ...], frozenset[Dim]]] = [
                    (self.space.current(place.dims), self.space.symbols.parts(extent))
                    for place, extent in zip(self.reads[step, k], base.shape, strict=True)
                    if place == Place(place.dims)
                ]
            else:
                before = self.shown.get(base) or self.base.shown.get(base, Shown())
                wholly.update(self.space.current(tuple(before.wholly)))
                found = [(self.space.current((d,)), parts) for d, parts in before.partly.items()]
            for dims, parts in found:
                for d in dims:
                    # More than one element, known as such, is not broadcast: the rest is cut off.
                    cut = any(isinstance(p, int) and p > 1 for p in parts)
                    whole = len(dims) > 1 or self.space.extents[d] in parts or cut
                    partly[d] = frozenset((self.space.extents[d],)) if whole else partly.get(d, frozenset()) | parts
        for d, parts in list(partly.items()):
            extent = self.space.extents[d]
            if d in wholly or extent in parts or self.space.symbols.parts(extent) <= parts:
                wholly.add(d)
                del partly[d]
        over = self.space.reduced if step.given is None else frozenset(self.space.named)
        if (step.reduces or step.scans) and partly.keys() & over:
            raise RefusalError("what it reduces may be broadcast along its axes")
        if step.reduces and step not in self.passed:
            wholly -= self.space.reduced
        return Shown(frozenset(wholly), partly)

    def elementwise(self, step: Value, operands: Sequence[Entries | None]) -> Entries:
        """The entries of an element-wise step, given those of its operands."""
        rank = len(step.shape)
        fixed: list[tuple[int, ...] | None] = [None] * rank
        for entries in operands:
            for k, lying in enumerate(entries or ()):
                p = rank - len(entries or ()) + k
                if not lying:
                    continue
                dims = self.space.current(lying)
                before = self.space.current(fixed[p] or ())
                if before and before != dims:
                    self.identify(before, dims)
                fixed[p] = self.space.current(dims)
        fixed = [None if dims is None else self.space.current(dims) for dims in fixed]
        taken = [d for dims in fixed for d in self.space.bases(dims or ())]
        if len(set(taken)) < len(taken):
            raise RefusalError("it combines two dimensions of its result with the same one of the region")
        for p, fixed_dims in enumerate(fixed):
            if fixed_dims is None:
                continue
            extent = self.space.extent(fixed_dims)
            if extent not in (step.shape[p], self.space.symbols.whole(step.shape[p])):
                raise RefusalError(
                    f"its shape is not known to be that of the region ({step.shape[p]} against {extent})"
                )
        result = self.fill(step.shape, fixed)
        for k, (operand, entries) in enumerate(zip(step.operands, operands, strict=True)):
            if entries is None and operand.op != "const":
                self.read(step, k, operand, result)
                result = tuple(map(self.space.current, result))  # reading through a reshape may have split some
        return result

    def identify(self, a: tuple[int, ...], b: tuple[int, ...]) -> None:
        """Makes two ways to lie along a dimension the same: one is a single dimension, which becomes the other's."""
        one, others = (a[0], b) if len(a) == 1 else (b[0], a)
        different = RefusalError("its operands lie along different dimensions of the region")
        if any(d in self.space.rolled for d in (one, *others)):
            raise RefusalError("its operands lie along a dimension from different starts")
        if min(len(a), len(b)) != 1 or one in others or self.space.extents[one] != self.space.extent(others):
            raise different
        if {d in self.space.reduced for d in (one, *others)} == {True, False}:
            raise different
        lying = [*self.base.entries.values(), *self.entries.values()]
        lying += [tuple(p.dims for p in places) for reads in (self.base.reads, self.reads) for places in reads.values()]
        for entries in lying:
            dims = {d for parts in entries for d in self.space.bases(parts)}
            if one in dims and dims & set(others):
                raise different
        self.space.replace(one, others)

    def is_squeezed(self, value: Value) -> bool:
        """Whether a value lacks the dimensions that a run's axes name."""
        base = self.base.behind(value)
        return base in self.squeezed or base in self.base.squeezed

    def left(self, step: Value, operands: Sequence[Entries | None]) -> Entries:
        """The entries of a squeezed value: those that it had before, whichever of them are left."""
        kept: list[Entries] = []
        for operand, entries in zip(step.operands, operands, strict=True):
            if operand.op == "const":
                continue
            if step.op != "squeeze" and len(operand.shape) != len(step.shape):
                raise RefusalError("it adds dimensions to what loses some when the model runs")
            if entries is None or step.reduces or step.scans or self.is_squeezed(operand) == (step.op == "squeeze"):
                raise RefusalError("it computes with dimensions of which some go when the model runs")
            kept.append(entries)
        self.squeezed.add(step)
        if step.op == "squeeze":
            if self.dependence(step, 0):
                raise RefusalError("it leaves out dimensions along which its operand varies")
            self.passed.add(step)
        return kept[0]

    def over_given(self, step: Value, axes: GivenAxes, entries: Entries | None) -> Entries:
        """The entries of a reduction or a scan over axes that arrive with a run."""
        operand, space = step.operands[0], self.space
        if axes.tensor in self.base.produced:
            raise RefusalError("its axes are computed in the region")
        if self.after_scan(operand):
            raise RefusalError("what it reduces or scans is computed from a scan, which must end first")
        if entries is None:
            fixed: list[tuple[int, ...] | None] = [(d,) for d in space.named] or [None] * len(operand.shape)
            if len(fixed) != len(operand.shape) or any(
                dims and space.extent(dims) != d for dims, d in zip(fixed, operand.shape, strict=True)
            ):
                raise RefusalError("its shape is not that of the region, whose reduction would have to be repeated")
            entries = self.fill(operand.shape, fixed, range(len(operand.shape)))
            self.read(step, 0, operand, entries)
            entries = tuple(map(space.current, entries))
        if any(len(dims) != 1 for dims in entries):
            raise RefusalError("the region has dimensions that its axes cannot name")
        space.give(axes, tuple(d for (d,) in entries))
        return entries

    def collective(self, step: Value, entries: Entries | None) -> Entries:
        """The entries of a reduction or a scan, given those of its operand."""
        operand, space = step.operands[0], self.space
        space.check_free("it reduces known")
        if entries is None:
            axes = [k for k in step.axes if operand.shape[k] != 1] or [step.axes[0]]
            fixed: list[tuple[int, ...] | None] = [None] * len(operand.shape)
            if space.reduced:
                block = tuple(d for d in space.order if d in space.reduced)
                parts = [block] if len(axes) == 1 else [(d,) for d in block]
                if [operand.shape[k] for k in axes] != [space.extent(dims) for dims in parts]:
                    raise RefusalError("it reduces other axes than the rest of the region")
                for k, along in zip(axes, parts, strict=True):
                    fixed[k] = along
            entries = self.fill(operand.shape, fixed, axes)
            self.read(step, 0, operand, entries)
            entries = tuple(map(space.current, entries))  # reading through a reshape may have split some
        dims = [d for k in step.axes for d in entries[k]]
        block_set = frozenset(dims)
        if block_set & {d for r in space.rolled for d in (r, *space.bases((r,)))}:
            raise RefusalError("it reduces along what the region rolls")
        ordered = step.scans or PRIMITIVES[step.op].kind == "argument"  # where the order of the points matters
        if not block_set:
            if PRIMITIVES[step.op].kind == "argument" or "exclusive" in step.flags:
                raise RefusalError("its axis has extent 1")
            self.passed.add(step)  # every axis has extent 1: the result is the operand
        elif self.after_scan(operand):
            raise RefusalError("what it reduces or scans is computed from a scan, which must end first")
        elif space.reduced and block_set != space.reduced:
            raise RefusalError("it reduces other axes than the rest of the region")
        else:
            if ordered and dims != [d for d in space.order if d in block_set]:
                raise RefusalError("the order of its axis is not that of the region")
            if not block_set & set(self.dependence(step, 0)):
                raise RefusalError("what it reduces is the same along its axes")
            space.reduced = block_set
        if step.scans:
            return entries
        return tuple(() if k in step.axes else e for k, e in enumerate(entries) if step.keepdims or k not in step.axes)

    def read(self, step: Value, k: int, operand: Value, result: Entries) -> None:
        """Records how operand `k` of a step is read from outside, given the entries of the step's result."""
        shift = len(result) - len(operand.shape)
        places: list[Place] = []
        for p, extent in enumerate(operand.shape):
            dims = result[p + shift]
            if dims and not self.space.symbols.fits(extent, self.space.extent(dims)):
                raise RefusalError(f"the shape of {self.base.behind(operand).tensor} is not known to fit the region's")
            if len(dims) > 1 and extent not in (1, self.space.extent(dims)):
                raise RefusalError(f"{self.base.behind(operand).tensor} may be broadcast along a reshaped dimension")
            only = dims if extent != 1 or self.space.extent(dims) == 1 else ()
            places.append(Place(only))
        while operand.op == "view" or operand.tensor in self.base.produced:
            if operand.op == "view":
                view, operand = operand.view, operand.operands[0]
                places = self.space.backward(view, places, operand.shape)
            else:  # a rearrangement by an earlier node of the region
                operand = self.base.produced[operand.tensor]
        self.reads[step, k] = tuple(places)

    def fill(self, shape: Shape, fixed: Sequence[tuple[int, ...] | None], forced: Sequence[int] = ()) -> Entries:
        """Space dimensions for the positions that nothing decides yet; a new one repeats the work done so far."""
        return self.space.fill(shape, fixed, forced, may_grow=self.work <= cost.REPEATED_WORK)
