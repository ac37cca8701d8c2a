"""What of a region others need, and regions for a part of its nodes."""

from __future__ import annotations

from collections.abc import Iterable

from onnxfuse.rewrites.fragment import Fragment, RefusalError
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.layout import Layout
from onnxfuse.rewrites.lowering.data_movement import FREE
from onnxfuse.rewrites.regions import Region
from onnxfuse.rewrites.space import Space

__all__ = ["divided", "in_parts", "trimmed", "upstream"]


def trimmed(view: GraphView, fragments: dict[int, Fragment], region: Region) -> Region:
    """The region without reshapes at its end: they cost nothing in ONNX Runtime, and the program is simpler."""
    nodes = list(region.nodes)
    reads = {i: fragments[i].tensors() for i in nodes}  # through what they compute for themselves, too
    for i in reversed(region.nodes):
        free = view.protos[i].op_type in FREE and not fragments[i].inlined
        if free and not any(n in reads[c] for n in view.protos[i].output for c in nodes):
            nodes.remove(i)
    if nodes == region.nodes or not nodes:
        return region
    try:
        return Region(nodes, _layout(view, fragments, nodes), region.refused)
    except RefusalError:
        return region


def _layout(view: GraphView, fragments: dict[int, Fragment], nodes: Iterable[int]) -> Layout:
    layout = Layout(Space(view.symbols))
    for i in nodes:
        layout.add(fragments[i])
    return layout


def divided(view: GraphView, fragments: dict[int, Fragment], region: Region) -> list[Region]:
    """Two regions in place of one that would not store a result where one of its dimensions is empty; else none."""
    layout, members = region.layout, set(region.nodes)
    values = {n: layout.produced[n] for n in view.needed_outside(members)}
    lost = [n for n, v in values.items() if layout.laid_out(v) is not None and not layout.always_stored(v)]
    if not lost:
        return []
    first = min((upstream(view, members, [n]) for n in lost), key=len)
    if first == members:
        raise RefusalError("one of its results would not be stored where a dimension of another is empty")
    return in_parts(view, fragments, region, first)


def in_parts(view: GraphView, fragments: dict[int, Fragment], region: Region, first: set[int]) -> list[Region]:
    """The rest of the region, and `first`, which needs nothing of the rest: then both are convex as the whole was."""
    regions: list[Region] = []
    pending = [sorted(first), [i for i in region.nodes if i not in first]]
    while pending:
        nodes = pending.pop()
        try:
            regions.append(Region(nodes, _layout(view, fragments, nodes), region.refused))
        except RefusalError:
            if len(nodes) == 1:
                raise
            pending += [nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]]
    return regions


def upstream(view: GraphView, members: set[int], names: Iterable[str], *, through: bool = True) -> set[int]:
    """The nodes of the region that make `names`, and what they are made from (`through` as in GraphView)."""
    staying: set[int] = set()
    pending = [view.producer[n] for n in names]
    while pending:
        i = pending.pop()
        if i not in staying:
            staying.add(i)
            pending += [p for p in view.producers_of(i, through=through) if p in members]
    return staying
