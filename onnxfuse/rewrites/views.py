"""Rearrangements of elements that a fused kernel reads or writes through: reshapes, transpositions, expansions, slices.

All are one thing: the source's and the target's dimensions, each written as a row-major product of common pieces.
`[N, 6, H] -> [N, 2, 3, H]` has the pieces N, 2, 3, H; the source's second dimension is (2, 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxfuse.rewrites.dims import Dim, Shape
from onnxfuse.rewrites.products import exact_quotient

__all__ = ["View", "expansion", "insertion", "reshape", "rolling", "slicing", "transposition"]

# The pieces, by number, that make up one dimension; none for a dimension of extent 1.
Pieces = tuple[int, ...]


@dataclass(frozen=True)
class View:
    """The source's and the target's dimensions in pieces, and the extents of the pieces.

    A piece that only the target has repeats the source along it. `cuts` are the source's dimensions of which the
    target shows a part: index in the source = start + step * (index in the target). `rolls` are those that the target
    shows from another start: index in the source = (index in the target + shift) modulo the extent.
    """

    source: tuple[Pieces, ...]
    target: tuple[Pieces, ...]
    extents: tuple[Dim, ...]
    cuts: Mapping[int, tuple[int, int]]
    rolls: Mapping[int, int] = field(default_factory=dict)

    def shape(self) -> Shape:
        """The target's shape, where each dimension has one piece at most or all its pieces are static."""
        result: list[Dim] = []
        for pieces in self.target:
            extent: Dim = 1
            for p in pieces:
                d = self.extents[p]
                extent = (
                    d
                    if extent == 1
                    else extent * d
                    if isinstance(extent, int) and isinstance(d, int)
                    else f"{extent}*{d}"
                )
            result.append(extent)
        return tuple(result)

    @property
    def trivial(self) -> bool:
        """Whether source and target are the same."""
        return self.source == self.target and not self.cuts and not self.rolls


def _whole(shape: Shape) -> tuple[Pieces, ...]:
    return tuple(() if d == 1 else (k,) for k, d in enumerate(shape))


def insertion(shape: Shape, entries: Sequence[int | None]) -> View:
    """Dimensions of extent 1 added (None) or left out, others in any order: entries[k] is the source's dimension."""
    pieces = _whole(shape)
    return View(pieces, tuple(() if e is None else pieces[e] for e in entries), shape, {})


def transposition(shape: Shape, perm: Sequence[int]) -> View:
    """Dimension k of the target is the source's dimension perm[k]."""
    return insertion(shape, perm)


def expansion(shape: Shape, target: Shape) -> View:
    """The source broadcast to `target`, which it is known to broadcast to."""
    shift = len(target) - len(shape)
    source = tuple(() if d == 1 else (k + shift,) for k, d in enumerate(shape))
    return View(source, _whole(target), target, {})


def slicing(shape: Shape, cuts: Mapping[int, tuple[int, int, int]]) -> View:
    """Along each axis of `cuts`, `count` elements from `start` in steps of `step`: axis -> (start, step, count)."""
    extents = tuple(cuts[k][2] if k in cuts else d for k, d in enumerate(shape))
    pieces = tuple(
        (k,) if k in cuts and extents[k] != 1 else () if extents[k] == 1 else (k,) for k in range(len(shape))
    )
    return View(pieces, pieces, extents, {k: (start, step) for k, (start, step, _) in cuts.items()})


def rolling(shape: Shape, axis: int, shift: int) -> View:
    """The elements along an axis from number `shift` on, then those before it."""
    pieces = _whole(shape)
    return View(pieces, pieces, shape, {}, {axis: shift})


def reshape(source: Shape, target: Shape) -> View | None:
    """The view of a reshape, or None where the shapes have no common pieces (or are not known to have)."""
    if 0 in source or 0 in target:
        return None
    extents: list[Dim] = []
    parts: tuple[list[list[int]], list[list[int]]] = ([[] for _ in source], [[] for _ in target])
    pending = [[(k, d) for k, d in enumerate(shape) if d != 1] for shape in (source, target)]
    while pending[0] and pending[1]:
        (i, a), (j, b) = pending[0][0], pending[1][0]
        piece: Dim
        rest_a: Dim | None
        rest_b: Dim | None
        if a == b:
            piece, rest_a, rest_b = a, None, None
        elif (rest := _divided(a, b)) is not None:
            piece, rest_a, rest_b = b, rest, None
        elif (rest := _divided(b, a)) is not None:
            piece, rest_a, rest_b = a, None, rest
        else:
            return None
        for side, k, remaining in ((0, i, rest_a), (1, j, rest_b)):
            parts[side][k].append(len(extents))
            if remaining is None:
                pending[side].pop(0)
            else:
                pending[side][0] = (k, remaining)
        extents.append(piece)
    if pending[0] or pending[1]:
        return None
    return View(tuple(map(tuple, parts[0])), tuple(map(tuple, parts[1])), tuple(extents), {})


def _divided(a: Dim, b: Dim) -> Dim | None:
    """a / b where it is exact, known to be, and not 1."""
    rest = exact_quotient(a, b)
    return None if rest is None or rest == 1 else rest
