"""Reads a ModelProto into onnx-graphsurgeon graphs and remembers which proto each thing came from.

Not graphsurgeon's own importer: that one needs sorted input, drops what it has no field for, takes inputs that have a
default value for constants, and copies all outer names for every body.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import onnx_graphsurgeon as gs

from onnxfuse.damage import nothing_makes
from onnxfuse.editing.attributes import decode, snapshot
from onnxfuse.editing.values import DenseValues, SparseDenseValues, describe_variable
from onnxfuse.errors import ModelError

__all__ = ["NodeRecord", "Records", "ScopeRecord", "read_model"]

# Before this IR version every initializer had to be listed as an input, without being meant as one.
_IR_WITH_DEFAULT_INPUTS = 4


@dataclass
class NodeRecord:
    """A node that came with the model, its proto, and its attributes as they were read."""

    node: gs.Node
    proto: onnx.NodeProto
    attrs: dict[str, Any]


@dataclass
class ScopeRecord:
    """A graph that came with the model: its proto, its nodes in their order, and its own names."""

    graph: gs.Graph
    proto: onnx.GraphProto
    outer: ScopeRecord | None
    names: dict[str, gs.Tensor] = field(default_factory=dict)
    nodes: list[gs.Node] = field(default_factory=list)
    constants: dict[str, tuple[gs.Constant, Any]] = field(default_factory=dict)  # name: tensor, values as read
    default_inputs: set[str] = field(default_factory=set)  # initializers that are inputs, too
    read: set[str] = field(default_factory=set)

    def find(self, name: str) -> gs.Tensor | None:
        """The tensor that a name means in this scope."""
        scope: ScopeRecord | None = self
        while scope is not None:
            if (tensor := scope.names.get(name)) is not None:
                return tensor
            scope = scope.outer
        return None


@dataclass
class Records:
    """What came with the model. Keys are `id`s; the records keep their objects alive, so these stay unique."""

    nodes: dict[int, NodeRecord] = field(default_factory=dict)
    scopes: dict[int, ScopeRecord] = field(default_factory=dict)

    def initializers(self, graph: gs.Graph) -> set[str]:
        """Names of the constants that a graph brought along and still has."""
        record = self.scopes.get(id(graph))
        if record is None:
            return set()
        return {tensor.name for tensor, _ in record.constants.values() if isinstance(tensor, gs.Constant)}


def read_model(model: onnx.ModelProto, base_dir: Path | None) -> tuple[gs.Graph, Records]:
    """The main graph (bodies are in its nodes' attributes) and the records. Raises ModelError for an invalid model."""
    records = Records()
    opsets = {o.domain: o.version for o in model.opset_import}
    common = {
        "opset": opsets.get("", opsets.get("ai.onnx")),
        "import_domains": list(model.opset_import),
        "ir_version": model.ir_version,
    }
    constant_inputs = model.ir_version < _IR_WITH_DEFAULT_INPUTS
    collecting = gc.isenabled()
    gc.disable()  # a third of the time, for objects that all stay
    try:
        graph = _read_graph(model.graph, None, records, common, base_dir, constant_inputs)
    finally:
        if collecting:
            gc.enable()
    graph.producer_name, graph.producer_version = model.producer_name, model.producer_version
    return graph, records


def _read_graph(
    proto: onnx.GraphProto,
    outer: ScopeRecord | None,
    records: Records,
    common: dict[str, Any],
    base_dir: Path | None,
    constant_inputs: bool = False,
) -> gs.Graph:
    graph = gs.Graph(name=proto.name, doc_string=proto.doc_string, **common)
    record = ScopeRecord(graph, proto, outer)
    records.scopes[id(graph)] = record
    _read_values(record, base_dir, constant_inputs)
    names = record.names

    def read_body(body: onnx.GraphProto) -> gs.Graph:
        return _read_graph(body, record, records, common, base_dir)

    def find(name: str, reader: onnx.NodeProto | None = None) -> gs.Tensor:
        if not name:
            return gs.Variable.empty()
        tensor = record.find(name)
        if tensor is None:
            where = f"node {_label(reader)}" if reader is not None else f"an output of graph '{proto.name}'"
            raise nothing_makes(name, where)
        return tensor

    for node_proto in proto.node:
        attrs: dict[str, Any] = {}
        for attribute in node_proto.attribute:
            known, value = decode(attribute, read_body, base_dir)
            if known:
                attrs[attribute.name] = value
        node = gs.Node(
            op=node_proto.op_type,
            name=node_proto.name,
            attrs=attrs,
            inputs=[find(name, node_proto) for name in node_proto.input],
            outputs=[names[name] if name else gs.Variable.empty() for name in node_proto.output],
            domain=node_proto.domain if node_proto.HasField("domain") else None,
        )
        records.nodes[id(node)] = NodeRecord(node, node_proto, snapshot(attrs))
        record.nodes.append(node)
    graph.nodes.extend(record.nodes)
    graph.outputs.extend(find(output.name) for output in proto.output)
    return graph


def _label(node: onnx.NodeProto) -> str:
    """How a message names a node, as `order.label` does."""
    return f"'{node.name or next(filter(None, node.output), 'unnamed')}' ({node.op_type})"


def _read_values(record: ScopeRecord, base_dir: Path | None, constant_inputs: bool) -> None:
    """Makes the tensors that a graph defines: inputs, initializers, outputs of nodes."""
    proto, names = record.proto, record.names
    dense = {t.name: t for t in proto.initializer}
    sparse = {t.values.name: t for t in proto.sparse_initializer}
    for value in proto.input:
        if value.name in dense or value.name in sparse:
            record.default_inputs.add(value.name)
            if constant_inputs:
                continue
        variable = names.setdefault(value.name, gs.Variable(value.name))
        describe_variable(variable, value)
        record.graph.inputs.append(variable)
    for name, tensor in (*dense.items(), *sparse.items()):
        if name not in names:
            kind = DenseValues if name in dense else SparseDenseValues
            values = kind(tensor, base_dir)
            names[name] = gs.Constant(name, values)
            record.constants[name] = (names[name], values)
    for node in proto.node:
        for name in node.output:
            if name:
                if name in names:
                    raise ModelError(
                        f"the value '{name}' in graph '{proto.name}' is defined twice: the model is not valid"
                    )
                names[name] = gs.Variable(name)
    for value in (*proto.output, *proto.value_info):
        known = names.get(value.name)
        if isinstance(known, gs.Variable):
            describe_variable(known, value)
