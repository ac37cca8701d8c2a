"""The iteration space of a region: its dimensions, how tensors are indexed by them, and what tensors show of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from onnxfuse.rewrites.dims import Dim, Symbols
from onnxfuse.rewrites.shape_values import scaled

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

    `distance` is how far from the right end each stood where it first came up.
    """

    symbols: Symbols
    order: list[int] = field(default_factory=list)
    extents: dict[int, Dim] = field(default_factory=dict)
    distance: dict[int, int] = field(default_factory=dict)
    splits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    reduced: frozenset[int] = frozenset()

    def copy(self) -> Space:
        """A copy to try something on."""
        return Space(
            self.symbols, list(self.order), dict(self.extents), dict(self.distance), dict(self.splits), self.reduced
        )

    def current(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Dimensions as they are now, those that were split in their parts."""
        if not any(d in self.splits for d in dims):
            return dims
        return tuple(part for d in dims for part in (self.current(self.splits[d]) if d in self.splits else (d,)))

    def extent(self, dims: tuple[int, ...]) -> Dim:
        """The extent of a row-major product of dimensions."""
        product: Dim = 1
        for d in dims:
            product = scaled(product, self.extents[d])
        return product

    def insert(self, place: int, extent: Dim, distance: int) -> int:
        """A new dimension at a place of the order."""
        new = len(self.extents)
        self.extents[new], self.distance[new] = extent, distance
        self.order.insert(place, new)
        return new

    def replace(self, d: int, others: tuple[int, ...]) -> None:
        """Makes a dimension the row-major product of others."""
        self.order.remove(d)
        self.splits[d] = others
        self.reduced -= {d}

    def split(self, d: int, extents: Sequence[Dim]) -> tuple[int, ...]:
        """Splits a dimension in parts, the outermost first."""
        place = self.order.index(d)
        parts = []
        for k, extent in enumerate(extents):
            parts.append(self.insert(place + k, extent, self.distance[d]))
        self.order.remove(d)
        self.splits[d] = tuple(parts)
        if d in self.reduced:
            self.reduced = (self.reduced - {d}) | set(parts)
        return tuple(parts)
