"""What a Loop carries from one iteration to the next: its declared shape says something only where it never changes.

ONNX Runtime runs a Loop whose state begins with another shape than the body declares, or changes it. So an extent
counts that the first value has and the body gives back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import onnx

__all__ = ["forget_changing"]

_Dims: TypeAlias = "list[int | None]"


def forget_changing(
    graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Mapping[str, _Dims] | None = None
) -> bool:
    """Takes from what Loops carry the declared extents that do not count; whether there are any.

    `inferred` is the same graph with what ONNX made of it; `outer` has the shapes of what the graph captures. Less is
    known afterwards of a Loop in the body of another: what that leaves is found with a new inference.
    """
    changed = False
    if not any(a.type == onnx.AttributeProto.GRAPH for node in graph.node for a in node.attribute):
        return changed
    shapes = {**(outer or {}), **_known_dims(inferred)}
    for node, known in zip(graph.node, inferred.node, strict=True):
        for attribute, after in zip(node.attribute, known.attribute, strict=True):
            if attribute.type != onnx.AttributeProto.GRAPH:
                continue
            changed |= forget_changing(attribute.g, after.g, shapes)
            if node.op_type != "Loop":
                continue
            for state, result, first in zip(attribute.g.input[2:], after.g.output[1:], node.input[2:], strict=False):
                changed |= _forget_others(state, shapes.get(first)) | _forget_others(state, _dims(result))
    return changed


def _known_dims(graph: onnx.GraphProto) -> dict[str, _Dims]:
    """The shapes of a graph's own values, where they are known: extents, None for those that are not."""
    found: dict[str, _Dims] = {t.name: list(t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if (dims := _dims(value)) is not None:
            found.setdefault(value.name, dims)
    return found


def _dims(value: onnx.ValueInfoProto) -> _Dims | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]


def _forget_others(state: onnx.ValueInfoProto, found: _Dims | None) -> bool:
    """Takes from a value the declared extents that are not those found; whether there are any."""
    declared = state.type.tensor_type.shape.dim
    if found is None or len(declared) != len(found):
        changed = bool(state.type.tensor_type.HasField("shape"))
        state.type.tensor_type.ClearField("shape")
        return changed
    wrong = [d for d, n in zip(declared, found, strict=True) if d.HasField("dim_value") and d.dim_value != n]
    for dim in wrong:
        dim.Clear()
    return bool(wrong)
