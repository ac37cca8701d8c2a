"""Values quantized to int8 are of uint8 on the CPU, so that products beside fused nodes stay on bytes there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graph_check import fused_nodes
from graphs import optimized, parse
from test_on_bytes import operators_of

import onnxfuse
from onnxfuse.rewrites.unsigned_pairs import with_unsigned_pairs
from onnxfuse.runtime import make_session

CONSTANTS = """<float s = {0.02}, int8 z = {-7}, int8 o = {0},
    int8[4, 4] w = {1, 2, 3, 4, 5, -6, 7, 8, 9, 1, -2, 3, 4, 5, 6, 7},
    float[4] c = {0.01, 0.02, 0.03, 0.04}, int8[4] k = {-128, 127, 0, 5}>"""
PRODUCT = """v = DequantizeLinear (w, s, o) a = Tanh (x) q = QuantizeLinear (a, s, z) d = DequantizeLinear (q, s, z)
    m = MatMul (d, v) n = QuantizeLinear (m, s, z) e = DequantizeLinear (n, s, z) y = Exp (e)"""


def bytes_of(model: onnx.ModelProto) -> list[int]:
    """The types of the zero points that quantizers have."""
    made = {n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant"}
    made |= {t.name: t for t in model.graph.initializer}
    return [
        made[n.input[2]].data_type for n in model.graph.node if n.op_type.endswith("tizeLinear") and len(n.input) > 2
    ]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_product_between_fused_nodes(target: str) -> None:
    model = parse(f"g (float[6, 4] x) => (float[6, 4] y) {CONSTANTS} {{ {PRODUCT} }}")
    result = onnxfuse.optimize(model, target=target)
    assert [f.operators for f in result.report.fusions] == [("Tanh", "QuantizeLinear"), ("DequantizeLinear", "Exp")]
    assert any("uint8 in place of int8" in note for note in result.report.notes) == (target == "cpu")
    if target == "cpu":
        assert "QLinearMatMul" in operators_of(model)
        assert "QLinearMatMul" in operators_of(result.model)
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    want, got = (make_session(m).run(None, {"x": x})[0] for m in (model, result.model))
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        ("q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)", 1),
        ("q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, o)", 1),
        ("q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s)", 1),
        ("q = QuantizeLinear (x, c, k) y = DequantizeLinear (q, c, k)", 1),
        ("q = QuantizeLinear (x, c, k) y = DequantizeLinear (q, c)", 1),
        (
            "q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s) e = DequantizeLinear (q, s, o) y = Add (d, e)",
            1,
        ),
        ("q = QuantizeLinear (x, s, z) t = Transpose <perm = [0, 1]> (q) y = DequantizeLinear (t, s, z)", 0),
        ("q = QuantizeLinear (x, s) y = DequantizeLinear (q, s)", 0),
        ("y = DequantizeLinear (w, s, z)", 0),
        ("r = Add (s, s) t = CastLike (r, z) q = QuantizeLinear (x, s, t) y = DequantizeLinear (q, s, t)", 0),
    ],
)
def test_which_are_converted(nodes: str, count: int) -> None:
    model = parse(f"g (float[4, 4] x) => (float[4, 4] y) {CONSTANTS} {{ {nodes} }}")
    before = model.SerializeToString()
    converted, found = with_unsigned_pairs(model)
    assert found == count
    assert model.SerializeToString() == before
    assert (converted is model) == (count == 0)
    onnx.checker.check_model(converted, full_check=True)
    assert not count or set(bytes_of(converted)) == {onnx.TensorProto.UINT8}
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32) * 3
    want, got = (make_session(m).run(None, {"x": x})[0] for m in (model, converted))
    np.testing.assert_array_equal(got, want)


def test_one_that_is_a_result_stays() -> None:
    text = f"""g (float[4, 4] x) => (float[4, 4] y, int8[4, 4] q) {CONSTANTS} {{
        q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z) }}"""
    assert with_unsigned_pairs(parse(text))[1] == 0


def test_in_a_branch() -> None:
    text = f"""g (bool c0, float[4, 4] x) => (float[4, 4] y) {CONSTANTS} {{ y = If (c0) <
        then_branch = t () => (float[4, 4] r) {{
            q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) e = Exp (d) r = Tanh (e) }},
        else_branch = f () => (float[4, 4] r2) {{ r2 = Neg (x) }}
    > }}"""
    for condition in (True, False):
        _, result, _ = optimized(text, feeds={"c0": np.array(condition)})
        assert fused_nodes(result)
    assert with_unsigned_pairs(parse(text))[1] == 1


def test_a_model_in_which_nothing_is_fused_comes_back_as_it_was() -> None:
    model = parse(f"""g (float[4, 4] x) => (float[4, 4] y) {CONSTANTS} {{
        q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z) }}""")
    assert onnxfuse.optimize(model, target="cpu").model.SerializeToString() == model.SerializeToString()
