"""Node attributes between ONNX protos and the Python values that onnx-graphsurgeon uses for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto
from onnx_graphsurgeon.exporters.onnx_exporter import dtype_to_onnx
from onnx_graphsurgeon.util import misc

from onnxfuse.editing.values import DenseValues, constant_to_proto
from onnxfuse.errors import ModelError

__all__ = ["bodies", "decode", "encode", "same_value", "snapshot"]


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data  # a string attribute may hold any bytes


def decode(
    attribute: AttributeProto, read_graph: Callable[[onnx.GraphProto], gs.Graph], base_dir: Path | None
) -> tuple[bool, Any]:
    """(True, the value), or (False, None) for kinds that graphsurgeon has no value for (they stay in the proto)."""
    if attribute.ref_attr_name:
        return True, gs.Node.AttributeRef(attribute.ref_attr_name, misc.convert_from_onnx_attr_type(attribute.type))
    match attribute.type:
        case AttributeProto.FLOAT:
            return True, attribute.f
        case AttributeProto.INT:
            return True, attribute.i
        case AttributeProto.STRING:
            return True, _text(attribute.s)
        case AttributeProto.TENSOR:
            return True, gs.Constant(attribute.t.name, DenseValues(attribute.t, base_dir))
        case AttributeProto.GRAPH:
            return True, read_graph(attribute.g)
        case AttributeProto.FLOATS:
            return True, list(attribute.floats)
        case AttributeProto.INTS:
            return True, list(attribute.ints)
        case AttributeProto.STRINGS:
            return True, [_text(s) for s in attribute.strings]
        case AttributeProto.GRAPHS:
            return True, [read_graph(g) for g in attribute.graphs]
    return False, None


def bodies(node: gs.Node) -> Iterator[tuple[str, gs.Graph]]:
    """The graphs in a node's attributes with their attributes' names, in order."""
    for name, value in node.attrs.items():
        if isinstance(value, gs.Graph):
            yield name, value
        elif isinstance(value, list) and value and isinstance(value[0], gs.Graph):
            yield from ((name, graph) for graph in value)


def snapshot(attrs: dict[str, Any]) -> dict[str, Any]:
    """What `same_value` compares later with; lists are copied, since an edit may change them in place."""
    return {
        name: list(value)
        if type(value) is list
        else (value, value._values)
        if isinstance(value, gs.Constant)
        else value
        for name, value in attrs.items()
    }


def same_value(value: Any, before: Any) -> bool:
    """Whether an attribute's value is the one that `snapshot` saw."""
    if isinstance(value, gs.Constant):
        if not isinstance(before, tuple) or value is not before[0]:
            return False
        original = before[1]
        return value._values is original or (value._values is getattr(original, "array", None))
    if isinstance(value, gs.Graph) or isinstance(before, (gs.Graph, tuple)):
        return value is before
    if type(value) is list and value and isinstance(value[0], gs.Graph):
        return len(value) == len(before) and all(a is b for a, b in zip(value, before, strict=True))
    return value is before or (type(value) is type(before) and bool(value == before))


def encode(node: gs.Node, name: str, value: Any, write_graph: Callable[[gs.Graph], onnx.GraphProto]) -> AttributeProto:
    """The proto of an attribute's value. Raises ModelError for a value that has none."""
    if isinstance(value, gs.Node.AttributeRef):
        return _reference(name, value)
    if isinstance(value, gs.Tensor):
        value = constant_to_proto(value)
    elif isinstance(value, gs.Graph):
        value = write_graph(value)
    elif isinstance(value, list) and value and isinstance(value[0], gs.Graph):
        value = [write_graph(graph) for graph in value]
    elif isinstance(value, type):
        value = dtype_to_onnx(value)
    try:
        if isinstance(value, (list, tuple)) and not value:  # the type of an empty list is the operator's to say
            return onnx.helper.make_attribute(name, value, attr_type=_declared_type(node, name))
        return onnx.helper.make_attribute(name, value)
    except (KeyError, TypeError, ValueError, onnx.defs.SchemaError) as error:
        raise ModelError(f"attribute '{name}' of node '{node.name}' ({node.op}) cannot be written: {error}") from error


def _declared_type(node: gs.Node, name: str) -> int:
    """The type of an attribute in the newest version of the node's operator that has it."""
    for version in range(onnx.defs.onnx_opset_version(), 0, -1):
        attributes = onnx.defs.get_schema(node.op, version, node.domain or "").attributes
        if name in attributes:
            return int(AttributeProto.AttributeType.Value(str(attributes[name].type).rpartition(".")[2]))
    raise KeyError(name)


def _reference(name: str, value: gs.Node.AttributeRef) -> AttributeProto:
    proto = AttributeProto(name=name, ref_attr_name=value.name)
    proto.type = misc.convert_to_onnx_attr_type(value.type)
    return proto
