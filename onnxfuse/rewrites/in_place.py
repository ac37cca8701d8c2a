"""The last thing said of fused nodes: which of them ONNX Runtime may have written over what they read.

Pre: all fused nodes are made. Post: an elementwise node whose first output could be put in the place of one of its
first inputs, and must not be, is a FusedOutOfPlace; all others are FusedElementwise.

An output can be put there where shape and size of the elements are the same, or not known, and a node of the same graph
makes the input: what a run brings, weights, and what lies outside of a body are never written over. It must not be
where an element is computed from other elements than the same (`is_pointwise`); nor on the CPU where a kernel has
several outputs and one of the others is computed from the input after the first is stored (`reads_before_storing`).
"""

from __future__ import annotations

from dataclasses import replace

import onnx_graphsurgeon as gs

from onnxfuse.custom_ops import DOMAIN, OUT_OF_PLACE, REWRITES
from onnxfuse.custom_ops.in_place import OVERWRITTEN, is_pointwise, reads_before_storing
from onnxfuse.custom_ops.program import Input, Program
from onnxfuse.custom_ops.types import size
from onnxfuse.editing import ModelEditor
from onnxfuse.errors import ProgramError

__all__ = ["name_op_types"]


def name_op_types(editor: ModelEditor, target: str) -> dict[str, tuple[str, str]]:
    """Gives elementwise nodes the op type that they must have; returns it, and the program's text, by node name.

    Of a node of several kernels, those inputs that must not be written over move behind others.
    """
    named: dict[str, tuple[str, str]] = {}
    for scope in editor.scopes:
        made = {tensor.name for node in scope.nodes for tensor in node.outputs}
        for node in scope.nodes:
            if node.domain != DOMAIN or node.op not in (REWRITES["elementwise"], OUT_OF_PLACE):
                continue
            text = node.attrs.get("program")
            try:
                program = Program.parse(text if isinstance(text, str) else "")
            except ProgramError:
                continue  # refresh_functions says what is wrong
            if (len(node.inputs), len(node.outputs)) != (len(program.inputs), len(program.outputs)):
                continue  # and this, too
            kept = _kept(node, program, made, target)
            if kept and len(program.kernels) > 1 and (order := _arranged(len(program.inputs), kept)):
                program = _reordered(program, order)
                node.attrs["program"] = program.text()
                inputs = [node.inputs[k] for k in order]
                node.inputs.clear()
                node.inputs.extend(inputs)
                kept = _kept(node, program, made, target)
            op_type = OUT_OF_PLACE if kept and kept[0] < OVERWRITTEN else REWRITES["elementwise"]
            if node.op != op_type:
                node.op = op_type
            named[node.name] = op_type, program.text()
    return named


def _kept(node: gs.Node, program: Program, made: set[str], target: str) -> list[int]:
    """The inputs that the first output must not be put over, though it could be. `made` is what nodes here make."""
    return [
        k
        for k, tensor in enumerate(node.inputs)
        if tensor.name in made
        and _could_be_alike(program, k, tensor, node.outputs[0])
        and not (is_pointwise(program, k, 0) and (target != "cpu" or reads_before_storing(program, k, 0)))
    ]


def _arranged(count: int, kept: list[int]) -> list[int]:
    """The inputs with others than `kept` in front; nothing where they are in front already, or too few."""
    others = [k for k in range(count) if k not in kept]
    front = others[: min(OVERWRITTEN, count)]
    order = [*front, *(k for k in range(count) if k not in front)]
    return order if len(front) == min(OVERWRITTEN, count) and order != list(range(count)) else []


def _reordered(program: Program, order: list[int]) -> Program:
    """The program for inputs in another order: `order` has what was their number."""
    numbers = {before: now for now, before in enumerate(order)}
    kernels = []
    for kernel in program.kernels:
        statements = (replace(s, tensor=numbers[s.tensor]) if isinstance(s, Input) else s for s in kernel.statements)
        kernels.append(replace(kernel, statements=tuple(statements)))
    return Program(tuple(kernels))


def _could_be_alike(program: Program, k: int, tensor: gs.Tensor, result: gs.Tensor) -> bool:
    """Whether shape and size of the elements may be the same."""
    (type_, rank), (stored, stored_rank) = program.inputs[k], program.outputs[0]
    if rank != stored_rank or size(type_) != size(stored):
        return False
    if tensor.shape is None or result.shape is None or len(tensor.shape) != len(result.shape):
        return True
    pairs = zip(tensor.shape, result.shape, strict=True)
    return not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
