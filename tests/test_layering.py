"""Pictures of graphs: boxes do not meet, edges lead downwards and around the boxes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfuse.report_page.layering import Box, place


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 14))
    boxes = [Box(draw(st.integers(20, 200)), 30.0, draw(st.booleans())) for _ in range(count)]
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).map(sorted).map(tuple)
    edges = [e for e in draw(st.lists(pairs, max_size=30, unique=True)) if e[0] != e[1]]
    # A box may hug its reader only where nothing leads to it.
    targets = {t for _, t in edges}
    for i in targets:
        boxes[i].hugs = False
    return boxes, edges


def overlap(a, b):
    return abs(a.x - b.x) < (a.width + b.width) / 2 and abs(a.y - b.y) < (a.height + b.height) / 2


@given(graphs())
def test_boxes_stand_apart_and_inside_the_drawing(graph):
    boxes, edges = graph
    drawing = place(boxes, edges)
    for i, box in enumerate(boxes):
        assert not any(overlap(box, other) for other in boxes[:i])
        assert box.x - box.width / 2 >= -1e-6
        assert box.x + box.width / 2 <= drawing.width + 1e-6
        assert box.y + box.height / 2 <= drawing.height + 1e-6


@given(graphs())
def test_edges_lead_down_and_pass_beside_the_boxes(graph):
    boxes, edges = graph
    drawing = place(boxes, edges)
    assert len(drawing.paths) == len(edges)
    for (source, target), path in zip(edges, drawing.paths, strict=True):
        assert boxes[source].layer < boxes[target].layer
        assert [y for _, y in path] == sorted(y for _, y in path)
        for x, y in path[1:-1]:
            assert not any(abs(x - b.x) < b.width / 2 - 1e-6 and abs(y - b.y) < b.height / 2 - 1e-6 for b in boxes)


def test_a_chain_is_one_straight_column():
    boxes = [Box(width, 30.0) for width in (40.0, 90.0, 60.0)]
    place(boxes, [(0, 1), (1, 2)])
    assert boxes[0].x == pytest.approx(boxes[1].x)
    assert boxes[1].x == pytest.approx(boxes[2].x)


def test_crossings_that_an_order_avoids_are_avoided():
    boxes = [Box(40.0, 30.0) for _ in range(4)]
    place(boxes, [(0, 3), (1, 2)])
    assert (boxes[0].x < boxes[1].x) == (boxes[3].x < boxes[2].x)


def test_a_weight_stands_just_above_its_reader():
    boxes = [Box(40.0, 30.0), Box(40.0, 30.0), Box(40.0, 30.0), Box(40.0, 30.0, hugs=True)]
    place(boxes, [(0, 1), (1, 2), (3, 2)])
    assert boxes[3].layer == boxes[1].layer


def test_nothing_has_no_size():
    drawing = place([], [])
    assert (drawing.width, drawing.height, drawing.paths) == (0.0, 0.0, [])
