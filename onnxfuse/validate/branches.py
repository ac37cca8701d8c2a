"""A model with each If replaced by the branch that it takes on given inputs, so that one can look inside."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from onnxfuse.errors import ModelError
from onnxfuse.runtime import make_session, run

__all__ = ["take_branches"]


def take_branches(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], provider: str) -> onnx.ModelProto:
    """The model that computes the same on these inputs, without an If in its main graph; Ifs inside loops stay.

    What a branch computes is named "IF/NAME", with IF the If's first output: equal names in two models that have the
    same Ifs. Nodes keep their names. The model itself is returned where it has no If, or where one cannot be told.
    """
    while True:
        choices = [n for n in model.graph.node if n.op_type == "If" and n.domain in ("", "ai.onnx")]
        if not choices:
            return model
        taken = _conditions(model, [n.input[0] for n in choices], feeds, provider)
        if taken is None:
            return model
        nodes: list[onnx.NodeProto] = []
        weights: list[onnx.TensorProto] = []
        for node in model.graph.node:
            if node.op_type == "If" and node.domain in ("", "ai.onnx"):
                made, held = _branch(node, taken[node.input[0]])
                nodes += made
                weights += held
            else:
                nodes.append(node)
        plain = onnx.ModelProto()
        plain.CopyFrom(model)
        del plain.graph.node[:]
        plain.graph.node.extend(nodes)
        plain.graph.initializer.extend(weights)
        model = plain


def _conditions(
    model: onnx.ModelProto, names: list[str], feeds: Mapping[str, np.ndarray], provider: str
) -> dict[str, bool] | None:
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    for name in dict.fromkeys(names):
        # An output must be what a node makes.
        shown.graph.node.append(onnx.helper.make_node("Identity", [name], [f"{name}/shown"]))
        shown.graph.output.append(onnx.ValueInfoProto(name=f"{name}/shown"))
    try:
        session = make_session(shown, provider=provider, optimize=False)
        needed = {i.name for i in session.get_inputs()}
        values = run(session, {n: v for n, v in feeds.items() if n in needed})
    except ModelError:
        return None
    return {name: bool(np.all(value)) for name, value in zip(dict.fromkeys(names), values, strict=True)}


def _branch(node: onnx.NodeProto, condition: bool) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The nodes and weights of the branch, renamed, with what carries its results to those of the If."""
    wanted = "then_branch" if condition else "else_branch"
    graph = onnx.GraphProto()
    graph.CopyFrom(next(a.g for a in node.attribute if a.name == wanted))
    prefix = next(name for name in node.output if name)
    local = [t.name for t in graph.initializer] + [name for n in graph.node for name in n.output if name]
    names = {name: f"{prefix}/{name}" for name in local}
    _rename(graph, names)
    nodes = list(graph.node)
    for inner, outer in zip(graph.output, node.output, strict=False):
        if outer:
            nodes.append(onnx.helper.make_node("Identity", [inner.name], [outer]))
    return nodes, list(graph.initializer)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames what the graph reads and makes, in bodies as well; a body's own names hide those outside."""
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for places in (node.input, node.output):
            places[:] = [names.get(name, name) for name in places]
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []), *attribute.graphs):
                own = {v.name for v in body.input} | {t.name for t in body.initializer}
                own |= {name for n in body.node for name in n.output}
                _rename(body, {old: new for old, new in names.items() if old not in own})
