"""On the CPU, what ONNX Runtime computes inside a Gemm or makes a Gemm of is left to it where that is faster."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest
from graphs import optimized

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Softsign", "ThresholdedRelu")


def fused(nodes: str, *, a: str = "4, 16", w: str = "16, 8", b: str = "8", y: str = "4, 8", **how: object) -> list[str]:
    """The operators in fused nodes of a graph on matrices a and w with a bias b."""
    text = f"g (float[{a}] a, float[{w}] w, float[{b}] b) => (float[{y}] y) {{ {nodes} }}"
    _, _, report = optimized(text, **{"target": "cpu"} | how)
    return [op for fusion in report.fusions for op in fusion.operators]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("order", ["m, b", "b, m"])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_activation_in_the_gemm_that_matmul_and_add_become(activation: str, order: str, target: str) -> None:
    taken = fused(f"m = MatMul (a, w) s = Add ({order}) y = {activation} (s)", target=target)
    assert taken == ([] if target == "cpu" else ["Add", activation])


@pytest.mark.parametrize("bias", ["8", "1, 8", "4, 8", "4, 1"])
def test_biases_of_a_gemm(bias: str) -> None:
    assert fused("m = MatMul (a, w) s = Add (m, b) y = Relu (s)", b=bias) == []


@pytest.mark.parametrize("bias", ["1", "1, 1"])
def test_sums_that_do_not_become_a_gemm(bias: str) -> None:
    assert fused("m = MatMul (a, w) s = Add (m, b) y = Relu (s)", b=bias) == ["Add", "Relu"]


def test_what_follows_the_activation_is_fused() -> None:
    assert fused("m = MatMul (a, w) s = Add (m, b) r = Tanh (s) e = Exp (r) y = Neg (e)") == ["Exp", "Neg"]


def test_an_activation_of_a_large_result_is_worth_its_pass() -> None:
    assert fused("m = MatMul (a, w) s = Add (m, b) y = Relu (s)", a="2048, 16", w="16, 1024", b="1024", y="2048, 1024")


def test_a_bias_of_few_elements_counts_for_nothing() -> None:
    """ONNX Runtime adds it inside the Gemm, so that a fused node would stand for one operator."""
    nodes = "m = MatMul (a, w) s = Add (m, b) y = Softmax (s)"
    assert fused(nodes) == []
    assert fused(nodes, a="2, 4, 16", y="2, 4, 8") == []  # Reshape, Gemm, Reshape
    assert fused(nodes, a="n, 4, 16", y="n, 4, 8") == ["Add", "Softmax"]
    assert fused(nodes, a="512, 16", y="512, 8") == ["Add", "Softmax"]
    assert fused(nodes, target="cuda") == ["Add", "Softmax"]
    assert fused("m = MatMul (a, w) s = Add (m, b) e = Exp (s) y = Neg (e)") == ["Add", "Exp", "Neg"]


def test_another_user_of_the_product_or_the_sum_keeps_them_apart() -> None:
    assert fused("m = MatMul (a, w) s = Add (m, b) r = Relu (s) y = Mul (r, m)") == ["Add", "Relu", "Mul"]
    assert fused("m = MatMul (a, w) s = Add (m, b) r = Relu (s) y = Mul (r, s)") == ["Add", "Relu", "Mul"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_runtime_does_so(activation: str, tmp_path: Path) -> None:
    """The rule is ONNX Runtime's own: where it changes, so should ours."""
    nodes = f"m = MatMul (a, w) s = Add (m, b) y = {activation} (s)"
    text = f"g (float[4, 16] a, float[16, 8] w, float[8] b) => (float[4, 8] y) {{ {nodes} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}')
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node] == ["FusedGemm"]
