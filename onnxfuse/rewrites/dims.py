"""Dimensions of shapes that may be symbolic, and the little algebra that fusion needs of them.

A dimension is an int, or a str: a symbol of the model (equal names are equal extents), an expression over symbols
that says how the extent came about (equal expressions are equal extents), or a fresh symbol that equals nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeAlias

__all__ = ["INVENTED", "Dim", "Shape", "Symbols", "element_count", "reaches_end", "stated"]

# Characters of an expression that is kept readable; nested ones would grow without bound.
_LONG = 80

# What ONNX's inference calls a dimension that it knows nothing of: another one in each run.
INVENTED = "unk__"

Dim: TypeAlias = int | str
Shape: TypeAlias = tuple[Dim, ...]


class Symbols:
    """Makes fresh symbols and broadcasts shapes; remembers what a broadcast of unknown outcome came from."""

    def __init__(self) -> None:
        self._counter = itertools.count()
        self._parts: dict[str, frozenset[Dim]] = {}
        self._left: dict[tuple[str, int, bool, int, Dim], str] = {}
        self._whole: dict[Dim, Dim] = {}
        self._first: dict[Dim, Dim] = {}
        self._short: dict[str, str] = {}

    def fresh(self) -> str:
        """A symbol that equals no other."""
        return f"?{next(self._counter)}"

    def left_by(self, axes: str, rank: int, noop: bool, k: int, extent: Dim) -> Dim:
        """What a reduction leaves of dimension `k`, of that extent, where the tensor `axes` says in a run what it
        reduces: 1 or the whole extent. The same symbol for the same axes of a tensor of the same rank; where how many
        there are is not known either, `noop` says whether none leave everything.
        """
        if extent == 1:
            return 1
        name = self._left.setdefault((axes, rank, noop, k, extent), self.fresh())
        self._whole[name] = extent
        return name

    def whole(self, dim: Dim) -> Dim | None:
        """The extent of which a run's axes leave `dim`; None where it is no such symbol."""
        return self._whole.get(dim)

    def first(self, extent: int, wanted: str) -> str:
        """How many elements a slice of the first `wanted` takes of `extent`, 1 or more: so many, where there are.

        Broadcast together with `wanted`, they give `wanted` or fail, as they are fewer only where that is above 1.
        """
        name = f"slice({extent},0,{wanted},1)"
        self._first[name] = wanted
        return name

    def named(self, name: str) -> str:
        """The symbol of a name that the model gives; one that reads like an expression is not taken for one."""
        return self._shorten(name) if any(c in "*+-/(),:" for c in name) else name

    def shortened(self, shape: Shape | None) -> Shape | None:
        """The shape with long expressions replaced by symbols, the same one for equal expressions."""
        if shape is None or not any(isinstance(d, str) and len(d) > _LONG for d in shape):
            return shape
        return tuple(
            self._shorten(d) if isinstance(d, str) and len(d) > _LONG and not self._has_meaning(d) else d for d in shape
        )

    def _has_meaning(self, dim: Dim) -> bool:
        return dim in self._parts or dim in self._first

    def _shorten(self, expression: str) -> str:
        return self._short.setdefault(expression, f"!{len(self._short)}")

    def broadcast_dim(self, a: Dim, b: Dim) -> Dim:
        """The extent of two dimensions broadcast together; a symbol of its own where neither is known to win."""
        if a == b or b == 1:
            return a
        if a == 1:
            return b
        if a == self.whole(b):
            return a
        if b == self.whole(a):
            return b
        if isinstance(a, int):
            return a
        if isinstance(b, int):
            return b
        if self._first.get(b) in self.parts(a):
            return a
        if self._first.get(a) in self.parts(b):
            return b
        parts = self.parts(a) | self.parts(b)
        if parts == self.parts(a):
            return a
        if parts == self.parts(b):
            return b
        name = "max(" + ",".join(sorted(str(p) for p in parts)) + ")"
        self._parts[name] = parts
        return name

    def parts(self, dim: Dim) -> frozenset[Dim]:
        """The dimensions whose broadcast `dim` is."""
        return self._parts.get(dim, frozenset((dim,))) if isinstance(dim, str) else frozenset((dim,))

    def broadcast(self, shapes: Iterable[Shape]) -> Shape:
        """The shape of several operands broadcast together by ONNX's multidirectional rule."""
        result: Shape = ()
        for shape in shapes:
            rank = max(len(result), len(shape))
            a = (1,) * (rank - len(result)) + result
            b = (1,) * (rank - len(shape)) + shape
            result = tuple(self.broadcast_dim(x, y) for x, y in zip(a, b, strict=True))
        return result

    def fits(self, operand: Dim, extent: Dim) -> bool:
        """Whether a tensor dimension `operand` may be read along a space dimension of `extent`: equal, or broadcast."""
        return (
            operand in (1, extent)
            or self.whole(operand) == extent
            or self.parts(operand) <= self.parts(extent)
            or self._first.get(operand) in self.parts(extent)
            or (isinstance(extent, int) and isinstance(operand, str))
        )


def stated(dim: Dim) -> Dim | None:
    """The dimension as value_info may state it: an extent or a symbol of the model; None for all that was made up."""
    return dim if isinstance(dim, int) or (dim.isidentifier() and not dim.startswith(INVENTED)) else None


def element_count(shape: Sequence[Dim]) -> int | None:
    """The number of elements of a static shape, else None."""
    return prod(d for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else None


def reaches_end(shape: Sequence[Dim], axis: int, end: Dim) -> bool:
    """Whether a slice up to `end` takes a symbolic dimension whole: no tensor that is longer would fit in memory."""
    if not isinstance(end, int):
        return end == shape[axis]
    others = prod(d for k, d in enumerate(shape) if k != axis and isinstance(d, int))
    return end >= 2**31 - 1 or end * max(others, 1) >= 2**38
