"""A model with its free dimensions set, so that the page can say bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from onnxfuse.errors import OnnxfuseError
from onnxfuse.validate.inputs import free_dimensions, input_specs

__all__ = ["set_dimensions"]


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
