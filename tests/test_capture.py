"""What keeps a model off a CUDA graph, known from its operators alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_cli import folder, gate, invoke  # noqa: F401 (a fixture)
from test_validate import build
from test_validate_search import node

import onnxfuse
from onnxfuse.capture import capture_obstacles

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def found(*nodes, inputs=(("x", FLOAT, ["n", 8]),), constants=None, opset=17):
    outputs = [(nodes[-1].output[0], FLOAT, None)]
    model = build(nodes, inputs, outputs, {"zero": np.int64(0), "axis": np.array([0]), **(constants or {})}, opset)
    return [(o.node, o.prevents) for o in capture_obstacles(model)]


def test_what_runs_on_the_gpu_is_no_obstacle():
    assert found(node("Relu", "x", "a"), node("Softmax", "a", "b"), node("ReduceMean", "b", "c")) == []


def test_arithmetic_on_shapes_that_only_decides_shapes_is_no_obstacle():
    """ONNX Runtime keeps it on the CPU, and nothing has to be copied."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axis", "u"),
        node("Mul", "u two", "m"),
        node("Concat", "m minus", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ]
    assert found(*nodes, constants={"two": np.array([2]), "minus": np.array([-1])}) == []


def test_what_is_computed_from_constants_is_a_constant():
    nodes = [
        node("Constant", "", "two", value_ints=[2]),
        node("Cast", "two", "shape", to=INT64),
        node("Shape", "x", "s"),
        node("Mul", "s shape", "m"),
        node("ConstantOfShape", "m", "y"),
    ]
    nodes[0].ClearField("input")
    assert found(*nodes) == []


@pytest.mark.parametrize("kind", ["Tan", "Asin", "Hardmax", "Unique", "Det"])
def test_operators_without_a_cuda_kernel(kind):
    assert found(node("Relu", "x", "a"), node(kind, "a", "y")) == [("make_y", True)]


def test_operators_that_are_functions_of_others_are_taken_apart():
    assert found(node("Mish", "x", "y"), opset=18) == []


@pytest.mark.parametrize("kind", ["NonZero", "Compress"])
def test_shapes_that_hang_on_the_data(kind):
    nodes = [node("NonZero", "x", "y")] if kind == "NonZero" else [node("Compress", "x c", "y", axis=0)]
    inputs = [("x", FLOAT, ["n", 8]), ("c", BOOL, ["n"])]
    assert found(*nodes, inputs=inputs) == [("make_y", True)]


def test_control_flow():
    value = helper.make_tensor_value_info("inner", FLOAT, None)
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["inner"])], "b", [], [value])
    branch = node("If", "c", "y", then_branch=body, else_branch=body)
    assert found(branch, inputs=[("x", FLOAT, [8]), ("c", BOOL, [])]) == [("make_y", True)]


def test_a_number_from_a_shape_in_gpu_arithmetic_is_a_copy_to_the_gpu():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Cast", "n", "f", to=FLOAT),
        node("Div", "x f", "y"),
    ]
    assert found(*nodes) == [("make_y", True)]


def test_a_shape_from_data_is_a_copy_to_the_host():
    nodes = [node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "i", to=INT64)]
    nodes += [node("Unsqueeze", "i axis", "shape"), node("Expand", "x shape", "y")]
    assert found(*nodes) == [("make_y", True)]


def test_what_a_replay_would_not_see_does_not_prevent_capture():
    inputs = [("x", FLOAT, ["n", 8]), ("k", INT64, [1])]
    assert found(node("TopK", "x k", "y"), inputs=inputs) == [("make_y", False)]
    assert found(node("RandomNormalLike", "x", "y")) == [("make_y", False)]


def test_a_fused_node_that_reads_a_number_from_a_shape():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Cast", "n", "f", to=FLOAT),
        node("Div", "x f", "d"),
        node("Relu", "d", "y"),
    ]
    model = build(nodes, [("x", FLOAT, ["n", 8])], [("y", FLOAT, None)], {"zero": np.int64(0)})
    fused = onnxfuse.optimize(model).model
    assert [n.domain for n in fused.graph.node].count("onnxfuse") == 1
    assert [o.operator for o in capture_obstacles(fused)] == ["FusedElementwise"]


def test_explain_says_what_is_in_the_way(folder):  # noqa: F811
    assert "nothing is known that prevents" in invoke("explain", "model.onnx").stdout
    assert "CUDA graph" not in invoke("explain", "model.onnx", "--target", "cpu").stdout
    model = gate()
    model.graph.node[-1].op_type = "Hardmax"
    del model.graph.node[-1].input[1:]
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 64
    onnx.save(model, "hard.onnx")
    said = invoke("explain", "hard.onnx").stdout
    assert "matmul" in said
    assert "no kernel for it" in said
    assert "cannot be captured" in said
