"""Writes edited graphs back: a copy of the original proto, in which only what the edit changed is written anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_graphsurgeon as gs

from onnxfuse.editing.attributes import bodies, encode, same_value
from onnxfuse.editing.order import Scope, label, survey, topological_order
from onnxfuse.editing.reader import Records, ScopeRecord
from onnxfuse.editing.values import constant_to_proto, has_original_values, value_info_of
from onnxfuse.errors import ModelError

__all__ = ["Additions", "Writer"]


@dataclass
class Additions:
    """What an edit says about nodes and values that graphsurgeon has no field for. Keys are `id`s."""

    overloads: dict[int, str] = field(default_factory=dict)
    metadata: dict[int, dict[str, str]] = field(default_factory=dict)
    value_infos: dict[int, dict[str, onnx.ValueInfoProto]] = field(default_factory=dict)  # by graph, by name


def _retain(repeated: Any, keep: Sequence[bool]) -> None:
    """Keeps some elements of a repeated field, without copying them (initializers are large)."""
    if not all(keep):
        flags = iter(keep)
        repeated.sort(key=lambda _: not next(flags))  # stable
        del repeated[sum(keep) :]


class Writer:
    """Writes a main graph with its bodies. `protected` names values of the main graph that the model uses elsewhere."""

    def __init__(self, graph: gs.Graph, records: Records, additions: Additions, protected: set[str]) -> None:
        self._records = records
        self._additions = additions
        self._protected = protected
        self.root = survey(graph, records.initializers)
        self._scopes = {id(scope.graph): scope for scope in self.root.walk()}
        self._new_constants: dict[int, list[gs.Constant]] = {}  # by graph
        self._place_constants()
        self._check_names()
        self.constants_as_nodes = False
        self.new_domains: set[str] = set()

    def write(self, target: onnx.GraphProto) -> None:
        """Turns `target`, a copy of the original main graph or empty, into the edited one."""
        self._write_graph(target, self.root)

    def _place_constants(self) -> None:
        """Gives each constant that the edit made to the innermost scope that holds all its uses."""
        homes: dict[int, tuple[gs.Constant, Scope]] = {}
        owned = {
            id(tensor)
            for key, record in self._records.scopes.items()
            if key in self._scopes
            for tensor, _ in record.constants.values()
        }
        for scope in self.root.walk():
            for key, constant in scope.constants.items():
                if key not in owned:
                    homes[key] = (constant, _common(scope, homes[key][1]) if key in homes else scope)
        for constant, home in homes.values():
            outer: Scope | None = home
            while outer is not None:
                if constant.name in outer.defined:
                    raise ModelError(f"the new constant '{constant.name}' has the name of another value")
                if outer is not home:
                    outer.read.discard(constant.name)  # was passed on as a capture
                outer = outer.parent
            home.defined.add(constant.name)
            self._new_constants.setdefault(id(home.graph), []).append(constant)

    def _check_names(self) -> None:
        """Raises ModelError where the edit left a node that reads what nothing makes."""
        for scope in reversed(list(self.root.walk())):  # inner ones first: there the readers themselves are
            names = scope.read - scope.defined
            outer = scope.parent
            while names and outer is not None:
                names.difference_update(outer.defined)
                outer = outer.parent
            if names:
                readers = [node for node in scope.graph.nodes if any(t.name in names for t in node.inputs)]
                where = f"node {label(readers[0])}" if readers else f"an output of graph '{scope.graph.name}'"
                raise ModelError(f"nothing produces the value '{min(names)}', which is read by {where}")

    def _write_graph(self, target: onnx.GraphProto, scope: Scope) -> None:
        record = self._records.scopes.get(id(scope.graph))
        if record is None:
            target.name = scope.graph.name
            target.doc_string = scope.graph.doc_string or ""
        if record is not None:
            keep = [_follow(a, "tensor_name", record, scope) for a in target.quantization_annotation]
            _retain(target.quantization_annotation, keep)
        self._write_nodes(target, scope, record)
        self._write_initializers(target, scope, record)
        _write_inputs(target, scope.graph, record)
        _write_outputs(target, scope.graph, record)
        self._write_value_info(target, scope, record)

    def _write_nodes(self, target: onnx.GraphProto, scope: Scope, record: ScopeRecord | None) -> None:
        order = topological_order(scope)
        constants: list[gs.Constant] = []
        if self.constants_as_nodes:
            constants = self._new_constants.pop(id(scope.graph), [])
        before = record.nodes if record is not None else []
        if not constants and len(order) == len(before) and all(a is b for a, b in zip(order, before, strict=True)):
            for proto, node in zip(target.node, order, strict=True):
                if self._changed(node):
                    self._patch(proto, node)
            return
        protos = [onnx.helper.make_node("Constant", [], [c.name], value=constant_to_proto(c)) for c in constants]
        for node in order:
            known = self._records.nodes.get(id(node))
            if known is not None and not self._changed(node):
                protos.append(known.proto)
                continue
            proto = onnx.NodeProto()
            if known is not None:
                proto.CopyFrom(known.proto)
            self._patch(proto, node)
            protos.append(proto)
        del target.node[:]
        target.node.extend(protos)

    def _changed(self, node: gs.Node) -> bool:
        """Whether a node may differ from its proto (one with bodies always may)."""
        known = self._records.nodes.get(id(node))
        if known is None or id(node) in self._additions.overloads or id(node) in self._additions.metadata:
            return True
        proto = known.proto
        if node.op != proto.op_type or node.name != proto.name or (node.domain or "") != proto.domain:
            return True
        if [t.name for t in node.inputs] != proto.input or [t.name for t in node.outputs] != proto.output:
            return True
        if node.attrs.keys() != known.attrs.keys() or any(True for _ in bodies(node)):
            return True
        return not all(same_value(value, known.attrs[name]) for name, value in node.attrs.items())

    def _patch(self, proto: onnx.NodeProto, node: gs.Node) -> None:
        """Writes a node's differences from `proto`, a copy of its original or empty."""
        known = self._records.nodes.get(id(node))
        for field_name, value in (("op_type", node.op), ("name", node.name or ""), ("domain", node.domain or "")):
            if getattr(proto, field_name) != value:
                setattr(proto, field_name, value)
        for names, tensors in ((proto.input, node.inputs), (proto.output, node.outputs)):
            wanted = [t.name for t in tensors]
            if list(names) != wanted:
                del names[:]
                names.extend(wanted)
        before = known.attrs if known is not None else {}
        if before.keys() - node.attrs.keys():
            _retain(proto.attribute, [a.name in node.attrs or a.name not in before for a in proto.attribute])
        places = {a.name: a for a in proto.attribute}
        for name, value in node.attrs.items():
            if name not in before or not same_value(value, before[name]):
                new = encode(node, name, value, self._new_body)
                places[name].CopyFrom(new) if name in places else proto.attribute.append(new)
            elif isinstance(value, gs.Graph):
                self._write_graph(places[name].g, self._scopes[id(value)])
            elif isinstance(value, list) and value and isinstance(value[0], gs.Graph):
                for graph, target in zip(value, places[name].graphs, strict=True):
                    self._write_graph(target, self._scopes[id(graph)])
        if known is None or (node.domain or "") != known.proto.domain:
            self.new_domains.add(node.domain or "")
        if (overload := self._additions.overloads.get(id(node))) is not None:
            proto.overload = overload
        for key, text in self._additions.metadata.get(id(node), {}).items():
            entry = next((e for e in proto.metadata_props if e.key == key), None)
            (entry if entry is not None else proto.metadata_props.add(key=key)).value = text

    def _new_body(self, graph: gs.Graph) -> onnx.GraphProto:
        target = onnx.GraphProto()
        if (record := self._records.scopes.get(id(graph))) is not None:
            target.CopyFrom(record.proto)
        self._write_graph(target, self._scopes[id(graph)])
        return target

    def _write_initializers(self, target: onnx.GraphProto, scope: Scope, record: ScopeRecord | None) -> None:
        used = set(scope.read)
        for annotation in target.quantization_annotation:
            used.update(entry.value for entry in annotation.quant_parameter_tensor_names)
        if scope is self.root:
            used |= self._protected
        densified: list[onnx.TensorProto] = []

        def kept(proto: Any, name: str) -> bool:
            entry = record.constants.get(name) if record is not None else None
            if record is None or entry is None:
                return True
            tensor, values = entry
            if not isinstance(tensor, gs.Constant):
                return False
            if tensor.name not in used and name in record.read and name not in record.default_inputs:
                return False
            if not has_original_values(tensor, values):
                if isinstance(proto, onnx.SparseTensorProto):
                    densified.append(constant_to_proto(tensor))
                    return False
                proto.CopyFrom(constant_to_proto(tensor))
            elif tensor.name != name:
                (proto.values if isinstance(proto, onnx.SparseTensorProto) else proto).name = tensor.name
            return True

        _retain(target.initializer, [kept(p, p.name) for p in target.initializer])
        _retain(target.sparse_initializer, [kept(p, p.values.name) for p in target.sparse_initializer])
        target.initializer.extend(densified)
        target.initializer.extend(constant_to_proto(c) for c in self._new_constants.get(id(scope.graph), []))

    def _write_value_info(self, target: onnx.GraphProto, scope: Scope, record: ScopeRecord | None) -> None:
        if record is not None:
            _retain(target.value_info, [_follow(v, "name", record, scope) for v in target.value_info])
        given = dict(self._additions.value_infos.get(id(scope.graph), {}))
        declared = {v.name for v in (*target.value_info, *target.output)}
        for node in scope.graph.nodes:
            if id(node) not in self._records.nodes:
                for tensor in node.outputs:
                    name = tensor.name
                    if name and name not in declared and name not in given and (info := value_info_of(tensor)):
                        given[name] = info
        for value in target.value_info:
            if value.name in given:
                value.CopyFrom(given.pop(value.name))
        elsewhere = {v.name for v in (*target.input, *target.output)}  # declared there
        target.value_info.extend(
            info for name, info in given.items() if name in scope.defined and name not in elsewhere
        )


def _follow(proto: Any, field_name: str, record: ScopeRecord, scope: Scope) -> bool:
    """Whether a declaration's value is still there; follows a renamed one. What never named a value stays."""
    name = getattr(proto, field_name)
    outer: Scope | None = scope
    while outer is not None:
        if name in outer.defined:
            return True
        outer = outer.parent
    tensor = record.find(name)
    if tensor is not None and tensor.name != name and tensor.name in scope.defined:
        setattr(proto, field_name, tensor.name)
        return True
    return tensor is None


def _write_inputs(target: onnx.GraphProto, graph: gs.Graph, record: ScopeRecord | None) -> None:
    old = {value.name: value for value in target.input}
    for value in target.input:
        tensor = record.names.get(value.name) if record is not None else None
        if tensor is not None and tensor.name != value.name:
            value.name = tensor.name
    known = {value.name for value in old.values()}
    target.input.extend(_declaration(t) for t in graph.inputs if t.name not in known)


def _write_outputs(target: onnx.GraphProto, graph: gs.Graph, record: ScopeRecord | None) -> None:
    if [t.name for t in graph.outputs] == [value.name for value in target.output]:
        return
    by_tensor = {id(record.names.get(v.name)): v for v in target.output} if record is not None else {}
    by_name = {value.name: value for value in target.output}
    values = []
    for tensor in graph.outputs:
        source = by_tensor.get(id(tensor)) or by_name.get(tensor.name)
        value = onnx.ValueInfoProto()
        value.CopyFrom(source if source is not None else _declaration(tensor))
        value.name = tensor.name
        values.append(value)
    del target.output[:]
    target.output.extend(values)


def _declaration(tensor: gs.Tensor) -> onnx.ValueInfoProto:
    info = value_info_of(tensor)
    return info if info is not None else onnx.ValueInfoProto(name=tensor.name)


def _common(a: Scope, b: Scope) -> Scope:
    """The innermost scope that holds both."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None  # scopes of one model share its main graph
        a = a.parent
    return a
