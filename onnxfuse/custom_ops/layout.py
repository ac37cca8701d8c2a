"""Values of a kernel as tensors: how they lie in the iteration space, and how far they are broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from onnxfuse.custom_ops.emit import Emitter
from onnxfuse.custom_ops.program import FIRST_ROLL, Entry, Input, Kernel, Roll
from onnxfuse.custom_ops.spell import spell
from onnxfuse.custom_ops.types import to_numpy

__all__ = ["FULL", "Space", "Value"]

# A tensor's axis that is read through a plain dk; FULL stands for an axis that surely has the extent of dk.
Source = tuple[int, int]
FULL: Source = (-1, -1)

# Indices that a program's constants hold as one table; larger ones are added up at run time.
_LARGEST_TABLE = 4096


@dataclass(frozen=True)
class Value:
    """A tensor whose axes are the last `rank` dimensions of the space, of extent 1 where the value does not depend.

    `sources` says, for each dimension it depends on, which axes of input tensors show in its extent: at run time a
    tensor of extent 1 is broadcast, so that the value has the dimension's extent only where all of them are in it.
    """

    name: str
    type: str
    rank: int = 0
    sources: Mapping[int, frozenset[Source]] = field(default_factory=dict)


class Space:
    """A kernel's dimensions as the emitter needs them: extents that may be known at run time only."""

    def __init__(self, emitter: Emitter, kernel: Kernel, inputs: Sequence[str]) -> None:
        self.emitter = emitter
        self.kernel = kernel
        self.inputs = inputs
        self.shown: dict[int, set[Source]] = {}
        self.counted: dict[int, tuple[Source, int]] = {}  # that show in an extent as many times as the number says
        for statement in kernel.statements:
            if not isinstance(statement, Input):
                continue
            for axis, entry in enumerate(statement.map):
                if entry.whole is not None:
                    self.shown.setdefault(entry.whole, set()).add((statement.tensor, axis))
                elif counted := kernel.counted(entry):
                    self.counted[counted[0]] = ((statement.tensor, axis), counted[1])

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.kernel.rank

    def axes(self, rank: int) -> range:
        """The dimensions that the axes of a value of this rank stand for."""
        return range(self.rank - rank, self.rank)

    def extent(self, k: int) -> str:
        """A vector of one int64: the extent of dk."""
        static = self.kernel.extents[k]
        if static is not None:
            return self.emitter.ints([static])
        e = self.emitter
        if k in self.counted:
            (tensor, axis), times = self.counted[k]
            return e.node("Div", [e.extent(self.inputs[tensor], axis), e.ints([times])])
        extents = [e.extent(self.inputs[tensor], axis) for tensor, axis in sorted(self.shown[k])]
        if len(extents) == 1:
            return extents[0]
        # The one that is not 1, if there is one: the largest, but 0 where one is 0.
        wide = "i64" if e.opset >= 12 else "f32"  # no Max of integers before
        parts = [e.cast(x, "i64", wide) for x in extents]
        one = e.cast(e.ints([1]), "i64", wide)
        found = e.node("Mul", [e.node("Max", parts), e.node("Min", [*parts, one])])
        return e.cast(found, wide, "i64")

    def shape(self, dims: Sequence[int | None]) -> str:
        """A vector of int64: the extents of the dimensions, 1 for None."""
        static = [1 if k is None else self.kernel.extents[k] for k in dims]
        known = [extent for extent in static if extent is not None]
        if len(known) == len(static):
            return self.emitter.ints(known)
        return self.emitter.concat([self.emitter.ints([1]) if k is None else self.extent(k) for k in dims], 0)

    def index(self, entry: Entry, dims: Sequence[int]) -> str:
        """The entry's indices, int64, as a tensor whose axes are `dims`.

        The extent of those that the entry lacks is 1; leading ones may be left out.
        """
        e = self.emitter
        static = np.array(entry.offset, np.int64)
        pieces: list[str] = []
        for k, scale in entry.terms:
            if k >= FIRST_ROLL:
                pieces.append(e.constant(scale * self._rolled(self.kernel.rolls[k - FIRST_ROLL], dims)))
                continue
            behind = len(dims) - 1 - dims.index(k)
            extent = self.kernel.extents[k]
            if extent is None:
                count = e.count(self.extent(k))
                scaled = count if scale == 1 else e.node("Mul", [count, e.constant(np.array(scale))])
                pieces.append(e.unsqueeze(scaled, range(1, 1 + behind)))
                continue
            column = scale * np.arange(extent, dtype=np.int64).reshape(-1, *(1,) * behind)
            if static.size * column.size <= _LARGEST_TABLE:
                static = static + column
            else:
                pieces.append(e.constant(column))
        if static.ndim or entry.offset or not pieces:
            pieces.append(e.constant(static))
        total = pieces[0]
        for piece in pieces[1:]:
            total = e.node("Add", [total, piece])
        return total

    def _rolled(self, roll: Roll, dims: Sequence[int]) -> npt.NDArray[np.int64]:
        """A roll's indices as an array whose axes are `dims`, of extent 1 where they are not those of the roll."""
        extents = [self.kernel.extents[k] or 0 for k in roll.dims]
        table = (np.arange(math.prod(extents), dtype=np.int64) + roll.shift) % math.prod(extents)
        order = sorted(range(len(roll.dims)), key=lambda place: dims.index(roll.dims[place]))
        shape = [self.kernel.extents[k] or 0 if k in roll.dims else 1 for k in dims]
        return table.reshape(extents).transpose(order).reshape(shape)

    def spread(self, value: Value, dims: Sequence[int]) -> Value:
        """The value with the full extent of each of the dimensions."""
        wanted = [k for k in dims if not self.full(value, k)]
        if not wanted:
            return value
        rank = max(value.rank, self.rank - min(wanted))
        shape = self.shape([k if k in wanted else None for k in self.axes(rank)])
        name = self._expand(value, shape)
        return Value(name, value.type, rank, {**value.sources, **dict.fromkeys(wanted, frozenset((FULL,)))})

    def _expand(self, value: Value, shape: str) -> str:
        static = self.emitter.constant_value(shape)
        if self.emitter.opset >= 8 or static is None:
            return self.emitter.expand(value.name, shape)
        # Opset 7 has no Expand; a product with ones leaves every element as it is.
        ones = self.emitter.constant(np.ones(static, to_numpy(value.type)))
        return spell(self.emitter, "and" if value.type == "bool" else "mul", value.type, [value.name, ones])

    def full(self, value: Value, k: int) -> bool:
        """True where the value surely has an axis with the extent of dk."""
        if k not in self.axes(value.rank):
            return False
        if self.kernel.extents[k] == 1:
            return True
        sources = value.sources.get(k, frozenset())
        return FULL in sources or (k in self.shown and self.shown[k] <= sources)

    def arranged(self, value: Value, dims: Sequence[int]) -> str:
        """The value as a tensor whose axes are the dimensions, in that order, in full extent.

        The value depends on no other dimension.
        """
        value = self.spread(value, dims)
        axes = list(self.axes(value.rank))
        name = self.emitter.squeeze(value.name, [place for place, k in enumerate(axes) if k not in dims])
        kept = [k for k in axes if k in dims]
        return self.emitter.transpose(name, [kept.index(k) for k in dims])
