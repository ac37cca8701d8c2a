"""The truth about a small model: its outputs evaluated in float64 by the ONNX project's reference implementation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

__all__ = ["evaluate_in_float64", "is_small"]

_NARROW = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
_MAX_NODES = 2000
_MAX_WEIGHTS = 16_000_000
_SPREADING = {"Conv", "ConvTranspose", "LSTM", "GRU", "RNN", "Loop", "Scan"}  # minutes in the reference, when many


def is_small(model: onnx.ModelProto) -> bool:
    """Whether the reference implementation will be done with the model in seconds."""
    weights = sum(math.prod(t.dims) for t in model.graph.initializer)
    slow = sum(node.op_type in _SPREADING for node in model.graph.node)
    return len(model.graph.node) <= _MAX_NODES and weights <= _MAX_WEIGHTS and slow <= 20


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def _widen_constant(node: onnx.NodeProto) -> None:
    """A Constant's floats become a float64 tensor."""
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            value: Any = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.array(value, np.float64))
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        if node.op_type == "Constant":
            _widen_constant(node)
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen_graph(attribute.g)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    _widen_nodes(graph.node)


def evaluate_in_float64(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[Any] | None:
    """The model's outputs with every narrower float type widened to float64; constants keep their rounding.

    None where that cannot be done: an operator without a reference, one that insists on its type, a fused node.
    """
    from onnx.reference import ReferenceEvaluator

    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    inputs = {
        name: array.astype(np.float64) if array.dtype.name in ("float16", "bfloat16", "float32") else array
        for name, array in feeds.items()
    }
    try:
        _widen_graph(wide.graph)
        for function in wide.functions:
            _widen_nodes(function.node)
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(wide).run(None, inputs))
    except Exception:  # the reference raises whatever numpy does; without a truth the comparison stands as it is
        return None
