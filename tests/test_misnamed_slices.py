"""Slices of opset 10, whose dimensions ONNX's shape inference calls what they were cut from."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from graphs import fused, optimized


def test_slices_of_opset_10_do_not_keep_the_symbol() -> None:
    # ONNX's inference says that they do: the result came out as long as what it was cut from.
    graph = (
        "g (float[N] x) => (float[?] c, float[?] d) <int64[1] s = {0}, int64[1] e = {1}, int64[1] a = {0}, "
        "int64[1] t = {1}> { z = Slice (x, s, e, a, t) b = Exp (z) c = Neg (b) d = Mul (c, x) }"
    )
    for target, operands in itertools.product(("cpu", "cuda"), ("x, s, e, a, t", "x, s, e, a", "x, s, e")):
        fused(graph.replace("x, s, e, a, t", operands), opset=10, sizes={"N": 4}, target=target)


def test_slices_of_opset_10_in_bodies_and_functions_do_not_keep_the_symbol() -> None:
    nodes = "z = Slice (x, s, e, a) b = Exp (z) c = Neg (b) d = Mul (c, x)"
    values = "<int64[1] s = {-1}, int64[1] e = {9}, int64[1] a = {-1}>"
    body = (
        f"g (float[2, N] x, bool k) => (float[?, ?] y, float[?, ?] w) {values} {{ y, w = If (k) <then_branch = t () => "
        f"(float[?, ?] c, float[?, ?] d) {{ {nodes} }}, else_branch = f () => (float[?, ?] p, float[?, ?] q) "
        "{ p = Abs (x) q = Neg (x) }> }"
    )
    for k in (True, False):
        assert fused(body, opset=10, sizes={"N": 4}, feeds={"k": np.array(k)})
    function = (
        "g (float[2, N] x) => (float[?, ?] c, float[?, ?] d) { z = local.last (x) b = Exp (z) c = Neg (b) "
        'd = Mul (c, x) } <domain: "local", opset_import: ["": 10]> last (x) => (z) { s = Constant <value = int64[1] '
        "{-1}> () e = Constant <value = int64[1] {9}> () z = Slice (x, s, e, s) }"
    )
    fused(function, opset=10, sizes={"N": 4})


def test_onnx_runtime_is_told_what_slices_of_opset_10_are_called() -> None:
    # It plans memory by the names of dimensions: a buffer of N was to hold the one element that was cut out.
    graph = (
        "g (float[1, 4, D] x) => (float[1, ?, 3] y, float[1, ?, 1] z) <int64[1] s = {1}, int64[1] e = {2}, "
        "int64[1] a = {2}, float h = {0.5}, float[1, 4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> "
        "{ c = Slice (x, s, e, a) r = ReduceL1 <axes = [1, 2], keepdims = 1> (c) m = Mul (w, w) n = Add (m, h) "
        "y = Div (x, n) t = Tanh (r) z = Softplus (t) }"
    )
    found, model, _ = optimized(graph, opset=10, sizes={"D": 3}, min_nodes=1)
    assert found
    declared = next(v for v in model.graph.value_info if v.name == "c")
    assert [d.dim_param or d.dim_value for d in declared.type.tensor_type.shape.dim] == [1, 4, "c.2"]


@pytest.mark.parametrize("axis", [1, -3])
@pytest.mark.parametrize("last", [3, -1])
def test_a_slice_of_a_slice_of_opset_10_does_not_get_the_symbol_back(axis: int, last: int) -> None:
    graph = (
        "g (float[1, A, 3, 8] x) => (float[1, K, 3, 8] y) <int64[1] s = {0}, int64[1] e = {1}, int64[1] h = {-4}, "
        f"int64[1] t = {{8}}, int64[1] a = {{{axis}}}, int64[1] b = {{{last}}}> {{ d = Sigmoid (x) "
        "c = Slice (d, s, e, a) f = Slice (c, h, t, b) p = Slice (c, s, h, b) q = Concat <axis = 3> (f, p) "
        "y = Sin (q) }"
    )
    found, model, _ = optimized(graph, opset=10, sizes={"A": 3}, min_nodes=1)
    assert found
    called = {v.name: v.type.tensor_type.shape.dim[1].dim_param for v in model.graph.value_info}
    assert called["f"] == "f.1"
    assert called["p"] == "p.1"


@pytest.mark.parametrize("dims", ["1, 4, ?", "?, ?, ?", "1, 4, K"])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_slice_of_opset_10_that_is_an_output(target: str, dims: str) -> None:
    """It keeps its declared type, and what is made of it inside has another name to go by."""
    graph = (
        f"g (float[1, 4, D] x) => (float[1, ?, 3] y, float[1, ?, 1] z, float[{dims}] c) <int64[1] s = {{1}}, "
        "int64[1] e = {2}, int64[1] a = {2}, float h = {0.5}, "
        "float[1, 4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> "
        "{ c = Slice (x, s, e, a) r = ReduceL1 <axes = [1, 2], keepdims = 1> (c) m = Mul (w, w) n = Add (m, h) "
        "y = Div (x, n) t = Tanh (r) z = Softplus (t) }"
    )
    found, model, _ = optimized(graph, opset=10, sizes={"D": 3}, min_nodes=1, target=target)
    assert found
    assert [n.op_type for n in model.graph.node if "c" in n.output] in (["Identity"], found[-1:])


def test_a_slice_of_opset_10_that_is_an_output_and_captured() -> None:
    graph = (
        "g (float[1, 4, D] x, bool k) => (float[1, ?, 3] y, float[?, ?, ?] z, float[?, ?, ?] c) <int64[1] s = {1}, "
        "int64[1] e = {2}, int64[1] a = {2}, float h = {0.5}, "
        "float[1, 4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { c = Slice (x, s, e, a) "
        "z = If (k) <then_branch = t () => (float[?, ?, ?] p) { q = Tanh (c) p = Softplus (q) }, "
        "else_branch = f () => (float[?, ?, ?] p) { q = Tanh (c) p = Neg (q) }> m = Mul (w, w) n = Add (m, h) "
        "y = Div (x, n) }"
    )
    for k in (True, False):
        assert fused(graph, opset=10, sizes={"D": 3}, feeds={"k": np.array(k)}, min_nodes=1)
