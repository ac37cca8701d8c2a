"""Puts branches of Ifs in the place of the Ifs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import onnx

from onnxfuse.bodies import graphs, own_names, read_names, rename

__all__ = ["GraphPath", "can_join", "graph_at", "open_branches"]

_IDENTITY_OF_ANYTHING = 16  # the opset from which on it copies sequences and optional values
# Where a graph is: the places of its node and attribute in the graph around it, from the main graph inwards.
GraphPath: TypeAlias = tuple[tuple[int, int], ...]


def graph_at(graph: onnx.GraphProto, path: GraphPath) -> onnx.GraphProto:
    """The graph at a path from the main graph on."""
    for place, attribute in path:
        graph = graph.node[place].attribute[attribute].g
    return graph


def can_join(node: onnx.NodeProto, taken: str, opset: int) -> bool:
    """Whether a branch (an attribute's name) gives what the If does, and copies can be made of the results that need
    one: what comes from outside of the branch, or stands in it twice.
    """
    branch = next(a.g for a in node.attribute if a.name == taken)
    if len(branch.output) != len(node.output):
        return False
    if opset >= _IDENTITY_OF_ANYTHING:
        return True
    made = {name for inner in branch.node for name in inner.output}
    for result, name in zip(branch.output, node.output, strict=True):
        if name and result.name not in made and not result.type.HasField("tensor_type"):
            return False
        made.discard(result.name)
    return True


def open_branches(model: onnx.ModelProto, taken: Mapping[GraphPath, Mapping[int, str]]) -> None:
    """Opens Ifs of the model: for each graph, by the places of the Ifs in it, the attribute of the branch.

    What computed their conditions goes where nothing else uses it.
    """
    opener = _Opener(model)
    conditions: set[str] = set()
    for path in sorted(taken, key=len, reverse=True):  # the inner ones first, so that their places stay
        conditions |= opener.open(graph_at(model.graph, path), taken[path])
    for graph in list(graphs(model.graph)):
        _drop(graph, conditions)


class _Opener:
    """Puts branches in the place of their Ifs, under names that nothing else in the model has."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.names = Counter(name for graph in graphs(model.graph) for name in own_names(graph))

    def open(self, graph: onnx.GraphProto, taken: Mapping[int, str]) -> set[str]:
        """Opens the Ifs at some places of a graph; returns the names of their conditions. What computes those stays."""
        nodes: list[onnx.NodeProto] = []
        conditions = set()
        for place, node in enumerate(graph.node):
            if place in taken:
                nodes += self.branch(graph, node, next(a.g for a in node.attribute if a.name == taken[place]))
                conditions.add(node.input[0])
            else:
                nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
        return conditions

    def branch(self, graph: onnx.GraphProto, node: onnx.NodeProto, given: onnx.GraphProto) -> list[onnx.NodeProto]:
        """The nodes that compute what an If of the graph does by a branch, whose weights the graph takes."""
        branch = onnx.GraphProto()
        branch.CopyFrom(given)
        names = {name: self.fresh(name) for name in sorted(own_names(branch))}
        results: list[onnx.NodeProto] = []
        made = {name for inner in branch.node for name in inner.output}
        for output, name in zip(branch.output, node.output, strict=True):
            if name and output.name in made:
                names[output.name] = name
                made.discard(output.name)  # a second output of the same value gets a copy
            elif name:
                source = names.get(output.name, output.name)
                results.append(onnx.helper.make_node("Identity", [source], [name], f"{name}_taken"))
        # A body in the branch could not see the result of the If that it is in, and may have a value of that name.
        rename(branch, names, self.fresh)
        graph.initializer.extend(branch.initializer)
        graph.sparse_initializer.extend(branch.sparse_initializer)
        graph.value_info.extend(v for v in branch.value_info if v.name not in node.output)
        graph.quantization_annotation.extend(branch.quantization_annotation)
        return [*branch.node, *results]

    def fresh(self, name: str) -> str:
        """The name, or another where the model has it elsewhere."""
        new, number = name, 0
        while self.names[new] > (1 if new == name else 0):
            number += 1
            new = f"{name}_{number}"
        self.names[new] += 1
        return new


def _drop(graph: onnx.GraphProto, conditions: Iterable[str]) -> None:
    """Removes what in the graph computed conditions, where nothing else uses it."""
    makers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    uses = Counter(o.name for o in graph.output)
    for node in graph.node:
        uses.update(read_names(node))
    gone: set[int] = set()
    pending = [name for name in conditions if name in makers]
    while pending:
        k = makers[pending.pop()]
        if k in gone or any(uses[n] for n in graph.node[k].output):
            continue
        gone.add(k)
        uses.subtract(read_names(graph.node[k]))
        pending += [n for n in read_names(graph.node[k]) if n in makers]
    for k in sorted(gone, reverse=True):
        del graph.node[k]
