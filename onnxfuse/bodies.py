"""Graphs in the attributes of nodes (branches of an If, bodies of a Loop): walking them, and renaming their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx

__all__ = ["bodies", "graphs", "own_names", "read_names", "rename"]


def bodies(node: onnx.NodeProto) -> list[tuple[int, onnx.GraphProto]]:
    """The graphs of a node, each with the place of its attribute."""
    found = [(k, a.g) for k, a in enumerate(node.attribute) if a.type == onnx.AttributeProto.GRAPH]
    return found + [(k, g) for k, a in enumerate(node.attribute) for g in a.graphs]


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all that are in it."""
    yield graph
    for node in graph.node:
        for _, body in bodies(node):
            yield from graphs(body)


def own_names(graph: onnx.GraphProto) -> set[str]:
    """The names of a graph's own values: what it does not take from the graph around it."""
    names = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    names |= {s.values.name for s in graph.sparse_initializer}
    return (names | {name for node in graph.node for name in node.output}) - {""}


def read_names(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads, and that its bodies take from the graphs around them."""
    return [n for n in node.input if n] + [name for _, body in bodies(node) for name in _captured(body)]


def _captured(body: onnx.GraphProto) -> list[str]:
    own = own_names(body)
    names = [name for node in body.node for name in read_names(node)] + [o.name for o in body.output]
    return [name for name in names if name not in own]


def rename(graph: onnx.GraphProto, names: Mapping[str, str], fresh: Callable[[str], str]) -> None:
    """Gives what a graph and its bodies read and write new names; a body's own values hide those of the same name.

    Where a body has a value of its own that is called as one of the new names, it gets another name, by `fresh`.
    """
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
        for _, body in bodies(node):
            own = own_names(body)
            inner = {old: new for old, new in names.items() if old not in own}
            inner |= {name: fresh(name) for name in sorted(own.intersection(inner.values()))}
            rename(body, inner, fresh)
