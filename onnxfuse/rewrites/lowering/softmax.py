"""Softmax and LogSoftmax, with the meaning that each opset gives their axis."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.custom_ops.types import is_float
from onnxfuse.rewrites.fragment import RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__: list[str] = []


@lowering("Softmax", "LogSoftmax")
def _softmax(op: Operator) -> Sequence[Value]:
    x, b = op.value(0), op.build
    rank = len(x.shape)
    if not is_float(x.type) or rank == 0 or x.op == "const":
        raise RefusalError(f"{op.op_type} of a scalar or of integers is left to the runtime")
    axis = int(op.attribute("axis", -1 if op.opset >= 13 else 1))
    axis += rank if axis < 0 else 0
    if not 0 <= axis <= rank:
        raise RefusalError("its axis does not fit its input")
    # Before opset 13 the input is seen as a matrix, split before the axis, and each of its rows is normalized.
    axes = [axis] if op.opset >= 13 else list(range(axis, rank))
    if not axes or axis >= rank:
        raise RefusalError("it normalizes rows of one element")
    shifted = b("sub", x, b.reduce("max", x, axes))
    exponential = b("exp", shifted)
    total = b.reduce("sum", exponential, axes)
    return [b("div", exponential, total) if op.op_type == "Softmax" else b("sub", shifted, b("log", total))]
