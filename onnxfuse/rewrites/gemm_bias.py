"""Takes the bias out of a Gemm where a region can add it.

ONNX Runtime's CUDA provider writes a Gemm's bias into the result with a kernel of its own and has the product read it
back. In the region that follows, the addition costs nothing. The sum is then of a product that was rounded to the
tensors' type, as it is where the model spells MatMul and Add.
"""

from __future__ import annotations

from collections.abc import Collection, Container

import onnx_graphsurgeon as gs

from onnxfuse.editing import ModelEditor
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope

__all__ = ["put_back_biases", "take_out_biases"]

# The opset from which on the bias is optional.
_OPTIONAL_SINCE = 11


def take_out_biases(editor: ModelEditor, opset: int) -> set[str]:
    """Rewrites all graphs of a model; returns the names of the additions made."""
    names: set[str] = set()
    nodes = [(scope, n) for scope in editor.scopes for n in scope.nodes if n.op == "Gemm" and not n.domain]
    nodes = [(scope, n) for scope, n in nodes if _has_plain_bias(n)]
    if opset < _OPTIONAL_SINCE or not nodes:
        return names
    kept = editor.required()
    model = editor.to_model()
    shapes = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    for scope, node in nodes:
        if _goes_into_region(node.outputs[0], kept):
            names.add(_take_out(editor, scope, node, shapes))
    return names


def put_back_biases(editor: ModelEditor, names: Collection[str]) -> None:
    """Undoes it for the additions that no region took."""
    for scope in editor.scopes:
        for add in [n for n in scope.nodes if n.op == "Add" and n.name in names]:
            value, bias = add.inputs
            (last,) = value.inputs
            gemm = last if last.op == "Gemm" else last.inputs[0].inputs[0]
            result = add.outputs[0]
            editor.remove_nodes([add])
            gemm.inputs.append(bias)
            last.outputs[0] = result


def _has_plain_bias(node: gs.Node) -> bool:
    given = len(node.inputs) == 3 and bool(node.inputs[2].name)
    return given and len(node.outputs) == 1 and node.attrs.get("beta", 1.0) == 1.0


def _take_out(editor: ModelEditor, scope: gs.Graph, node: gs.Node, shapes: Scope) -> str:
    bias = node.inputs[2]
    last = node
    users = node.outputs[0].outputs
    # Behind a Reshape that leaves the columns alone: exporters split the rows there, into dimensions of any extents.
    if len(users) == 1 and users[0].op == "Reshape" and _keeps_columns(users[0], bias, shapes):
        (last,) = users
    result = last.outputs[0]
    value = gs.Variable(editor.unique_name(f"{result.name}_product"), dtype=result.dtype)
    del node.inputs[2]
    last.outputs[0] = value
    name = str(editor.unique_name(f"{node.name or result.name}_bias"))
    add = gs.Node(op="Add", name=name, inputs=[value, bias], outputs=[result])
    scope.nodes.insert(scope.nodes.index(last) + 1, add)
    return name


def _keeps_columns(reshape: gs.Node, bias: gs.Tensor, shapes: Scope) -> bool:
    """Whether a bias of one number a column is added to a reshaped matrix as it is to the matrix."""
    own, result = (shapes.get(t.name) for t in (bias, reshape.outputs[0]))
    if own is None or result is None or not own.shape or not result.shape:
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
