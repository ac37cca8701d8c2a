"""Spellings that the optimizer replaces by better arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxfuse
from onnxfuse.runtime import make_session


def one_input_model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], shape: list[int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mean(x: str, y: str, spelling: str) -> list[onnx.NodeProto]:
    if spelling == "mean":
        return [helper.make_node("ReduceMean", [x], [y], axes=[-1])]
    return [
        helper.make_node("ReduceSum", [x, "axes"], [f"{y}_sum"]),
        helper.make_node("Mul" if spelling == "sum*c" else "Div", [f"{y}_sum", "c"], [y]),
    ]


@pytest.mark.parametrize("spelling", ["mean", "sum*c", "sum/n"])
@pytest.mark.parametrize("guard", [False, True])
def test_variance_by_moments_does_not_cancel(spelling: str, guard: bool) -> None:
    nodes = [
        *mean("x", "m", spelling),
        helper.make_node("Mul", ["x", "x"], ["xx"]),
        *mean("xx", "mm", spelling),
        helper.make_node("Mul", ["m", "m"], ["m2"]),
        helper.make_node("Sub", ["mm", "m2"], ["v" if guard else "y"]),
    ]
    if guard:
        nodes.append(helper.make_node("Max", ["v", "zero"], ["y"]))
    constants = {
        "axes": np.array([-1]),
        "c": np.array(1 / 32 if spelling == "sum*c" else 32, np.float32),
        "zero": np.array(0, np.float32),
    }
    x = (40000 + np.random.default_rng(0).normal(size=(4, 32))).astype(np.float32)
    result = onnxfuse.optimize(one_input_model(nodes, constants, [4, 32]), target="cpu")
    assert len(result.report.fusions) == 1
    assert "two passes" in result.report.fusions[0].notes[0]
    (y,) = make_session(result.model).run(None, {"x": x})
    np.testing.assert_allclose(y, x.astype(np.float64).var(-1, keepdims=True), rtol=1e-4)


def test_a_sum_scaled_by_another_factor_is_no_variance() -> None:
    nodes = [
        *mean("x", "m", "sum*c"),
        helper.make_node("Mul", ["x", "x"], ["xx"]),
        *mean("xx", "mm", "sum*c"),
        helper.make_node("Mul", ["m", "m"], ["m2"]),
        helper.make_node("Sub", ["mm", "m2"], ["y"]),
    ]
    constants = {"axes": np.array([-1]), "c": np.array(1 / 31, np.float32)}
    x = np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32)
    result = onnxfuse.optimize(one_input_model(nodes, constants, [4, 32]), target="cpu")
    assert all(not f.notes for f in result.report.fusions)
    (y,) = make_session(result.model).run(None, {"x": x})
    wide = x.astype(np.float64)
    expected = (wide**2).sum(-1, keepdims=True) / 31 - (wide.sum(-1, keepdims=True) / 31) ** 2
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_log_of_one_plus_exp_does_not_overflow() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Add", ["one", "e"], ["s"]),
        helper.make_node("Log", ["s"], ["y"]),
    ]
    x = np.array([-200, -20, -1, 0, 1, 20, 88, 200], np.float32)
    result = onnxfuse.optimize(one_input_model(nodes, {"one": np.array(1, np.float32)}, [8]), target="cpu")
    (y,) = make_session(result.model).run(None, {"x": x})
    np.testing.assert_allclose(y, np.logaddexp(0, x.astype(np.float64)), rtol=1e-6, atol=1e-40)
