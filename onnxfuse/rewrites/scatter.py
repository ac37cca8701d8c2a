"""Whether a kernel would touch memory in scattered order.

A fused kernel walks its space with one dimension innermost. A tensor in which another dimension is the contiguous one
is then read or written a few bytes at a time, each from another sector of 32 bytes: up to eight times the traffic, more
than a Transpose of its own costs. Small tensors stay in cache whatever the order.
"""

from __future__ import annotations

from math import inf, prod

from onnxfuse.custom_ops.program import Input, Kernel, Map
from onnxfuse.custom_ops.types import size

__all__ = ["broken_up", "scattered"]

# Points of a space up to which its tensors stay in the cache of a multiprocessor or core.
SMALL = 1 << 16
# Bytes in a row below which a GPU, which moves sectors of 32, reads more than twice what it uses.
_SHORT_RUN = 16


def scattered(kernel: Kernel) -> bool:
    """Whether the tensors of the kernel that span the same dimensions disagree on which of them is contiguous."""
    if all(e is not None for e in kernel.extents) and prod(e or 0 for e in kernel.extents) <= SMALL:
        return False
    maps = [s.map for s in kernel.statements if isinstance(s, Input)] + [o.map for o in kernel.outputs]
    contiguous: dict[frozenset[int], set[int]] = {}
    for map_ in maps:
        dims = frozenset(k for k in kernel.dims(*map_) if kernel.extents[k] != 1)
        if len(dims) > 1:
            contiguous.setdefault(dims, set()).add(_innermost(kernel, map_))
    # Dimensions that only one tensor spans can be walked in its order; but a walk has one order for all of them.
    widest = [inner for dims, inner in contiguous.items() if not any(dims < other for other in contiguous)]
    return any(len(inner) > 1 for inner in widest)


def broken_up(kernel: Kernel) -> bool:
    """Whether a large tensor that spans the whole space is walked in runs of a few bytes, with gaps in between.

    Rows that consist of such runs, as a sum over the first and the last axis has them, come a fraction of a sector at a
    time; a run whose length only a run shows counts as long.
    """
    dims = [k for k, extent in enumerate(kernel.extents) if extent != 1]
    if all(kernel.extents[k] is not None for k in dims) and prod(kernel.extents[k] or 0 for k in dims) <= SMALL:
        return False
    reads = [s for s in kernel.statements if isinstance(s, Input)]
    return any(
        _run(kernel, dims, s.map) * size(s.type) < _SHORT_RUN for s in reads if set(kernel.dims(*s.map)) >= set(dims)
    )


def _run(kernel: Kernel, dims: list[int], map_: Map) -> float:
    """Points in a row that are neighbours in a tensor that spans `dims`; infinity where that is not known."""
    length = 1
    entries = [entry for entry in map_ if set(kernel.dims(entry)) & set(dims)]
    for k, entry in zip(reversed(dims), reversed(entries), strict=False):
        extent = kernel.extents[k]
        if entry.plain != k:
            return length if entry.plain is not None else inf
        if extent is None:
            return inf
        length *= extent
    return inf


def _innermost(kernel: Kernel, map_: Map) -> int:
    """The dimension along which neighbours in the space are closest in the tensor."""
    for entry in reversed(map_):
        # Of what a roll runs over, the last dimension has its neighbours next to each other.
        last = [(abs(scale), kernel.behind(k)) for k, scale in entry.terms]
        terms = [(scale, dims[-1]) for scale, dims in last if any(kernel.extents[k] != 1 for k in dims)]
        if terms:
            return min(terms)[1]
    return -1
