"""The iteration space of a region: its dimensions, how tensors are indexed by them, and what tensors show of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from onnxfuse.rewrites.dims import Dim, Shape, Symbols
from onnxfuse.rewrites.fragment import GivenAxes, RefusalError
from onnxfuse.rewrites.products import scaled
from onnxfuse.rewrites.views import View

__all__ = ["Entries", "Place", "Shown", "Space"]

# For each dimension of a value: the dimensions of the space (by number) that make it up, none where its extent is 1.
Entries: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Place:
    """The index along one dimension of a tensor: start + step * (row-major index over `dims`)."""

    dims: tuple[int, ...] = ()
    start: int = 0
    step: int = 1


@dataclass(frozen=True)
class Shown:
    """The dimensions whose extents the tensors that a value depends on show, and those that they show in parts.

    Where a tensor of symbolic extent is read along a larger dimension, it may be 1, and broadcast, at run time.
    """

    wholly: frozenset[int] = frozenset()
    partly: Mapping[int, frozenset[Dim]] = field(default_factory=dict)


@dataclass
class Space:
    """The dimensions of a region, in order; numbers stay when others are inserted or one is split.

    `distance` is how far from the right end each stood where it first came up. `rolled` are dimensions that no loop
    runs over and that are in no order: each is the row-major index over some that are, plus a shift, modulo its extent.
    Where axes are `given` by a run, `named` are the dimensions that they can name, in their order: all that there are.
    """

    symbols: Symbols
    order: list[int] = field(default_factory=list)
    extents: dict[int, Dim] = field(default_factory=dict)
    distance: dict[int, int] = field(default_factory=dict)
    splits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    reduced: frozenset[int] = frozenset()
    rolled: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    given: GivenAxes | None = None
    named: tuple[int, ...] = ()

    def copy(self) -> Space:
        """A copy to try something on."""
        return Space(
            self.symbols,
            list(self.order),
            dict(self.extents),
            dict(self.distance),
            dict(self.splits),
            self.reduced,
            dict(self.rolled),
            self.given,
            self.named,
        )

    def give(self, axes: GivenAxes, dims: tuple[int, ...]) -> None:
        """Has a run's axes name these dimensions. Raises RefusalError."""
        if self.given is not None and (self.given, self.named) != (axes, dims):
            raise RefusalError("its axes are not those of the rest of the region, or may not be")
        if self.reduced:
            raise RefusalError("it reduces other axes than the rest of the region")
        if self.rolled or sorted(dims) != sorted(self.order):
            raise RefusalError("the region has dimensions that its axes cannot name")
        self.given, self.named = axes, dims

    def check_free(self, what: str) -> None:
        """Refuses what would change the dimensions that a run's axes name."""
        if self.given is not None:
            raise RefusalError(f"{what} dimensions of a region whose axes arrive with a run")

    def walk(self) -> list[int]:
        """The dimensions as a kernel walks them, with the reduced ones next to each other.

        Of those between reduced ones it makes outer ones: neighbours in memory stay the innermost.
        """
        if not self.reduced:
            return list(self.order)
        last = max(k for k, d in enumerate(self.order) if d in self.reduced) + 1
        outer = [d for d in self.order[:last] if d not in self.reduced]
        return [*outer, *(d for d in self.order if d in self.reduced), *self.order[last:]]

    @property
    def gathers(self) -> bool:
        """Whether the reduced dimensions have others between them."""
        return self.walk() != self.order

    def current(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Dimensions as they are now, those that were split in their parts."""
        if not any(d in self.splits for d in dims):
            return dims
        return tuple(part for d in dims for part in (self.current(self.splits[d]) if d in self.splits else (d,)))

    def bases(self, dims: Iterable[int]) -> tuple[int, ...]:
        """The dimensions, as they are now, that these depend on: themselves, or those that they roll over."""
        return tuple(
            base
            for d in self.current(tuple(dims))
            for base in (self.bases(self.rolled[d][0]) if d in self.rolled else (d,))
        )

    def roll(self, dims: tuple[int, ...], shift: int) -> tuple[int, ...]:
        """Dimensions whose index is that over `dims` plus `shift`, modulo their extent. Raises RefusalError."""
        self.check_free("it rolls")
        base, before = self.rolled[dims[0]] if len(dims) == 1 and dims[0] in self.rolled else (dims, 0)
        base, extent = self.current(base), self.extent(dims)
        if not base or not isinstance(extent, int) or any(d in self.rolled for d in base):
            raise RefusalError("it rolls a dimension whose extent is not static, or that is rolled in parts")
        if self.reduced & set(base):
            raise RefusalError("it rolls what the region reduces")
        shift = (before + shift) % extent
        if shift == 0:
            return base
        for d, (own, own_shift) in self.rolled.items():
            if self.current(own) == base and own_shift == shift:
                return (d,)
        new = len(self.extents)
        self.extents[new], self.distance[new], self.rolled[new] = extent, self.distance[base[-1]], (base, shift)
        return (new,)

    def rebase(self, rolled: int) -> int:
        """Makes a rolled dimension one of the order, and the one that it rolls over, and others do, a rolled one."""
        base, shift = self.rolled[rolled]
        base = self.current(base)
        users = [d for d, (own, _) in self.rolled.items() if base[0] in self.current(own)]
        if len(base) > 1 or any(self.current(self.rolled[d][0]) != base for d in users):
            raise RefusalError("it reshapes what is rolled in parts")
        self.order[self.order.index(base[0])] = rolled
        self.rolled[base[0]] = ((rolled,), -shift % int(self.extents[rolled]))
        del self.rolled[rolled]
        for d in users:
            if d == rolled:
                continue
            moved = (self.rolled[d][1] - shift) % int(self.extents[rolled])
            self.rolled[d] = ((rolled,), moved)
        return rolled

    def extent(self, dims: tuple[int, ...]) -> Dim:
        """The extent of a row-major product of dimensions."""
        product: Dim = 1
        for d in dims:
            product = scaled(product, self.extents[d])
        return product

    def row_major(self, outer: Place, inner: Place, extent: Dim) -> Place:
        """The index along a dimension made up of two, of which the inner one has an extent."""
        if not isinstance(extent, int):
            if outer.start or outer.step != 1 or inner.start or inner.step != 1 or self.extent(inner.dims) != extent:
                raise RefusalError("it reshapes a slice along a dimension whose extent is not static")
            return Place(outer.dims + inner.dims)
        start, step = outer.start * extent + inner.start, outer.step * extent
        if not inner.dims or not outer.dims:
            return Place(outer.dims + inner.dims, start, step if outer.dims else inner.step)
        if step != inner.step * self.extent(inner.dims):
            raise RefusalError("it reshapes a slice")
        return Place(outer.dims + inner.dims, start, inner.step)

    def insert(self, place: int, extent: Dim, distance: int) -> int:
        """A new dimension at a place of the order."""
        new = len(self.extents)
        self.extents[new], self.distance[new] = extent, distance
        self.order.insert(place, new)
        return new

    def replace(self, d: int, others: tuple[int, ...]) -> None:
        """Makes a dimension the row-major product of others."""
        self.check_free("it reshapes")
        self.order.remove(d)
        self.splits[d] = others
        self.reduced -= {d}

    def split(self, d: int, extents: Sequence[Dim]) -> tuple[int, ...]:
        """Splits a dimension in parts, the outermost first."""
        self.check_free("it reshapes")
        if d in self.rolled:
            self.rebase(d)
        place = self.order.index(d)
        parts = []
        for k, extent in enumerate(extents):
            parts.append(self.insert(place + k, extent, self.distance[d]))
        self.order.remove(d)
        self.splits[d] = tuple(parts)
        if d in self.reduced:
            self.reduced = (self.reduced - {d}) | set(parts)
        return tuple(parts)

    def assign(
        self, dims: tuple[int, ...], pieces: tuple[int, ...], view: View, parts: dict[int, tuple[int, ...]]
    ) -> None:
        """Divides the dimensions that make up a tensor's dimension among the pieces of a view, splitting some."""
        if len(pieces) == 1:
            parts[pieces[0]] = dims
            return
        if not pieces:
            if any(self.extents[d] != 1 for d in dims):
                raise RefusalError("a dimension that is not known to be 1 is squeezed away")
            if dims:
                raise RefusalError("a dimension that a reduction needs is squeezed away")
            return
        waiting = list(dims)
        for p in pieces:
            taken: list[int] = []
            missing: Dim = view.extents[p]
            while missing != 1:
                if not waiting:
                    raise RefusalError("it reshapes in a way that does not fit the region")
                d = waiting.pop(0)
                extent = self.extents[d]
                if extent == missing:
                    taken.append(d)
                    missing = 1
                elif isinstance(extent, int) and isinstance(missing, int) and missing % extent == 0:
                    taken.append(d)
                    missing //= extent
                elif isinstance(extent, int) and isinstance(missing, int) and extent % missing == 0:
                    first, rest = self.split(d, (missing, extent // missing))
                    taken.append(first)
                    waiting.insert(0, rest)
                    missing = 1
                elif isinstance(extent, str) and len(dims) == 1 and not taken and p == pieces[0]:
                    made = self.split(d, [view.extents[q] for q in pieces])
                    parts.update({q: (m,) for q, m in zip(pieces, made, strict=True)})
                    return
                else:
                    raise RefusalError("it reshapes in a way that does not fit the region")
            parts[p] = tuple(taken)
        if waiting:
            raise RefusalError("it reshapes in a way that does not fit the region")

    def backward(self, view: View, target: Sequence[Place], shape: Shape) -> list[Place]:
        """How the source of a view is read, given how the view is; `shape` is the source's."""
        parts: dict[int, tuple[int, ...]] = {}
        moved: dict[int, Place] = {}
        for place, pieces in zip(target, view.target, strict=True):
            if place.start == 0 and place.step == 1:
                if place.dims or len(pieces) <= 1:
                    self.assign(place.dims, pieces, view, parts)
            elif len(pieces) == 1:
                moved[pieces[0]] = place
            else:
                raise RefusalError("it reshapes a slice")
        result = []
        for k, pieces in enumerate(view.source):
            place = Place()
            for p in pieces:
                inner = moved.get(p) or Place(self.current(parts.get(p, ())))
                place = self.row_major(place, inner, view.extents[p]) if place != Place() else inner
            whole = len(place.dims) <= 1 and place.start == 0 and place.step == 1
            if len(pieces) == 1 and place.dims and isinstance(full := view.extents[pieces[0]], int):
                whole = whole and self.extent(place.dims) == full
            if not whole and len(pieces) == 1 and k not in view.cuts and shape[k] != view.extents[pieces[0]]:
                raise RefusalError("it reads a part of what may be broadcast")  # a symbol that may be 1, expanded
            if k in view.rolls:
                if place != Place(place.dims) or self.extent(place.dims) != shape[k]:
                    raise RefusalError("it shows a part of what is rolled")
                place = Place(self.roll(place.dims, view.rolls[k]))
            if k in view.cuts:
                start, step = view.cuts[k]
                place = Place(place.dims, start + step * place.start, step * place.step)
            result.append(place)
        return result

    def fill(
        self, shape: Shape, fixed: Sequence[tuple[int, ...] | None], forced: Sequence[int], *, may_grow: bool
    ) -> Entries:
        """Space dimensions for the positions that nothing decides yet; `forced` ones get one even at extent 1.

        Of several dimensions with the right extent, the one is taken that stood as far from the right end where it
        first came up, as ONNX aligns shapes; else the last one that no other position is more like.
        """
        result: list[tuple[int, ...]] = [dims or () for dims in fixed]
        for p in reversed(range(len(shape))):
            extent, distance = shape[p], len(shape) - p
            if result[p] or (extent == 1 and p not in forced):
                continue
            before = max((self.order.index(d) for dims in result[:p] for d in self.bases(dims)), default=-1)
            after = min(
                (self.order.index(d) for dims in result[p + 1 :] for d in self.bases(dims)), default=len(self.order)
            )
            after = max(after, before + 1)
            used = {d for dims in result for d in self.bases(dims)}
            free = [d for d in self.order[before + 1 : after] if d not in used and self.extents[d] == extent]
            # A dimension that stood where this shape has another open position of that extent belongs there.
            open_ = {len(shape) - q for q in range(p) if not result[q] and shape[q] == extent}
            free = [d for d in free if self.distance[d] not in open_] or (free if self.reduced else [])
            if free:
                result[p] = (next((d for d in free if self.distance[d] == distance), free[-1]),)
                continue
            if self.reduced or self.given is not None:
                raise RefusalError("its shape is not that of the region, whose reduction would have to be repeated")
            if self.order and not may_grow:
                raise RefusalError("it broadcasts the region to a larger shape, where its work would be repeated")
            # Next to its neighbours; of the free places there, after the dimensions that stood further left.
            place = next((k for k in range(before + 1, after) if self.distance[self.order[k]] < distance), after)
            result[p] = (self.insert(min(place, len(self.order)), extent, distance),)
        return tuple(result)
