"""Opens an If whose condition is known: a constant, or what follows from shapes that are.

TorchScript's exporter writes an If wherever traced code asked for a shape. The branch that is taken joins the graph
around it, so that its operators can join the regions there and know the ranks of what they read. ONNX Runtime does so
for constants only, and takes a microsecond or two for each If that it runs: silero_vad and its kin, 0.12 ms a run, gain
5 to 8 % where one If in seven is opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from onnxfuse.external_data import with_small_values
from onnxfuse.rewrites.constants import FOLDED, Constants, find_constants, fold
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope

__all__ = ["open_known_ifs"]

_IDENTITY_OF_ANYTHING = 16  # the opset from which on it copies sequences and optional values
_PLAIN_INITIALIZERS = 4  # the IR version from which on they need not be inputs of their graph
# Where a graph is: the places of its node and attribute in the graph around it, from the main graph inwards.
_Path = tuple[tuple[int, int], ...]


def open_known_ifs(model: onnx.ModelProto, opset: int, base_dir: Path | None = None) -> tuple[onnx.ModelProto, int]:
    """The model with them opened, and how many; the model itself where there are none.

    External data is in `base_dir`.
    """
    opened = 0
    if model.ir_version < _PLAIN_INITIALIZERS:
        return model, opened
    # What an opened branch makes known may open others.
    while any(n.op_type == "If" for graph in _graphs(model.graph) for n in graph.node):
        found = _Search(with_small_values(model, base_dir), opset).known
        if not found:
            break
        if not opened:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            model = copy
        opened += sum(map(len, found.values()))
        opener = _Opener(model)
        conditions: set[str] = set()
        for path in sorted(found, key=len, reverse=True):  # the inner ones first, so that their places stay
            conditions |= opener.open(_at(model.graph, path), found[path])
        for graph in list(_graphs(model.graph)):
            _drop(graph, conditions)
    return model, opened


class _Search:
    """Finds the Ifs of known condition: in which graph, at which place, and the attribute of the branch taken."""

    def __init__(self, model: onnx.ModelProto, opset: int) -> None:
        self.model, self.opset, self.symbols = model, opset, Symbols()
        self.known: dict[_Path, dict[int, str]] = {}
        self.graph(model.graph, infer(model, distinct=True).graph, {}, Constants(), ())

    def graph(
        self, graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Scope, constants: Constants, path: _Path
    ) -> None:
        derived: dict[str, np.ndarray] = {}
        # Without what is declared of values that inference cannot type: nothing would see that it is not so.
        types = {**outer, **symbolic_scope(inferred, outer, self.symbols, derived=derived)}
        constants = find_constants(graph, constants, self.model.ir_version, self.opset)
        known = Constants(
            constants.names | derived.keys(), {**constants.values, **derived}, inexact=set(constants.inexact)
        )
        annotated = iter([node for node in inferred.node if _bodies(node)])
        for place, node in enumerate(graph.node):
            standard = node.domain in ("", "ai.onnx")
            if standard and node.op_type in FOLDED and node.input and node.output[0] not in known.values:
                fold(known, node, self.opset)
            if not _bodies(node):
                continue
            inner = next(annotated)
            exact = standard and node.op_type == "If" and node.input[0] not in known.inexact
            condition = known.values.get(node.input[0]) if exact else None
            if condition is not None and condition.size == 1 and condition.dtype == np.bool_:
                taken = "then_branch" if condition.reshape(-1)[0] else "else_branch"
                if self.can_join(node, taken):
                    self.known.setdefault(path, {})[place] = taken
                    continue
            for k, body in _bodies(node):
                self.graph(body, inner.attribute[k].g, types, constants, (*path, (place, k)))

    def can_join(self, node: onnx.NodeProto, taken: str) -> bool:
        """Whether the branch gives what the If does, and a copy of each of its results can be made."""
        results = next(a.g for a in node.attribute if a.name == taken).output
        copied = self.opset >= _IDENTITY_OF_ANYTHING or all(r.type.HasField("tensor_type") for r in results)
        return len(results) == len(node.output) and copied


class _Opener:
    """Puts branches in the place of their Ifs, under names that nothing else in the model has."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.names = Counter(name for graph in _graphs(model.graph) for name in _defined(graph))

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
        names = {name: self.fresh(name) for name in sorted(_defined(branch))}
        results: list[onnx.NodeProto] = []
        made = {name for inner in branch.node for name in inner.output}
        for output, name in zip(branch.output, node.output, strict=True):
            if name and output.name in made:
                names[output.name] = name
                made.discard(output.name)  # a second output of the same value gets a copy
            elif name:
                source = names.get(output.name, output.name)
                results.append(onnx.helper.make_node("Identity", [source], [name], f"{name}_taken"))
        self.rename(branch, names)
        graph.initializer.extend(branch.initializer)
        graph.sparse_initializer.extend(branch.sparse_initializer)
        graph.value_info.extend(v for v in branch.value_info if v.name not in node.output)
        graph.quantization_annotation.extend(branch.quantization_annotation)
        return [*branch.node, *results]

    def rename(self, graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
        """Gives what a graph and its bodies read and write new names."""
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = names.get(value.name, value.name)
        for sparse in graph.sparse_initializer:
            sparse.values.name = names.get(sparse.values.name, sparse.values.name)
        for annotation in graph.quantization_annotation:
            annotation.tensor_name = names.get(annotation.tensor_name, annotation.tensor_name)
            for parameter in annotation.quant_parameter_tensor_names:
                parameter.value = names.get(parameter.value, parameter.value)
        for node in graph.node:
            for values in (node.input, node.output):
                values[:] = [names.get(n, n) for n in values]
            for _, body in _bodies(node):
                own = _defined(body)
                inner = {old: new for old, new in names.items() if old not in own}
                # It could not see the result of the If that it is in, and may have a value of that name.
                inner |= {name: self.fresh(name) for name in sorted(own.intersection(inner.values()))}
                self.rename(body, inner)

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
        uses.update(_read(node))
    gone: set[int] = set()
    pending = [name for name in conditions if name in makers]
    while pending:
        k = makers[pending.pop()]
        if k in gone or any(uses[n] for n in graph.node[k].output):
            continue
        gone.add(k)
        uses.subtract(_read(graph.node[k]))
        pending += [n for n in _read(graph.node[k]) if n in makers]
    for k in sorted(gone, reverse=True):
        del graph.node[k]


def _at(graph: onnx.GraphProto, path: _Path) -> onnx.GraphProto:
    for place, attribute in path:
        graph = graph.node[place].attribute[attribute].g
    return graph


def _bodies(node: onnx.NodeProto) -> list[tuple[int, onnx.GraphProto]]:
    return [(k, a.g) for k, a in enumerate(node.attribute) if a.type == onnx.AttributeProto.GRAPH]


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for _, body in _bodies(node):
            yield from _graphs(body)


def _defined(graph: onnx.GraphProto) -> set[str]:
    """The names of a graph's own values."""
    names = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    names |= {s.values.name for s in graph.sparse_initializer}
    return (names | {name for node in graph.node for name in node.output}) - {""}


def _read(node: onnx.NodeProto) -> list[str]:
    """The names that a node and its bodies read."""
    bodies = [graph for _, body in _bodies(node) for graph in _graphs(body)]
    names = [*node.input, *(n for graph in bodies for inner in graph.node for n in inner.input)]
    return names + [o.name for graph in bodies for o in graph.output]
