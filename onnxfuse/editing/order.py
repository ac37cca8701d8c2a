"""Which names a graph and its bodies define and read, and a stable topological order that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from onnxfuse.editing.attributes import bodies
from onnxfuse.errors import ModelError

__all__ = ["Scope", "label", "survey", "topological_order"]


def label(node: gs.Node) -> str:
    """How a message names a node: its name, or where it has none its first output, and its operator."""
    name = node.name or next((t.name for t in node.outputs if t.name), "unnamed")
    return f"'{name}' ({node.op})"


@dataclass
class Scope:
    """A graph's names: `producers` gives the position of the node that makes a value, `read` all names that are read
    here or captured by bodies below, `free` those of them that this scope does not define.

    `captures` has the captured names of the nodes that have bodies, by position; `constants` the gs.Constants that
    the scope's own nodes and outputs use.
    """

    graph: gs.Graph
    parent: Scope | None
    depth: int
    producers: dict[str, int] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    captures: dict[int, set[str]] = field(default_factory=dict)
    constants: dict[int, gs.Constant] = field(default_factory=dict)
    children: list[Scope] = field(default_factory=list)

    def walk(self) -> Iterator[Scope]:
        """This scope and all below it, outer before inner."""
        yield self
        for child in self.children:
            yield from child.walk()


def survey(graph: gs.Graph, initializers: Callable[[gs.Graph], set[str]], parent: Scope | None = None) -> Scope:
    """Surveys a graph and its bodies; `initializers` names what a graph defines besides its inputs and node outputs.

    Raises ModelError where a scope defines a name twice.
    """
    scope = Scope(graph, parent, parent.depth + 1 if parent else 0)
    scope.defined = {tensor.name for tensor in graph.inputs} | initializers(graph)
    for position, node in enumerate(graph.nodes):
        for tensor in node.outputs:
            if name := tensor.name:
                if name in scope.producers or name in scope.defined:
                    raise ModelError(f"the value '{name}', an output of node {label(node)}, is defined twice")
                scope.producers[name] = position
    scope.defined.update(scope.producers)

    def read(tensor: gs.Tensor) -> None:
        if tensor.name:
            scope.read.add(tensor.name)
            if isinstance(tensor, gs.Constant):
                scope.constants[id(tensor)] = tensor

    for position, node in enumerate(graph.nodes):
        for tensor in node.inputs:
            read(tensor)
        captured: set[str] = set()
        for _, body in bodies(node):
            child = survey(body, initializers, scope)
            scope.children.append(child)
            captured |= child.free
        if captured:
            scope.captures[position] = captured
            scope.read |= captured
    for tensor in graph.outputs:
        read(tensor)
    scope.free = scope.read - scope.defined
    return scope


def topological_order(scope: Scope) -> list[gs.Node]:
    """The scope's nodes, each after what it reads; the given order where it already is so, and close to it otherwise.

    Raises ModelError for a cycle, naming its nodes.
    """
    nodes = list(scope.graph.nodes)

    def dependencies(position: int) -> list[int]:
        names = [t.name for t in nodes[position].inputs]
        if position in scope.captures:
            names += sorted(scope.captures[position])
        return [scope.producers[n] for n in names if n in scope.producers]

    before = [dependencies(position) for position in range(len(nodes))]
    if all(dependency < position for position, found in enumerate(before) for dependency in found):
        return nodes
    order: list[gs.Node] = []
    done = [False] * len(nodes)
    for start in range(len(nodes)):
        path: list[int] = [] if done[start] else [start]
        on_path = set(path)
        progress = {start: iter(before[start])}
        while path:
            position = path[-1]
            dependency = next((d for d in progress[position] if not done[d]), None)
            if dependency is None:
                done[position] = True
                order.append(nodes[position])
                on_path.discard(path.pop())
            elif dependency in on_path:
                cycle = [*reversed(path[path.index(dependency) :]), path[-1]]
                shown = [label(nodes[p]) for p in (cycle if len(cycle) <= 12 else [*cycle[:11], cycle[-1]])]
                raise ModelError(f"the graph '{scope.graph.name}' has a cycle: " + " -> ".join(shown))
            else:
                path.append(dependency)
                on_path.add(dependency)
                progress[dependency] = iter(before[dependency])
    return order
