"""Joins regions that read the same tensor though nothing connects them: one kernel then reads it once.

Two regions are joined where

1. both read the whole tensor alike, and it has an element for each point of their space, which is the same for both:
   then a read of the largest tensor is saved and no work is repeated;
2. both reduce the same block, or one of them does and its rows are short: along a long one the other would run in few
   threads;
3. they are convex together and near each other in the graph: what is computed long before it is used takes memory;
4. they read and store few tensors together: each takes registers;
5. where something uses the first one's results before the other one would run, what that stores earlier than it would
   alone is no larger than the tensor that is read once less: it takes memory meanwhile.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from onnxfuse.rewrites.fragment import RefusalError
from onnxfuse.rewrites.layout import Layout
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.space import Place, Space

if TYPE_CHECKING:
    from onnxfuse.rewrites.regions import Growth, Region

__all__ = ["join_siblings"]

# What a joined region may have: tensors that it reads and stores, and nodes.
_MAX_TENSORS = 12
_MAX_NODES = 128
# Nodes of the graph between two siblings, and units that the search for a path between them may visit.
_MAX_DISTANCE = 128
_SEARCH_LIMIT = 512
# Points of a row that one of the regions reduces, where the other one does not.
_SHORT_ROW = 16384
# Regions of one tensor that a further one is tried with.
_MAX_TRIALS = 4


def join_siblings(growth: Growth) -> None:
    """Joins the regions that have grown. Time is linear in the size of the graph."""
    readers: dict[str, list[Region]] = {}
    for region in sorted(dict.fromkeys(growth.region_of.values()), key=lambda r: r.nodes[0]):
        if _is_eligible(growth, region):
            for name in _read_whole(region.layout):
                readers.setdefault(name, []).append(region)
    for tensor, regions in readers.items():
        groups: list[Region] = []
        for region in regions:
            new = growth.region_of[region.nodes[0]]
            if new not in groups:
                _add_to_group(growth, groups, new, tensor)


def _add_to_group(growth: Growth, groups: list[Region], new: Region, tensor: str) -> None:
    """Joins `new` with one of the last groups of regions that read the tensor, else makes it one of its own."""
    for place in reversed(range(max(len(groups) - _MAX_TRIALS, 0), len(groups))):
        try:
            groups[place] = _joined(growth, groups[place], new, tensor)
        except RefusalError:
            continue
        return
    groups.append(new)


def _is_eligible(growth: Growth, region: Region) -> bool:
    """Whether the region computes, and rearranges nothing."""
    kinds = {growth.view.protos[i].op_type for i in region.nodes}
    return not kinds & COPIES and bool(kinds - FREE) and len(region.nodes) < _MAX_NODES


def _read_whole(layout: Layout) -> list[str]:
    """The tensors that have an element for each point of the space."""
    space = layout.space
    wanted = {d for d in space.order if space.extents[d] != 1}
    found: dict[str, None] = {}
    for (step, k), places in layout.reads.items():
        if all(place == Place(place.dims) for place in places):
            dims = {d for place in places for d in space.current(place.dims)}
            if dims >= wanted:
                found[layout.behind(step.operands[k]).tensor] = None
    return list(found)


def _joined(growth: Growth, a: Region, b: Region, tensor: str) -> Region:
    """Both regions as one. Raises RefusalError."""
    if len(a.nodes) + len(b.nodes) > _MAX_NODES or a.nodes[0] - b.nodes[-1] > _MAX_DISTANCE:
        raise RefusalError("too many nodes")
    if b.nodes[0] - a.nodes[-1] > _MAX_DISTANCE:
        raise RefusalError("too far from each other")
    nodes = sorted((*a.nodes, *b.nodes))
    if _is_used_before(growth, a, b) and _bytes_stored(growth, b) > growth.view.bytes_of(tensor):
        raise RefusalError("large results would wait for others")
    if len(_tensors(growth, nodes)) > _MAX_TENSORS:
        raise RefusalError("too many tensors")
    growth.check_convex(a, b, _SEARCH_LIMIT)
    layout = Layout(Space(growth.view.symbols))
    for i in nodes:
        layout.add(growth.fragments[i])
    if not _extents(a.layout) == _extents(b.layout) == _extents(layout):
        raise RefusalError("different spaces")
    if len(_ways_to_read(layout, tensor)) != 1:
        raise RefusalError("different reads")
    if bool(a.layout.space.reduced) != bool(b.layout.space.reduced):
        row = [layout.space.extents[d] for d in layout.space.reduced]
        if prod(d if isinstance(d, int) else _SHORT_ROW + 1 for d in row) > _SHORT_ROW:
            raise RefusalError("long rows")
    return growth.unite(a, b, nodes, layout)


def _tensors(growth: Growth, nodes: list[int]) -> set[str]:
    """What the nodes read from outside, and what others need of them."""
    view, members = growth.view, set(nodes)
    protos = [view.protos[i] for i in nodes]
    read = {n for p in protos for n in p.input if n and view.producer.get(n) not in members}
    return read | set(view.needed_outside(members))


def _is_used_before(growth: Growth, a: Region, b: Region) -> bool:
    """Whether something uses results of `a` before `b` would run."""
    view, members = growth.view, {*a.nodes, *b.nodes}
    users = (c for i in a.nodes for n in view.protos[i].output for c in view.computing_users(n))
    return any(c not in members and c < b.nodes[0] for c in users)


def _bytes_stored(growth: Growth, region: Region) -> int:
    """Bytes of what others need of a region."""
    return sum(map(growth.view.bytes_of, growth.view.needed_outside(set(region.nodes))))


def _extents(layout: Layout) -> list[str]:
    return sorted(str(layout.space.extents[d]) for d in layout.space.order if layout.space.extents[d] != 1)


def _ways_to_read(layout: Layout, tensor: str) -> set[tuple[tuple[int, ...], ...]]:
    """The dimensions along which each read of the tensor goes."""
    return {
        tuple(layout.space.current(place.dims) for place in places)
        for (step, k), places in layout.reads.items()
        if layout.behind(step.operands[k]).tensor == tensor
    }
