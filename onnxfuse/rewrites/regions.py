"""Grows regions: connected, convex sets of nodes that one kernel can compute.

Nodes are visited in topological order. Each starts a region of its own and then joins the regions of its producers,
one after the other, where

1. the joined region is convex: no path leaves it and comes back,
2. its values lie in one iteration space (layout.py),
3. it stays within the limits of cost.py.

A QuantizeLinear only joins what computes its input: what other nodes give and it quantizes is one kernel on bytes with
them in ONNX Runtime.

Regions that only read the same tensor are joined last (siblings.py).

A join that is refused is recorded with its reason; the node stays in the region it has. Time is linear in the size of
the graph for all graphs whose regions are bounded (they are, by cost.MAX_NODES).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxfuse.rewrites import cost
from onnxfuse.rewrites.fragment import Fragment, RefusalError
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.layout import Layout
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.lowering.quantization import QUANTIZE
from onnxfuse.rewrites.siblings import join_siblings
from onnxfuse.rewrites.space import Space

__all__ = ["Region", "grow_regions"]

# Units that a search for a path around a region may visit before the join is given up.
_SEARCH_LIMIT = 4096


@dataclass(eq=False)
class Region:
    """Nodes (by index, ascending) and their values' layout.

    `refused` has the joins that did not come about, `parts` the regions that are one because they read the same tensor:
    where it cannot be a fused node they can.
    """

    nodes: list[int]
    layout: Layout
    refused: list[tuple[int, str]] = field(default_factory=list)
    parts: tuple[Region, ...] = ()


class Growth:
    """The regions of a graph as they grow: `region_of` each node that has one, and why others have none."""

    def __init__(self, view: GraphView, fragments: dict[int, Fragment]) -> None:
        self.view, self.fragments = view, fragments
        self.region_of: dict[int, Region] = {}
        self.refused: dict[int, str] = {}

    def start(self, i: int) -> Region | None:
        layout = Layout(Space(self.view.symbols))
        try:
            layout.add(self.fragments[i])
        except RefusalError as refusal:
            self.refused[i] = refusal.reason
            return None
        self.region_of[i] = Region([i], layout)
        return self.region_of[i]

    def visit(self, i: int) -> None:
        if self.start(i) is None:
            return
        if self.view.protos[i].op_type == QUANTIZE and not self.join_quantizer(i):
            return
        self.join_producers(i)
        # A reshape of what no region computes costs nothing where it is.
        alone = len(self.region_of[i].nodes) == 1 and not self.fragments[i].inlined
        if self.view.protos[i].op_type in FREE and alone:
            del self.region_of[i]

    def join_quantizer(self, i: int) -> bool:
        """Whether a QuantizeLinear could join the region that makes its input; otherwise it has none."""
        region = self.region_of.get(self.view.producer.get(self.view.protos[i].input[0], -1))
        reason = "no fused node makes what it quantizes; ONNX Runtime may compute both on bytes"
        if region is not None and any(self.view.protos[k].op_type not in FREE | COPIES for k in region.nodes):
            try:
                self.join(region, self.region_of[i])
                return True
            except RefusalError as refusal:
                reason = refusal.reason
        self.refused[i] = reason
        del self.region_of[i]
        return False

    def join_producers(self, i: int) -> None:
        for producer in self.view.producers_of(i):
            other, own = self.region_of.get(producer), self.region_of[i]
            if other is None or other is own:
                continue
            try:
                self.join(other, own)
            except RefusalError as refusal:
                own.refused.append((i, refusal.reason))

    def join(self, a: Region, b: Region) -> None:
        if len(a.nodes) + len(b.nodes) > cost.MAX_NODES:
            raise RefusalError(f"the region has reached its limit of {cost.MAX_NODES} nodes")
        self.check_convex(a, b)
        if len(b.nodes) == 1:
            a.layout.add(self.fragments[b.nodes[0]])
        else:
            layout = Layout(Space(self.view.symbols))
            for i in sorted((*a.nodes, *b.nodes)):
                layout.add(self.fragments[i])
            a.layout = layout
        newest = len(b.nodes) == 1 and b.nodes[0] > a.nodes[-1]
        a.nodes = [*a.nodes, *b.nodes] if newest else sorted((*a.nodes, *b.nodes))
        a.refused += b.refused
        for i in b.nodes:
            self.region_of[i] = a

    def unit(self, i: int) -> list[int]:
        region = self.region_of.get(i)
        return region.nodes if region is not None else [i]

    def unite(self, a: Region, b: Region, nodes: list[int], layout: Layout) -> Region:
        """One region, laid out, in place of two that can each be a fused node as well."""
        parts = (*(a.parts or (a,)), *(b.parts or (b,)))
        united = Region(nodes, layout, [*a.refused, *b.refused], parts)
        self.region_of.update(dict.fromkeys(nodes, united))
        return united

    def part(self, region: Region) -> None:
        """Takes a region of siblings apart again."""
        for part in region.parts:
            self.region_of.update(dict.fromkeys(part.nodes, part))

    def check_convex(self, a: Region, b: Region, limit: int = _SEARCH_LIMIT) -> None:
        """Refuses where a path leads from one region through other nodes, or other regions, to the other one."""
        newest = len(b.nodes) == 1 and b.nodes[0] > a.nodes[-1]
        first = min(a.nodes[0], b.nodes[0])
        # Nothing depends on the newest node yet, so only its own producers can lead back.
        starts = b.nodes if newest else [*a.nodes, *b.nodes]
        stack = [p for i in starts for p in self.view.producers_of(i) if self.region_of.get(p) not in (a, b)]
        seen: set[int] = set()
        visited = 0
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            unit = self.unit(i)
            seen.update(unit)
            if unit[-1] < first:
                continue
            visited += 1
            if visited > limit:
                raise RefusalError("the graph around it is too entangled to prove that the nodes can run together")
            for j in unit:
                for p in self.view.producers_of(j):
                    if self.region_of.get(p) in (a, b):
                        raise RefusalError("other nodes between it and the region need the region's results first")
                    if p not in seen:
                        stack.append(p)


def grow_regions(view: GraphView, fragments: dict[int, Fragment]) -> tuple[list[Region], dict[int, str]]:
    """The regions of a graph, in the order of their first nodes, and the nodes that fit no space, with reasons."""
    growth = Growth(view, fragments)
    for i in sorted(fragments):
        growth.visit(i)
    join_siblings(growth)
    regions = list(dict.fromkeys(growth.region_of.values()))
    while cycle := _cyclic(view, regions):
        regions.remove(cycle)
        if cycle.parts:
            growth.part(cycle)
            regions += cycle.parts
            continue
        # The search above looks back to the region's first node only; a cycle over several regions can escape it.
        for i in cycle.nodes:
            growth.refused[i] = "its region and another need each other's results"
            del growth.region_of[i]
    return sorted(regions, key=lambda r: r.nodes[0]), growth.refused


def _cyclic(view: GraphView, regions: list[Region]) -> Region | None:
    """A region that cannot be ordered with the rest of the graph, or None where all can."""
    unit_of = {i: i for i in range(len(view.protos))}
    for region in regions:
        unit_of.update(dict.fromkeys(region.nodes, region.nodes[0]))
    after: dict[int, set[int]] = {}
    waiting: dict[int, int] = dict.fromkeys(unit_of.values(), 0)
    for i in range(len(view.protos)):
        for p in view.producers_of(i):
            a, b = unit_of[p], unit_of[i]
            if a != b and b not in after.setdefault(a, set()):
                after[a].add(b)
                waiting[b] += 1
    ready = [u for u, n in waiting.items() if n == 0]
    while ready:
        u = ready.pop()
        del waiting[u]
        for b in after.get(u, ()):
            waiting[b] -= 1
            if waiting[b] == 0:
                ready.append(b)
    cyclic = [r for r in reversed(regions) if r.nodes[0] in waiting and len(r.nodes) > 1]
    return next((r for r in cyclic if r.parts), cyclic[0] if cyclic else None)
