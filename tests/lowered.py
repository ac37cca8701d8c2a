"""Runs programs by their local functions, without the library, and compares with the numpy interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnxfuse.custom_ops.function import to_function
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.types import is_float, is_narrow, to_onnx

OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 17, 18, 20, 21, 23, 26)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def model_of(program: Program, opset: int, op_type: str = "FusedReduction", shapes: Any = None) -> onnx.ModelProto:
    """A model whose only node carries the program, with its local function. bf16 outputs come as float32."""
    inputs = [f"i{n}" for n in range(len(program.inputs))]
    outputs = [f"o{n}" for n in range(len(program.outputs))]
    function = to_function(program, op_type, opset)
    values, casts, results = [], [], []
    for name, (type_, rank) in zip(outputs, program.outputs, strict=True):
        widened = type_ == "bf16"
        values.append(f"{name}_narrow" if widened else name)
        if widened:
            casts.append(helper.make_node("Cast", [values[-1]], [name], to=TensorProto.FLOAT))
        results.append(helper.make_tensor_value_info(name, to_onnx("f32" if widened else type_), [None] * rank))
    node = helper.make_node(
        op_type, inputs, values, domain="onnxfuse", overload=function.overload, program=program.text()
    )
    shapes = shapes or [[None] * rank for _, rank in program.inputs]
    arguments = [
        helper.make_tensor_value_info(name, to_onnx(type_), list(shape))
        for name, (type_, _), shape in zip(inputs, program.inputs, shapes, strict=True)
    ]
    model = helper.make_model(
        helper.make_graph([node, *casts], "g", arguments, results),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("onnxfuse", 1)],
        ir_version=10,
        functions=[function],
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime's CPU provider computes, without the library."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {}
    for n, x in enumerate(inputs):
        if x.dtype == BFLOAT16:
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), TensorProto.BFLOAT16)
        else:
            value = ort.OrtValue.ortvalue_from_numpy(x)
        feeds[f"i{n}"] = value
    return [value.numpy() for value in session.run_with_ort_values(None, feeds)]


def run_reference(model: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What onnx's evaluator computes."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return ReferenceEvaluator(model).run(None, {f"i{n}": x for n, x in enumerate(inputs)})


def assert_agree(program: Program, found: Sequence[np.ndarray], inputs: Sequence[np.ndarray], context: Any) -> None:
    """`found` is what the interpreter computes, but for a few roundings of the output's type."""
    for (type_, _), y, expected in zip(program.outputs, found, evaluate(program, inputs), strict=True):
        assert y.shape == expected.shape, context
        if not is_narrow(type_):
            assert y.dtype == expected.dtype, context
        if is_float(type_):
            exact = type_ == "f64" and not any(t in program.text() for t in ("f32", "f16"))
            tolerance = 1e-12 if exact else {"f16": 2e-3, "bf16": 2e-2}.get(type_, 2e-6)
            np.testing.assert_allclose(
                y.astype(np.float64), expected.astype(np.float64), tolerance, tolerance, err_msg=str(context)
            )
        else:
            np.testing.assert_array_equal(y, expected, err_msg=str(context))


def check(text: str, inputs: Sequence[np.ndarray], opsets: Sequence[int] = OPSETS, reference: bool = True) -> None:
    """ONNX Runtime, onnx's evaluator and the interpreter agree in all opsets."""
    program = Program.parse(text)
    for opset in opsets:
        model = model_of(program, opset)
        assert_agree(program, run(model, inputs), inputs, opset)
        if reference and opset >= 13:  # onnx's evaluator is not at home in old opsets
            found = run_reference(model, inputs)
            for y, expected in zip(found, run(model, inputs), strict=True):
                np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
