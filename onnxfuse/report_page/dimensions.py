"""What is known of a model's tensors where its free dimensions are set, so that the page can say bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import onnx

from onnxfuse.errors import OnnxfuseError
from onnxfuse.external_data import with_small_values
from onnxfuse.files import LoadedModel
from onnxfuse.report import Fusion, Report
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.savings import traffic_saved
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope
from onnxfuse.validate.inputs import free_dimensions, input_specs

__all__ = ["set_dimensions", "with_extents"]


def with_extents(report: Report, model: LoadedModel, dims: Mapping[str, int]) -> Report:
    """The report with the shapes and bytes that the model has where its free dimensions are set.

    What was fused stays as it is. Raises OnnxfuseError where the model has no free dimension of such a name.
    """
    fixed = with_small_values(set_dimensions(model.proto, dims), model.base_dir)
    scope: Scope = {}
    for types in _scopes(fixed.graph, infer(fixed).graph, {}, Symbols()):
        scope |= types
    return replace(report, fusions=[_with_shapes(fusion, scope) for fusion in report.fusions])


def _scopes(graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Scope, symbols: Symbols) -> Iterator[Scope]:
    """The types in a graph and in the bodies of its nodes."""
    types = symbolic_scope(inferred, outer, symbols, graph)
    yield types
    bodies = [
        [a.g for n in g.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH] for g in (graph, inferred)
    ]
    for body, known in zip(*bodies, strict=True):
        yield from _scopes(body, known, {**outer, **types}, symbols)


def _with_shapes(fusion: Fusion, scope: Scope) -> Fusion:
    tensors = {
        name: replace(t, shape=scope[name].shape) if name in scope and scope[name].shape is not None else t
        for name, t in fusion.tensors.items()
    }
    own = [node for node in fusion.source if node.name in fusion.nodes]
    saved = traffic_saved(own, fusion.inputs, fusion.outputs, tensors)
    return replace(fusion, tensors=tensors, bytes_saved=saved if saved is not None else fusion.bytes_saved)


def set_dimensions(model: onnx.ModelProto, dims: Mapping[str, int]) -> onnx.ModelProto:
    """A copy of the model in which dimensions that the caller may choose have these extents.

    Args:
        model: Not changed.
        dims: Extents by the name that the model gives a dimension, or by `input.axis`.

    Raises:
        OnnxfuseError: the model has no free dimension of such a name.
    """
    free = free_dimensions(input_specs(model))
    inputs = {i.name for i in model.graph.input}
    sites = {f"{v.name}.{axis}" for v, axis, d in _dimensions(model.graph) if v.name in inputs and not d.dim_value}
    for name in dims:
        if name not in free and name not in sites:
            known = f"they are {', '.join(free)}" if free else "it has none"
            raise OnnxfuseError(f"the model has no free dimension {name!r}; {known}")
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value, axis, dim in _dimensions(fixed.graph):
        site = f"{value.name}.{axis}"
        if dim.HasField("dim_param") and dim.dim_param in dims:
            dim.dim_value = dims[dim.dim_param]
        elif value.name in inputs and site in dims:
            dim.dim_value = dims[site]
    return fixed


def _dimensions(
    graph: onnx.GraphProto,
) -> Iterator[tuple[onnx.ValueInfoProto, int, onnx.TensorShapeProto.Dimension]]:
    """All dimensions that the graph and its bodies declare."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            yield value, axis, dim
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _dimensions(attribute.g)
