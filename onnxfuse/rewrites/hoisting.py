"""Moves a Transpose before the bias or scale that stands in front of it.

A Transpose that changes which dimension is contiguous keeps what lies before it out of the region after it: a kernel
that read through it would touch memory in scattered order. Where that is one operation with a constant on a product
(MatMul, Transpose and the layer scale of a ConvNeXt block), the operation goes behind the Transpose, into that region.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import onnx_graphsurgeon as gs

from onnxfuse.editing import ModelEditor
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE

__all__ = ["hoist_transposes"]

_OPERATIONS = frozenset(("Add", "Sub", "Mul", "Div"))


def hoist_transposes(editor: ModelEditor) -> bool:
    """Rewrites all graphs of a model; says whether anything changed."""
    kept = editor.required()
    changed = False
    for scope in editor.scopes:
        for node in [n for n in scope.nodes if n.op == "Transpose" and "perm" in n.attrs and not n.domain]:
            perm = [int(p) for p in node.attrs["perm"]]
            if perm and perm[-1] != len(perm) - 1 and len(node.inputs) == 1:
                changed |= _hoist(editor, scope, node, perm, kept)
    return changed


def _hoist(editor: ModelEditor, scope: gs.Graph, node: gs.Node, perm: list[int], kept: Container[int]) -> bool:
    value, result = node.inputs[0], node.outputs[0]
    if len(value.outputs) != 1 or id(value) in kept or len(value.inputs) != 1:
        return False
    (operation,) = value.inputs
    if operation.op not in _OPERATIONS or operation.domain or not _all_compute(result):
        return False
    place = 1 if isinstance(operation.inputs[1], gs.Constant) else 0
    constant, operand = operation.inputs[place], operation.inputs[1 - place]
    if not isinstance(constant, gs.Constant) or len(constant.shape) > 1 or not _comes_from_elsewhere(operand):
        return False
    moved = gs.Variable(editor.unique_name(f"{operand.name}_transposed"), dtype=value.dtype)
    operation.inputs[place] = _along(editor, scope, constant, perm, scope.nodes.index(operation))
    operation.inputs[1 - place] = moved
    node.inputs[0], node.outputs[0] = operand, moved
    operation.outputs[0] = result
    return True


def _all_compute(tensor: gs.Tensor) -> bool:
    """Whether all users of a tensor are operators that a region computes."""
    kinds = [((user.domain or ""), user.op) for user in tensor.outputs]
    return bool(kinds) and all(kind in LOWERINGS and kind[1] not in FREE | COPIES for kind in kinds)


def _comes_from_elsewhere(tensor: gs.Tensor) -> bool:
    """Whether no region computes a tensor; what one does stays with the operation."""
    makers = tensor.inputs
    return not isinstance(tensor, gs.Constant) and not any((m.domain or "", m.op) in LOWERINGS for m in makers)


def _along(editor: ModelEditor, scope: gs.Graph, constant: gs.Constant, perm: list[int], place: int) -> gs.Tensor:
    """A vector along the last dimension, as it lies once that is transposed."""
    rank = len(perm)
    behind = rank - 1 - perm.index(rank - 1)
    if behind == 0 or not constant.shape or constant.shape[0] == 1:
        return constant
    shape = np.array([constant.shape[0], *[1] * behind], np.int64)
    result = gs.Variable(editor.unique_name(f"{constant.name}_column"), dtype=constant.dtype)
    name = editor.unique_name(f"{constant.name}_reshape")
    target = gs.Constant(editor.unique_name(f"{constant.name}_shape"), shape)
    scope.nodes.insert(place, gs.Node(op="Reshape", name=name, inputs=[constant, target], outputs=[result]))
    return result
