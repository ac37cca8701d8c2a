"""Puts the axes of Squeezes in order, for ONNX Runtime: before opset 11 ONNX's inference skips those that are not.

It finds a rank then that does not come out, and what is fused behind is created for it.
"""

from __future__ import annotations

import onnx

from onnxfuse.bodies import graphs

__all__ = ["with_axes_in_order"]

_ANY_ORDER_OF_AXES = 11


def with_axes_in_order(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The model with them in order; the model itself where they are."""
    if opset >= _ANY_ORDER_OF_AXES or not any(_unordered(graph) for graph in graphs(model.graph)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in graphs(copy.graph):
        for axes in _unordered(graph):
            axes.ints[:] = sorted(axes.ints)
    return copy


def _unordered(graph: onnx.GraphProto) -> list[onnx.AttributeProto]:
    squeezes = [node for node in graph.node if node.op_type == "Squeeze" and node.domain in ("", "ai.onnx")]
    found = [a for node in squeezes for a in node.attribute if a.name == "axes"]
    return [a for a in found if list(a.ints) != sorted(a.ints)]
