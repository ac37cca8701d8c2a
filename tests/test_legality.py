"""Graphs made to mislead the growth of regions: what fuses, what must not, and that the values stay.

Each is optimized for both targets with single operators allowed, which fuses as much as there is to fuse, and runs with
and without the library and with ONNX Runtime's own optimizations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import pytest
from graphs import optimized

from onnxfuse.report import Report

TARGETS = ("cpu", "cuda")
SQUARE = "float[4, 4]"


def fusions(
    graph: str, target: str, opset: int = 17, feeds: dict[str, np.ndarray] | None = None, **sizes: int
) -> tuple[list[str], onnx.ModelProto, Report]:
    """The operators of each fused region, after the values were checked, the model and the report."""
    _, model, report = optimized(graph, opset, sizes, feeds, target=target, min_nodes=1, optimizations=True)
    return [" ".join(f.operators) for f in report.fusions], model, report


def left(model: onnx.ModelProto) -> list[str]:
    """The operators outside of fused nodes, without those in bodies."""
    return [n.op_type for n in model.graph.node if n.domain != "onnxfuse"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("outputs", "nodes", "expected"),
    [
        pytest.param(
            "y", "a = Exp (x) m = MatMul (a, w) b = Neg (a) c = Add (m, b) y = Tanh (c)", ["Exp Neg", "Add Tanh"]
        ),
        pytest.param(
            "y, z",
            "a = Exp (x) z = Neg (a) m = MatMul (a, w) n = MatMul (m, z) b = Add (n, z) y = Tanh (b)",
            ["Exp Neg", "Add Tanh"],
        ),
        pytest.param(
            "z",
            "a = Tanh (x) b = Neg (a) m = MatMul (b, w) c = Sigmoid (x) d = Mul (c, m) z = Exp (d)",
            ["Tanh Neg", "Sigmoid Mul Exp"],
        ),
        pytest.param(
            "y, z",
            "a = Tanh (x) p = Neg (a) m = MatMul (p, w) c = Mul (m, w) z = Exp (c) "
            "b = Sigmoid (w) q = Abs (b) n = MatMul (q, w) d = Add (n, x) y = Tanh (d)",
            ["Tanh Neg Add Tanh", "Mul Exp", "Sigmoid Abs"],
        ),
        pytest.param(
            "y, z",
            "a = Tanh (x) p = Neg (a) b = Sigmoid (w) q = Abs (b) m = MatMul (p, w) n = MatMul (q, w) "
            "c = Mul (m, x) y = Exp (c) d = Add (n, x) z = Tanh (d)",
            ["Tanh Neg", "Sigmoid Abs", "Mul Exp Add Tanh"],
        ),
    ],
    ids=["diamond", "way_out_and_back", "sibling_behind_a_way", "siblings_that_would_wait", "siblings_side_by_side"],
)
def test_regions_are_convex(target: str, outputs: str, nodes: str, expected: list[str]) -> None:
    outs = ", ".join(f"{SQUARE} {name}" for name in outputs.split(", "))
    found, model, report = fusions(f"g ({SQUARE} x, {SQUARE} w) => ({outs}) {{ {nodes} }}", target)
    assert found == expected
    assert set(left(model)) == {"MatMul"}
    if target == "cuda" and expected[1] == "Sigmoid Abs":  # what has no way between it shares a launch
        assert [len(group.members) for group in report.groups] == [2]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("graph", "outputs"),
    [
        pytest.param(
            "g (float[4] x) => (float[4] a, float[4] b, float[4] y) { a = Exp (x) b = Neg (a) y = Tanh (b) }", "aby"
        ),
        pytest.param("g (float[4] x) => (float[4] x, float[4] y) { a = Exp (x) y = Neg (a) }", "y"),
        pytest.param(
            "g (float[2] x) => (float[2] w, float[2] y) <float[2] w = {1, 2}> { a = Add (x, w) y = Neg (a) }", "y"
        ),
        pytest.param("g (float[4] x) => (float[4] b, float[4] y) { a = Exp (x) b = Neg (a) y = Identity (b) }", "b"),
        pytest.param(
            "g (float[4] b, float[3, 4] x) => (float[4] u, float[3, 4] v) { e = Sin (b) u = Cos (e) a = Add (x, u) "
            "v = Tanh (a) }",
            "uv",
        ),
    ],
    ids=["every_value", "the_input", "an_initializer", "twice", "row_and_matrix"],
)
def test_graph_outputs_are_stored(target: str, graph: str, outputs: str) -> None:
    _, _, report = fusions(graph, target)
    assert [set(f.outputs) for f in report.fusions] == [set(outputs)]


class Capture(NamedTuple):
    """A graph, the regions in it, and the tensors that those outside of bodies store."""

    graph: str
    fused: list[str]
    kept: list[str]


CAPTURES = {
    "values of a region": Capture(
        "g (float[4] x, bool c) => (float[4] y) { a = Exp (x) b = Neg (a) d = Tanh (b) "
        "y = If (c) <then_branch = t () => (float[4] p) { p = Add (b, d) }, "
        "else_branch = e () => (float[4] q) { q = Identity (b) }> }",
        ["Exp Neg Tanh", "Add"],
        ["b", "d"],
    ),
    "parts of a tensor": Capture(
        "g (float[4, 6] x, float[6, 8] w, float[8] k, bool c) => (float[4, 4] y) { m = MatMul (x, w) a = Add (m, k) "
        "p, r = Split <axis = 1, num_outputs = 2> (a) "
        "y = If (c) <then_branch = t () => (float[4, 4] u) { s = Exp (p) u = Neg (s) }, "
        "else_branch = e () => (float[4, 4] v) { s = Tanh (r) v = Add (s, p) }> }",
        ["Add Split", "Exp Neg", "Tanh Add"],
        ["p", "r"],
    ),
    "what else would be computed where it is used": Capture(
        "g (float[4, 6] x, float[6, 8] w, float[8] k, bool c) => (float[4, 4] y, float[4, 4] z) { m = MatMul (x, w) "
        "a = Add (m, k) p, r = Split <axis = 1, num_outputs = 2> (a) d = Exp (p) f = Mul (d, r) z = Neg (f) "
        "y = If (c) <then_branch = t () => (float[4, 4] u) { s, o = Split <axis = 1, num_outputs = 2> (a) u = Neg (s) "
        "}, else_branch = e () => (float[4, 4] v) { v = Identity (d) }> }",
        ["Add", "Split Exp Mul Neg", "Split Neg"],
        ["a", "d", "z"],
    ),
    "an initializer that a body reads too": Capture(
        "g (float[4] x, bool c) => (float[4] y, float[4] z) <float[4] w = {1, 2, 3, 4}> { a = Mul (x, w) z = Tanh (a) "
        "y = If (c) <then_branch = t () => (float[4] p) { b = Add (x, w) p = Neg (b) }, "
        "else_branch = e () => (float[4] q) { q = Identity (w) }> }",
        ["Mul Tanh", "Add Neg"],
        ["z"],
    ),
    "initializers of bodies": Capture(
        "g (float[4] x, bool c) => (float[4] y) { a = Exp (x) "
        "y = If (c) <then_branch = t () => (float[4] p) <float[4] k = {1, 2, 3, 4}> { b = Add (a, k) p = Neg (b) }, "
        "else_branch = e () => (float[4] q) <float[4] l = {4, 3, 2, 1}> { d = Mul (a, l) q = Abs (d) }> }",
        ["Exp", "Add Neg", "Mul Abs"],
        ["a"],
    ),
    "a body inside a body": Capture(
        "g (float[4] x, bool c) => (float[4] y) { y = If (c) <then_branch = t () => (float[4] p) { a = Exp (x) "
        "p = If (c) <then_branch = t2 () => (float[4] u) { z = Mul (a, x) u = Tanh (z) }, "
        "else_branch = e2 () => (float[4] v) { v = Neg (a) }> }, "
        "else_branch = e () => (float[4] q) { q = Identity (x) }> }",
        ["Exp", "Mul Tanh", "Neg"],
        [],
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CAPTURES)
def test_what_bodies_capture_stays(target: str, name: str) -> None:
    graph, expected, kept = CAPTURES[name]
    for condition in (True, False):
        found, model, report = fusions(graph, target, 18, {"c": np.array(condition)})
        assert found == expected
        assert "If" in left(model)
        outer = {f.name for f in report.fusions if f.name in [n.name for n in model.graph.node]}
        assert sorted(o for f in report.fusions if f.name in outer for o in f.outputs) == kept


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("trips", [0, 3])
def test_bodies_of_loops(target: str, trips: int) -> None:
    graph = (
        "g (float[4] x, int64 n, bool c) => (float[4] y) { y = Loop (n, c, x) <body = b (int64 i, bool ci, float[4] s) "
        "=> (bool co, float[4] so) { co = Identity (ci) a = Exp (s) t = Tanh (a) so = Mul (t, x) }> }"
    )
    found, model, _ = fusions(graph, target, feeds={"n": np.array(trips), "c": np.array(True)})
    assert found == ["Exp Tanh Mul"]
    assert left(model) == ["Loop"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_state_that_grows_has_no_known_shape(target: str) -> None:
    graph = (
        "g (float[N] x, int64 n, bool c) => (float[M] y) { y = Loop (n, c, x) <body = b (int64 i, bool ci, float[K] s) "
        "=> (bool co, float[L] so) { co = Identity (ci) a = Concat <axis = 0> (s, s) t = Tanh (a) so = Mul (t, x) }> }"
    )
    # In the first trip the state is as long as x once it has doubled only where x has one element.
    found, _, _ = fusions(graph, target, feeds={"n": np.array(2), "c": np.array(True)}, N=1)
    assert found == ["Tanh", "Mul"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        # Neither tensor is known to be as large as the result.
        pytest.param(
            "g (float[?, ?] x, float[?, ?] w) => (float[?, ?] y) { a = Exp (x) b = Tanh (w) c = Mul (a, b) "
            "y = Neg (c) }",
            ["Exp", "Tanh", "Mul Neg"],
        ),
        pytest.param(
            "g (float[N] x, float[M] w) => (float[?] y) { a = Exp (x) b = Tanh (w) c = Mul (a, b) y = Neg (c) }",
            ["Exp", "Tanh", "Mul Neg"],
        ),
        pytest.param(
            "g (float[N, 4] x, float[N, 4] w) => (float[N, 4] y) { a = Exp (x) b = Tanh (w) c = Mul (a, b) "
            "y = Neg (c) }",
            ["Exp Tanh Mul Neg"],
        ),
        # What Shape reads is stored, though only its shape matters.
        pytest.param(
            "g (float[N, 4] x, float[4] k) => (float[N, 4] y) { a = Exp (x) s = Shape (a) e = Expand (k, s) "
            "b = Neg (a) y = Add (b, e) }",
            ["Exp Neg", "Expand Add"],
        ),
        pytest.param(
            "g (float[4] x) => (float[1, K] y) { a = Exp (x) n = NonZero (a) f = Cast <to = 1> (n) h = Neg (f) "
            "y = Tanh (h) }",
            ["Exp", "Cast Neg Tanh"],
        ),
        pytest.param(
            "g (float x, float[N] k) => (float[M] y) { s = Shape (k) r = Expand (x, s) a = Exp (r) y = Neg (a) }",
            ["Exp Neg"],
        ),
    ],
    ids=["unknown", "different_symbols", "equal_symbols", "shape", "nonzero", "expanded_scalar"],
)
def test_shapes_that_are_not_known(target: str, graph: str, expected: list[str]) -> None:
    for size in (1, 2):
        assert fusions(graph, target, N=size, M=size)[0] == expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        # Names of fused nodes and of what is in programs and functions.
        pytest.param(
            "g (float[4] FusedElementwise_0, float[4] v0) => (float[4] y0) { x0 = Exp (FusedElementwise_0) "
            "x1 = Neg (v0) y0 = Add (x0, x1) }",
            "Exp Neg Add",
        ),
        pytest.param(
            "g (float[4] x) => (float[4] y) { v0 = Exp (x) i0 = local.f (v0) y = Add (i0, v0) } "
            '<domain: "local", opset_import: ["" : 17]> f (v0) => (o0) { i0 = Tanh (v0) o0 = Neg (i0) }',
            "Exp Tanh Neg Add",
        ),
        pytest.param(
            "g (float[4] x) => (float[4] y) { t = Neg (x) a = local.f (t) y = Add (a, t) } "
            '<domain: "local", opset_import: ["" : 17]> f (x) => (y) { t = Exp (x) y = Tanh (t) }',
            "Neg Exp Tanh Add",
        ),
        pytest.param(
            "g (float[4] x) => (float[4] y) { a = local.f (x) b = local.f (a) y = Neg (b) } "
            '<domain: "local", opset_import: ["" : 17]> f (u) => (v) { t = Exp (u) v = Tanh (t) }',
            "Exp Tanh Exp Tanh Neg",
        ),
    ],
    ids=["of_fused_nodes", "of_programs", "of_a_function", "of_a_function_called_twice"],
)
def test_names_that_collide(target: str, graph: str, expected: str) -> None:
    found, model, _ = fusions(graph, target)
    assert found == [expected]
    assert left(model) == []


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_a_concatenation_by_a_taken_name(target: str) -> None:
    graph = (
        "g (float[4, 2] onnxfuse_part, float[4, 2] b) => (float[4, 4] y) { a = Exp (onnxfuse_part) c = Neg (b) "
        "d = Concat <axis = 1> (a, c) y = Tanh (d) }"
    )
    assert fusions(graph, target)[0] == (["Exp Neg Concat Tanh"] if target == "cuda" else ["Exp", "Neg", "Tanh"])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        pytest.param(
            "g (float[4, 4] x, float k) => (float[4, 4] y) { a = Clip (x, , k) b = Clip (a) y = Neg (b) }",
            "Clip Clip Neg",
        ),
        pytest.param(
            "g (float[4, 8] x, float[8] s) => (float[4, 8] y, float[4, 1] i) { u, , i = LayerNormalization (x, s) "
            "y = Neg (u) }",
            "LayerNormalization Neg",
        ),
        pytest.param(
            "g (float[4] x) => (float[4] y) { b = Exp (x) c, m = Dropout (b) y = Neg (c) }",
            "Exp Dropout Neg",
        ),
    ],
    ids=["inputs", "outputs", "a_mask_that_nothing_uses"],
)
def test_what_is_optional(target: str, graph: str, expected: str) -> None:
    found, model, _ = fusions(graph, target)
    assert found == [expected]
    assert left(model) == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("graph", "expected", "reason"),
    [
        pytest.param(
            "g (float[4, 6] x) => (float[3, 8] y) <int64[2] s = {3, 8}> { a = Exp (x) b = Reshape (a, s) y = Neg (b) }",
            ["Exp", "Neg"],
            "no index map can follow",
        ),
        pytest.param(
            "g (float[300, 300] x) => (float[300, 300] y) { t = Transpose (x) a = Add (x, t) y = Tanh (a) }",
            ["Add Tanh"],
            "scattered",
        ),
        pytest.param(
            "g (float[8, 8] x) => (float[8, 8] y) { e = Exp (x) t = Transpose (e) y = Add (e, t) }",
            ["Exp Transpose", "Add"],
            "",
        ),
        pytest.param(
            "g (float[4, 6] x) => (float[4, 6] y) { a = Softmax <axis = 1> (x) b = Softmax <axis = 0> (a) "
            "y = Softmax <axis = 1> (b) }",
            ["Softmax"] * 3,
            "",
        ),
        pytest.param(
            "g (float[4] x) => (float[4] y) <int64[2] s = {3, 4}> { e = Expand (x, s) f = Exp (e) "
            "y = ReduceMean <axes = [0], keepdims = 0> (f) }",
            ["Expand Exp", "ReduceMean"],
            "",
        ),
        pytest.param(
            "g (float[0, 4] x, float[4] k) => (float[0, 4] y, float[4] z) { e = Exp (k) z = Neg (e) a = Add (x, e) "
            "y = Tanh (a) }",
            ["Exp Neg", "Add Tanh"],
            "",
        ),
    ],
    ids=["reshape", "transposed", "transposed_in_place", "crossing_axes", "repeated", "empty"],
)
def test_spaces_that_do_not_agree(target: str, graph: str, expected: list[str], reason: str) -> None:
    found, _, report = fusions(graph, target)
    assert found == expected
    assert any(reason in r.reason for r in report.refusals) or not reason
