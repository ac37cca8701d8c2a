"""Running sums and products, and the index of the greatest or smallest element."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.rewrites.fragment import GivenAxes, RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__ = ["SCANS"]

SCANS = {"CumSum": "sum", "CumProd": "prod"}


@lowering(*SCANS)
def _scan(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    if x.op == "const" or not x.shape:
        raise RefusalError("its input is a scalar or constant")
    flags = tuple(flag for flag in ("exclusive", "reverse") if op.attribute(flag, 0))
    return [op.build.scan(SCANS[op.op_type], x, _axis(op, len(x.shape)), flags)]


def _axis(op: Operator, rank: int) -> int | GivenAxes:
    if not op.knows(1):
        if rank == 1:
            return 0  # there is no other
        given = op.given_axes(1, rank, "its axis")
        if given.count != 1:
            raise RefusalError("its axis is not known to be one number")
        return given
    axis = op.constant(1, "its axis")
    if axis.size != 1:
        raise RefusalError("its axis is not one number")
    return int(axis.reshape(-1)[0])


@lowering("ArgMax", "ArgMin")
def _argument(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    if x.op == "const" or not x.shape:
        raise RefusalError("its input is a scalar or constant")
    flags = ("last",) if op.opset >= 12 and op.attribute("select_last_index", 0) else ()
    axes, keepdims = [int(op.attribute("axis", 0))], bool(op.attribute("keepdims", 1))
    return [op.build.reduce(op.op_type.lower(), x, axes, keepdims, flags)]
