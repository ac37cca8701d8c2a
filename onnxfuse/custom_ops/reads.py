"""Index maps of inputs in standard operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from onnxfuse.custom_ops.layout import FULL, Source, Space, Value
from onnxfuse.custom_ops.program import FIRST_ROLL, Entry, Input
from onnxfuse.custom_ops.types import value_type

__all__ = ["read"]

_REST = 2**31 - 1  # the end of a slice that takes all that is left


def read(space: Space, statement: Input) -> Value:
    """The value of an input statement.

    Raises:
        NoFunctionError: the opset cannot say it.
    """
    type_ = value_type(statement.type)
    x = space.emitter.cast(space.inputs[statement.tensor], statement.type, type_)
    original, (statement, x) = statement, _rolled(space, statement, x)
    dims = space.kernel.dims(*statement.map)
    if len(set(dims)) < len(dims):
        name, sources = _diagonal(space, statement, x)
    elif _in_place(space, statement):
        parts = [(axis, entry) for axis, entry in enumerate(statement.map) if entry.whole is None]
        starts = [entry.offset for _, entry in parts]
        counts = [1 if entry.plain is None else space.kernel.extents[entry.plain] or 0 for _, entry in parts]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        name = space.emitter.slice(x, [axis for axis, _ in parts], starts, ends, [1] * len(parts))
        sources = {
            entry.plain: frozenset((FULL if entry.whole is None else (statement.tensor, axis),))
            for axis, entry in enumerate(statement.map)
            if entry.plain is not None
        }
        return Value(name, type_, len(statement.map), sources)
    else:
        name, dims, sources = _separable(space, statement, x)
        name = space.emitter.transpose(name, [dims.index(k) for k in sorted(dims)])
    rolled = [entry for entry in original.map if entry.roll is not None]
    sources.update(dict.fromkeys(space.kernel.dims(*rolled), frozenset((FULL,))))
    if not dims:
        return Value(name, type_)
    rank = space.rank - min(dims)
    name = space.emitter.unsqueeze(name, [place for place, k in enumerate(space.axes(rank)) if k not in dims])
    return Value(name, type_, rank, sources)


def _rolled(space: Space, statement: Input, x: str) -> tuple[Input, str]:
    """The tensor rolled along the axes that stand for a roll, which then are read without one."""
    map_ = list(statement.map)
    for axis, entry in enumerate(map_):
        if entry.roll is None:
            continue
        roll, points = space.kernel.rolls[entry.roll - FIRST_ROLL], space.kernel.extent(entry.roll) or 0
        x = space.emitter.roll(x, axis, roll.shift, points)
        terms: list[tuple[int, int]] = []
        scale = 1
        for k in reversed(roll.dims):
            terms.append((k, scale))
            scale *= space.kernel.extents[k] or 0
        map_[axis] = Entry(tuple(sorted(terms)))
    return replace(statement, map=tuple(map_)), x


def _in_place(space: Space, statement: Input) -> bool:
    """True where the tensor's axes stand for the last dimensions of the space as they are."""
    rank = len(statement.map)
    if rank > space.rank:
        return False
    pairs = zip(space.axes(rank), statement.map, strict=True)
    return all(entry.plain == k or not entry.terms for k, entry in pairs)


def _separable(space: Space, statement: Input, x: str) -> tuple[str, list[int], dict[int, frozenset[Source]]]:
    """Each axis for itself: a Slice for a range, a Gather for the rest. Gives the dimensions of the result's axes."""
    e = space.emitter
    ranges = [_range(space, entry) for entry in statement.map]
    sliced = [(axis, *range_) for axis, range_ in enumerate(ranges) if range_]
    if sliced:
        axes, starts, ends, steps = zip(*sliced, strict=True)
        x = e.slice(x, axes, starts, ends, steps)
    dims: list[int] = []
    sources: dict[int, frozenset[Source]] = {}
    for axis in reversed(range(len(statement.map))):
        entry = statement.map[axis]
        own = space.kernel.dims(entry)
        digits = _digits(space, entry)
        if digits and axis == len(statement.map) - 1:
            total = math.prod(digits)
            x = e.slice(x, [axis], [entry.offset], [entry.offset + total], [1])
            x = e.reshape(x, e.ints([0] * axis + digits))  # 0: as it is
        elif e.opset >= 14 and (counted := space.kernel.counted(entry)):
            x = _taken_apart(space, x, axis, counted[0], own)
        elif entry.whole is None and ranges[axis] is None:
            x = e.gather(x, space.index(entry, own), axis)
        dims = own + dims
        for k in own:
            sources[k] = frozenset((FULL if entry.whole is None else (statement.tensor, axis),))
    return x, dims, sources


def _taken_apart(space: Space, x: str, axis: int, unknown: int, dims: Sequence[int]) -> str:
    """x with the axis as several, of the extents of the dimensions, one of which only a run shows."""
    e = space.emitter
    shape = e.node("Shape", [x])
    extents = [space.extent(k) if k == unknown else e.ints([space.kernel.extents[k] or 0]) for k in dims]
    before = [e.slice(shape, [0], [0], [axis], [1])] if axis else []
    return e.reshape(x, e.concat([*before, *extents, e.slice(shape, [0], [axis + 1], [_REST], [1])], 0), zeros=True)


def _range(space: Space, entry: Entry) -> tuple[int, int | None, int] | None:
    """Start, end and step, where the indices are those of a Slice and known."""
    if entry.whole is not None or len(entry.terms) != 1:
        return None
    k, step = entry.terms[0]
    extent = space.kernel.extents[k] if k < FIRST_ROLL else None
    if not extent or (step != 1 and space.emitter.opset < 10):
        return None
    last = entry.offset + step * (extent - 1)
    if last < 0:
        return None
    end = last + (1 if step > 0 else -1)
    return entry.offset, None if end < 0 else end, step


def _digits(space: Space, entry: Entry) -> list[int]:
    """The extents of an entry's dimensions, where its indices are the numbers that these count up; else none."""
    extents: list[int] = []
    weight = 1
    for k, scale in reversed(entry.terms):
        extent = space.kernel.extents[k] if k < FIRST_ROLL else None
        if not extent or scale != weight or len(entry.terms) < 2:
            return []
        extents.insert(0, extent)
        weight *= extent
    return extents


def _diagonal(space: Space, statement: Input, x: str) -> tuple[str, dict[int, frozenset[Source]]]:
    """A dimension in several entries: elements of the flat tensor by number. Axes are in the order of dimensions."""
    e = space.emitter
    dims = sorted(set(space.kernel.dims(*statement.map)))
    shape = e.node("Shape", [x])
    number: str | None = None
    for axis, entry in enumerate(statement.map):
        indices = space.index(entry, dims)
        if entry.whole is not None:
            e.require("Mod", 10)
            indices = e.node("Mod", [indices, e.extent(x, axis)])  # an extent of 1 is broadcast
        behind = range(axis + 1, len(statement.map))
        if behind:
            stride = e.reduce("ReduceProd", e.gather(shape, e.ints(behind), 0), [0])
            indices = e.node("Mul", [indices, stride])
        number = indices if number is None else e.node("Add", [number, indices])
    assert number
    return e.gather(e.flat(x), number, 0), {k: frozenset((FULL,)) for k in dims}
