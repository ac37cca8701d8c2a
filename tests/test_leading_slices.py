"""The first elements of a constant, as many as an input has: position embeddings, which are added to the input's."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graph_check import check, fused_nodes
from onnx import helper, numpy_helper

import onnxfuse

POSITIONS, WIDTH = 16, 8


def model(opset: int = 17, start: int = 0, step: int = 1, other: bool = True, first: str = "x") -> onnx.ModelProto:
    """x + table[start:extent:step], a sum of two where `other`, reshaped by another input's shape, and transposed."""
    constants = {
        "table": np.random.default_rng(0).normal(size=(1, POSITIONS, WIDTH)).astype(np.float32),
        "start": np.array([start]),
        "axis": np.array([-2]),
        "step": np.array([step]),
        "one": np.array([1]),
        "heads": np.array([2, WIDTH // 2]),
        "leading": np.array([0, 1]),
        "scale": np.array(0.5, np.float32),
    }
    sum_of = ["x", "some"] if first == "x" else ["some", "x"]
    nodes = [
        helper.make_node("Shape", ["ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["extent"], axis=0),
        helper.make_node("Slice", ["table", "start", "extent", "axis", "step"], ["some"]),
        helper.make_node("Add", sum_of, ["sum"]),
        helper.make_node("Gather", ["shape", "leading"], ["outer"], axis=0),
        helper.make_node("Concat", ["outer", "heads"], ["target"], axis=0),
        helper.make_node("Reshape", ["sum", "target"], ["split"]),
        helper.make_node("Transpose", ["split"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Mul", ["turned", "scale"], ["y"]),
    ]
    if not other:  # of the constant alone
        nodes[3] = helper.make_node("Expand", ["some", "target3"], ["sum"])
        nodes.insert(3, helper.make_node("Concat", ["outer", "width"], ["target3"], axis=0))
        nodes.insert(3, nodes.pop(6))
        constants["width"] = np.array([WIDTH])
    inputs = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", "s", WIDTH]),
        helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["b", "s"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs if other else inputs[1:],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["b", 2, None, WIDTH // 2])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).normal(size=(batch, length, WIDTH)).astype(np.float32)
    return {"x": x, "ids": np.zeros((batch, length), np.int64)}


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("first", ["x", "some"])
@pytest.mark.parametrize("length", [1, 5, POSITIONS])
def test_sum_takes_the_inputs_extent(length: int, first: str, opset: int) -> None:
    optimized, _ = check(model(opset, first=first), feeds(2, length), target="cpu")
    assert len(fused_nodes(optimized)) == 1
    assert not [n.op_type for n in optimized.graph.node if n.op_type in ("Add", "Mul", "Transpose")]


@pytest.mark.parametrize(("start", "step"), [(1, 1), (0, 2), (-4, 1)])
def test_others_may_be_one_element_of_many(start: int, step: int) -> None:
    """There an input of one element can be broadcast, or meet none; what a run without an error gives stays."""
    original = model(start=start, step=step)
    optimized = onnxfuse.optimize(original, target="cpu").model
    for length in (1, 2, 5):
        given = feeds(2, length)
        try:
            (expected,) = run(original, given)
        except ort.capi.onnxruntime_pybind11_state.Fail:
            continue
        np.testing.assert_array_equal(run(optimized, given)[0], expected)


def test_of_the_constant_alone() -> None:
    given = {"ids": feeds(2, 5)["ids"]}
    check(model(other=False), given, target="cpu")


def test_more_than_there_are_fails_as_before() -> None:
    original = model()
    optimized = onnxfuse.optimize(original, target="cpu").model
    for m in (original, optimized):
        with pytest.raises(Exception, match=r"POSITIONS|17|16|broadcast|fit"):
            run(m, feeds(2, POSITIONS + 1))


def run(m: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(onnxfuse.library_path()))
    session = ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, given))
