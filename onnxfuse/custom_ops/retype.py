"""Fits a program to tensors whose floating-point type another tool changed (a converter to float16, say)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxfuse.custom_ops.program import Input, Program
from onnxfuse.custom_ops.types import value_type

__all__ = ["retyped"]


def retyped(program: Program, inputs: Sequence[str | None], outputs: Sequence[str | None]) -> Program:
    """The program for tensors of these types; the same object where nothing differs or cannot be had so simply.

    Values in a program are float32 whether their tensors hold float32, float16 or bfloat16, so that only what is read
    and stored changes. Tensors of any other type must have the program's.

    Args:
        program: a verified program.
        inputs: the type of each input tensor, in the program language; None where it is not known.
        outputs: the same of each output tensor. One that is not known goes with the inputs, where these agree.
    """
    read = _changes([type_ for type_, _ in program.inputs], inputs)
    stored = _changes([type_ for type_, _ in program.outputs], outputs)
    if read is None or stored is None:
        return program
    moves = {(program.inputs[place][0], to) for place, to in read.items()}
    if len(moves) == 1:
        ((old, new),) = moves
        for place, (type_, _) in enumerate(program.outputs):
            if outputs[place] is None and type_ == old:
                stored[place] = new
    if not read and not stored:
        return program
    kernels = []
    for kernel in program.kernels:
        statements = tuple(
            replace(s, type=read.get(s.tensor, s.type)) if isinstance(s, Input) else s for s in kernel.statements
        )
        stores = tuple(replace(o, type=stored.get(o.tensor, o.type)) for o in kernel.outputs)
        kernels.append(replace(kernel, statements=statements, outputs=stores))
    return Program(tuple(kernels))


def _changes(declared: Sequence[str], actual: Sequence[str | None]) -> dict[int, str] | None:
    """The new types by place; None where one would change the values inside."""
    found: dict[int, str] = {}
    for place, (old, new) in enumerate(zip(declared, actual, strict=True)):
        if new is None or new == old:
            continue
        if not (value_type(old) == value_type(new) == "f32"):
            return None
        found[place] = new
    return found
