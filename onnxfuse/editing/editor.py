"""Graph editing that loses nothing: onnx-graphsurgeon's graphs in between, the model's own protos at both ends."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

from onnxfuse.editing.attributes import bodies
from onnxfuse.editing.order import survey
from onnxfuse.editing.reader import Records, read_model
from onnxfuse.editing.writer import Additions, Writer
from onnxfuse.errors import ModelError

__all__ = ["ModelEditor", "from_graphsurgeon"]

_IR_WITH_PLAIN_INITIALIZERS = 4
_IR_WITH_FUNCTIONS = 8
_IR_WITH_OVERLOADS = 10


class ModelEditor:
    """A model as graphs to edit, and back.

    `graph` is the main graph. Bodies of If, Loop and Scan are gs.Graphs in the attributes of their nodes; captured
    values are the outer graph's own tensors. Tensors have numpy dtypes (ml_dtypes' for bfloat16) and lists of int, str
    or None as shapes, None where they are unknown; constants load their values when asked. An input with a default
    (an initializer of the same name) is a Variable: its value may be overridden, except before IR version 4.

    `to_model` writes what came with the model as it came, and only the differences anew. It neither needs sorted
    nodes nor leaves them unsorted.

    Args:
        model: never changed; must not be changed by others while the editor is in use.
        base_dir: the folder of the model's external data, for those constants whose values are asked for.

    Raises:
        ModelError: a value is defined twice, or read and not defined.
    """

    def __init__(self, model: onnx.ModelProto, base_dir: str | os.PathLike[str] | None = None) -> None:
        self._model = model
        self.graph, self._records = read_model(model, Path(base_dir) if base_dir is not None else None)
        self.functions: list[onnx.FunctionProto] = []
        for function in model.functions:
            self.functions.append(onnx.FunctionProto())
            self.functions[-1].CopyFrom(function)
        self._additions = Additions()
        self._kept_alive: list[object] = []  # whose `id` is a key of _additions
        self._names: set[str] | None = None
        self._next: dict[str, int] = {}
        for scope in survey(self.graph, self._records.initializers).walk():
            self._records.scopes[id(scope.graph)].read = scope.read
        self._protected = _names_in_training(model)

    @property
    def scopes(self) -> list[gs.Graph]:
        """The main graph and every body as they are now, outer before inner."""
        found = [self.graph]
        for graph in found:  # grows
            found.extend(body for node in graph.nodes for _, body in bodies(node))
        return found

    def scope_name(self, scope: gs.Graph) -> str:
        """Where a scope is: '' for the main graph, else like 'if_node.then_branch/loop_node.body'."""
        stack = [(self.graph, "")]
        while stack:
            graph, path = stack.pop()
            if graph is scope:
                return path
            for node in graph.nodes:
                for attribute, body in bodies(node):
                    step = f"{node.name or node.op}.{attribute}"
                    stack.append((body, f"{path}/{step}" if path else step))
        raise ModelError(f"the graph '{scope.name}' is no part of this model")

    def node_proto(self, node: gs.Node) -> onnx.NodeProto | None:
        """The original proto of a node that came with the model (do not change it); None for a new node."""
        record = self._records.nodes.get(id(node))
        return record.proto if record is not None else None

    def overload(self, node: gs.Node) -> str:
        """The node's overload, '' where it has none."""
        proto = self.node_proto(node)
        return self._additions.overloads.get(id(node), proto.overload if proto is not None else "")

    def set_overload(self, node: gs.Node, overload: str) -> None:
        """Says which overload of a local function the node calls (the model's IR version becomes at least 10)."""
        self._kept_alive.append(node)
        self._additions.overloads[id(node)] = overload

    def set_metadata(self, node: gs.Node, metadata: Mapping[str, str]) -> None:
        """Sets entries of the node's metadata_props; others that it has stay."""
        self._kept_alive.append(node)
        self._additions.metadata.setdefault(id(node), {}).update(metadata)

    def set_value_info(self, scope: gs.Graph, value_info: onnx.ValueInfoProto) -> None:
        """Declares a value of the scope, in place of any earlier declaration; forgotten where the value vanishes."""
        self._kept_alive.append(scope)
        info = onnx.ValueInfoProto()
        info.CopyFrom(value_info)
        self._additions.value_infos.setdefault(id(scope), {})[info.name] = info

    def required(self) -> dict[int, gs.Tensor]:
        """Tensors, by `id`, that are needed beyond their consumers: outputs of all scopes, and what training reads."""
        main = self._records.scopes[id(self.graph)].names
        tensors = [main[name] for name in self._protected if name in main]
        tensors.extend(output for scope in self.scopes for output in scope.outputs)
        return {id(tensor): tensor for tensor in tensors}

    def unique_name(self, base: str) -> str:
        """`base`, or where the model has that name already (or this gave it out) `base_1`, `base_2` and so on."""
        if self._names is None:
            self._names = set(self._protected)
            for scope in self.scopes:
                self._names.update(tensor.name for tensor in (*scope.inputs, *scope.outputs))
                for node in scope.nodes:
                    self._names.add(node.name)
                    self._names.update(tensor.name for tensor in (*node.inputs, *node.outputs))
            for record in self._records.scopes.values():
                self._names.update(record.names)
                self._names.update(value.name for value in record.proto.value_info)
            for function in self.functions:
                self._names.update((*function.input, *function.output))
                _add_names(function.node, self._names)
        name = base
        while name in self._names or not name:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._names.add(name)
        return name

    def remove_nodes(self, nodes: Iterable[gs.Node]) -> None:
        """Takes nodes (of any scopes) out of their graphs and out of the producers and consumers of their tensors.

        In place; linear in the size of the model and of the consumer lists touched, so remove many at once.
        """
        self.replace_all([(list(nodes), [])])

    def replace(self, nodes: Sequence[gs.Node], new_node: gs.Node) -> None:
        """Puts `new_node`, already connected, where the last of `nodes` (all of one scope) stood, and removes them."""
        self.replace_all([(nodes, [new_node])])

    def replace_all(self, replacements: Iterable[tuple[Sequence[gs.Node], Sequence[gs.Node]]]) -> None:
        """Many `replace` (by nothing: `remove_nodes`; or by several in order) at once, in linear time."""
        groups = [(list(nodes), list(new_nodes)) for nodes, new_nodes in replacements]
        removed = {id(node): node for nodes, _ in groups for node in nodes}
        group_of = {id(node): index for index, (nodes, _) in enumerate(groups) for node in nodes}
        found = 0
        for scope in self.scopes:
            if not any(id(node) in removed for node in scope.nodes):
                continue
            last = {group_of[id(n)]: position for position, n in enumerate(scope.nodes) if id(n) in removed}
            kept: list[gs.Node] = []
            for position, node in enumerate(scope.nodes):
                if id(node) not in removed:
                    kept.append(node)
                    continue
                found += 1
                if last[group_of[id(node)]] == position:
                    kept.extend(groups[group_of[id(node)]][1])
            scope.nodes[:] = kept
        if found != len(removed):
            raise ModelError("nodes to remove are not in the model")
        _disconnect(list(removed.values()))

    def to_model(self) -> onnx.ModelProto:
        """The edited model; without edits the given model, except that its nodes are sorted.

        Raises ModelError where the edit left a cycle, a value that nothing produces or two values of one name.
        """
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        before = {(f.domain, f.name, f.overload) for f in self._model.functions}
        new_functions = [f for f in self.functions if (f.domain, f.name, f.overload) not in before]
        if list(model.functions) != self.functions:
            del model.functions[:]
            model.functions.extend(self.functions)
        overloads = [f.overload for f in new_functions] + list(self._additions.overloads.values())
        needed = _IR_WITH_OVERLOADS if any(overloads) else _IR_WITH_FUNCTIONS if new_functions else 0
        if needed:
            model.ir_version = max(model.ir_version, needed)
        writer = Writer(self.graph, self._records, self._additions, self._protected)
        writer.constants_as_nodes = model.ir_version < _IR_WITH_PLAIN_INITIALIZERS
        writer.write(model.graph)
        _import_domains(model, writer.new_domains | {f.domain for f in new_functions})
        return model


def from_graphsurgeon(graph: gs.Graph) -> onnx.ModelProto:
    """The model of an onnx_graphsurgeon Graph (what graphsurgeon has dropped when it was imported is not in it).

    Unlike graphsurgeon's own export it sorts the nodes, writes each constant once, and changes no proto of the graph.
    Raises ModelError for a graph that is not valid.
    """
    model = onnx.ModelProto(producer_name=graph.producer_name or "", producer_version=graph.producer_version or "")
    imports = graph.import_domains or [onnx.helper.make_opsetid("", graph.opset)]
    model.opset_import.extend(imports)
    for function in graph.functions:
        model.functions.append(OnnxExporter.export_function(function))
    least = onnx.helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    model.ir_version = graph.ir_version or max(least, _IR_WITH_FUNCTIONS)
    writer = Writer(graph, Records(), Additions(), set())
    writer.write(model.graph)
    _import_domains(model, writer.new_domains)
    return model


def _import_domains(model: onnx.ModelProto, domains: Iterable[str]) -> None:
    known = {"" if o.domain == "ai.onnx" else o.domain for o in model.opset_import}
    for domain in sorted({"" if d == "ai.onnx" else d for d in domains} - known):
        version = 1 if domain else onnx.defs.onnx_opset_version()
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))


def _disconnect(nodes: list[gs.Node]) -> None:
    """Takes nodes, and what is in their bodies, out of the lists of all tensors they touch.

    By identity: graphsurgeon's own lists compare nodes by value, which is slow and can take out another one.
    """
    stack, gone, touched = list(nodes), set(), {}
    while stack:
        node = stack.pop()
        gone.add(id(node))
        touched.update({id(tensor): tensor for tensor in (*node.inputs, *node.outputs)})
        stack.extend(inner for _, body in bodies(node) for inner in body.nodes)
    for tensor in touched.values():
        for users in (tensor.inputs, tensor.outputs):
            users_left = [node for node in users if id(node) not in gone]
            if len(users_left) != len(users):
                list.__setitem__(users, slice(None), users_left)
    for node in nodes:
        list.clear(node.inputs)
        list.clear(node.outputs)


def _add_names(nodes: Iterable[onnx.NodeProto], names: set[str]) -> None:
    for node in nodes:
        names.update((node.name, *node.input, *node.output))
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                names.update(value.name for value in (*graph.input, *graph.output, *graph.initializer))
                _add_names(graph.node, names)


def _names_in_training(model: onnx.ModelProto) -> set[str]:
    """What the training graphs may read of the main graph: every name that stands in them."""
    names: set[str] = set()
    for training in model.training_info:
        for binding in (*training.initialization_binding, *training.update_binding):
            names.update((binding.key, binding.value))
        for graph in (training.initialization, training.algorithm):
            names.update(output.name for output in graph.output)
            _add_names(graph.node, names)
    return names - {""}
