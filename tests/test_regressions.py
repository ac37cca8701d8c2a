"""The smallest graph of each mistake that random graphs found: none may come back."""

from __future__ import annotations

import numpy as np
from graph_check import check
from graphs import fused, optimized, parse


def test_reduction_of_what_an_expansion_repeats() -> None:
    # The scalar does not depend on the axis of the expansion, so no kernel can reduce it there.
    fused(
        "g (double x) => (double[1] y) <int64[1] shape = {2}> { a = Abs (x) b = Expand (a, shape) c = Mul (b, b) "
        "d = Div (a, c) y = ReduceL2 <keepdims = 1> (d) }",
        min_nodes=1,
    )


def test_outer_product_of_a_value_with_itself() -> None:
    fused(
        "g (float[6, 6] x) => (float[6, 6, 6, 6] y) <int64[2] axes = {2, 3}> "
        "{ a = Abs (x) b = Unsqueeze (a, axes) c = Mul (a, a) y = Add (b, c) }"
    )


def test_outer_product_of_a_vector_with_itself() -> None:
    fused(
        "g (float[N] x) => (float[N, N] y) <int64[1] axes = {1}> { a = Exp (x) b = Unsqueeze (a, axes) y = Sub (b, a) }"
    )


def test_broadcast_of_three_symbols_reads_the_broadcast_of_two() -> None:
    graph = "g (float[A] a, float[B] b, float[C] c) => (float[?] y) { ab = Add (a, b) t = Mul (ab, c) y = Div (t, ab) }"
    for sizes in ({"A": 3, "B": 1, "C": 3}, {"A": 1, "B": 1, "C": 4}, {"A": 1, "B": 3, "C": 1}):
        assert fused(graph, sizes=sizes) == ["FusedElementwise"]


def test_unused_nodes_are_left_alone() -> None:
    # They were fused in a second run, with what no longer stood beside them.
    found, _, report = optimized(
        "g (float[8] x) => (float[8] y) { y = Abs (x) u = ReduceMean <axes = [0]> (y) v = Exp (u) w = Sub (y, v) }"
    )
    assert found == []
    assert {r.reason for r in report.refusals if r.node != "Abs(y)"} == {"nothing uses its results"}


def test_expansion_of_a_symbol_that_may_be_one() -> None:
    graph = (
        "g (float[A, B] x) => (float[3, 2] y) <int64[2] shape = {3, 2}> "
        "{ a = Abs (x) b = Exp (a) y = Expand (b, shape) }"
    )
    for sizes in ({"A": 3, "B": 2}, {"A": 1, "B": 2}, {"A": 3, "B": 1}, {"A": 1, "B": 1}):
        fused(graph, sizes=sizes)


def test_expansion_of_an_unknown_dimension_by_a_larger_rank() -> None:
    fused(
        "g (float[A, 2, A] x) => (float[3, 2, 2, ?] y) <int64[4] shape = {3, 2, 1, 1}> "
        "{ a = Exp (x) b = Sigmoid (a) y = Expand (b, shape) }",
        sizes={"A": 2},
    )


def test_float16_from_float64_that_an_if_captures() -> None:
    # ONNX Runtime calls the graph cyclic where the local function rounds to float16 twice in a row.
    fused(
        "g (double x, bool c) => (float16 y) { a = Cast <to = 10> (x) "
        "y = If (c) <then_branch = t () => (float16 p) { o = Tanh (a) p = Sigmoid (o) }, "
        "else_branch = e () => (float16 r) { q = Sub (a, a) r = Tanh (q) }> }",
        opset=21,
        min_nodes=1,
    )


def test_result_without_a_dimension_that_may_be_empty() -> None:
    # The space is empty where N is 0; the result without N still has elements.
    graph = (
        "g (float[1, 8] a, float[N, 8] b) => (float[1, 8] d, float[N, 8] f) "
        "{ c = Abs (a) d = Exp (c) e = Add (d, b) f = Tanh (e) }"
    )
    for size in (0, 1, 3):
        assert fused(graph, sizes={"N": size}) == ["FusedElementwise", "FusedElementwise"]


def test_result_along_part_of_an_empty_reduction() -> None:
    fused(
        "g (float[N, 8] x, float[8] w) => (float[1, 8] y) "
        "{ s = ReduceSum <axes = [0, 1], keepdims = 1> (x) a = Abs (w) b = Exp (a) y = Mul (b, s) }",
        opset=11,
        sizes={"N": 0},
    )


def test_broadcast_along_a_reshaped_dimension() -> None:
    # Only a plain dimension of the space broadcasts at run time, no product of several.
    fused(
        "g (float[N, 3, 4] x, float[1, M] z) => (float[N, 12] y) { a = Abs (x) b = Exp (a) f = Flatten <axis = 1> (b) "
        "y = Mul (z, f) }",
        sizes={"N": 2, "M": 1},
    )


def test_opset_7_has_no_where_for_a_local_function() -> None:
    found, _, report = optimized("g (float[4] x) => (float[4] y) { a = Elu (x) y = Neg (a) }", opset=7)
    assert found == []
    assert all("no local function can stand in for it" in r.reason for r in report.refusals)


def test_wrongly_declared_outputs_decide_nothing() -> None:
    # ONNX Runtime only warns where an output has another shape than the model declares.
    graph = (
        "g (float[N, 3] x, float[M, 3] w) => (float[1, 3] y, float[N, 3] z) { a = Exp (x) y = Neg (a) b = Exp (w) "
        "c = Neg (b) z = Add (y, c) }"
    )
    fused(graph, sizes={"N": 2, "M": 2})
    fused(graph.replace("float[1, 3] y", "float[M, 3] y"), sizes={"N": 2, "M": 1})


def test_symbol_read_along_what_an_expansion_makes() -> None:
    # Where it is 1, no tensor shows the local function the extent of the result.
    graph = (
        "g (float x, float[N] z) => (float[2] y) <int64[1] shape = {2}> { a = Exp (x) b = Expand (a, shape) "
        "c = Neg (b) y = Add (c, z) }"
    )
    fused(graph, sizes={"N": 1})
    fused(graph, sizes={"N": 2})


def test_symbols_that_look_like_fresh_ones() -> None:
    graph = "g (float[Q, 3] x, float[P, 3] w) => (float[R, 3] y) { a = Exp (x) b = Exp (w) c = Neg (a) y = Add (b, c) }"
    model = parse(graph)
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "?0"
    check(model, {"x": np.ones((1, 3), np.float32), "w": np.ones((4, 3), np.float32)})


def test_empty_dimensions_that_a_reduction_lays_out_as_one() -> None:
    # The coefficients of what comes before an empty dimension would be 0.
    graph = (
        "g (float[0, 1, 0, 0] x, float v) => (float[1, 1] y) <int64[2] last = {2, 3}, int64[2] first = {0, 1}> "
        "{ a = Neg (v) b = ReduceSum <keepdims = 0> (x) c = ReduceSum <keepdims = 0> (x, last) d = Sub (a, b) "
        "e = ReduceSum <keepdims = 1> (c, first) y = Mul (d, e) }"
    )
    for target in ("cpu", "cuda"):
        fused(graph, opset=20, target=target, min_nodes=1)


def test_part_of_what_expands_a_symbol_that_may_be_one() -> None:
    # An index that is not the plain dimension is not broadcast: the run ended in an error where A is 1.
    parts = ("k = Gather (e, i)", "k = Slice (e, b, n)", "j, k = Split (e)", "k = Slice (e, b, z, f, b)")
    for part in parts:
        graph = (
            "g (float[A] x) => (float[?] y) <int64 i = {-1}, int64[1] s = {2}, int64[1] b = {-1}, int64[1] n = {2}, "
            f"int64[1] z = {{-9}}, int64[1] f = {{0}}> {{ e = Expand (x, s) {part} t = Exp (x) u = Neg (k) "
            "y = Max (t, u) }"
        )
        for size in (1, 2):
            for target in ("cpu", "cuda"):
                fused(graph, sizes={"A": size}, target=target, min_nodes=1)


def test_result_of_a_row_along_some_of_the_reduced_dimensions() -> None:
    # It was stored by the points of an empty space, which are none.
    graph = (
        "g (float[C, 2, D] x) => (float[2] y, float[C, 2, D] z) <int64[1] s = {2}> { a = Tanh (x) "
        "r = ReduceSum <axes = [0, 1, 2], keepdims = 0> (a) y = Expand (r, s) z = Sub (a, r) }"
    )
    for c, d in ((0, 0), (0, 2), (3, 0), (3, 2)):
        for target in ("cpu", "cuda"):
            fused(graph, opset=10, sizes={"C": c, "D": d}, target=target, min_nodes=1)
