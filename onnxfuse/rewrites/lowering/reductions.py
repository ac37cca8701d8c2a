"""The Reduce family."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.custom_ops.types import is_float
from onnxfuse.rewrites.fragment import Builder, RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__: list[str] = []


def reduced_axes(op: Operator, rank: int) -> list[int]:
    """The axes of a reduction, from the attribute or a constant input; all where none are given."""
    if op.has(1):
        axes = [int(a) for a in op.constant(1, "its axes input").reshape(-1)]
    else:
        axes = [int(a) for a in op.attribute("axes", [])]
    if not axes:
        if op.attribute("noop_with_empty_axes", 0):
            raise RefusalError("it reduces nothing (noop_with_empty_axes)")
        axes = list(range(rank))
    if not axes:
        raise RefusalError("it reduces a scalar")
    return axes


def log_sum_exp(b: Builder, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    """log(sum(exp(x))) with the maximum taken out, where it is finite."""
    highest = b.reduce("max", x, axes)
    shift = b("where", b("isinf", highest), 0.0, highest)
    total = b("add", b("log", b.reduce("sum", b("exp", b("sub", x, shift)), axes)), shift)
    normal = {a % len(x.shape) for a in axes}
    return total if keepdims else b.view(total, [k for k in range(len(x.shape)) if k not in normal])


@lowering(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
def _reduction(op: Operator) -> Sequence[Value]:
    x, b = op.value(0), op.build
    if x.op == "const":
        raise RefusalError("its input is constant")
    axes, keepdims = reduced_axes(op, len(x.shape)), bool(op.attribute("keepdims", 1))
    kind = op.op_type.removeprefix("Reduce")
    if kind in ("L2", "LogSum", "LogSumExp") and not is_float(x.type):
        raise RefusalError(f"{op.op_type} of integers is left to the runtime")
    if kind == "L1":
        return [b.reduce("sum", b("abs", x), axes, keepdims)]
    if kind == "SumSquare":
        return [b.reduce("sum", b("mul", x, x), axes, keepdims)]
    if kind == "L2":
        return [b("sqrt", b.reduce("sum", b("mul", x, x), axes, keepdims))]
    if kind == "LogSum":
        return [b("log", b.reduce("sum", x, axes, keepdims))]
    if kind == "LogSumExp":
        return [log_sum_exp(b, x, axes, keepdims)]
    return [b.reduce(kind.lower(), x, axes, keepdims)]
