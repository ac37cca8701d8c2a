"""Operators of com.microsoft open up, so that their neighbours can join them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxfuse
from onnxfuse.runtime import make_session

MS = "com.microsoft"
RNG = np.random.default_rng(0)
GAMMA, BETA, BIAS = (RNG.normal(size=64).astype(np.float32) for _ in range(3))
CASES = {
    "Gelu": (["x"], 1, {}),
    "FastGelu": (["x", "bias"], 1, {}),
    "FastGelu without bias": (["x"], 1, {}),
    "BiasGelu": (["x", "bias"], 1, {}),
    "QuickGelu": (["x"], 1, {"alpha": 1.5}),
    "SimplifiedLayerNormalization": (["x", "gamma"], 1, {"epsilon": 1e-3, "axis": -1}),
    "SkipLayerNormalization": (["x", "skip", "gamma", "beta", "bias"], 4, {"epsilon": 1e-3}),
    "SkipLayerNormalization without bias": (["x", "skip", "gamma"], 1, {"epsilon": 1e-3}),
    "SkipSimplifiedLayerNormalization": (["x", "skip", "gamma", "bias"], 4, {"epsilon": 1e-3}),
}


@pytest.mark.parametrize("name", CASES)
def test_contrib_operator_fuses_with_its_neighbours(name: str) -> None:
    inputs, outputs, attributes = CASES[name]
    op = name.split(maxsplit=1)[0]
    domain = "" if op == "SimplifiedLayerNormalization" else MS
    results = ["a", "", "", "sum"][:outputs]
    nodes = [
        helper.make_node(op, inputs, results, domain=domain, **attributes),
        helper.make_node("Mul", ["a", "scale"], ["b"]),
        helper.make_node("Add", ["b", "sum" if outputs == 4 else "x"], ["y"]),
    ]
    constants = {"gamma": GAMMA, "beta": BETA, "bias": BIAS, "scale": np.array(0.5, np.float32)}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 7, 64]) for n in ("x", "skip")]
    graph = helper.make_graph(
        nodes,
        "g",
        values,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 7, 64])],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    result = onnxfuse.optimize(model, target="cpu")
    assert [len(f.nodes) for f in result.report.fusions] == [3]
    feeds = {n: RNG.normal(size=(2, 7, 64)).astype(np.float32) for n in ("x", "skip")}
    expected = make_session(model).run(None, feeds)[0]
    for library in (True, False):
        actual = make_session(result.model, library=library).run(None, feeds)[0]
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-4 if op == "FastGelu" else 2e-6)
    onnx.checker.check_model(result.model)
