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

# What an opened branch makes known may open others; nobody nests deeper.
_ROUNDS = 16
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
    for _ in range(_ROUNDS):
        if not any(n.op_type == "If" for graph in _graphs(model.graph) for n in graph.node):
            break
        found = _Search(with_small_values(model, base_dir), opset).known
        if not found:
            break
        if not opened:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            model = copy
        opened += len(found)
        opener = _Opener(model)
        conditions = [
            opener.open(_at(model.graph, path), place, taken)
            for path, place, taken in reversed(found)  # the last first, so that places stay
        ]
        for graph in list(_graphs(model.graph)):
            _drop(graph, conditions)
    return model, opened


class _Search:
    """Finds the Ifs of known condition: in which graph, at which place, and the branch that is taken."""

    def __init__(self, model: onnx.ModelProto, opset: int) -> None:
        self.model, self.opset, self.symbols = model, opset, Symbols()
        self.known: list[tuple[_Path, int, str]] = []
        self.graph(model.graph, infer(model).graph, {}, Constants(), ())

    def graph(
        self, graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Scope, constants: Constants, path: _Path
    ) -> None:
        derived: dict[str, np.ndarray] = {}
        types = {**outer, **symbolic_scope(inferred, outer, self.symbols, graph, derived)}
        constants = find_constants(graph, constants, self.model.ir_version, self.opset)
        known = Constants(constants.names | derived.keys(), {**constants.values, **derived})
        annotated = iter([node for node in inferred.node if _bodies(node)])
        for place, node in enumerate(graph.node):
            standard = node.domain in ("", "ai.onnx")
            if standard and node.op_type in FOLDED and node.input and node.output[0] not in known.values:
                fold(known, node, self.opset)
            if not _bodies(node):
                continue
            inner = next(annotated)
            condition = known.values.get(node.input[0]) if standard and node.op_type == "If" else None
            if condition is not None and condition.size == 1 and condition.dtype == np.bool_:
                taken = "then_branch" if condition.reshape(-1)[0] else "else_branch"
                if self.can_join(node, taken):
                    self.known.append((path, place, taken))
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

    def open(self, graph: onnx.GraphProto, place: int, taken: str) -> str:
        """Returns the name of the condition; what computes it stays."""
        node = onnx.NodeProto()
        node.CopyFrom(graph.node[place])
        branch = next(a.g for a in node.attribute if a.name == taken)
        names = {name: self.fresh(name) for name in _defined(branch)}
        results: list[onnx.NodeProto] = []
        made = {name for inner in branch.node for name in inner.output}
        # A body in the branch may have a value of its own by the name of the If's result, which it does not see.
        hidden = {n for inner in branch.node for _, body in _bodies(inner) for g in _graphs(body) for n in _defined(g)}
        for given, name in zip(branch.output, node.output, strict=True):
            if name and given.name in made and name not in hidden:
                names[given.name] = name
                made.discard(given.name)  # a second output of the same value gets a copy
            elif name:
                source = names.get(given.name, given.name)
                results.append(onnx.helper.make_node("Identity", [source], [name], f"{name}_taken"))
        for tensor in branch.initializer:
            tensor.name = names[tensor.name]
        for sparse in branch.sparse_initializer:
            sparse.values.name = names[sparse.values.name]
        for info in branch.value_info:
            info.name = names.get(info.name, info.name)
        for inner in branch.node:
            _rename(inner, names)
        for annotation in branch.quantization_annotation:
            annotation.tensor_name = names.get(annotation.tensor_name, annotation.tensor_name)
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = names.get(entry.value, entry.value)
        outputs = set(node.output)
        graph.initializer.extend(branch.initializer)
        graph.sparse_initializer.extend(branch.sparse_initializer)
        graph.value_info.extend(v for v in branch.value_info if v.name not in outputs)
        graph.quantization_annotation.extend(branch.quantization_annotation)
        nodes = [*graph.node[:place], *branch.node, *results, *graph.node[place + 1 :]]
        del graph.node[:]
        graph.node.extend(nodes)
        return str(node.input[0])

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
    pending = list(conditions)
    while pending:
        name = pending.pop()
        makers = [k for k, node in enumerate(graph.node) if name in node.output]
        if not makers or any(n in _used(graph) for n in graph.node[makers[0]].output):
            continue
        pending += [n for n in graph.node[makers[0]].input if n]
        del graph.node[makers[0]]


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


def _used(graph: onnx.GraphProto) -> set[str]:
    """The names that a graph's nodes, their bodies and its outputs read."""
    names = {o.name for o in graph.output}
    for inner in _graphs(graph):
        names.update(o.name for o in inner.output)
        names.update(name for node in inner.node for name in node.input)
    return names


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Gives a node and its bodies the new names of what they read and write."""
    for values in (node.input, node.output):
        values[:] = [names.get(n, n) for n in values]
    for _, body in _bodies(node):
        own = _defined(body)
        inner = {old: new for old, new in names.items() if old not in own}
        for output in body.output:
            output.name = inner.get(output.name, output.name)
        for each in body.node:
            _rename(each, inner)
