"""A model with each If replaced by the branch that it takes on given inputs, so that one can look inside."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from onnxfuse.bodies import own_names, rename
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
        taken_branches: list[onnx.GraphProto] = []
        for node in model.graph.node:
            if node.op_type == "If" and node.domain in ("", "ai.onnx"):
                taken_branches.append(_branch(node, taken[node.input[0]]))
                nodes += taken_branches[-1].node
            else:
                nodes.append(node)
        plain = onnx.ModelProto()
        plain.CopyFrom(model)
        del plain.graph.node[:]
        plain.graph.node.extend(nodes)
        for branch in taken_branches:
            plain.graph.initializer.extend(branch.initializer)
            plain.graph.sparse_initializer.extend(branch.sparse_initializer)
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


def _branch(node: onnx.NodeProto, condition: bool) -> onnx.GraphProto:
    """The branch, renamed, with what carries its results to those of the If."""
    wanted = "then_branch" if condition else "else_branch"
    graph = onnx.GraphProto()
    graph.CopyFrom(next(a.g for a in node.attribute if a.name == wanted))
    prefix = next(name for name in node.output if name)
    rename(graph, {name: f"{prefix}/{name}" for name in own_names(graph)}, lambda name: f"{prefix}/{name}")
    for inner, outer in zip(graph.output, node.output, strict=False):
        if outer:
            graph.node.append(onnx.helper.make_node("Identity", [inner.name], [outer]))
    return graph
