"""What stands between DequantizeLinear and QuantizeLinear: fused, or left to ONNX Runtime's operators on bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graph_check import fused_nodes
from graphs import optimized, parse
from onnx import helper

import onnxfuse
from onnxfuse.runtime import make_session

CONSTANTS = """
    <float s = {0.05}, float t = {0.07}, float u = {0.01}, B z = {3}, B low = {LOW}, int8 zw = {0},
    int8[4, 4] w = {1, 2, 3, 4, 5, -6, 7, 8, 9, 1, -2, 3, 4, 5, 6, 7}, float[4] b = {1, -2, 3, -4},
    int8[4, 4, 1, 1] k = {1, 2, 3, 4, 5, -6, 7, 8, 9, 1, -2, 3, 4, 5, 6, 7}, int32[4] c = {100, 200, 300, 400},
    float su = {0.0005}, float six = {3.5}, float nought = {0}, float[4] var = {1, 2, 3, 4}, int64[2] axes = {1, 2}>
"""
D, E = "d = DequantizeLinear (x, s, z)", "e = DequantizeLinear (y, t, z)"
WEIGHTS, KERNEL = "v = DequantizeLinear (w, u, zw)", "v = DequantizeLinear (k, u, zw) f = DequantizeLinear (c, su)"
Q = "q = QuantizeLinear (r, t, z)"
TO_LOW = "q = QuantizeLinear (r, t, low)"


def model_of(nodes: str, byte: str, shape: str = "6, 4", result: str = "") -> onnx.ModelProto:
    read = ", ".join(f"{byte}[{shape}] {name}" for name in "xy" if f"({name}," in nodes)
    constants = CONSTANTS.replace("B ", f"{byte} ").replace("LOW", "0" if byte == "uint8" else "-128")
    return parse(f"g ({read}) => ({byte}[{result or shape}] q) {constants} {{ {nodes} }}")


def operators_of(model: onnx.ModelProto) -> list[str]:
    """What ONNX Runtime runs with all its optimizations on the CPU."""
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(onnxfuse.library_path()))
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [n.op_type for n in onnx.load(Path(folder) / "optimized.onnx").graph.node]


def fused(model: onnx.ModelProto, target: str = "cpu", steps: int = 1) -> list[str]:
    """The operators fused, after a comparison with ONNX Runtime by itself; what is on bytes there stays so."""
    result = onnxfuse.optimize(model, target=target)
    feeds = {}
    for value in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        limits = np.iinfo(dtype)
        feeds[value.name] = np.random.default_rng(0).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    for want, got in zip(
        make_session(model).run(None, feeds), make_session(result.model).run(None, feeds), strict=True
    ):
        assert np.ptp(want.astype(float)) > 0
        assert np.abs(want.astype(float) - got.astype(float)).max() <= steps
    assert len(fused_nodes(result.model)) <= 1
    return [op for f in result.report.fusions for op in f.operators]


LEFT = {
    "add": f"{D} {E} r = Add (d, e) {Q}",
    "mul": f"{D} {E} r = Mul (d, e) {Q}",
    "sum of one": f"{D} r = Add (d, d) {Q}",
    "sigmoid": f"{D} r = Sigmoid (d) q = QuantizeLinear (r, u, z)",
    "leaky": f"{D} r = LeakyRelu (d) {Q}",
    "relu behind a sum": f"{D} {E} a = Add (d, e) r = Relu (a) {TO_LOW}",
    "clip behind a product": f"{D} {E} a = Mul (d, e) r = Clip (a, nought) {TO_LOW}",
    "relu behind a matrix product": f"{D} {WEIGHTS} a = MatMul (d, v) r = Relu (a) {TO_LOW}",
    "bias of a matrix product": f"{D} {WEIGHTS} a = MatMul (d, v) r = Add (a, b) {Q}",
    "relu behind such a bias": f"{D} {WEIGHTS} a = MatMul (d, v) o = Add (b, a) r = Relu (o) {TO_LOW}",
    "relu behind a gemm": f"{D} {WEIGHTS} a = Gemm (d, v) r = Relu (a) {TO_LOW}",
    "relu of bytes": "d = DequantizeLinear (x, s, low) r = Relu (d) q = QuantizeLinear (r, s, low)",
    "transposed": f"{D} r = Transpose (d) q = QuantizeLinear (r, s, z)",
    "quantized again": f"{D} {WEIGHTS} a = MatMul (d, v) q = QuantizeLinear (a, t, z)",
}
RESULTS = {"transposed": "4, 6"}


# A Gemm of int8 takes longer than MatMul and fused node.
LEFT_CASES = [(name, byte) for name in LEFT for byte in ("uint8", "int8") if byte == "uint8" or "bias" not in name]


@pytest.mark.parametrize(("name", "byte"), LEFT_CASES)
def test_left_on_bytes(name: str, byte: str) -> None:
    model = model_of(LEFT[name], byte, result=RESULTS.get(name, ""))
    assert fused(model) == []
    alone = operators_of(model)
    assert operators_of(onnxfuse.optimize(model, target="cpu").model) == alone
    floats = "MatMul" in alone  # ONNX Runtime multiplies no int8 by int8 on x86
    assert not {"DequantizeLinear", "QuantizeLinear"} & set(alone) or (floats and byte == "int8")


FUSED = {
    "softmax": (f"{D} r = Softmax (d) q = QuantizeLinear (r, u, z)", "DequantizeLinear Softmax QuantizeLinear"),
    "tanh": (f"{D} r = Tanh (d) q = QuantizeLinear (r, u, z)", "DequantizeLinear Tanh QuantizeLinear"),
    "a sum with floats": (f"{D} r = Add (d, b) {Q}", "DequantizeLinear Add QuantizeLinear"),
    "difference": (f"{D} {E} r = Sub (d, e) {Q}", "DequantizeLinear DequantizeLinear Sub QuantizeLinear"),
    "relu that bounds": (f"{D} r = Relu (d) q = QuantizeLinear (r, s, z)", "DequantizeLinear Relu QuantizeLinear"),
    "clip that bounds": (
        f"{D} {E} a = Add (d, e) r = Clip (a, nought, six) {TO_LOW}",
        "DequantizeLinear DequantizeLinear Add Clip QuantizeLinear",
    ),
    "through a transposition": (
        f"{D} a = Transpose (d) r = Mul (a, s) q = QuantizeLinear (r, u, z)",
        "DequantizeLinear Transpose Mul QuantizeLinear",
    ),
    "quantized in between": (
        f"{D} a = Tanh (d) i = QuantizeLinear (a, u, z) j = DequantizeLinear (i, u, z) r = Exp (j) {Q}",
        "DequantizeLinear Tanh QuantizeLinear DequantizeLinear Exp QuantizeLinear",
    ),
}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("byte", ["uint8", "int8"])
def test_fused_from_bytes_to_bytes(name: str, byte: str, target: str) -> None:
    nodes, operators = FUSED[name]
    assert fused(model_of(nodes, byte, result="4, 6" if "Transpose" in nodes else ""), target) == operators.split()


@pytest.mark.parametrize(
    ("byte", "behind", "operators"),
    [
        ("uint8", "o = Add (a, b) r = Sigmoid (o)", "Add Sigmoid QuantizeLinear"),
        ("int8", "o = Add (a, b) r = Sigmoid (o)", ""),
        ("int8", "o = Add (a, b) r = Relu (o)", "Add Relu QuantizeLinear"),
        ("int8", "r = Add (a, b)", "Add QuantizeLinear"),
    ],
)
def test_behind_a_product_of_bytes(byte: str, behind: str, operators: str) -> None:
    """ONNX Runtime makes no Gemm of it then, which would be one of floats, or a slow one."""
    nodes = f"""d = DequantizeLinear (x, s, low) v = DequantizeLinear (w, u, zw) a = MatMul (d, v) {behind}
        q = QuantizeLinear (r, t, low)"""
    model = model_of(nodes, byte, "600, 4")  # a smaller bias is left in any case
    assert fused(model) == operators.split()
    kinds = operators_of(onnxfuse.optimize(model, target="cpu").model)
    assert ("MatMulIntegerToFloat" in kinds) == (byte == "uint8")


@pytest.mark.parametrize("name", ["add", "sigmoid", "relu behind a sum"])
def test_on_cuda_nothing_is_computed_on_bytes(name: str) -> None:
    operators = fused(model_of(LEFT[name], "uint8"), "cuda")
    assert operators[0] == "DequantizeLinear"
    assert operators[-1] == "QuantizeLinear"


@pytest.mark.parametrize(("side", "left"), [(15, True), (16, False)])
@pytest.mark.parametrize("operator", ["Mul (d, p)", "PRelu (d, p)"])
def test_channels_of_few_points(operator: str, side: int, left: bool) -> None:
    """One operator there is left on the CPU; two are not."""
    nodes = f"p = Unsqueeze (b, axes) {D} r = {operator} {Q}"
    two = nodes.replace("r =", "h = Abs (d) r =").replace("(d, p)", "(h, p)")
    for text, expected in ((nodes, left), (two, False)):
        model = model_of(text, "uint8", f"1, 4, {side}, {side}")
        assert (fused(model) == []) == expected
        assert fused(model, "cuda")


@pytest.mark.parametrize(("operators", "left"), [("r = Tanh (o)", True), ("h = Tanh (o) r = Mul (h, o)", False)])
def test_among_convolutions(operators: str, left: bool) -> None:
    """One operator there is left on the CPU: a fused node would part the layout of the convolutions."""
    nodes = (
        f"{D} {KERNEL} m = Conv (d, v, f) n = QuantizeLinear (m, t, z) o = DequantizeLinear (n, t, z) {operators} {Q}"
    )
    model = model_of(nodes, "uint8", "1, 4, 8, 8")
    assert (fused(model) == []) == left
    assert fused(model, "cuda")


@pytest.mark.parametrize("side", [5, 40])
def test_a_batch_normalization(side: int) -> None:
    model = model_of(f"{D} r = BatchNormalization (d, b, b, b, var) {Q}", "uint8", f"1, 4, {side}, {side}")
    assert fused(model) == []
    assert fused(model, "cuda")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("byte", ["uint8", "int8"])
def test_products_keep_what_they_need(byte: str, target: str) -> None:
    """DequantizeLinear in front and QuantizeLinear behind, though fused nodes read and make the same."""
    nodes = f"""{D} {WEIGHTS} g = Tanh (d) h = QuantizeLinear (g, u, z) i = DequantizeLinear (h, u, z)
        m = MatMul (i, v) n = QuantizeLinear (m, t, z) o = DequantizeLinear (n, t, z)
        a = Add (o, b) p = Add (a, i) r = Mul (p, d) {Q}"""
    model = model_of(nodes, byte)
    result = onnxfuse.optimize(model, target=target)
    assert [f.operators for f in result.report.fusions] == [
        ("DequantizeLinear", "Tanh", "QuantizeLinear"),
        ("DequantizeLinear", "Add", "Add", "Mul", "QuantizeLinear"),
    ]
    reads = [n.input[0] for n in result.model.graph.node if n.domain == "onnxfuse"]
    assert reads == ["x", "n"]
    on_floats = "MatMul" in operators_of(result.model)
    assert on_floats == ((byte, target) == ("int8", "cuda"))  # as in the model itself; see unsigned_pairs.py
    assert ("MatMul" in operators_of(model)) == (byte == "int8")


@pytest.mark.parametrize("byte", ["uint8", "int8"])
def test_a_convolution_keeps_what_it_needs(byte: str) -> None:
    nodes = f"""{D} {KERNEL} m = Conv (d, v, f) n = QuantizeLinear (m, t, z) o = DequantizeLinear (n, t, z)
        a = HardSigmoid (o) r = Mul (a, o) {Q}"""
    model = model_of(nodes, byte, "1, 4, 8, 8")
    assert fused(model) == ["DequantizeLinear", "HardSigmoid", "Mul", "QuantizeLinear"]
    for m in (model, onnxfuse.optimize(model, target="cpu").model):
        assert operators_of(m).count("QLinearConv" if byte == "uint8" else "Conv") == 1


def test_floats_stay_where_others_need_them() -> None:
    text = """g (uint8[6, 4] x) => (uint8[6, 4] q, float[6, 4] r, float[6, 4] d) <float s = {0.05}, uint8 z = {3}> {
        d = DequantizeLinear (x, s, z) r = Tanh (d) q = QuantizeLinear (r, s, z)
    }"""
    model = parse(text)
    result = onnxfuse.optimize(model, target="cpu")
    assert [f.operators for f in result.report.fusions] == [("Tanh", "QuantizeLinear")]
    assert [(list(f.inputs), sorted(f.outputs)) for f in result.report.fusions] == [(["x"], ["q", "r"])]
    assert "DequantizeLinear" in [n.op_type for n in result.model.graph.node]
    feeds = {"x": np.arange(24, dtype=np.uint8).reshape(6, 4) * 10}
    for want, got in zip(
        make_session(model).run(None, feeds), make_session(result.model).run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(want, got, rtol=1e-6)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "nodes",
    [
        f"{D} {Q.replace('(r', '(d')}",
        f"{D} r = Transpose <perm = [0, 1]> (d) {Q}",
        f"{D} {WEIGHTS} m = MatMul (d, v) r = Transpose <perm = [0, 1]> (m) {Q}",
    ],
)
def test_nothing_that_computes(nodes: str, target: str) -> None:
    assert fused(model_of(nodes, "uint8"), target) == []
    assert onnxfuse.optimize(model_of(nodes, "uint8"), target=target, min_nodes=1).report.fusions == []


def test_what_is_rearranged_for_others_stays_dequantized_in_front_of_them() -> None:
    """A product reads the transposed floats, and is on bytes only if these come from bytes alone."""
    nodes = f"{D} a = Transpose (d) p = Tanh (a) o = Mul (p, p) r = MatMul (a, o) {Q}"
    model = model_of(nodes, "uint8", "4, 4")
    result = onnxfuse.optimize(model, target="cpu")
    (fusion,) = result.report.fusions
    assert (fusion.inputs, fusion.outputs, fusion.operators) == (("x",), ("o",), ("Tanh", "Mul"))
    assert fused(model) == ["Tanh", "Mul"]


def test_weights_are_read_as_bytes() -> None:
    """A constant is dequantized in the fused node that reads it; one number is a number there."""
    nodes = f"{D} {WEIGHTS} a = Exp (d) p = Mul (a, v) o = DequantizeLinear (low, s, z) r = Add (p, o) {Q}"
    model = model_of(nodes, "uint8", "4, 4")
    result = onnxfuse.optimize(model, target="cpu")
    (fusion,) = result.report.fusions
    assert set(fusion.inputs) == {"x", "w"}
    assert [n.op_type for n in result.model.graph.node if n.domain != "onnxfuse"] == []


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_rearrangement_behind_what_the_region_quantizes(target: str) -> None:
    """It reads what the fused node stores, and is no part of it."""
    text = """g (float[4, 6] x) => (float[6, 4] y, float[4, 6] d) <float s = {0.05}, uint8 z = {3}> {
        a = Abs (x) r = Sqrt (a) q = QuantizeLinear (r, s, z) d = DequantizeLinear (q, s, z) y = Transpose (d)
    }"""
    _, result, report = optimized(text, target=target)
    assert [(f.operators, f.outputs) for f in report.fusions] == [(("Abs", "Sqrt", "QuantizeLinear"), ("q",))]
    assert [n.op_type for n in result.graph.node if not n.domain] == ["DequantizeLinear", "Transpose"]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_it_stays_for_a_fused_node_that_cannot_compute_it(target: str) -> None:
    """The sum may be of another shape than the bytes, so that they are not dequantized in it."""
    text = """g (uint8[1, ?] x, float[?] v) => (uint8[1, ?] q, float[?, 1] y) <float s = {0.05}, uint8 z = {3}> {
        d = DequantizeLinear (x, s, z) a = Abs (d) q = QuantizeLinear (a, s, z) y = Add (d, v)
    }"""
    feeds = {"x": np.array([[7]], np.uint8), "v": np.ones(1, np.float32)}
    _, result, report = optimized(text, target=target, feeds=feeds, min_nodes=1)
    assert [f.inputs for f in report.fusions] == [("x",), ("d", "v")]
    assert [n.op_type for n in result.graph.node if not n.domain] == ["DequantizeLinear"]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_roll_of_what_the_region_quantizes(target: str) -> None:
    """Its parts are not cut from what is dequantized in the region: the operator stays between them."""
    text = """g (float[3, 5, 6] x) => (float[3, 5, 4] y)
        <float s = {0.03125}, uint8 z = {128}, int64[1] zero = {0}, int64[1] two = {2}, int64[1] end = {9},
         int64[1] one = {1}, int64[2] parts = {4, 2}> {
        a = Neg (x) b = Abs (a) n = Neg (b) q = QuantizeLinear (n, s, z) d = DequantizeLinear (q, s, z)
        i = Slice (d, two, end, one) j = Slice (d, zero, two, one) k = Concat <axis = 1> (i, j)
        m, o = Split <axis = 2> (k, parts) y = Add (m, m)
    }"""
    _, _, report = optimized(text, target=target)
    assert "QuantizeLinear" in [op for f in report.fusions for op in f.operators]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("shown", ["Reshape (q, one)", "Unsqueeze (q, nought)", "Flatten <axis = 0> (q)"])
def test_a_reshape_between_what_the_region_quantizes_and_dequantizes(shown: str, target: str) -> None:
    """It is inside the region, although what reads it there is a DequantizeLinear of the region's own."""
    text = f"""g (float x) => (float e, float[K] y)
        <float s = {{0.0625}}, uint8 z = {{0}}, int64[1] one = {{-1}}, int64[1] nought = {{0}}, float t = {{0.5}}>
        {{ a = Relu (x) b = Exp (a) q = QuantizeLinear (b, s, z) e = DequantizeLinear (q, t, z)
          r = {shown} d = DequantizeLinear (r, t) c = Exp (d) y = Abs (c) }}"""
    model = parse(text)
    if shown.startswith("Flatten"):
        model.graph.output[1].type.tensor_type.shape.dim.add().dim_value = 1
    result = onnxfuse.optimize(model, target=target).model
    assert len(fused_nodes(result)) == 1
    feeds = {"x": np.array(0.7, np.float32)}
    for want, got in zip(make_session(model).run(None, feeds), make_session(result).run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
