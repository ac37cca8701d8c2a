"""What tells a damaged model: names that are no text, tensors with more or fewer values than their shapes say, and
nodes that read what nothing makes.

Protobuf takes all of it; it would fail later, wherever it is first looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import onnx

from onnxfuse.custom_ops.types import from_onnx, size
from onnxfuse.errors import ModelError
from onnxfuse.external_data import all_tensors

__all__ = ["check_damage", "check_reads", "nothing_makes"]

# Where a tensor keeps its values if not as raw bytes; those of the types that are not named here are in int32_data.
_FIELDS = {"f32": "float_data", "f64": "double_data", "i64": "int64_data", "u32": "uint64_data", "u64": "uint64_data"}


def check_damage(model: onnx.ModelProto) -> None:
    """Raises ModelError, naming the tensor where it is one, for a model that is damaged."""
    for name in _names(model):
        if not isinstance(name, str):  # how protobuf shows a string that is not UTF-8
            raise ModelError(f"the model is damaged: it has a name that is not UTF-8 text ({name!r})")
    for tensor in all_tensors(model):
        _check_tensor(tensor)


def nothing_makes(name: str, reader: str) -> ModelError:
    """The error for a value that is read and not defined."""
    return ModelError(
        f"the value '{name}', read by {reader}, is no input, no initializer and no node's output: "
        "the model is not valid"
    )


def check_reads(model: onnx.ModelProto) -> None:
    """Raises ModelError, naming value and node, where a node or an output reads what nothing defines."""
    _check_graph_reads(model.graph, frozenset())
    for function in model.functions:
        known = frozenset(name for node in function.node for name in node.output) | frozenset(function.input)
        _check_node_reads(function.node, known)
        _check_output_reads(function.output, known, f"local function '{function.name}'")


def _check_graph_reads(graph: onnx.GraphProto, outer: frozenset[str]) -> None:
    known = outer | {name for node in graph.node for name in node.output}
    known |= {value.name for values in (graph.input, graph.initializer) for value in values}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    _check_node_reads(graph.node, known)
    _check_output_reads([output.name for output in graph.output], known, f"graph '{graph.name}'")


def _check_node_reads(nodes: Iterable[onnx.NodeProto], known: frozenset[str]) -> None:
    for node in nodes:
        for name in node.input:
            if name and name not in known:
                label = node.name or next(filter(None, node.output), "unnamed")
                raise nothing_makes(name, f"node '{label}' ({node.op_type})")
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                _check_graph_reads(graph, known)


def _check_output_reads(outputs: Iterable[str], known: frozenset[str], owner: str) -> None:
    for name in outputs:
        if name not in known:
            raise nothing_makes(name, f"an output of {owner}")


def _names(model: onnx.ModelProto) -> Iterator[object]:
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output)
        yield from _node_names(function.node)
    yield from _graph_names(model.graph)


def _graph_names(graph: onnx.GraphProto) -> Iterator[object]:
    for values in (graph.input, graph.output, graph.value_info, graph.initializer):
        yield from (value.name for value in values)
    yield from _node_names(graph.node)


def _node_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _graph_names(graph)


def _check_tensor(tensor: onnx.TensorProto) -> None:
    kind = from_onnx(tensor.data_type)
    if kind is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    if any(extent < 0 for extent in tensor.dims):
        raise ModelError(f"the tensor '{tensor.name}' has the shape {list(tensor.dims)}: the model is damaged")
    count = math.prod(tensor.dims)
    values = tensor.raw_data if tensor.HasField("raw_data") else getattr(tensor, _FIELDS.get(kind, "int32_data"))
    unit, needed = ("bytes", count * size(kind)) if tensor.HasField("raw_data") else ("values", count)
    if len(values) != needed:
        raise ModelError(
            f"the tensor '{tensor.name}' has {len(values)} {unit}, where its shape {list(tensor.dims)} needs {needed}: "
            "the model is damaged"
        )
