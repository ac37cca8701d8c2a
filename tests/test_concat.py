"""Concat of equal parts inside a region: rotary embeddings and the like."""

from __future__ import annotations

import pytest
from graphs import fused, optimized

ROTARY = """
rope ({type}[B, 4, S, {size}] x, {type}[S, {size}] cos, {type}[S, {size}] sin) => ({type}[B, 4, S, {size}] y)
<int64[1] zero = {{0}}, int64[1] half = {{{half}}}, int64[1] end = {{9223372036854775807}}, int64[1] axis = {{{axis}}}>
{{
    c = Mul (x, cos)
    a = Slice (x, zero, half, axis)
    b = Slice (x, half, end, axis)
    n = Neg (b)
    r = Concat <axis = {axis}> (n, a)
    s = Mul (r, sin)
    y = Add ({sum})
}}
"""


@pytest.mark.parametrize("type_", ["float", "float16", "double"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("axis", [-1, 3])
@pytest.mark.parametrize("sum_", ["c, s", "s, c"])
def test_rotary_embedding_is_one_kernel(type_: str, batch: int, axis: int, sum_: str) -> None:
    graph = ROTARY.format(type=type_, size=8, half=4, axis=axis, sum=sum_)
    ops, model, report = optimized(graph, sizes={"B": batch, "S": 5}, target="cuda")
    assert ops == ["FusedElementwise"]
    assert len(report.fusions[0].nodes) == 7
    assert len(model.graph.node) == 1


def test_rotary_embedding_after_a_transposition() -> None:
    graph = """
    rope (float[2, 5, 4, 8] h, float[5, 8] cos, float[5, 8] sin) => (float[2, 4, 5, 8] y)
    <int64[1] zero = {0}, int64[1] half = {4}, int64[1] end = {8}, int64[1] axis = {3}>
    {
        x = Transpose <perm = [0, 2, 1, 3]> (h)
        c = Mul (x, cos)
        a = Slice (x, zero, half, axis)
        b = Slice (x, half, end, axis)
        n = Neg (b)
        r = Concat <axis = 3> (n, a)
        s = Mul (r, sin)
        y = Add (c, s)
    }
    """
    assert fused(graph, target="cuda") == ["FusedElementwise"]


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_from_outside_and_inside(parts: int, axis: int) -> None:
    inputs = ", ".join(f"float[3, 2, 5] x{i}" for i in range(parts))
    exps = " ".join(f"e{i} = Tanh (x{i})" for i in range(0, parts, 2))
    names = ", ".join(f"e{i}" if i % 2 == 0 else f"x{i}" for i in range(parts))
    shape = [3, 2, 5]
    shape[axis] *= parts
    graph = f"g ({inputs}) => (float{shape} y) {{ {exps} c = Concat <axis = {axis}> ({names}) y = Exp (c) }}"
    assert fused(graph, target="cuda") == ["FusedElementwise"]


def test_a_part_that_is_also_an_output() -> None:
    graph = (
        "g (float[4, 6] x) => (float[4, 12] y, float[4, 6] e) { e = Exp (x) c = Concat <axis = 1> (e, x) y = Abs (c) }"
    )
    assert fused(graph, target="cuda") == ["FusedElementwise"]


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[4, 6] x, float[4, 5] z) => (float[4, 11] y) { e = Exp (x) c = Concat <axis = 1> (e, z) y = Abs (c) }",
        "g (float[4, N] x, float[4, N] z) => (float[4, M] y) { e = Exp (x) c = Concat <axis = 1> (e, z) y = Abs (c) }",
    ],
)
def test_parts_that_are_not_known_to_be_equal_stay(graph: str) -> None:
    _, model, report = optimized(graph, sizes={"N": 3}, target="cuda")
    assert "Concat" in [n.op_type for n in model.graph.node]
    assert any("equally large" in r.reason for r in report.refusals)


def test_far_parts_stay() -> None:
    graph = (
        "g (float[1, 2, 70, 70] x) => (float[1, 4, 70, 70] y) { e = Exp (x) c = Concat <axis = 1> (e, x) y = Abs (c) }"
    )
    _, model, _ = optimized(graph, target="cuda")
    assert "Concat" in [n.op_type for n in model.graph.node]


def test_concat_stays_on_the_cpu() -> None:
    graph = "g (float[4, 6] x) => (float[4, 12] y) { e = Exp (x) c = Concat <axis = 1> (e, x) y = Abs (c) }"
    _, model, _ = optimized(graph, target="cpu")
    assert "Concat" in [n.op_type for n in model.graph.node]
