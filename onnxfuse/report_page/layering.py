"""Places the boxes of a small directed graph in layers from top to bottom, with few crossings and short edges.

The steps are those of Sugiyama, Tagawa and Toda ("Methods for Visual Understanding of Hierarchical System Structures",
1981): layers by longest path, an order within each layer by barycenters, then coordinates. An edge that spans layers
runs straight through each of them, beside the boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Box", "Drawing", "place"]

_SWEEPS = 6
_GAP_X, _GAP_Y = 18.0, 26.0
_POINT_WIDTH = 8.0  # what an edge that passes through a layer takes there


@dataclass
class Box:
    """A vertex: its size, and, once placed, its centre and the layer it is in. `hugs` boxes stand above their first
    reader, not at the top.
    """

    width: float
    height: float
    hugs: bool = False
    x: float = 0.0
    y: float = 0.0
    layer: int = 0


@dataclass
class Drawing:
    """Size of the whole, and for each edge the points it passes, from the bottom of its source to its target's top."""

    width: float
    height: float
    paths: list[list[tuple[float, float]]] = field(default_factory=list)


def place(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Drawing:
    """Gives every box its centre; `edges` are pairs of places in `boxes` and must have no cycle."""
    _set_layers(boxes, edges)
    vertices = list(boxes)
    chains: list[list[int]] = []
    for source, target in edges:
        chain = [source]
        for layer in range(boxes[source].layer + 1, boxes[target].layer):
            chain.append(len(vertices))
            vertices.append(Box(_POINT_WIDTH, 0.0, layer=layer))
        chains.append([*chain, target])
    above: list[list[int]] = [[] for _ in vertices]
    below: list[list[int]] = [[] for _ in vertices]
    for chain in chains:
        for a, b in pairwise(chain):
            below[a].append(b)
            above[b].append(a)
    layers: list[list[int]] = [[] for _ in range(max((v.layer for v in vertices), default=-1) + 1)]
    for number, vertex in enumerate(vertices):
        layers[vertex.layer].append(number)
    layers = _ordered(layers, above, below)
    _set_columns(vertices, layers, above, below)
    height = _set_rows(vertices, layers)
    width = max((v.x + v.width / 2 for v in vertices), default=0.0)
    drawing = Drawing(width, height)
    for chain in chains:
        first, last = vertices[chain[0]], vertices[chain[-1]]
        rows = [(vertices[v], max(vertices[w].height for w in layers[vertices[v].layer]) / 2) for v in chain[1:-1]]
        middle = [(v.x, v.y + side * half) for v, half in rows for side in (-1, 1)]  # straight through each layer
        drawing.paths.append([(first.x, first.y + first.height / 2), *middle, (last.x, last.y - last.height / 2)])
    return drawing


def _set_layers(boxes: Sequence[Box], edges: Iterable[tuple[int, int]]) -> None:
    readers: list[list[int]] = [[] for _ in boxes]
    waiting = [0] * len(boxes)
    for source, target in edges:
        readers[source].append(target)
        waiting[target] += 1
    for box in boxes:
        box.layer = 0
    ready = [i for i, count in enumerate(waiting) if not count]
    for source in ready:  # grows while it is walked
        for target in readers[source]:
            boxes[target].layer = max(boxes[target].layer, boxes[source].layer + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    for i, box in enumerate(boxes):
        if box.hugs and readers[i]:
            box.layer = min(boxes[r].layer for r in readers[i]) - 1


def _ordered(layers: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    best, fewest = layers, _crossings(layers, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        layers = [list(layer) for layer in layers]
        near = above if down else below
        for layer in layers if down else reversed(layers):
            rank = {v: place for other in layers for place, v in enumerate(other)}
            centre = {v: sum(rank[n] for n in near[v]) / len(near[v]) if near[v] else rank[v] for v in layer}
            layer.sort(key=lambda v: centre[v])
        crossings = _crossings(layers, below)
        if crossings < fewest:
            best, fewest = layers, crossings
    return best


def _crossings(layers: list[list[int]], below: list[list[int]]) -> int:
    count = 0
    for upper, lower in pairwise(layers):
        rank = {v: place for place, v in enumerate(lower)}
        ends = [sorted(rank[t] for t in below[v]) for v in upper]
        flat = [end for group in ends for end in group]
        count += sum(a > b for i, a in enumerate(flat) for b in flat[i + 1 :])
    return count


def _set_columns(vertices: list[Box], layers: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    for layer in layers:
        edge = 0.0
        for v in layer:
            vertices[v].x = edge + vertices[v].width / 2
            edge += vertices[v].width + _GAP_X
    for sweep in range(2 * _SWEEPS):
        near = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [sum(vertices[n].x for n in near[v]) / len(near[v]) if near[v] else vertices[v].x for v in layer]
            for v, x in zip(layer, _apart([vertices[v] for v in layer], wanted), strict=True):
                vertices[v].x = x
    left = min((v.x - v.width / 2 for v in vertices), default=0.0)
    for vertex in vertices:
        vertex.x -= left


def _apart(layer: Sequence[Box], wanted: Sequence[float]) -> list[float]:
    """Centres in the given order, far enough apart, and as near as can be (least squares) to those wanted.

    Taking the gaps out leaves an isotonic regression, which pooling adjacent violators solves.
    """
    gaps, total = [0.0], 0.0
    for a, b in pairwise(layer):
        total += (a.width + b.width) / 2 + _GAP_X
        gaps.append(total)
    blocks: list[tuple[float, int]] = []  # the mean of what is wanted, and how many
    for want, gap in zip(wanted, gaps, strict=True):
        mean, count = want - gap, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        blocks.append((mean, count))
    places = [mean for mean, count in blocks for _ in range(count)]
    return [p + gap for p, gap in zip(places, gaps, strict=True)]


def _set_rows(vertices: list[Box], layers: list[list[int]]) -> float:
    top = 0.0
    for layer in layers:
        height = max(vertices[v].height for v in layer)
        for v in layer:
            vertices[v].y = top + height / 2
        top += height + _GAP_Y
    return max(top - _GAP_Y, 0.0)
