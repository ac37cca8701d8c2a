"""Regions that reshape, transpose, expand, slice and split inside, before and behind what they compute."""

from __future__ import annotations

import pytest
from graphs import fused, optimized

from onnxfuse.custom_ops.program import Program


def test_group_norm_spelled_by_reshapes() -> None:
    graph = (
        "g (float[N, 6, 4, 5] x, float[6, 1, 1] s, float[6, 1, 1] t) => (float[N, 6, 4, 5] y) "
        "<int64[3] split = {0, 3, -1}, int64[4] whole = {-1, 6, 4, 5}, float e = {0.001}> { g = Reshape (x, split) "
        "m = ReduceMean <axes = [2]> (g) c = Sub (g, m) q = Mul (c, c) v = ReduceMean <axes = [2]> (q) a = Add (v, e) "
        "r = Sqrt (a) n = Div (c, r) b = Reshape (n, whole) k = Mul (b, s) y = Add (k, t) }"
    )
    for size in (1, 3):
        assert fused(graph, sizes={"N": size}) == ["FusedLayerNorm"]


def test_group_norm_spelled_by_instance_norm() -> None:
    graph = (
        "g (float[2, 6, 20] x, float[6, 1] s, float[3] one, float[3] zero) => (float[2, 6, 20] y) "
        "<int64[3] split = {0, 3, -1}, int64[3] whole = {2, 6, 20}> { g = Reshape (x, split) "
        "n = InstanceNormalization (g, one, zero) b = Reshape (n, whole) k = Mul (b, s) y = Sigmoid (k) }"
    )
    assert fused(graph) == ["FusedLayerNorm"]


def test_softmax_through_reshape_and_expand() -> None:
    graph = (
        "g (float[2, 12, 5] x, float[2, 1, 1, 5] mask) => (float[2, 12, 5] y) "
        "<int64[4] split = {2, 3, 4, 5}, int64[4] shape = {2, 3, 4, 5}, int64[3] whole = {2, 12, 5}> { "
        "a = Reshape (x, split) b = Expand (mask, shape) c = Add (a, b) d = Softmax <axis = -1> (c) "
        "e = Reshape (d, whole) y = Mul (e, x) }"
    )
    assert fused(graph) == ["FusedSoftmax"]


def test_head_split_joins_what_follows() -> None:
    graph = (
        "g (float[2, 5, 12] x, float[12] b) => (float[2, 3, 5, 4] y) <int64[4] heads = {0, 0, 3, 4}> { "
        "a = Add (x, b) h = Reshape (a, heads) t = Transpose <perm = [0, 2, 1, 3]> (h) y = Sigmoid (t) }"
    )
    assert fused(graph) == ["FusedElementwise"]


def test_head_merge_joins_what_follows() -> None:
    graph = (
        "g (float[2, 3, 5, 4] x, float[2, 5, 12] r) => (float[2, 5, 12] y) <int64[3] merged = {0, 0, 12}> { "
        "a = Tanh (x) t = Transpose <perm = [0, 2, 1, 3]> (a) m = Reshape (t, merged) y = Add (m, r) }"
    )
    assert fused(graph) == ["FusedElementwise"]


def test_rotary_embedding_halves() -> None:
    graph = (
        "g (float[2, 3, 5, 8] q, float[5, 8] cos, float[5, 4] sin) => (float[2, 3, 5, 4] y, float[2, 3, 5, 4] z) "
        "<int64[1] zero = {0}, int64[1] four = {4}, int64[1] end = {9223372036854775807}, int64[1] last = {-1}> { "
        "a = Slice (q, zero, four, last) b = Slice (q, four, end, last) n = Neg (b) ca = Slice (cos, zero, four, last) "
        "p = Mul (a, ca) r = Mul (n, sin) y = Add (p, r) s = Mul (a, sin) t = Mul (b, ca) z = Add (s, t) }"
    )
    assert fused(graph) == ["FusedElementwise"]


def test_gate_from_split() -> None:
    graph = (
        "g (float[3, 10] x) => (float[3, 5] y) <int64[2] sizes = {5, 5}> { "
        "a, b = Split <axis = -1> (x, sizes) s = Sigmoid (a) g = Mul (a, s) y = Mul (g, b) }"
    )
    assert fused(graph) == ["FusedElementwise"]


@pytest.mark.parametrize(
    "bounds",
    ["{1}, {9}, {1}, {2}", "{-1}, {-100}, {-1}, {-1}", "{-2}, {0}, {1}, {-3}", "{0}, {2147483647}, {0}, {2}"],
)
def test_slices_before_a_region(bounds: str) -> None:
    start, end, axis, step = (b.strip() for b in bounds.split(","))
    graph = (
        f"g (float[5, 9] x) => (float[M, K] y) <int64[1] a = {start}, int64[1] b = {end}, int64[1] c = {axis}, "
        f"int64[1] d = {step}> {{ s = Slice (x, a, b, c, d) t = Exp (s) y = Neg (t) }}"
    )
    assert fused(graph) == ["FusedElementwise"]


def test_slice_inside_a_region_divides_it() -> None:
    graph = (
        "g (float[4, 8] x) => (float[4, 4] y) <int64[1] z = {0}, int64[1] f = {4}, int64[1] one = {1}> { "
        "a = Exp (x) b = Neg (a) s = Slice (b, z, f, one) c = Tanh (s) y = Abs (c) }"
    )
    assert 1 <= len(fused(graph)) <= 2


@pytest.mark.parametrize("perm", [[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]])
def test_transpositions_around_a_reduction(perm: list[int]) -> None:
    graph = (
        f"g (float[3, 4, 5] x) => (float[?, ?, ?] y) {{ t = Transpose <perm = {perm}> (x) a = Exp (t) "
        "m = ReduceMean <axes = [-1]> (a) c = Sub (a, m) y = Tanh (c) }"
    )
    assert fused(graph)
    graph = (
        f"g (float[3, 4, 5] x) => (float[?, ?, ?] y) {{ a = Exp (x) m = ReduceMean <axes = [-1]> (a) c = Sub (a, m) "
        f"t = Transpose <perm = {perm}> (c) y = Tanh (t) }}"
    )
    assert fused(graph)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("perm", [[2, 1, 0], [1, 0, 2], [0, 2, 1]])
@pytest.mark.parametrize("users", ["y = Identity (e)", "y = Neg (e) z = Tanh (e)", "z = Exp (e) y = Add (e, z)"])
def test_expansion_of_what_is_transposed(users: str, perm: list[int], target: str) -> None:
    """The new dimension lies between others that stand the other way around, and is the same for all that ask."""
    given = [[2, 1, 3][perm.index(k)] for k in range(3)]
    graph = (
        f"g (float{given} x) => (float[2, 5, 3] y{', float[2, 5, 3] z' if 'z =' in users else ''}) "
        f"<int64[3] s = {{2, 5, 3}}> {{ a = Exp (x) b = Neg (a) t = Transpose <perm = {perm}> (b) "
        f"e = Expand (t, s) {users} }}"
    )
    _, model, _ = optimized(graph, target=target)
    assert {n.op_type for n in model.graph.node} <= {"FusedElementwise", "Identity"}
    (program,) = [Program.parse(a.s.decode()) for n in model.graph.node for a in n.attribute if a.name == "program"]
    assert [len(kernel.extents) for kernel in program.kernels] == [3]


def test_transposed_residual() -> None:
    graph = "g (float[4, 4] x) => (float[4, 4] y) { a = Exp (x) t = Transpose (a) y = Add (a, t) }"
    assert fused(graph)  # one dimension may not stand twice: never wrong, however it is divided


def test_trailing_reshape_stays_outside() -> None:
    found, model, _ = optimized(
        "g (float[3, 8] x) => (float[24] y) <int64[1] flat = {-1}> { a = Exp (x) b = Neg (a) y = Reshape (b, flat) }"
    )
    assert found == ["FusedElementwise"]
    assert [n.op_type for n in model.graph.node] == ["FusedElementwise", "Reshape"]


def test_rearranged_input_that_others_need_stays() -> None:
    found, model, _ = optimized(
        "g (float[3, 8] x) => (float[24] f, float[24] y) <int64[1] flat = {24}> { f = Reshape (x, flat) a = Exp (f) "
        "y = Mul (a, f) }"
    )
    assert found == ["FusedElementwise"]
    assert "Reshape" in [n.op_type for n in model.graph.node]


@pytest.mark.parametrize("target", ["{2, 3, 4}", "{6, 4}", "{2, 12}", "{24}", "{1, 24, 1}", "{0, -1}", "{2, -1, 2}"])
def test_reshapes_inside_a_region(target: str) -> None:
    rank = target.count(",") + 1
    graph = (
        f"g (float[2, 3, 4] x) => (float[{', '.join('?' * rank)}] y) <int64[{rank}] shape = {target}> "
        "{ a = Exp (x) r = Reshape (a, shape) y = Tanh (r) }"
    )
    assert fused(graph) == ["FusedElementwise"]


def test_reshape_across_pieces_is_refused() -> None:
    found, _, report = optimized(
        "g (float[4, 6] x) => (float[6, 4] y) <int64[2] shape = {6, 4}> { a = Exp (x) b = Neg (a) "
        "r = Reshape (b, shape) c = Tanh (r) y = Abs (c) }"
    )
    assert found == ["FusedElementwise"] * 2
    assert "it reshapes in a way that no index map can follow" in [r.reason for r in report.refusals]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_expansion_that_is_split_and_read_whole(target: str) -> None:
    graph = (
        "g (float[4] x, float[2, 3, 4] w, float[6, 4] v) => (float[2, 3, 4] y, float[6, 4] z) "
        "<int64[2] shape = {6, 4}, int64[3] apart = {2, 3, 4}> { "
        "a = Exp (x) e = Expand (a, shape) r = Reshape (e, apart) y = Add (r, w) z = Mul (e, v) }"
    )
    found, _, report = optimized(graph, target=target)
    assert found == ["FusedElementwise"]
    assert Program.parse(report.fusions[0].program).kernels[0].extents == (2, 3, 4)


def test_column_schedule_layer_norm() -> None:
    graph = (
        "g (float[2, 6, 3, 4] x, float[6, 1, 1] w) => (float[2, 6, 3, 4] y) <float e = {0.00001}> { "
        "m = ReduceMean <axes = [1]> (x) c = Sub (x, m) q = Mul (c, c) v = ReduceMean <axes = [1]> (q) a = Add (v, e) "
        "r = Sqrt (a) n = Div (c, r) y = Mul (n, w) }"
    )
    assert fused(graph) == ["FusedLayerNorm"]
