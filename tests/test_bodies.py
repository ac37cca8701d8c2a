"""Graphs inside of graphs: If, Loop, Scan and local functions, what they capture, and what they give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graph_check import check, fused_nodes
from graphs import feeds_for, fused, optimized, parse

from onnxfuse import optimize
from onnxfuse.custom_ops.overloads import GUARD
from onnxfuse.runtime import make_session, run

IF = (
    "g (float[3, 4] x, bool c) => (float[3, 4] y) { a = Exp (x) b = Neg (a) "
    "y = If (c) <then_branch = t () => (float[3, 4] p) { p = Mul (b, b) }, "
    "else_branch = e () => (float[3, 4] q) { q = Add (%s, x) }> }"
)


@pytest.mark.parametrize("condition", [True, False])
def test_value_captured_by_a_branch_is_kept(condition: bool) -> None:
    feeds = {"c": np.array(condition)}
    found, model, _ = optimized(IF % "b", feeds=feeds)
    assert found == ["FusedElementwise"]
    assert list(model.graph.node[0].output) == ["b"]
    _, model, report = optimized(IF % "a", feeds=feeds)
    assert set(report.fusions[0].outputs) == {"a", "b"}


@pytest.mark.parametrize("condition", [True, False])
def test_fusion_inside_branches(condition: bool) -> None:
    graph = (
        "g (float[3, 4] x, bool c) => (float[3, 4] y) { a = Exp (x) "
        "y = If (c) <then_branch = t () => (float[3, 4] p) { i = Mul (a, x) j = Tanh (i) p = Neg (j) }, "
        "else_branch = e () => (float[3, 4] q) { i = Add (a, x) m = ReduceMean <axes = [-1]> (i) q = Sub (i, m) }> }"
    )
    found, _, report = optimized(graph, feeds={"c": np.array(condition)})
    assert sorted(found) == ["FusedElementwise", "FusedReduction"]
    assert all(f.graph.endswith(("then_branch", "else_branch")) for f in report.fusions)


def test_branch_that_gives_an_outer_value() -> None:
    graph = (
        "g (float[3] x, bool c) => (float[3] y, float[3] z) { a = Exp (x) b = Neg (a) z = Tanh (b) "
        "y = If (c) <then_branch = t () => (float[3] p) { p = Identity (b) }, "
        "else_branch = e () => (float[3] a) { }> }"
    )
    graph = graph.replace(
        "else_branch = e () => (float[3] a) { }", "else_branch = e () => (float[3] q) { q = Identity (a) }"
    )
    for condition in (True, False):
        _, _, report = optimized(graph, feeds={"c": np.array(condition)})
        assert set(report.fusions[0].outputs) == {"a", "b", "z"}


def test_branches_inside_branches() -> None:
    graph = (
        "g (float[3] x, bool c, bool d) => (float[3] y) { a = Exp (x) b = Neg (a) "
        "y = If (c) <then_branch = t () => (float[3] p) { p = If (d) <"
        "then_branch = tt () => (float[3] r) { i = Mul (b, x) r = Tanh (i) }, "
        "else_branch = te () => (float[3] s) { s = Identity (b) }> }, "
        "else_branch = e () => (float[3] q) { q = Identity (x) }> }"
    )
    for c, d in ((True, True), (True, False), (False, True)):
        assert len(fused(graph, feeds={"c": np.array(c), "d": np.array(d)})) == 2


def test_loop_body() -> None:
    graph = (
        "g (float[4] x, int64 n, bool c) => (float[4] y, float[K, 4] scanned) { a = Exp (x) b = Neg (a) "
        "y, scanned = Loop (n, c, x) <body = l (int64 i, bool go, float[4] s) => (bool more, float[4] t, float[4] e) { "
        "more = Identity (go) f = Mul (s, b) h = Tanh (f) t = Add (h, s) e = Neg (h) }> }"
    )
    feeds = {"n": np.array(3, np.int64), "c": np.array(True)}
    assert fused(graph, feeds=feeds) == ["FusedElementwise", "FusedElementwise"]


def test_scan_body() -> None:
    graph = (
        "g (float[4] x, float[5, 4] z) => (float[4] y, float[5, 4] scanned) { a = Exp (x) b = Neg (a) "
        "y, scanned = Scan (b, z) <num_scan_inputs = 1, body = l (float[4] s, float[4] e) => (float[4] t, float[4] o) "
        "{ f = Mul (s, e) h = Tanh (f) t = Add (h, a) o = Neg (h) }> }"
    )
    found, _, report = optimized(graph)
    assert found == ["FusedElementwise", "FusedElementwise"]
    assert set(report.fusions[0].outputs) == {"a", "b"}


def test_equal_names_in_two_bodies() -> None:
    graph = (
        "g (float[3] x, bool c, bool d) => (float[3] y) { "
        "u = If (c) <then_branch = t () => (float[3] p) { i = Exp (x) p = Neg (i) }, "
        "else_branch = e () => (float[3] q) { i = Tanh (x) q = Abs (i) }> "
        "y = If (d) <then_branch = t () => (float[3] p) { i = Exp (u) p = Neg (i) }, "
        "else_branch = e () => (float[3] q) { i = Tanh (u) q = Abs (i) }> }"
    )
    model = parse(graph)
    feeds = {**feeds_for(model), "c": np.array(True), "d": np.array(False)}
    result, report = check(model, feeds)
    assert len(fused_nodes(result)) == 4
    assert len({f.name for f in report.fusions}) == 4
    # Equal programs share one function, also with a fused node of the other branch.
    assert len([f for f in result.functions if f.overload != GUARD]) == 2


FUNCTION = (
    "g (float[3, 8] x, float[8] w) => (float[3, 8] y) { y = local.Norm (x, w) } "
    '<domain: "local", opset_import: ["" : 17]> Norm (a, s) => (n) { e = Constant <value_float = 0.001> () '
    "m = ReduceMean <axes = [-1]> (a) c = Sub (a, m) q = Mul (c, c) v = ReduceMean <axes = [-1]> (q) p = Add (v, e) "
    "r = Sqrt (p) d = Div (c, r) n = Mul (d, s) }"
)


def test_local_function_is_opened_where_it_fuses() -> None:
    found, model, _ = optimized(FUNCTION)
    assert found == ["FusedLayerNorm"]
    assert [f.domain for f in model.functions] == ["onnxfuse"]


def test_local_function_without_anything_to_fuse_stays() -> None:
    graph = (
        "g (float[3, 8] x, float[8, 4] w) => (float[3, 4] y) { z = local.Project (x, w) a = Exp (z) y = Neg (a) } "
        '<domain: "local", opset_import: ["" : 17]> Project (a, b) => (n) { n = MatMul (a, b) }'
    )
    found, model, _ = optimized(graph)
    assert found == ["FusedElementwise"]
    assert ("local", "Project") in {(f.domain, f.name) for f in model.functions}
    assert "Project" in [n.op_type for n in model.graph.node]


def test_loop_whose_state_outgrows_its_declared_shape() -> None:
    graph = (
        "g (float[2, 3] x) => (float[n, 3] y) <int64 trips = {3}> { "
        "y = Loop <body = b (int64 i, bool go, float[2, 3] v) => (bool more, float[2, 3] w) { "
        "c = Concat <axis = 0> (v, x) m = Mul (c, c) w = Tanh (m) more = Identity (go) }> (trips, , x) }"
    )
    model = parse(graph)  # ONNX's full check refuses it, ONNX Runtime runs it
    result = optimize(model, target="cpu")
    assert result.report.fusions
    feeds = feeds_for(model)
    expected, got = (run(make_session(m), feeds)[0] for m in (model, result.model))
    assert expected.shape == (8, 3)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_local_function_of_another_opset_stays() -> None:
    graph = (
        "g (float[3] x) => (float[3] y) { z = local.Act (x) a = Exp (z) y = Neg (a) } "
        '<domain: "local", opset_import: ["" : 13]> Act (a) => (n) { b = Exp (a) n = Tanh (b) }'
    )
    found, model, _ = optimized(graph)
    assert found == ["FusedElementwise"]
    assert ("local", "Act") in {(f.domain, f.name) for f in model.functions}


def test_functions_of_fused_nodes_are_shared() -> None:
    graph = "g (float[3] x, float[3] z) => (float[3] y, float[3] u) { a = Exp (x) y = Neg (a) b = Exp (z) u = Neg (b) }"
    model = parse(graph)
    result = optimize(model, target="cpu").model
    assert len(fused_nodes(result)) >= 1
    assert len(result.functions) == len({(n.op_type, n.overload) for n in result.graph.node if n.domain == "onnxfuse"})
    onnx.checker.check_model(result, full_check=True)
