"""`restore`: from a model with fused nodes back to standard operators."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper

from onnxfuse.custom_ops import DOMAIN
from onnxfuse.custom_ops.function import NoFunctionError, to_nodes
from onnxfuse.custom_ops.program import Program
from onnxfuse.damage import check_reads
from onnxfuse.errors import ModelError, ProgramError
from onnxfuse.files import load_model, save_model

__all__ = ["Restored", "restore"]

# Used where a model holds fused nodes only and so imports no standard operators.
_DEFAULT_OPSET = 13


@dataclass
class Restored:
    """A model without fused nodes.

    `model` keeps references to external data as they were, relative to the folder of the source model; `nodes` is how
    many fused nodes were replaced.
    """

    model: ModelProto
    source_dir: Path | None = None
    nodes: int = 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model with its external data, whole or not at all. Raises ModelError saying what is in the way."""
        save_model(self.model, path, self.source_dir)


def restore(model: str | os.PathLike[str] | ModelProto) -> Restored:
    """Replaces every fused node, in subgraphs and local functions too, by the standard operators of its program.

    The fused nodes' local functions and the import of their domain go; all else stays as it is.

    Args:
        model: a path, or a ModelProto (not changed).

    Raises:
        ModelError: the model cannot be read, or has a node that reads what nothing makes.
        ProgramError: a fused node's program is missing, not valid, or not one for its inputs and outputs; the message
            names the node.
        NoFunctionError: the model's opset cannot say a program; the message names the node.
    """
    source_dir = None
    restored = ModelProto()
    if isinstance(model, ModelProto):
        restored.CopyFrom(model)
    else:
        loaded = load_model(model)
        source_dir = loaded.base_dir
        restored.CopyFrom(loaded.proto)
    kept = [function for function in restored.functions if function.domain != DOMAIN]
    del restored.functions[:]
    restored.functions.extend(kept)
    check_reads(restored)
    names = _Names(restored)
    owners = [(restored, restored.graph.node), *((function, function.node) for function in restored.functions)]
    count = 0
    for owner, top in owners:
        node_lists = _node_lists(top, [top])
        fused = sum(node.domain == DOMAIN for nodes in node_lists for node in nodes)
        count += fused
        if fused:
            opset = _opset(owner)
            for nodes in reversed(node_lists):  # inner ones first: replacing copies the nodes around them
                _replace(nodes, opset, names)
        others = [entry for entry in owner.opset_import if entry.domain != DOMAIN]
        if len(others) < len(owner.opset_import):
            del owner.opset_import[:]
            owner.opset_import.extend(others)
    return Restored(restored, source_dir, count)


def _opset(owner: Any) -> int:
    """The version of the standard operators that a model or function imports; imports one where there is none."""
    for entry in owner.opset_import:
        if entry.domain in ("", "ai.onnx"):
            return int(entry.version)
    owner.opset_import.append(helper.make_opsetid("", _DEFAULT_OPSET))
    return _DEFAULT_OPSET


def _replace(nodes: Any, opset: int, names: _Names) -> None:
    if not any(node.domain == DOMAIN for node in nodes):
        return
    replaced: list[NodeProto] = []
    for node in nodes:
        replaced.extend(_expansion(node, opset, names) if node.domain == DOMAIN else [node])
    copies = []
    for node in replaced:
        copy = NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del nodes[:]
    nodes.extend(copies)


def _expansion(node: NodeProto, opset: int, names: _Names) -> list[NodeProto]:
    first = next(filter(None, node.output), "")
    label = f"node {node.name!r}" if node.name else f"{node.op_type} with output {first!r}"
    text = next((a.s for a in node.attribute if a.name == "program" and a.type == AttributeProto.STRING), None)
    if text is None:
        raise ProgramError(f"{label}: it has no program attribute")
    try:
        program = Program.parse(text.decode("utf-8", "replace"))
        for kind, given, expected in (
            ("input", node.input, program.inputs),
            ("output", node.output, program.outputs),
        ):
            if len(given) != len(expected):
                raise ProgramError(f"its program has {len(expected)} {kind}s, the node {len(given)}")
        prefix = names.prefix(first or node.op_type)
        outputs = [name or f"{prefix}unused{place}" for place, name in enumerate(node.output)]
        return to_nodes(program, list(node.input), outputs, opset, prefix)
    except (ProgramError, NoFunctionError) as error:
        raise type(error)(f"{label}: {error}") from None


def _node_lists(nodes: Iterable[NodeProto], found: list[Any]) -> list[Any]:
    """The node lists of a graph or function and of all subgraphs below it."""
    for graph in _subgraphs(nodes):
        found.append(graph.node)
        _node_lists(graph.node, found)
    return found


def _subgraphs(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


class _Names:
    """All names in a model, so that new ones are new everywhere."""

    def __init__(self, model: ModelProto) -> None:
        if not model.HasField("graph"):
            raise ModelError("the model holds no graph")
        names: set[str] = set()
        self._graph(model.graph, names)
        for function in model.functions:
            names.update(function.input, function.output)
            self._nodes(function.node, names)
        self.names = sorted(names)
        self.given: set[str] = set()

    def _graph(self, graph: GraphProto, names: set[str]) -> None:
        for values in (graph.input, graph.output, graph.value_info, graph.initializer):
            names.update(value.name for value in values)
        names.update(sparse.values.name for sparse in graph.sparse_initializer)
        self._nodes(graph.node, names)

    def _nodes(self, nodes: Iterable[NodeProto], names: set[str]) -> None:
        for node in nodes:
            names.add(node.name)
            names.update(node.input)
            names.update(node.output)
            for subgraph in _subgraphs([node]):
                self._graph(subgraph, names)

    def prefix(self, stem: str) -> str:
        """A start of names that no name in the model has; each call gives another."""
        number = 0
        while True:
            prefix = f"{stem}/" if not number else f"{stem}/{number}/"
            place = bisect_left(self.names, prefix)
            taken = place < len(self.names) and self.names[place].startswith(prefix)
            if not taken and prefix not in self.given:
                self.given.add(prefix)
                return prefix
            number += 1
