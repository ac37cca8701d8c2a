"""A pass over a model: finds what to make in each of its graphs, and puts it in place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxfuse.custom_ops.types import to_onnx
from onnxfuse.editing import ModelEditor
from onnxfuse.outline import body_path, node_label
from onnxfuse.report import Refusal, Report
from onnxfuse.rewrites.constants import Constants, find_constants
from onnxfuse.rewrites.conv_epilogues import RESPELLED, Affine, Epilogue
from onnxfuse.rewrites.conv_prologues import IN_WEIGHTS, Prologue, Reader, find_prologues
from onnxfuse.rewrites.dims import Symbols, stated
from onnxfuse.rewrites.fuse import Choice, fuse_graph
from onnxfuse.rewrites.fused_node import FusedNode
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.horizontal import GroupedNode, group_launches
from onnxfuse.rewrites.misnamed import MISNAMING_OPSET, declared_names, misnamed_outputs
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope

__all__ = ["Pass"]


class Pass:
    """Walks the graphs of a model, outer before inner, and puts fused nodes in place."""

    def __init__(
        self, editor: ModelEditor, model: onnx.ModelProto, choice: Choice, report: Report, opset: int, fallback: bool
    ) -> None:
        self.editor, self.model, self.choice = editor, model, choice
        self.report, self.opset, self.fallback = report, opset, fallback
        self.symbols = Symbols()
        self.replacements: list[tuple[list[gs.Node], list[gs.Node]]] = []
        self.constants: dict[tuple[int, str], gs.Constant] = {}
        self.protected = set(_names_read_by_training(model))
        self.views: list[tuple[GraphView, onnx.GraphProto]] = []
        self.find: Callable[[GraphView], None] = self._fuse

    def run(self) -> None:
        """Fuses operators."""
        self.find = self._fuse
        self._walk()

    def share_launches(self) -> None:
        """Puts independent fused nodes together."""
        self.find = self._group
        self._walk()

    def move_into_weights(self, fused: bool) -> bool:
        """Has convolutions take in the affine maps before them, those of no fused node; whether any did."""
        self.find = partial(self._move, fused=fused)
        self._walk()
        return bool(self.replacements)

    def _walk(self) -> None:
        self._graph(self.editor.graph, self.model.graph, infer(self.model).graph, {}, Constants(), "")
        if self.replacements:
            self._name_parts()
        self.editor.replace_all(self.replacements)

    def _name_parts(self) -> None:
        for view, proto in self.views:
            for value in declared_names(proto, view.types):
                self.editor.set_value_info(view.graph, value)
            for name, value in misnamed_outputs(proto, view.types, lambda n: str(self.editor.unique_name(n))):
                self._read_inside(view, name, value)

    def _read_inside(self, view: GraphView, name: str, inner: onnx.ValueInfoProto) -> None:
        """Has the users of a graph's output read the same value under another name."""
        gone = {id(node) for nodes, _ in self.replacements for node in nodes}
        output = view.tensors[name]
        maker, users = view.nodes[view.producer[name]], [u for u in output.outputs if id(u) not in gone]
        if id(maker) in gone or not users:
            return
        value = gs.Variable(inner.name, dtype=output.dtype)
        maker.outputs = [value if t is output else t for t in maker.outputs]
        for user in users:
            user.inputs = [value if t is output else t for t in user.inputs]
        copy = gs.Node("Identity", str(self.editor.unique_name(f"{name}_whole")), inputs=[value], outputs=[output])
        place = next(k for k, node in enumerate(view.graph.nodes) if node is maker)  # one of a body may be equal
        view.graph.nodes.insert(place + 1, copy)
        self.editor.set_value_info(view.graph, inner)

    def _graph(
        self,
        graph: gs.Graph,
        proto: onnx.GraphProto,
        inferred: onnx.GraphProto,
        outer: Scope,
        constants: Constants,
        name: str,
    ) -> None:
        derived: dict[str, np.ndarray] = {}
        types = {**outer, **symbolic_scope(inferred, outer, self.symbols, proto, derived, runs=not name)}
        known = find_constants(proto, constants, self.model.ir_version, self.opset)
        captures = {i: sorted(set(_captured(node))) for i, node in enumerate(proto.node) if _has_body(node)}
        kept = {o.name for o in proto.output} | self.protected | {n for names in captures.values() for n in names}
        view = GraphView(
            name, graph, list(graph.nodes), list(proto.node), types, known, self.symbols, self.opset, kept, captures,
            derived=derived,
        )  # fmt: skip
        self.find(view)
        if self.opset == MISNAMING_OPSET:
            self.views.append((view, proto))
        annotated = iter([node for node in inferred.node if _has_body(node)])
        for i, node in enumerate(proto.node):
            with_types = next(annotated) if _has_body(node) else node
            for k, attribute in enumerate(node.attribute):
                if attribute.type == onnx.AttributeProto.GRAPH:
                    body = graph.nodes[i].attrs[attribute.name]
                    inner = with_types.attribute[k].g
                    self._graph(body, attribute.g, inner, types, known, body_path(name, node, attribute))

    def _fuse(self, view: GraphView) -> None:
        found = fuse_graph(view, self.choice)
        self.report.refusals += found.refusals
        for fused in found.fused:
            if fused.epilogue is not None:
                self.respell(view, fused, fused.epilogue)
            else:
                self.report.fusions.append(fused.fusion(view, self.place(view, fused)))
        gone = {i for f in found.fused for i in f.nodes}
        self.drop_dead_constants(view, gone, {n for f in found.fused for n in f.inputs})

    def _move(self, view: GraphView, fused: bool) -> None:
        prologues = find_prologues(view, fused)
        for prologue in prologues:
            self.put_before(view, prologue)
        moved = {i for p in prologues for i in p.nodes}
        self.drop_dead_constants(view, moved, set())
        own = {(n.graph, n.name) for n in self.report.source}  # the others are what fusion has left
        gone = {(view.name, node_label(view.protos[i])): view.protos[i].op_type for i in sorted(moved)}
        self.report.refusals = [r for r in self.report.refusals if (r.graph, r.node) not in gone]
        self.report.respelled += [
            Refusal(name, op, IN_WEIGHTS, path) for (path, name), op in gone.items() if not fused or (path, name) in own
        ]

    def _group(self, view: GraphView) -> None:
        found = group_launches(view)
        self.report.separate += found.refusals
        for grouped in found.grouped:
            self.report.groups.append(grouped.grouping(view, self.place(view, grouped)))

    def place(self, view: GraphView, fused: FusedNode | GroupedNode) -> str:
        """Puts the node in place and returns its name."""
        nodes, tensors = [view.nodes[i] for i in fused.nodes], view.tensors
        count = len(self.report.fusions) + len(self.report.groups)
        name = self.editor.unique_name(f"{fused.op_type}_{count}")
        node = gs.Node(
            op=fused.op_type,
            name=name,
            attrs={"program": fused.program.text()},
            inputs=[tensors[n] if n in tensors else self.constant(view, n) for n in fused.inputs],
            outputs=[],
            domain="onnxfuse",
        )
        outputs = [tensors[n] for n in fused.outputs]
        for tensor in outputs:
            tensor.inputs.clear()
        node.outputs.extend(outputs)
        if self.fallback:
            self.editor.set_overload(node, fused.program.digest())
        for tensor_name in fused.outputs:
            self.declare(view, tensor_name)
        self.replacements.append((nodes, [node]))
        return name

    def respell(self, view: GraphView, found: FusedNode, epilogue: Epilogue) -> None:
        """Puts operators that go into the Conv in the place of a region behind it."""
        value, y = view.tensors[found.inputs[0]], view.tensors[found.outputs[0]]
        y.inputs.clear()
        made: list[gs.Node] = []

        def put(op: str, inputs: list[gs.Tensor], **attributes: float) -> gs.Tensor:
            made.append(gs.Node(op, str(self.editor.unique_name(f"{y.name}_{op}")), attributes, inputs=inputs))
            made[-1].outputs = [gs.Variable(self.editor.unique_name(f"{y.name}_{op}_output"), dtype=y.dtype)]
            return made[-1].outputs[0]

        def put_affine(x: gs.Tensor, affine: Affine) -> gs.Tensor:
            if affine.is_identity:
                return x
            parameters = [("scale", affine.scale), ("shift", affine.shift), ("mean", 0.0), ("variance", 1.0)]
            constants = [
                gs.Constant(self.editor.unique_name(f"{y.name}_{name}"), np.full(epilogue.channels, number, np.float32))
                for name, number in parameters
            ]
            return put("BatchNormalization", [x, *constants], epsilon=0.0)

        value = put_affine(value, epilogue.before)
        if epilogue.hard_swish:
            value = put("Mul", [value, put("HardSigmoid", [value], alpha=1 / 6, beta=0.5)])
        put_affine(value, epilogue.after)
        made[-1].outputs = [y]
        self.replacements.append(([view.nodes[i] for i in found.nodes], made))
        protos = [view.protos[i] for i in found.nodes]
        self.report.respelled += [Refusal(node_label(p), p.op_type, RESPELLED, view.name) for p in protos]

    def put_before(self, view: GraphView, prologue: Prologue) -> None:
        """Has the convolutions that read an affine map read what it is a map of, with other weights."""
        made = [node for reader in prologue.readers for node in self.reweighted(view, prologue.value, reader)]
        self.replacements.append(([view.nodes[i] for i in prologue.nodes], made))

    def reweighted(self, view: GraphView, value: str, reader: Reader) -> list[gs.Node]:
        """Makes a Conv take in a map of `value`; returns the nodes that compute its weights and bias from constants."""
        conv = view.nodes[reader.index]
        _, weights, *bias = conv.inputs
        base, made = conv.name or conv.outputs[0].name, []

        def put(op: str, what: str, inputs: list[gs.Tensor], **attributes: int) -> gs.Tensor:
            result = gs.Variable(self.editor.unique_name(f"{base}_{what}"), dtype=weights.dtype)
            name = str(self.editor.unique_name(f"{result.name}_{op}"))
            made.append(gs.Node(op, name, attributes, inputs=inputs, outputs=[result]))
            return result

        def constant(what: str, numbers: np.ndarray) -> gs.Constant:
            return gs.Constant(self.editor.unique_name(f"{base}_{what}"), numbers)

        scaled = weights
        if reader.scale is not None:
            scaled = put("Mul", "scaled_weights", [weights, constant("scale", reader.scale)])
        if reader.shift is not None:
            # The convolution of the shift has one number a channel.
            inputs = [constant("shift", reader.shift), weights, *bias]
            shifted = put("Conv", "shifted", inputs, group=reader.group)
            bias = [put("Reshape", "shifted_bias", [shifted, constant("vector", np.array([-1], np.int64))])]
        conv.inputs = [view.tensors[value], scaled, *bias]
        return made

    def constant(self, view: GraphView, name: str) -> gs.Constant:
        """A constant that fused nodes of a graph read and the model lacks."""
        key = (id(view.graph), name)
        if key not in self.constants:
            self.constants[key] = gs.Constant(self.editor.unique_name(name), view.new_constants[name])
        return self.constants[key]

    def declare(self, view: GraphView, name: str) -> None:
        """Writes value_info for a fused output: ONNX Runtime 1.18 needs its type there."""
        if name in {o.name for o in view.graph.outputs}:
            return
        known = view.type_of(name)
        shape = None if known.shape is None else [stated(d) for d in known.shape]
        self.editor.set_value_info(view.graph, onnx.helper.make_tensor_value_info(name, to_onnx(known.type), shape))

    def drop_dead_constants(self, view: GraphView, gone: set[int], used_by_fused: set[str]) -> None:
        """Removes what computed constants for nodes that are gone, where nothing else uses them."""
        dead: set[int] = set()
        pending = {view.producer[n] for i in gone for n in view.protos[i].input if n in view.producer}
        while pending:
            i = pending.pop()
            if i in dead or i in gone or i not in view.constants.nodes:
                continue
            outputs = [n for n in view.protos[i].output if n]
            if any(n in view.kept or n in used_by_fused for n in outputs):
                continue
            if all(c in gone or c in dead for n in outputs for c in view.consumers.get(n, ())):
                dead.add(i)
                pending.update(view.producer[n] for n in view.protos[i].input if n in view.producer)
        if dead:
            self.replacements.append(([view.nodes[i] for i in sorted(dead)], []))


def _has_body(node: onnx.NodeProto) -> bool:
    return any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    """Every name that the node's bodies read: those of outer values among them are captured."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from (o.name for o in attribute.g.output)
            for inner in attribute.g.node:
                yield from (n for n in inner.input if n)
                yield from _captured(inner)


def _names_read_by_training(model: onnx.ModelProto) -> Collection[str]:
    return {
        name
        for info in model.training_info
        for graph in (info.initialization, info.algorithm)
        for node in graph.node
        for name in node.input
    }
