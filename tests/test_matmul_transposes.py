"""Transpositions before a MatMul take the form of which ONNX Runtime's MatMul takes one half."""

from __future__ import annotations

import pytest
from graphs import optimized

HEADS = (
    "g (float[2, 5, 12] x, float[12] b, float[2, 3, 7, 4] q) => (float[2, 3, 7, 5] y) <int64[4] heads = {0, 0, 3, 4}> "
    "{ a = Add (x, b) h = Reshape (a, heads) k = Transpose <perm = [0, 2, 3, 1]> (h) y = MatMul (q, k) }"
)


def permutations(model) -> list[list[int]]:
    return [list(n.attribute[0].ints) for n in model.graph.node if n.op_type == "Transpose"]


def test_key_heads_are_written_by_the_fused_kernel() -> None:
    ops, model, report = optimized(HEADS, target="cuda")
    assert ops == ["FusedElementwise"]
    assert "Transpose" in report.fusions[0].operators
    assert permutations(model) == [[0, 1, 3, 2]]


def test_other_users_keep_the_transposition() -> None:
    graph = HEADS.replace("(float[2, 3, 7, 5] y)", "(float[2, 3, 7, 5] y, float[2, 3, 4, 5] k)")
    _, model, _ = optimized(graph, target="cuda")
    assert [0, 2, 3, 1] in permutations(model) or not permutations(model)


def test_a_transposition_of_an_input_stays() -> None:
    graph = (
        "g (float[2, 5, 3, 4] h, float[2, 3, 7, 4] q) => (float[2, 3, 7, 5] y) "
        "{ k = Transpose <perm = [0, 2, 3, 1]> (h) y = MatMul (q, k) }"
    )
    _, model, _ = optimized(graph, target="cuda")
    assert permutations(model) == [[0, 2, 3, 1]]


@pytest.mark.parametrize("scaling", ["Mul (t, c)", "Mul (c, t)", "Div (t, c)"])
def test_a_scaling_moves_before_the_swap(scaling: str) -> None:
    graph = (
        "g (float[2, 3, 5, 4] x, float[2, 3, 7, 4] q) => (float[2, 3, 7, 5] y) <float c = {0.5}> "
        f"{{ a = Tanh (x) t = Transpose <perm = [0, 1, 3, 2]> (a) s = {scaling} y = MatMul (q, s) }}"
    )
    ops, model, report = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"]
    assert report.fusions[0].operators == ("Tanh", scaling[:3])
    assert permutations(model) == [[0, 1, 3, 2]]


def test_a_quotient_by_the_transposition_stays() -> None:
    graph = (
        "g (float[2, 5, 4] x, float[2, 7, 4] q) => (float[2, 7, 5] y) <float c = {0.5}> "
        "{ t = Transpose <perm = [0, 2, 1]> (x) s = Div (c, t) y = MatMul (q, s) }"
    )
    optimized(graph, target="cuda")


def test_the_cpu_keeps_its_transpositions() -> None:
    _, model, _ = optimized(HEADS, target="cpu")
    assert [0, 1, 3, 2] not in permutations(model)


def test_a_transposition_that_is_no_swap_behind_heads_stays_whole() -> None:
    graph = (
        "g (float[2, 5, 3, 4] x, float[2, 4, 7, 5] q) => (float[2, 4, 7, 3] y) "
        "{ a = Tanh (x) k = Transpose <perm = [0, 3, 1, 2]> (a) y = MatMul (q, k) }"
    )
    _, model, report = optimized(graph, target="cuda")
    assert permutations(model) in ([], [[0, 3, 1, 2]])
    assert len(model.graph.node) + sum(len(f.nodes) - 1 for f in report.fusions) == 3


JOINED = (
    "g (float[2, 3, 5, 4] x, float[2, 3, 7, 4] q) => (float[2, 3, 7, 5] y) <float c = {0.5}, "
    "int64[3] three = {-1, 5, 4}, int64[4] four = {2, 3, 4, 5}> { a = Tanh (x) r = Reshape (a, three) "
    "t = Transpose <perm = [0, 2, 1]> (r) u = Reshape (t, four) s = Mul (u, c) y = MatMul (q, s) }"
)


def test_a_swap_of_joined_dimensions_is_one_of_the_last_two() -> None:
    """As torch exports the keys of its attention."""
    ops, model, report = optimized(JOINED, target="cuda")
    assert ops == ["FusedElementwise"]
    assert report.fusions[0].operators == ("Tanh", "Mul")
    assert permutations(model) == [[0, 1, 3, 2]]
    assert [n.op_type for n in model.graph.node if n.domain != "onnxfuse"] == ["Transpose", "MatMul"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float[2, 3, 7, 5] y)", "float[2, 3, 7, 5] y, float[6, 4, 5] t)"),  # also a result
        ("int64[4] four = {2, 3, 4, 5}", "int64[4] four = {3, 2, 4, 5}"),  # separated in another way
        ("int64[3] three = {-1, 5, 4}", "int64[3] three = {6, 4, 5}"),  # joined in another way
    ],
)
def test_other_reshapes_around_a_swap_stay(old: str, new: str) -> None:
    graph = JOINED.replace(old, new)
    if "{3, 2, 4, 5}" in new:
        graph = graph.replace("float[2, 3, 7, 4] q", "float[3, 2, 7, 4] q")
        graph = graph.replace("(float[2, 3, 7, 5] y", "(float[3, 2, 7, 5] y")
    if "{6, 4, 5}" in new:
        graph = graph.replace("four = {2, 3, 4, 5}", "four = {2, 3, 5, 4}")
        graph = graph.replace("float[2, 3, 7, 4] q", "float[2, 3, 7, 5] q")
        graph = graph.replace("(float[2, 3, 7, 5] y", "(float[2, 3, 7, 4] y")
    _, model, _ = optimized(graph, target="cuda")
    assert [0, 1, 3, 2] not in permutations(model)


def test_only_the_transposition_that_scatters_stays_out() -> None:
    """Packed queries, keys and values: the swap of the keys must not keep the biases out."""
    graph = (
        "g (float[2, 64, 32] x, float[32, 1536] w, float[1536] b) => (float[2, 8, 64, 64] q, float[2, 8, 64, 64] k) "
        "<int64[5] s = {2, 64, 3, 8, 64}, int64 i0 = {0}, int64 i1 = {1}, float c = {0.5}> "
        "{ m = MatMul (x, w) a = Add (m, b) h = Reshape (a, s) t = Transpose <perm = [2, 0, 3, 1, 4]> (h) "
        "p = Gather (t, i0) r = Gather (t, i1) q = Mul (p, c) u = Transpose <perm = [0, 1, 3, 2]> (r) k = Mul (u, c) }"
    )
    _, model, _ = optimized(graph, target="cuda")
    left = [n.op_type for n in model.graph.node if n.domain != "onnxfuse"]
    assert "Add" not in left
    assert "Gather" not in left
