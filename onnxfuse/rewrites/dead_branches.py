"""Finds the Ifs of which one branch never comes to a result, and the other fails by itself where that one is chosen.

torch's `x.squeeze(dim)` is exported as `If (Shape(x)[dim] == 1) then Squeeze(x, dim) else Identity(x)`. Where an LSTM
or a convolution further on takes one rank only, no run that leaves the dimension in place succeeds. And the Squeeze
alone refuses any other extent than 1: it can stand in the place of the If, and a run that failed still fails.

So an If is found where all of this holds, with S the extents that a Squeeze of one branch takes away:

1. If S are 1, the condition chooses that branch: it is worked out from shapes in which they are. The other way round,
   where the other branch is chosen, the Squeeze fails.
2. Each result of that branch comes from such a Squeeze.
3. With the other branch in the place of the If, all that comes of its results comes from an operator that demands
   another rank of what it reads (`rank_demands.py`). What is in the branch of another If counts only where that one's
   condition follows: it may not run otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx
from onnx import numpy_helper

from onnxfuse.bodies import bodies, own_names, read_names
from onnxfuse.custom_ops.types import to_onnx
from onnxfuse.rewrites.dims import Dim
from onnxfuse.rewrites.if_branches import GraphPath, can_join, open_branches
from onnxfuse.rewrites.known_conditions import KnownConditions, Seen
from onnxfuse.rewrites.rank_demands import cannot_run
from onnxfuse.rewrites.shape_site import TensorType

__all__ = ["find_dead_branches"]

_BRANCHES = ("then_branch", "else_branch")
# Operators that are followed from an If on: a demand is never far, and the time is to be in proportion to the model.
_FOLLOWED = 256


def find_dead_branches(search: KnownConditions) -> dict[GraphPath, dict[int, str]]:
    """The branches that stand for Ifs of unknown condition, as in `search.known`."""
    found: dict[GraphPath, dict[int, str]] = {}
    finder = _Finder(search)
    for path, place in search.unknown:
        node = search.seen[path].graph.node[place]
        if not all(can_join(node, branch, search.opset) for branch in _BRANCHES):
            continue
        for taken, other in (_BRANCHES, _BRANCHES[::-1]):
            if finder.refuses(path, place, taken) and finder.gives_nothing(path, place, other):
                found.setdefault(path, {})[place] = taken
                break
    return found


class _Finder:
    def __init__(self, search: KnownConditions) -> None:
        self.search, self.opset = search, search.opset
        self.makers: dict[GraphPath, dict[str, int | None]] = {}
        self.reads: dict[GraphPath, list[list[str]]] = {}

    def refuses(self, path: GraphPath, place: int, taken: str) -> bool:
        """Whether each result of the branch comes from a Squeeze that fails in all runs that choose the other one."""
        node = self.search.seen[path].graph.node[place]
        attribute = next(k for k, a in enumerate(node.attribute) if a.name == taken)
        inside = self.search.seen[(*path, (place, attribute))]
        nodes = inside.graph.node
        squeezed = {k: dims for k, inner in enumerate(nodes) if (dims := _squeezed(inner, inside, self.opset))}
        chosen = {
            dims: self.condition_where(path, node.input[0], dims) is (taken == "then_branch")
            for dims in set(squeezed.values())
        }
        refusing = {k for k, dims in squeezed.items() if chosen[dims]}
        return bool(refusing) and all(not refusing.isdisjoint(_sources(nodes, o.name)) for o in inside.graph.output)

    def condition_where(self, path: GraphPath, name: str, ones: Collection[Dim]) -> bool | None:
        """A condition that a graph sees, where these extents are 1; None where that does not decide it."""
        cone = onnx.GraphProto(name="condition")
        scopes: dict[str, GraphPath] = {}
        places: set[tuple[GraphPath, int]] = set()
        done: set[str] = set()
        pending = [(name, path, False)]
        while pending:
            value, at, only_shape = pending.pop()
            scope, place = self.maker(value, at)
            if scopes.setdefault(value, scope) != scope:
                return None  # another value of that name
            if value in done:
                continue
            done.add(value)
            seen = self.search.seen[scope]
            maker = None if place is None else seen.graph.node[place]
            if place is None or maker is None or only_shape or bodies(maker) or value in seen.known.values:
                _give(cone, value, seen, ones)
            else:
                places.add((scope, place))
                pending += [(n, scope, maker.op_type in ("Shape", "Size")) for n in maker.input if n]
        order = sorted(places, key=lambda found: (len(found[0]), found[1]))  # what an outer graph computes comes first
        cone.node.extend(self.search.seen[scope].graph.node[place] for scope, place in order)
        given = {i.name for i in cone.input} | {t.name for t in cone.initializer}
        if not given.isdisjoint(name for node in cone.node for name in node.output):
            return None  # of one of several results only the shape counts
        return KnownConditions(_scratch(self.search.model, cone), self.opset).seen[()].truth(name)

    def gives_nothing(self, path: GraphPath, place: int, other: str) -> bool:
        """Whether with this branch in the place of the If all that comes of its results fails in every run."""
        seen = self.search.seen[path]
        cut, exits = self.following(path, place)
        if not exits:
            return False
        graph = onnx.GraphProto(name="following", node=[seen.graph.node[k] for k in cut])
        made = {name for node in graph.node for name in node.output}
        for name in sorted({n for k in cut for n in self.reads[path][k]} - made):
            _give(graph, name, seen, ())
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in exits)
        model = _scratch(self.search.model, graph)
        open_branches(model, {(): {0: other}})
        inner = KnownConditions(model, self.opset)
        while inner.known:
            open_branches(model, inner.known)
            inner = KnownConditions(model, self.opset)
        failing = {k for k, node in enumerate(model.graph.node) if cannot_run(node, inner.seen[()].types)}
        return bool(failing) and all(not failing.isdisjoint(_sources(model.graph.node, name)) for name in exits)

    def following(self, path: GraphPath, place: int) -> tuple[list[int], list[str]]:
        """The nodes of a graph that an If's results reach, itself first, and which results others see."""
        graph = self.search.seen[path].graph
        if path not in self.reads:
            self.reads[path] = [read_names(node) for node in graph.node]
        following = [place]
        reached = {name for name in graph.node[place].output if name}
        exits = {o.name for o in graph.output}
        for k in range(place + 1, len(graph.node)):
            read = reached.intersection(self.reads[path][k])
            if read and len(following) < _FOLLOWED:
                following.append(k)
                reached |= {name for name in graph.node[k].output if name}
            else:
                exits |= read
        return following, sorted(exits & reached)

    def maker(self, name: str, path: GraphPath) -> tuple[GraphPath, int | None]:
        """The graph from which a name is that a graph sees, and the place of the node that makes it, if one does."""
        for depth in range(len(path), -1, -1):
            if name in (makers := self.makers_of(path[:depth])):
                return path[:depth], makers[name]
        return (), None

    def makers_of(self, path: GraphPath) -> dict[str, int | None]:
        if path not in self.makers:
            graph = self.search.seen[path].graph
            self.makers[path] = dict.fromkeys(own_names(graph))
            self.makers[path] |= {name: k for k, node in enumerate(graph.node) for name in node.output if name}
        return self.makers[path]


def _squeezed(node: onnx.NodeProto, seen: Seen, opset: int) -> frozenset[Dim]:
    """The extents that a Squeeze takes away and that only a run shows; none where it takes any away or always fails."""
    if node.op_type != "Squeeze" or node.domain not in ("", "ai.onnx"):
        return frozenset()
    shape = seen.types[node.input[0]].shape if node.input[0] in seen.types else None
    if opset < 13:
        axes = [int(i) for a in node.attribute if a.name == "axes" for i in a.ints]
    else:
        given = seen.known.values.get(node.input[1]) if len(node.input) > 1 else None
        axes = [] if given is None else [int(i) for i in given.reshape(-1)]
    if shape is None or not all(-len(shape) <= a < len(shape) for a in axes):
        return frozenset()
    dims = {shape[a] for a in axes} - {1}
    return frozenset(dims) if all(isinstance(d, str) for d in dims) else frozenset()


def _sources(nodes: Sequence[onnx.NodeProto], name: str) -> set[int]:
    """The places of the nodes that a value comes from."""
    makers = {output: k for k, node in enumerate(nodes) for output in node.output if output}
    found: set[int] = set()
    pending = [name]
    while pending:
        k = makers.get(pending.pop())
        if k is not None and k not in found:
            found.add(k)
            pending += read_names(nodes[k])
    return found


def _give(graph: onnx.GraphProto, name: str, seen: Seen, ones: Collection[Dim]) -> None:
    """Gives a graph a value: as an initializer where it is known, else as an input, where these extents are 1."""
    value = None if name in seen.known.inexact else seen.known.values.get(name)
    if value is not None:
        graph.initializer.append(numpy_helper.from_array(value, name))
        return
    known = seen.types.get(name, TensorType("", None))
    if not known.type:
        graph.input.append(onnx.ValueInfoProto(name=name))
        return
    dims = None if known.shape is None else [1 if d in ones else d if isinstance(d, int) else None for d in known.shape]
    graph.input.append(onnx.helper.make_tensor_value_info(name, to_onnx(known.type), dims))


def _scratch(model: onnx.ModelProto, graph: onnx.GraphProto) -> onnx.ModelProto:
    """A model of that graph with what else the operators of `model` need."""
    return onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions, graph=graph
    )
