"""Runs a program text as one fused node in ONNX Runtime, on the CPU provider with the library registered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import helper

from onnxfuse.custom_ops.library import library_path
from onnxfuse.custom_ops.parser import parse
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.types import to_numpy, to_onnx

Array = npt.NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def session(text: str, threads: int = 1) -> ort.InferenceSession:
    """A session of a model whose only node computes the program; bf16 tensors travel as uint16, see `run`."""
    program = parse(text)
    names = [f"x{i}" for i in range(len(program.inputs))]
    outputs = [f"y{i}" for i in range(len(program.outputs))]
    node = helper.make_node("FusedReduction", names, outputs, domain="onnxfuse", program=text)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, to_onnx(type_), [None] * rank)
            for name, (type_, rank) in zip(names, program.inputs, strict=True)
        ],
        [
            helper.make_tensor_value_info(name, to_onnx(type_), [None] * rank)
            for name, (type_, rank) in zip(outputs, program.outputs, strict=True)
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("onnxfuse", 1)], ir_version=10
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _value(x: Array) -> ort.OrtValue:
    if x.dtype == BFLOAT16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), onnx.TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(x)


def run_in(node: ort.InferenceSession, text: str, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a session that `session` made."""
    program = parse(text)
    arrays = [np.ascontiguousarray(x) if x.ndim else x for x in inputs]
    if any(type_ == "bf16" for type_, _ in (*program.inputs, *program.outputs)):
        feed = {f"x{i}": _value(x) for i, x in enumerate(arrays)}
        values = node.run_with_ort_values([f"y{i}" for i in range(len(program.outputs))], feed)
        out = []
        for value, (type_, _) in zip(values, program.outputs, strict=True):
            array = value.numpy()
            out.append(array.view(BFLOAT16) if type_ == "bf16" and array.dtype != BFLOAT16 else array)
        return out
    return list(node.run(None, {f"x{i}": x for i, x in enumerate(arrays)}))


def run(text: str, *inputs: Array, threads: int = 1) -> list[Array]:
    """The outputs of the program; bf16 as ml_dtypes' type."""
    return run_in(session(text, threads), text, inputs)


def ulps(actual: Array, exact: Array) -> Array:
    """Distance from the exact value (float64) in units in the last place of the actual's type; 0 for equal specials."""
    dtype = actual.dtype
    info = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        exponent = np.floor(np.log2(np.maximum(np.abs(exact), float(info.smallest_normal))))
        unit = np.exp2(exponent - info.nmant)
        distance = np.abs(actual.astype(np.float64) - exact) / unit
    same = (np.isnan(rounded) & np.isnan(actual)) | (actual == rounded)
    return np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))


def check(text: str, *inputs: Array, threads: int = 1, limit: float = 4, floor: float = 0.0) -> list[Array]:
    """Runs the program and compares with its evaluation in float64.

    Args:
        limit: units in the last place that floats may be off; anything else must be equal.
        floor: absolute error that is allowed besides, for results that cancel.
    """
    program = parse(text)
    actual = run(text, *inputs, threads=threads)
    expected = evaluate(program, inputs, float64=True)
    for i, (got, want, (type_, _)) in enumerate(zip(actual, expected, program.outputs, strict=True)):
        assert got.shape == want.shape, f"output {i} has shape {got.shape}, expected {want.shape}"
        assert got.dtype == to_numpy(type_), f"output {i} is {got.dtype}"
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want, err_msg=f"output {i}")
            continue
        with np.errstate(all="ignore"):
            close = np.abs(got.astype(np.float64) - want) <= floor
        error = np.where(close, 0.0, ulps(got, want))
        if error.size and error.max() > limit:
            at = np.unravel_index(int(error.argmax()), error.shape)
            raise AssertionError(
                f"output {i} at {at}: {got[at]!r} instead of {want[at]!r}, {error[at]} ulp off\n{text}"
            )
    return actual
