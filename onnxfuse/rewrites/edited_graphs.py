"""The graphs of a model, each as it is to be edited, with what is known of its values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs

from onnxfuse.bodies import bodies, graphs, read_names
from onnxfuse.editing import ModelEditor
from onnxfuse.external_data import with_small_values
from onnxfuse.rewrites.constants import Constants, find_constants
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope

__all__ = ["EditedGraph", "edited_graphs"]


@dataclass
class EditedGraph:
    """One graph: `nodes` (to edit) and those of `proto` (to read) are in the same order.

    `kept` are names that must stay what they are: outputs, and what bodies and training read.
    """

    scope: gs.Graph
    nodes: list[gs.Node]
    proto: onnx.GraphProto
    types: Scope
    constants: Constants
    kept: set[str]

    def tensors(self) -> dict[str, gs.Tensor]:
        """What the graph's nodes read and write, and its inputs, by name."""
        found = {t.name: t for node in self.nodes for t in (*node.inputs, *node.outputs) if t.name}
        return found | {t.name: t for t in self.scope.inputs}


def edited_graphs(
    model: onnx.ModelProto, opset: int, base_dir: Path | None
) -> tuple[ModelEditor, Iterator[EditedGraph]]:
    """The model to edit and its graphs, outer after inner. External data is in `base_dir`.

    Of the types nothing rests on what is declared of values that inference cannot type, and equal names of extents say
    nothing, since ONNX Runtime takes inputs of other extents than each other's all the same.
    """
    editor = ModelEditor(model)
    if not all(_is_sorted(graph) for graph in graphs(model.graph)):
        model = editor.to_model()
        editor = ModelEditor(model)
    analyzed = with_small_values(model, base_dir)
    return editor, _graphs(editor, analyzed, opset)


def _is_sorted(graph: onnx.GraphProto) -> bool:
    """Whether no node reads what a later one makes."""
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if not later.isdisjoint(read_names(node) if bodies(node) else node.input):
            return False
        later.difference_update(node.output)
    return True


def _graphs(editor: ModelEditor, model: onnx.ModelProto, opset: int) -> Iterator[EditedGraph]:
    symbols = Symbols()
    required = {t.name for t in editor.required().values()}

    def walk(
        scope: gs.Graph, proto: onnx.GraphProto, inferred: onnx.GraphProto, outer: Scope, known: Constants
    ) -> Iterator[EditedGraph]:
        types = {**outer, **symbolic_scope(inferred, outer, symbols)}
        constants = find_constants(proto, known, model.ir_version, opset)
        annotated = iter([node for node in inferred.node if bodies(node)])
        nodes = list(scope.nodes)
        for node, edited in zip(proto.node, nodes, strict=True):
            if bodies(node):
                inner = next(annotated)
                for k, attribute in enumerate(node.attribute):
                    if attribute.type == onnx.AttributeProto.GRAPH:
                        body = edited.attrs[attribute.name]
                        yield from walk(body, attribute.g, inner.attribute[k].g, types, constants)
        captured = {name for node in proto.node if bodies(node) for name in read_names(node)}
        yield EditedGraph(scope, nodes, proto, types, constants, required | captured)

    return walk(editor.graph, model.graph, infer(model, distinct=True).graph, {}, Constants())
