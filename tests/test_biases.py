"""The bias of a Gemm or a convolution goes into the region after it, on CUDA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_check import check
from graphs import optimized, parse
from onnx import helper, numpy_helper

import onnxfuse
import onnxfuse.runtime

HEAD = "g (float[4, 6] x, float[6, 5] w, float[5] b) => "


def gemms(model: onnx.ModelProto, op: str = "Gemm") -> list[int]:
    """The number of inputs of each Gemm."""
    return [len(n.input) for n in model.graph.node if n.op_type == op]


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


@pytest.mark.parametrize("bias", ["float[5] b", "float[1, 5] b"])
def test_a_reshape_to_fewer_dimensions_than_the_bias_has(bias: str) -> None:
    """Added behind it, the bias would give the result a dimension more."""
    graph = (
        f"g (float[1, 6] x, float[6, 5] w, {bias}) => (float[5] y) <int64[1] s = {{-1}}> "
        "{ m = Gemm (x, w, b) h = Reshape (m, s) e = Tanh (h) y = Neg (e) }"
    )
    ops, model, _ = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"]
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


MAP = "g (float[2, 4, 5, 6] x, float[3, 4, 1, 1] w, float[3] b) => "


@pytest.mark.parametrize("type_", ["float", "float16"])
@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "HardSwish"])
def test_an_activation_takes_the_bias_of_a_conv(activation: str, type_: str) -> None:
    graph = f"{MAP}(float[2, 3, 5, 6] y) {{ c = Conv (x, w, b) y = {activation} (c) }}".replace("float[", f"{type_}[")
    ops, model, report = optimized(graph, target="cuda", runs=type_ == "float")
    assert ops == ["FusedElementwise"]
    assert gemms(model, "Conv") == [2]
    assert report.fusions[0].operators == ("Add", activation)


@pytest.mark.parametrize(("spatial", "kernel", "result"), [("7", "3", "5"), ("7, 8, 9", "3, 3, 3", "5, 6, 7")])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_of_any_rank(op: str, spatial: str, kernel: str, result: str) -> None:
    pads = "" if op == "Conv" else f"<pads = [{', '.join(['2'] * 2 * len(kernel.split(',')))}]>"
    graph = (
        f"g (float[2, 4, {spatial}] x, float[4, 4, {kernel}] w) => (float[2, 4, {result}] y) "
        f"<float[4] b = {{1, 2, 3, 4}}> {{ c = {op} {pads} (x, w, b) s = Sigmoid (c) y = Mul (c, s) }}"
    )
    ops, model, _ = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"]
    assert gemms(model, op) == [2]
    assert "Reshape" not in [n.op_type for n in model.graph.node]


def test_two_convolutions_that_share_one() -> None:
    graph = f"{MAP}(float[2, 3, 5, 6] y) {{ c = Conv (x, w, b) d = Conv (x, w, b) y = Add (c, d) }}"
    _, model, report = optimized(graph, target="cuda")
    assert gemms(model, "Conv") == [2, 2]
    assert report.fusions[0].operators == ("Add", "Add", "Add")


@pytest.mark.parametrize("end", ["y = MaxPool <kernel_shape = [1, 1]> (c)", "y = Identity (c)"])
def test_alone_it_is_a_fused_node(end: str) -> None:
    ops, model, report = optimized(f"{MAP}(float[2, 3, 5, 6] y) {{ c = Conv (x, w, b) {end} }}", target="cuda")
    assert ops == ["FusedElementwise"]
    assert gemms(model, "Conv") == [2]
    assert report.fusions[0].launches_saved == 0


def test_a_convolution_gets_its_bias_back_where_nothing_may_take_it() -> None:
    graph = f"{MAP}(float[2, 3, 5, 6] y) {{ c = Conv (x, w, b) y = Relu (c) }}"
    ops, model, _ = optimized(graph, target="cuda", skip=["elementwise"])
    assert ops == []
    assert [list(n.input) for n in model.graph.node] == [["x", "w", "b"], ["c"]]


def test_a_quantized_convolution_keeps_it() -> None:
    graph = (
        "g (uint8[2, 4, 5, 6] q, float[3, 4, 1, 1] w, float[3] b) => (float[2, 3, 5, 6] y) "
        "<float s = {0.5}, uint8 z = {128}> { x = DequantizeLinear (q, s, z) c = Conv (x, w, b) y = Relu (c) }"
    )
    _, model, _ = optimized(graph, target="cuda")
    assert gemms(model, "Conv") == [3]


def test_a_convolution_of_unknown_rank_keeps_it() -> None:
    graph = (
        "g (float[N, M] x, int64[K] s, float[3] b) => (float[?, ?, ?] y) "
        "{ r = Reshape (x, s) w = Reshape (x, s) c = Conv (r, w, b) y = Relu (c) }"
    )
    model = onnxfuse.optimize(parse(graph), target="cuda").model
    assert gemms(model, "Conv") == [3]


def test_a_convolution_on_the_cpu_keeps_it() -> None:
    graph = f"{MAP}(float[2, 3, 5, 6] y) {{ c = Conv (x, w, b) e = Exp (c) y = Neg (e) }}"
    _, model, _ = optimized(graph)
    assert gemms(model, "Conv") == [3]


def test_equal_convolutions_in_different_bodies() -> None:
    graph = (
        "g (float[2, 4, 5, 6] x, float[3, 4, 1, 1] w, float[3] b, bool k) => (float[2, 3, 5, 6] y) { y = If (k) <"
        "then_branch = t () => (float[2, 3, 5, 6] p) { q = If (k) <"
        "then_branch = u () => (float[2, 3, 5, 6] c) { c = Conv (x, w, b) }, "
        "else_branch = v () => (float[2, 3, 5, 6] e) { e = Conv (x, w, b) }> p = Neg (q) }, "
        "else_branch = e () => (float[2, 3, 5, 6] c) { c = Conv (x, w, b) }> }"
    )
    ops, _, _ = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"] * 3


def test_a_bias_in_another_file(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 256, 2, 2]) for n in "xy"]
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(256, 256, 1, 1)), "b": rng.normal(size=256)}
    tensors = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    plain, fused = tmp_path / "plain.onnx", tmp_path / "fused.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, plain, save_as_external_data=True, size_threshold=512)
    result = onnxfuse.optimize(plain, target="cuda")
    result.save(fused)
    assert gemms(result.model, "Conv") == [2]
    x = {"x": rng.normal(size=(1, 256, 2, 2)).astype(np.float32)}
    found, expected = (onnxfuse.runtime.make_session(file).run(None, x)[0] for file in (fused, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_axes_in_another_file() -> None:
    """What is small there counts where the rank of a convolution is asked for."""
    graph = (
        "g (float[4] x) => (float[?, ?, ?] y) <int64[2] axes = {0, 1}, float[2, 1, 1] w = {0.5, 2.0}, "
        "float[2] b = {1.0, -1.0}> { u = Unsqueeze (x, axes) c = Conv (u, w, b) y = Tanh (c) }"
    )
    model, _ = check(parse(graph), {"x": np.arange(4, dtype=np.float32)}, beside=True, target="cuda")
    assert gemms(model, "Conv") == [2]


def test_what_reads_a_product_is_fused_once_its_bias_is_back() -> None:
    """A second run on the result would find it, had the first not."""
    graph = (
        "g (float[1, D] x, float[A, 1] a, float[A, 1] z) => (float[?, 1] total, float[A, 1] y) "
        "<int64[2] axes = {0, 1}, int64[2] same = {0, -1}, int32 along = {1}> { c = Gemm <transB = 1> (a, x, x) "
        "m = ReduceMax (c, same) s = Sub (c, m) e = Exp (s) r = ReduceSum (e, axes) total = CumSum (r, along) "
        "y = Mul (m, z) }"
    )
    ops, model, _ = optimized(graph, opset=21, sizes={"D": 1, "A": 5}, target="cuda")
    assert ops == ["FusedReduction"] * 2
    assert gemms(model) == [3]


def test_a_bias_that_only_a_part_of_a_region_can_take() -> None:
    """Refused as a whole, fused without the bias, and then there is a region for the bias as well."""
    graph = (
        "g (float[5, D, 6, 6] x, float[6, 6, 1, 1] w, float[6] b) => (float[5, ?, 6, 6] y) <float tenth = {0.1}> { "
        "c = Conv (x, w, b) m = ReduceMean <axes = [0, 1, 2, 3]> (x) s = Sub (x, m) q = Mul (s, s) "
        "v = ReduceMean <axes = [0, 1, 2, 3]> (q) t = Add (v, tenth) o = Softmax <axis = 0> (t) y = Add (c, o) }"
    )
    ops, model, _ = optimized(graph, opset=10, sizes={"D": 6}, target="cuda")
    assert ops == ["FusedReduction", "FusedElementwise"]
    assert gemms(model, "Conv") == [2]


@pytest.mark.parametrize("rows", [1, 5, 7])
@pytest.mark.parametrize("reshape", [False, True])
def test_a_bias_that_went_behind_a_transpose_comes_back_as_it_was(rows: int, reshape: bool) -> None:
    """Nothing fuses with the addition there; laid along the columns again, it was another model's bias."""
    numbers = ", ".join(str(k) for k in range(15))
    head = "h = Gemm <transB = 1> (x, w, b) "
    tail = "r = Reshape (h, s) t = Transpose <perm = [0, 2, 1]> (r)" if reshape else "t = Transpose <perm = [1, 0]> (h)"
    graph = (
        f"g (float[{rows}, 3] x) => (float{[1, 5, rows] if reshape else [5, rows]} y) "
        f"<float[5, 3] w = {{{numbers}}}, float[5] b = {{1, 2, 3, 4, 5}}, int64[3] s = {{1, {rows}, 5}}> "
        f"{{ {head} {tail} y = Relu (t) }}"
    )
    model = parse(graph)
    x = np.random.default_rng(0).standard_normal((rows, 3)).astype(np.float32)
    for min_nodes in (2, 9):
        check(model, {"x": x}, target="cuda", min_nodes=min_nodes)
