"""Takes the bias out of a Gemm or a convolution where a region can add it.

ONNX Runtime's CUDA provider adds a bias in a kernel of its own: a Gemm's is written into the result for the product to
read back, a convolution's is added to its result afterwards by cuDNN. In the region that follows, the addition costs
nothing. The sum is then of a product that was rounded to the tensors' type, as it is where the model spells MatMul and
Add.

A convolution's bias is taken out even where no region follows: for six convolutions of 8x64x28x28 (H200, ONNX Runtime
1.31) cuDNN's additions took 20 us where ONNX Runtime's own Add took 12. With a Relu after each, in float32, it is
three kernels and 48 us as the model stands, two and 28 us with both in a fused node.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs

from onnxfuse.editing import ModelEditor
from onnxfuse.errors import ModelError
from onnxfuse.external_data import with_small_values
from onnxfuse.rewrites.convolutions import CONVOLUTIONS
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope

__all__ = ["settle_biases", "take_out_biases"]

# The opset from which on a Gemm's bias is optional, and from which on Add broadcasts.
_SINCE = {"Gemm": 11, "Conv": 7, "ConvTranspose": 7}


def take_out_biases(editor: ModelEditor, opset: int, base_dir: Path | None = None) -> dict[str, str]:
    """Rewrites all graphs of a model; returns the names of the additions made.

    With each, for a convolution, the name of the Reshape that lays the bias along its channels, "" for a Gemm. External
    data is in `base_dir`.
    """
    nodes = [n for scope in editor.scopes for n in scope.nodes if _has_plain_bias(n, opset)]
    if not nodes:
        return {}
    kept = editor.required()
    model = with_small_values(editor.to_model(), base_dir)
    shapes = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    behind: dict[int, list[gs.Node]] = {}  # by `id` of a node, those to stand right behind it
    for node in nodes:
        if node.op == "Gemm":
            if not _goes_into_region(node.outputs[0], kept):
                continue
            last = _last_of_gemm(node, shapes)
            behind[id(last)] = [_add_behind(editor, last, node, node.inputs[2])]
        elif rank := _rank(node, shapes):
            reshape = _channels(editor, node, rank)
            behind[id(node)] = [reshape, _add_behind(editor, node, node, reshape.outputs[0])]
    for scope in editor.scopes:
        scope.nodes[:] = [n for node in scope.nodes for n in (node, *behind.get(id(node), ()))]
    return {added[-1].name: added[0].name if len(added) > 1 else "" for added in behind.values()}


def settle_biases(editor: ModelEditor, additions: Mapping[str, str]) -> bool:
    """Undoes it for the additions that no region took; for the others, lays constant biases along their channels.

    Says whether it has undone any: what reads a product may be fused otherwise then.
    """
    undone = _put_back(editor, additions)
    reshapes = set(additions.values()) - {""}
    for scope in editor.scopes:
        for node in [n for n in scope.nodes if n.name in reshapes and isinstance(n.inputs[0], gs.Constant)]:
            bias, shape = node.inputs
            (result,) = node.outputs
            try:
                values = bias.values
            except ModelError:  # in a file that is not at hand: the Reshape stays
                continue
            constant = gs.Constant(result.name, values.reshape(shape.values))
            for user in list(result.outputs):
                user.inputs = [constant if t is result else t for t in user.inputs]
            editor.remove_nodes([node])
    return undone


def _put_back(editor: ModelEditor, names: Container[str]) -> bool:
    undone = False
    for scope in editor.scopes:
        for add in [n for n in scope.nodes if n.op == "Add" and n.name in names]:
            value, bias = add.inputs
            (last,) = value.inputs
            product = last
            while product.op not in ("Gemm", *CONVOLUTIONS):
                product = product.inputs[0].inputs[0]
            result = add.outputs[0]
            removed = [add]
            # Behind a Transpose that was moved before the addition, a constant bias may lie along another dimension.
            if product.op in CONVOLUTIONS or (last.op == "Transpose" and bias.inputs):
                removed += bias.inputs
                bias = bias.inputs[0].inputs[0]
            editor.remove_nodes(removed)
            product.inputs.append(bias)
            last.outputs[0] = result
            if last.op == "Transpose":
                value = last.inputs[0]
                value.name = value.name.removesuffix("_product")  # nothing else bears the name that it had
            undone = True
    return undone


def _has_plain_bias(node: gs.Node, opset: int) -> bool:
    if node.domain or opset < _SINCE.get(node.op, opset + 1) or len(node.inputs) != 3:
        return False
    if any(maker.op == "DequantizeLinear" for t in node.inputs for maker in t.inputs):
        return False  # a quantized product, bias and all, to some runtimes
    return bool(node.inputs[2].name) and len(node.outputs) == 1 and node.attrs.get("beta", 1.0) == 1.0


def _rank(node: gs.Node, shapes: Scope) -> int:
    """The rank of a convolution's result, 0 where it is not known."""
    known = next((shapes[t.name].shape for t in (*node.inputs[:2], *node.outputs) if t.name in shapes), None)
    return 0 if known is None else len(known)


def _channels(editor: ModelEditor, node: gs.Node, rank: int) -> gs.Node:
    """What lays a convolution's bias along the channels of its result, dimension 1."""
    bias, base = node.inputs[2], node.name or node.outputs[0].name
    shape = gs.Constant(editor.unique_name(f"{base}_bias_shape"), np.array([-1] + [1] * (rank - 2), np.int64))
    channels = gs.Variable(editor.unique_name(f"{base}_channels"), dtype=bias.dtype)
    return gs.Node("Reshape", str(editor.unique_name(f"{base}_reshape")), inputs=[bias, shape], outputs=[channels])


def _last_of_gemm(node: gs.Node, shapes: Scope) -> gs.Node:
    """What the addition goes behind: the Gemm, or a Reshape that leaves the columns alone.

    Exporters split the rows there, into dimensions of any extents.
    """
    users = node.outputs[0].outputs
    if len(users) == 1 and users[0].op == "Reshape" and _keeps_columns(users[0], node.inputs[2], shapes):
        return users[0]
    return node


def _add_behind(editor: ModelEditor, last: gs.Node, product: gs.Node, bias: gs.Tensor) -> gs.Node:
    """The addition of what was the bias of `product` to the result of `last`."""
    result = last.outputs[0]
    value = gs.Variable(editor.unique_name(f"{result.name}_product"), dtype=result.dtype)
    # By identity: graphsurgeon takes out what is equal, which may be a node of another body.
    given = product.inputs[2]
    list.__setitem__(given.outputs, slice(None), [n for n in given.outputs if n is not product])
    list.pop(product.inputs, 2)
    last.outputs[0] = value
    name = str(editor.unique_name(f"{product.name or result.name}_bias"))
    return gs.Node("Add", name, inputs=[value, bias], outputs=[result])


def _keeps_columns(reshape: gs.Node, bias: gs.Tensor, shapes: Scope) -> bool:
    """Whether a bias of one number a column is added to a reshaped matrix as it is to the matrix."""
    own, result = (shapes.get(t.name) for t in (bias, reshape.outputs[0]))
    if own is None or result is None or not own.shape or not result.shape or len(own.shape) > len(result.shape):
        return False
    columns = own.shape[-1]
    return isinstance(columns, int) and result.shape[-1] == columns > 1 and set(own.shape[:-1]) <= {1}


def _goes_into_region(tensor: gs.Tensor, kept: Container[int]) -> bool:
    """Whether all users of a tensor, perhaps reshaped, are operators that a region with the addition can take."""
    pending, users = [tensor], 0
    while pending:
        value = pending.pop()
        if id(value) in kept or not value.outputs:
            return False
        for user in value.outputs:
            users += 1
            if user.op in FREE and not user.domain:
                pending += list(user.outputs)
            elif (user.domain or "", user.op) not in LOWERINGS or _swaps_for_matmul(user) or users > 64:
                return False
    return True


def _swaps_for_matmul(node: gs.Node) -> bool:
    """Whether ONNX Runtime computes a Transpose inside of the MatMuls after it."""
    perm = [int(p) for p in node.attrs.get("perm", [])] if node.op in COPIES else []
    rank = len(perm)
    swap = rank > 1 and perm == [*range(rank - 2), rank - 1, rank - 2]
    return swap and all(u.op == "MatMul" for o in node.outputs for u in o.outputs)
