"""Brings the transpositions before a MatMul into a form of which ONNX Runtime's MatMul takes one half.

ONNX Runtime's CUDA provider computes a swap of the last two dimensions inside a MatMul. Exporters hide it:

1. One Transpose moves heads and swaps at once, as (0, 2, 3, 1) of an attention key. It becomes two: one that keeps the
   last dimension in place, through which a fused kernel can write, and the swap.
2. The swap stands before a scaling. Scaled first, the swap is next to the MatMul.
3. The swap is done on three dimensions, with the leading ones joined before it and separated after it. Without the
   Reshapes it is a swap of the last two.

Both only where a region can take what comes before; values that something else uses stay as they are.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import onnx_graphsurgeon as gs

from onnxfuse.editing import ModelEditor
from onnxfuse.external_data import with_small_values
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.shapes import UNKNOWN, infer, symbolic_scope

__all__ = ["expose_swaps"]

_CUTS = frozenset(("Split", "Slice", "Gather"))


def expose_swaps(editor: ModelEditor, base_dir: Path | None = None) -> bool:
    """Rewrites all graphs of a model, whose external data is in `base_dir`; says whether anything changed."""
    kept = editor.required()
    changed = _separate(editor, kept, base_dir)
    for scope in editor.scopes:
        for node in list(scope.nodes):
            if node.op == "Transpose" and "perm" in node.attrs and not node.domain and len(node.inputs) == 1:
                perm = [int(p) for p in node.attrs["perm"]]
                changed |= _sink(editor, node, perm, kept) or _split(editor, scope, node, perm, kept)
    return changed


def _separate(editor: ModelEditor, kept: Container[int], base_dir: Path | None) -> bool:
    """Takes the Reshapes around swaps away."""
    found = []
    for node in editor.graph.nodes:
        if node.op != "Transpose" or node.domain or [int(p) for p in node.attrs.get("perm", [])] != [0, 2, 1]:
            continue
        makers = node.inputs[0].inputs
        before = makers[0] if makers and _only_user(node.inputs[0], kept) is node else None
        after = _only_user(node.outputs[0], kept)
        if before is not None and after is not None and before.op == after.op == "Reshape":
            found.append((before, node, after))
    if not found:
        return False
    model = with_small_values(editor.to_model(), base_dir)
    shapes = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    gone = []
    for before, node, after in found:
        source, result = (shapes.get(t.name, UNKNOWN).shape for t in (before.inputs[0], after.outputs[0]))
        joined = shapes.get(node.inputs[0].name, UNKNOWN).shape
        if source is None or joined is None or result != (*source[:-2], *source[:-3:-1]) or joined[1:] != source[-2:]:
            continue
        rank = len(source)
        node.attrs["perm"] = [*range(rank - 2), rank - 1, rank - 2]
        node.inputs[0] = before.inputs[0]
        node.outputs[0] = after.outputs[0]
        gone += [before, after]
    editor.remove_nodes(gone)
    return bool(gone)


def _is_swap(perm: list[int]) -> bool:
    rank = len(perm)
    return rank > 1 and perm == [*range(rank - 2), rank - 1, rank - 2]


def _only_user(tensor: gs.Tensor, kept: Container[int]) -> gs.Node | None:
    users = list(tensor.outputs)
    return users[0] if len(users) == 1 and id(tensor) not in kept else None


def _feeds_matmul(tensor: gs.Tensor, kept: Container[int]) -> bool:
    user = _only_user(tensor, kept)
    return user is not None and user.op == "MatMul"


def _comes_from_region(tensor: gs.Tensor) -> bool:
    """Whether an operator that computes makes a tensor, perhaps a part of it, reshaped."""
    while tensor.inputs and tensor.inputs[0].op in FREE | _CUTS and tensor.inputs[0].inputs:
        tensor = tensor.inputs[0].inputs[0]
    maker = tensor.inputs[0] if tensor.inputs else None
    return maker is not None and (maker.domain or "", maker.op) in LOWERINGS and maker.op not in COPIES


def _split(editor: ModelEditor, scope: gs.Graph, node: gs.Node, perm: list[int], kept: Container[int]) -> bool:
    rank = len(perm)
    if rank < 3 or _is_swap(perm) or perm[-2] != rank - 1:
        return False
    result = node.outputs[0]
    if not _feeds_matmul(result, kept) or not _comes_from_region(node.inputs[0]):
        return False
    heads = gs.Variable(editor.unique_name(f"{result.name}_heads"), dtype=result.dtype)
    moved = gs.Node(
        op="Transpose",
        name=editor.unique_name(f"{node.name or result.name}_heads"),
        attrs={"perm": [*perm[:-2], perm[-1], perm[-2]]},
        inputs=[node.inputs[0]],
        outputs=[heads],
    )
    scope.nodes.insert(scope.nodes.index(node), moved)
    node.inputs[0] = heads
    node.attrs["perm"] = [*range(rank - 2), rank - 1, rank - 2]
    return True


def _sink(editor: ModelEditor, node: gs.Node, perm: list[int], kept: Container[int]) -> bool:
    scaling = _only_user(node.outputs[0], kept)
    if not _is_swap(perm) or scaling is None or scaling.op not in ("Mul", "Div") or scaling.domain:
        return False
    position = 0 if scaling.inputs[0] is node.outputs[0] else 1
    factor = scaling.inputs[1 - position]
    if (scaling.op == "Div" and position == 1) or not _feeds_matmul(scaling.outputs[0], kept):
        return False
    if not isinstance(factor, gs.Constant) or any(d != 1 for d in factor.shape) or len(factor.shape) > len(perm):
        return False
    result = scaling.outputs[0]
    scaled = gs.Variable(editor.unique_name(f"{result.name}_scaled"), dtype=result.dtype)
    scaling.inputs[position] = node.inputs[0]
    scaling.outputs[0] = scaled
    node.inputs[0] = scaled
    node.outputs[0] = result
    return True
