"""The bias of a Gemm goes into the region after it, on CUDA, where there is one."""

from __future__ import annotations

import pytest
from graphs import optimized

HEAD = "g (float[4, 6] x, float[6, 5] w, float[5] b) => "


def gemms(model) -> list[int]:
    """The number of inputs of each Gemm."""
    return [len(n.input) for n in model.graph.node if n.op_type == "Gemm"]


@pytest.mark.parametrize("bias", ["float[5] b", "float[1, 5] b", "float[4, 1] b", "float[4, 5] b", "float b"])
@pytest.mark.parametrize("gemm", ["Gemm (x, w, b)", "Gemm <alpha = 0.5> (x, w, b)"])
def test_an_activation_takes_the_bias(gemm: str, bias: str) -> None:
    graph = f"g (float[4, 6] x, float[6, 5] w, {bias}) => (float[4, 5] y) {{ m = {gemm} y = Tanh (m) }}"
    ops, model, report = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"]
    assert gemms(model) == [2]
    assert report.fusions[0].operators == ("Add", "Tanh")


def test_a_residual_and_a_norm_take_it_through_a_reshape() -> None:
    graph = (
        "g (float[4, 6] x, float[6, 5] w, float[5] b, float[2, 2, 5] r, float[5] s) => (float[2, 2, 5] y) "
        "<int64[3] shape = {2, 2, 5}> { m = Gemm (x, w, b) h = Reshape (m, shape) a = Add (r, h) "
        "y = LayerNormalization (a, s) }"
    )
    ops, model, _ = optimized(graph, target="cuda")
    assert ops == ["FusedLayerNorm"]
    assert gemms(model) == [2]


def test_packed_heads_take_it() -> None:
    graph = (
        "g (float[10, 12] x, float[12, 36] w, float[36] b) => (float[2, 3, 5, 4] q, float[2, 3, 5, 4] k, "
        "float[2, 3, 5, 4] v) <int64[3] up = {2, 5, 36}, int64[4] heads = {2, 5, 3, 4}> "
        "{ m = Gemm (x, w, b) u = Reshape (m, up) p, r, s = Split <axis = 2, num_outputs = 3> (u) "
        "ph = Reshape (p, heads) rh = Reshape (r, heads) sh = Reshape (s, heads) "
        "q = Transpose <perm = [0, 2, 1, 3]> (ph) k = Transpose <perm = [0, 2, 1, 3]> (rh) "
        "v = Transpose <perm = [0, 2, 1, 3]> (sh) }"
    )
    _, model, _ = optimized(graph, opset=18, target="cuda")
    left = [n.op_type for n in model.graph.node if n.domain != "onnxfuse"]
    assert [op for op in left if op not in ("Reshape", "Constant")] == ["Gemm"]
    assert gemms(model) == [2]


@pytest.mark.parametrize(
    ("outputs", "nodes"),
    [
        ("(float[4, 5] m)", ""),
        ("(float[4, 5] m, float[4, 5] y)", "y = Tanh (m)"),
        ("(float[4, 4] y)", "y = MatMul (m, t) t = Transpose (m)"),
        ("(float[4, 5] y)", "y = Hardmax (m)"),
        ("(float[4, 5] y, float[4, 5] z)", "y = Tanh (m) z = Hardmax (m)"),
    ],
)
def test_it_stays_where_something_else_needs_the_sum(outputs: str, nodes: str) -> None:
    ordered = " ".join(f"{n.strip()}" for n in nodes.split(" t = ")[::-1]) if " t = " in nodes else nodes
    ordered = ordered.replace("Transpose (m) y", "t = Transpose (m) y") if " t = " in nodes else ordered
    _, model, _ = optimized(f"{HEAD}{outputs} {{ m = Gemm (x, w, b) {ordered} }}", target="cuda")
    assert gemms(model) == [3]


def test_an_addition_that_no_region_takes_goes_back() -> None:
    """The sum may be broadcast in ways that only a run knows."""
    graph = (
        "g (float[4, 6] x, float[6, 5] w, float[5] b) => (float[4, 5] y) <int64[1] axes = {1}> "
        "{ m = Gemm (x, w, b) h, i = TopK <axis = 1> (m, axes) y = Sub (m, h) }"
    )
    _, model, _ = optimized(graph, target="cuda")
    assert gemms(model) == [3]


@pytest.mark.parametrize("gemm", ["Gemm <beta = 0.5> (x, w, b)", "Gemm (x, w)"])
def test_a_scaled_bias_stays(gemm: str) -> None:
    _, model, _ = optimized(f"{HEAD}(float[4, 5] y) {{ m = {gemm} a = Exp (m) y = Tanh (a) }}", target="cuda")
    assert gemms(model) == [3 if "b)" in gemm else 2]


def test_on_the_cpu_it_stays() -> None:
    _, model, _ = optimized(f"{HEAD}(float[4, 5] y) {{ m = Gemm (x, w, b) a = Exp (m) y = Neg (a) }}")
    assert gemms(model) == [3]


def test_before_opset_11_it_stays() -> None:
    graph = f"{HEAD}(float[4, 5] y) {{ m = Gemm (x, w, b) a = Exp (m) y = Neg (a) }}"
    _, model, _ = optimized(graph, opset=10, target="cuda")
    assert gemms(model) == [3]


def test_in_a_body() -> None:
    graph = (
        "g (float[4, 6] x, float[6, 5] w, float[5] b, bool c) => (float[4, 5] y) { y = If (c) <"
        "then_branch = t () => (float[4, 5] p) { m = Gemm (x, w, b) p = Tanh (m) }, "
        "else_branch = e () => (float[4, 5] q) { q = Gemm (x, w, b) }> }"
    )
    ops, _, _ = optimized(graph, target="cuda", feeds=None)
    assert ops == ["FusedElementwise"]
