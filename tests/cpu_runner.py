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
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.types import to_numpy, to_onnx

Array = npt.NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def session(text: str, threads: int = 1) -> ort.InferenceSession:
    """A session of a model whose fused node computes the program; bf16 tensors go in and out as float32."""
    return session_of(text, parse(text), threads)


def session_of(text: str, program: Program, threads: int = 1) -> ort.InferenceSession:
    """The same with the inputs and outputs of another program, for texts that are none."""
    names = [f"x{i}" for i in range(len(program.inputs))]
    outputs = [f"y{i}" for i in range(len(program.outputs))]
    op_type = "FusedReduction" if program.axes is None else "FusedRuntimeAxes"
    node = helper.make_node(op_type, names, outputs, domain="onnxfuse", program=text)
    nodes, feeds, results, between = [node], [], [], []
    for i, (type_, rank) in enumerate(program.inputs):
        name = names[i]
        if type_ == "bf16":  # numpy has no such type: it goes in as float32
            name = f"{name}_f32"
            nodes.insert(0, helper.make_node("Cast", [name], [names[i]], to=onnx.TensorProto.BFLOAT16))
        feeds.append(helper.make_tensor_value_info(name, to_onnx("f32" if type_ == "bf16" else type_), [None] * rank))
    for i, (type_, rank) in enumerate(program.outputs):
        name = outputs[i]
        if type_ == "bf16":
            name = f"{name}_f32"
            # ONNX Runtime 1.18 wants the type declared.
            between.append(helper.make_tensor_value_info(outputs[i], to_onnx(type_), [None] * rank))
            nodes.append(helper.make_node("Cast", [outputs[i]], [name], to=onnx.TensorProto.FLOAT))
        results.append(helper.make_tensor_value_info(name, to_onnx("f32" if type_ == "bf16" else type_), [None] * rank))
    graph = helper.make_graph(nodes, "g", feeds, results, value_info=between)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("onnxfuse", 1)], ir_version=10
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_in(node: ort.InferenceSession, text: str, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a session that `session` made."""
    arrays = [x.astype(np.float32) if x.dtype == BFLOAT16 else np.asarray(x) for x in inputs]
    outputs = node.run(None, {put.name: x for put, x in zip(node.get_inputs(), arrays, strict=True)})
    types = [type_ for type_, _ in parse(text).outputs]
    return [y.astype(BFLOAT16) if type_ == "bf16" else y for y, type_ in zip(outputs, types, strict=True)]


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


def check(
    text: str,
    *inputs: Array,
    threads: int = 1,
    limit: float = 4,
    floor: float = 0.0,
    as_typed: bool = False,
    node: ort.InferenceSession | None = None,
) -> list[Array]:
    """Runs the program and compares with its evaluation in float64.

    Args:
        text: the program.
        *inputs: its inputs.
        threads: of the session.
        limit: units in the last place that floats may be off; anything else must be equal.
        floor: absolute error that is allowed besides, for results that cancel.
        node: a session of the program, which then is not made anew.
        as_typed: values that are rounded to their types on the way are right as well; a cast from f64 to f32 rounds.
    """
    program = parse(text)
    actual = run(text, *inputs, threads=threads) if node is None else run_in(node, text, inputs)
    references = [evaluate(program, inputs, float64=True)]
    if as_typed:
        references.append(
            [np.asarray(y).astype(w.dtype) for y, w in zip(evaluate(program, inputs), *references, strict=True)]
        )
    for i, got in enumerate(actual):
        expected = [reference[i] for reference in references]
        assert got.shape == expected[0].shape, f"output {i} has shape {got.shape}, expected {expected[0].shape}"
        assert got.dtype == to_numpy(program.outputs[i][0]), f"output {i} is {got.dtype}"
        error = np.min([_error(got, want, floor) for want in expected], axis=0)
        if error.size and error.max() > limit:
            at = np.unravel_index(int(error.argmax()), error.shape)
            wanted = [want[at] for want in expected]
            raise AssertionError(f"output {i} at {at}: {got[at]!r} instead of {wanted}, {error[at]} ulp off\n{text}")
    return actual


def _error(actual: Array, expected: Array, floor: float) -> Array:
    """In units in the last place; infinite where a value that is no float differs."""
    if actual.dtype.kind in "iub":
        return np.where(actual == expected, 0.0, np.inf)
    with np.errstate(all="ignore"):
        close = np.abs(actual.astype(np.float64) - expected) <= floor
    return np.where(close, 0.0, ulps(actual, expected))
