"""Operators whose extents ONNX's shape inference gets wrong, kept from it: onnxfuse's own rules decide.

- Einsum: of a letter that has extent 1 in one operand ONNX takes the first operand's extent; ONNX Runtime broadcasts.
- Resize and Upsample by scales: ONNX multiplies in another precision than ONNX Runtime, whose 10 * 0.7 is 7.
- Slice backwards to the largest integer: ONNX finds nothing there, ONNX Runtime takes all down to the first element.
- Pools that round up: whether a last window that begins in the padding counts depends on the version.

What ONNX finds is carried on to all that follows, so its inference runs again with these operators under a domain that
it does not know. ONNX Runtime infers alike and runs on nevertheless: where it is wrong, an extent is not to be fixed.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx

__all__ = ["hide", "import_hidden", "show"]

_HIDDEN = "onnxfuse.hidden"
_STANDARD = ("", "ai.onnx")


def hide(graph: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Puts the operators, bodies included, under another domain; whether there are any.

    `inferred` is the same graph with what ONNX made of it: the element types of the results are taken from there.
    """
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    outputs = {o.name for o in graph.output}
    empty = {v.name for v in (*inferred.value_info, *inferred.output) if _is_empty(v)}
    found = False
    for node, known in zip(graph.node, inferred.node, strict=True):
        for attribute, after in zip(node.attribute, known.attribute, strict=True):
            if attribute.type == onnx.AttributeProto.GRAPH:
                found |= hide(attribute.g, after.g)
        if not _is_misjudged(node, empty):
            continue
        found = True
        node.domain = _HIDDEN
        for name in node.output:
            if types.get(name) and name not in outputs:
                graph.value_info.append(onnx.helper.make_tensor_value_info(name, types[name], None))
    return found


def show(graph: onnx.GraphProto) -> None:
    """Undoes it."""
    for node in graph.node:
        if node.domain == _HIDDEN:
            node.domain = ""
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                show(attribute.g)


def import_hidden(model: onnx.ModelProto) -> None:
    """Without the domain's import, inference would give up."""
    model.opset_import.append(onnx.helper.make_opsetid(_HIDDEN, 1))


def _is_empty(value: onnx.ValueInfoProto) -> bool:
    return any(d.HasField("dim_value") and d.dim_value == 0 for d in value.type.tensor_type.shape.dim)


def _is_misjudged(node: onnx.NodeProto, empty: Collection[str]) -> bool:
    """`empty` are the names of values that ONNX takes for tensors without elements."""
    if node.domain not in _STANDARD:
        return False
    if node.op_type == "Slice":
        return len(node.input) > 4 and node.output[0] in empty
    if node.op_type in ("MaxPool", "AveragePool", "LpPool"):
        return any(a.name == "ceil_mode" and a.i for a in node.attribute)
    if node.op_type == "Resize":
        return len(node.input) > 2 and bool(node.input[2])
    return node.op_type == "Upsample" or (node.op_type == "Einsum" and len(node.input) > 1)
