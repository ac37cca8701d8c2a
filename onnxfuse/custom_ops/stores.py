"""Index maps of outputs in standard operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxfuse.custom_ops.emit import Emitter, NoFunctionError
from onnxfuse.custom_ops.layout import Space, Value
from onnxfuse.custom_ops.program import FIRST_ROLL, Entry, Output
from onnxfuse.custom_ops.spell_axes import store_over
from onnxfuse.custom_ops.types import value_type

__all__ = ["Part", "store"]

# An output statement, the space of its kernel and the value that it stores.
Part = tuple[Output, Space, Value]


def store(emitter: Emitter, parts: Sequence[Part]) -> str:
    """The tensor that all outputs with its number fill together.

    Raises:
        NoFunctionError: the opset cannot say it.
    """
    type_ = parts[0][0].type
    if len(parts) == 1:
        name = _whole(*parts[0])
    else:
        axes = [axis for axis in range(len(parts[0][0].map)) if all(_stacks(part[0], axis) for part in parts)]
        name = _stacked(emitter, parts, axes[0]) if axes else _scattered(emitter, parts)
    return emitter.cast(name, value_type(type_), type_)


def _whole(output: Output, space: Space, value: Value) -> str:
    """One value that fills the tensor."""
    if space.kernel.axes is not None:
        return store_over(space, space.kernel.axes, output, value)
    if any(k >= FIRST_ROLL for entry in output.map for k, _ in entry.terms):
        return _unrolled(output, space, value)
    dims = [k for entry in output.map for k in _descending(entry)]
    value = space.spread(value, dims)
    if _in_place(output, space, value, dims):
        return value.name
    name = space.arranged(value, dims)
    scales = dict(term for entry in output.map for term in entry.terms)
    for place, k in enumerate(dims):
        if scales[k] < 0:
            name = _reversed(space, name, place, k)
    return _with_axes_of(space, name, output)


def _extent(space: Space, entry: Entry) -> int | str:
    """The extent of several dimensions as one: a number, or a vector of one int64 where only a run shows it."""
    if not (counted := space.kernel.counted(entry)):
        return entry.extent or 0
    return space.emitter.node("Mul", [space.extent(counted[0]), space.emitter.ints([counted[1]])])


def _with_axes_of(space: Space, name: str, output: Output) -> str:
    """From an axis for each term to one for each entry of the output's map."""
    e = space.emitter
    groups = [len(entry.terms) for entry in output.map if entry.terms]
    if max(groups, default=0) > 1:
        name = _merged(e, name, groups, [_extent(space, entry) for entry in output.map if entry.terms])
    return e.unsqueeze(name, [axis for axis, entry in enumerate(output.map) if not entry.terms])


def _merged(e: Emitter, name: str, groups: Sequence[int], extents: Sequence[int | str]) -> str:
    """The tensor with each group of neighbouring axes as one, of that extent (where the group has several axes).

    What stays an axis is in front of what becomes one while that happens: Reshape leaves a dimension as it is only
    where it keeps its number, and an extent that is not known before the run may be 0, which has no other spelling
    before opset 14.
    """
    first = [sum(groups[:k]) for k in range(len(groups))]
    order = sorted(range(len(groups)), key=lambda k: groups[k] > 1)
    name = e.transpose(name, [first[k] + i for k in order for i in range(groups[k])])
    shape = [0 if groups[k] == 1 else extents[k] for k in order]
    known = [extent for extent in shape if isinstance(extent, int)]
    parts = [e.ints([extent]) if isinstance(extent, int) else extent for extent in shape]
    name = e.reshape(name, e.ints(known) if len(known) == len(shape) else e.concat(parts, 0))
    return e.transpose(name, [order.index(k) for k in range(len(groups))])


def _unrolled(output: Output, space: Space, value: Value) -> str:
    """One value that fills the tensor, through rolls: laid out with an axis for each term first."""
    e, kernel = space.emitter, space.kernel
    indices = [k for entry in output.map for k in _descending(entry)]
    name = space.arranged(value, [d for k in indices for d in kernel.behind(k)])
    behind = [len(kernel.behind(k)) for k in indices]
    if max(behind) > 1:
        name = _merged(e, name, behind, [kernel.extent(k) or 0 for k in indices])
    scales = dict(term for entry in output.map for term in entry.terms)
    for axis, k in enumerate(indices):
        if k >= FIRST_ROLL:
            points = kernel.extent(k) or 0
            name = e.roll(name, axis, points - kernel.rolls[k - FIRST_ROLL].shift, points)
            if scales[k] < 0:
                name = e.gather(name, e.ints(range(points - 1, -1, -1)), axis)
        elif scales[k] < 0:
            name = _reversed(space, name, axis, k)
    return _with_axes_of(space, name, output)


def _in_place(output: Output, space: Space, value: Value, dims: Sequence[int]) -> bool:
    """True where the value's axes are the tensor's as they are."""
    axes = space.axes(value.rank)
    if len(axes) != len(output.map):
        return False
    pairs = zip(axes, output.map, strict=True)
    return all(entry.plain == k if entry.terms else k not in dims for k, entry in pairs)


def _descending(entry: Entry) -> list[int]:
    return [k for k, _ in sorted(entry.terms, key=lambda term: -abs(term[1]))]


def _reversed(space: Space, name: str, axis: int, k: int) -> str:
    e = space.emitter
    extent = space.kernel.extents[k]
    if e.opset >= 10:
        return e.slice(name, [axis], [-1], [None], [-1])
    if extent is None:
        e.require("Slice with steps", 10)
    return e.gather(name, e.ints(range((extent or 0) - 1, -1, -1)), axis)


def _stacks(output: Output, axis: int) -> bool:
    """True where the output is a part of the tensor cut across this axis alone."""
    others = [entry for place, entry in enumerate(output.map) if place != axis]
    whole = all(entry.extent is None and len(entry.terms) < 2 for entry in others)
    terms = output.map[axis].terms
    return whole and (not terms or (len(terms) == 1 and terms[0][1] == 1 and terms[0][0] < FIRST_ROLL))


def _stacked(e: Emitter, parts: Sequence[Part], axis: int) -> str:
    names = []
    for output, space, value in sorted(parts, key=lambda part: part[0].map[axis].offset):
        dims = [k for entry in output.map for k, _ in entry.terms]
        name = space.arranged(value, dims)
        names.append(e.unsqueeze(name, [place for place, entry in enumerate(output.map) if not entry.terms]))
    return e.concat(names, axis)


def _scattered(e: Emitter, parts: Sequence[Part]) -> str:
    """Any parts: each element to its number in the flat tensor."""
    shape = _shape(e, parts)
    numbers, elements = [], []
    for output, space, value in parts:
        dims = sorted(space.kernel.dims(*output.map))
        number = e.constant(np.zeros((), np.int64))
        for axis, entry in enumerate(output.map):
            indices = space.index(entry, dims)
            behind = range(axis + 1, len(output.map))
            if behind:
                indices = e.node("Mul", [indices, e.reduce("ReduceProd", e.gather(shape, e.ints(behind), 0), [0])])
            number = e.node("Add", [number, indices])
        numbers.append(e.flat(number))
        elements.append(e.flat(space.arranged(value, dims)))
    element, number = e.concat(elements, 0), e.concat(numbers, 0)
    e.require("Scatter", 9)
    # Every element is stored once, so the tensor that is overwritten may hold anything of that size.
    flat = e.node("ScatterElements" if e.opset >= 11 else "Scatter", [element, number, element], axis=0)
    return e.reshape(flat, shape, zeros=True)


def _shape(e: Emitter, parts: Sequence[Part]) -> str:
    """A vector of int64: the tensor's shape, each extent from the first part that knows it."""
    extents: list[int | str] = []
    for axis in range(len(parts[0][0].map)):
        unknown: str | None = None
        known: int | None = None
        for output, space, _ in parts:
            entry = output.map[axis]
            natural = 1 if not entry.terms else None if entry.plain is None else space.kernel.extents[entry.plain]
            extent = natural if entry.extent is None else entry.extent
            if extent is not None:
                known = extent
            elif unknown is None and entry.plain is not None:
                unknown = space.extent(entry.plain)
        if known is None and unknown is None:
            raise NoFunctionError(f"the extent of dimension {axis} of output {parts[0][0].tensor} is not known")
        extents.append(known if known is not None else str(unknown))
    static = [extent for extent in extents if isinstance(extent, int)]
    if len(static) == len(extents):
        return e.ints(static)
    return e.concat([e.ints([extent]) if isinstance(extent, int) else extent for extent in extents], 0)
