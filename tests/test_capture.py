"""What keeps a model off a CUDA graph, known from its operators alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_cli import folder, gate, invoke  # noqa: F401 (a fixture)
from test_validate import build
from test_validate_search import node

import onnxfuse
from onnxfuse.capture import capture_obstacles, shapes_follow_data

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


def choice(condition, then, otherwise):
    """An If whose branches apply one operator each to x."""
    bodies = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], ["inner"], f"{kind}_inside")],
            "b",
            [],
            [helper.make_tensor_value_info("inner", FLOAT, None)],
        )
        for kind in (then, otherwise)
    ]
    return node("If", condition, "z", then_branch=bodies[0], else_branch=bodies[1])


def test_control_flow():
    inputs = [("x", FLOAT, [8]), ("c", BOOL, [])]
    assert found(choice("c", "Neg", "Abs"), node("Relu", "z", "y"), inputs=inputs) == [("make_z", True)]


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("spelling", ["initializer", "Constant"])
def test_an_if_on_a_constant_is_the_branch_that_it_takes(flag, spelling):
    array = np.array(flag)
    constants = {"c": array} if spelling == "initializer" else {}
    first = [] if constants else [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(array))]
    good, bad = ("Neg", "Hardmax") if flag else ("Hardmax", "Neg")
    last = node("Relu", "z", "y")
    assert found(*first, choice("c", good, bad), last, constants=constants) == []
    assert found(*first, choice("c", bad, good), last, constants=constants) == [("Hardmax_inside", True)]
    assert found(*first, choice("c", "Neg", "Loop"), last, constants={**constants})[0:1] == (
        [] if flag else [("Loop_inside", True)]
    )


def test_shapes_that_a_branch_computes_are_known_outside_of_it():
    branch = choice("c", "Shape", "Shape")
    constants = {"c": np.array(True), "two": np.array([2])}
    on_host = [branch, node("Mul", "z two", "m"), node("ConstantOfShape", "m", "y")]
    assert found(*on_host, constants=constants) == []
    on_gpu = [branch, node("Cast", "z", "f", to=FLOAT), node("Mul", "x f", "y")]
    assert found(*on_gpu, constants=constants) == [("make_y", True)]


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


# Shapes that the data decides


def follows(*nodes, inputs=(("x", FLOAT, ["n", 8]),)):
    constants = {"axis": np.array([0]), "low": np.float32(0)}
    return shapes_follow_data(build(nodes, inputs, [(nodes[-1].output[0], FLOAT, None)], constants))


def test_shapes_that_data_decides_are_known():
    counted = [node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "i", to=INT64)]
    assert follows(*counted, node("Unsqueeze", "i axis", "shape"), node("Expand", "x shape", "y"))
    assert follows(node("NonZero", "x", "y"))


def test_other_shapes_follow_from_those_of_the_inputs():
    assert not follows(node("Shape", "x", "s"), node("ConstantOfShape", "s", "y"))
    assert not follows(node("Hardmax", "x", "y"))
    assert not follows(node("ReduceMax", "x", "m", keepdims=0), node("Clip", "x low m", "y"))
    assert not follows(node("TopK", "x k", "y"), inputs=[("x", FLOAT, ["n", 8]), ("k", INT64, [1])])
