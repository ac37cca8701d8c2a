"""The local functions that go with fused nodes, so that a model also runs where the library is absent."""

from __future__ import annotations

import onnx
import onnx_graphsurgeon as gs

from onnxfuse.custom_ops import DOMAIN, OP_TYPES
from onnxfuse.custom_ops.function import to_function
from onnxfuse.custom_ops.overloads import guards
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.retype import retyped
from onnxfuse.custom_ops.types import from_numpy
from onnxfuse.editing import ModelEditor, label
from onnxfuse.errors import ProgramError

__all__ = ["refresh_functions"]


def refresh_functions(editor: ModelEditor, opset: int, fallback: bool) -> None:
    """Makes the domain's functions those that the model's fused nodes need: missing and stale ones are written anew.

    A program is fitted to the types of its tensors first, which a converter to float16 changes. Without `fallback` no
    function is added. Raises ProgramError naming a node whose program is not valid, or not one for
    its inputs and outputs.
    """
    wanted: dict[tuple[str, str], onnx.FunctionProto] = {}
    # What is declared of other tensors, ONNX Runtime does not hold against a model.
    held = {tensor.name for tensor in editor.graph.inputs}
    for scope in editor.scopes:
        for node in scope.nodes:
            if node.domain != DOMAIN:
                continue
            text = node.attrs.get("program")
            try:
                if node.op not in OP_TYPES:
                    raise ProgramError(f"there is no such op; those of the domain are {', '.join(OP_TYPES)}")
                if not isinstance(text, str):
                    raise ProgramError("it has no program attribute that is UTF-8 text")
                program = Program.parse(text)
                for kind, given, expected in (
                    ("inputs", node.inputs, program.inputs),
                    ("outputs", node.outputs, program.outputs),
                ):
                    if len(given) != len(expected):
                        raise ProgramError(f"its program has {len(expected)} {kind}, the node {len(given)}")
                    for tensor, (_, rank) in zip(given, expected, strict=True):
                        known = tensor.name in held or isinstance(tensor, gs.Constant)
                        if known and tensor.shape is not None and len(tensor.shape) != rank:
                            raise ProgramError(
                                f"its program takes '{tensor.name}' for a tensor of rank {rank}; "
                                f"it has rank {len(tensor.shape)}"
                            )
            except ProgramError as error:
                raise ProgramError(f"node {label(node)}: {error}") from None
            fitting = retyped(program, *([_type(t) for t in tensors] for tensors in (node.inputs, node.outputs)))
            if fitting is not program:
                program = fitting
                node.attrs["program"] = program.text()
            if fallback:
                overload = program.digest()
                if editor.overload(node) != overload:
                    editor.set_overload(node, overload)
                if (node.op, overload) not in wanted:
                    wanted[node.op, overload] = to_function(program, node.op, opset)
    if fallback:
        others = [f for f in editor.functions if f.domain != DOMAIN]
        current = {(f.name, f.overload): f for f in editor.functions if f.domain == DOMAIN}
        wanted = {**dict(sorted(wanted.items())), **guards(wanted, opset)}
        fused = [current[k] if current.get(k) == f else f for k, f in wanted.items()]
        if [*others, *fused] != editor.functions:
            editor.functions[:] = [*others, *fused]


def _type(tensor: gs.Tensor) -> str | None:
    return from_numpy(tensor.dtype) if tensor.dtype is not None else None
