"""What the table of demanded ranks says fails, ONNX Runtime refuses."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxfuse.rewrites.rank_demands import cannot_run
from onnxfuse.rewrites.shape_site import TensorType

# Op type, attributes, and shapes that run.
RUNNABLE = [
    ("LSTM", {"hidden_size": 2}, [(1, 1, 3), (1, 8, 3), (1, 8, 2), (1, 16), None, (1, 1, 2), (1, 1, 2)]),
    ("GRU", {"hidden_size": 2}, [(1, 1, 3), (1, 6, 3), (1, 6, 2), (1, 12), None, (1, 1, 2)]),
    ("RNN", {"hidden_size": 2}, [(1, 1, 3), (1, 2, 3), (1, 2, 2), (1, 4), None, (1, 1, 2)]),
    ("Gemm", {}, [(1, 1), (1, 1), (1, 1)]),
    ("Gemm", {"transA": 1, "transB": 1}, [(1, 1), (1, 1), (1, 1)]),
    ("Conv", {}, [(1, 2, 1), (3, 2, 1), (3,)]),
    ("Conv", {}, [(1, 2, 1, 1), (3, 2, 1, 1), (3,)]),
    ("ConvTranspose", {}, [(1, 2, 1), (2, 3, 1), (3,)]),
    ("ConvTranspose", {}, [(1, 2, 1, 1), (2, 3, 1, 1), (3,)]),
    ("MaxPool", {"kernel_shape": [1, 1]}, [(1, 1, 1, 1)]),
    ("AveragePool", {"kernel_shape": [1]}, [(1, 1, 1)]),
    ("LpPool", {"kernel_shape": [1, 1]}, [(1, 1, 1, 1)]),
    ("Transpose", {"perm": [1, 0]}, [(1, 1)]),
    ("Transpose", {}, [(1, 1)]),
    ("DepthToSpace", {"blocksize": 1}, [(1, 1, 1, 1)]),
    ("SpaceToDepth", {"blocksize": 1}, [(1, 1, 1, 1)]),
    ("MatMul", {}, [(1, 1), (1, 1)]),
]


def runs(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether ONNX Runtime runs it; the model says nothing of the ranks."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in shapes]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    try:
        session.run(None, {name: np.full(shape, 0.5, np.float32) for name, shape in shapes.items()})
    except Exception:
        return False
    return True


@pytest.mark.parametrize(("op_type", "attributes", "given"), RUNNABLE)
def test_what_cannot_run_fails(
    op_type: str, attributes: dict[str, object], given: list[tuple[int, ...] | None]
) -> None:
    names = ["" if shape is None else f"x{k}" for k, shape in enumerate(given)]
    shapes = {name: shape for name, shape in zip(names, given, strict=True) if shape is not None}
    node = helper.make_node(op_type, names, ["y"], **attributes)

    def verdict(shapes: dict[str, tuple[int, ...]]) -> bool:
        return cannot_run(node, {name: TensorType("f32", tuple("?" for _ in shape)) for name, shape in shapes.items()})

    assert runs(node, shapes)
    assert not verdict(shapes)
    for name, shape in shapes.items():
        for other in ((), shape[1:], (*shape, 1), (1, *shape), (1, 1, *shape)):
            wrong = {**shapes, name: other}
            assert not (verdict(wrong) and runs(node, wrong)), (name, other)
    demanding = op_type != "MatMul" and (op_type != "Transpose" or attributes)
    assert verdict({**shapes, "x0": (1, 1, *shapes["x0"])}) == bool(demanding)


def test_what_is_not_known_demands_nothing() -> None:
    node = helper.make_node("Gemm", ["a", "b"], ["y"])
    assert not cannot_run(node, {"a": TensorType("f32", None)})
    assert not cannot_run(
        helper.make_node("Gemm", ["a", "b"], ["y"], domain="local"), {"a": TensorType("f32", (1,) * 4)}
    )
    conv = helper.make_node("Conv", ["a", "b"], ["y"])
    assert not cannot_run(conv, {"a": TensorType("f32", (1,)), "b": TensorType("f32", None)})
