"""The Reduce family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxfuse.custom_ops.types import is_float
from onnxfuse.rewrites.dims import Shape
from onnxfuse.rewrites.fragment import Axes, Builder, GivenAxes, RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering
from onnxfuse.rewrites.shape_site import only_axes

__all__: list[str] = []

# What these make of each element where they reduce nothing depends on the version of ONNX Runtime.
_CHANGES_ELEMENTS = frozenset(("L1", "L2", "LogSum", "LogSumExp", "SumSquare"))


def _known_axes(op: Operator, shape: Shape, *, keepdims: bool) -> list[int]:
    """The axes that the attribute or the input gives, none where there are none; an input's may follow from shapes."""
    if not op.has(1):
        return [int(a) for a in op.attribute("axes", [])]
    known = op.types.get(op.inputs[1])
    if op.inputs[1] not in op.constants and known is not None:
        found = only_axes(shape, known.shape)
        if found is not None:
            return found
        if keepdims and all(d == 1 for d in shape):
            return list(range(len(shape)))  # whatever it reduces, the elements stay as they are
    return [int(a) for a in op.constant(1, "its axes input").reshape(-1)]


def _takes_axes_of_run(op: Operator, shape: Shape, *, keepdims: bool) -> bool:
    """Whether only a run shows its axes."""
    if not op.has(1) or op.knows(1):
        return False
    known = op.types.get(op.inputs[1])
    only = only_axes(shape, None if known is None else known.shape)
    return only is None and not (keepdims and all(d == 1 for d in shape))


def _axes_of_run(op: Operator, shape: Shape, kind: str) -> GivenAxes:
    axes = op.given_axes(1, len(shape), "its axes input")
    if axes.count is not None or not op.attribute("noop_with_empty_axes", 0):
        return axes
    if kind in _CHANGES_ELEMENTS:
        raise RefusalError("whether it reduces anything shows only when it runs (noop_with_empty_axes)")
    return replace(axes, noop=True)


def _reduced_axes(op: Operator, shape: Shape, *, keepdims: bool) -> list[int]:
    """The axes of a reduction of a tensor of `shape`, all where none are given; empty where it reduces nothing."""
    axes = _known_axes(op, shape, keepdims=keepdims)
    if not axes and op.attribute("noop_with_empty_axes", 0):
        return []
    if not shape:
        raise RefusalError("it reduces a scalar")
    return axes or list(range(len(shape)))


def log_sum_exp(b: Builder, x: Value, axes: Axes, keepdims: bool) -> Value:
    """log(sum(exp(x))) with the maximum taken out, where it is finite."""
    highest = b.reduce("max", x, axes)
    shift = b("where", b("isinf", highest), 0.0, highest)
    total = b("add", b("log", b.reduce("sum", b("exp", b("sub", x, shift)), axes)), shift)
    if isinstance(axes, GivenAxes):
        return total if keepdims else b.squeeze(total, axes)
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
    keepdims = bool(op.attribute("keepdims", 1))
    kind = op.op_type.removeprefix("Reduce")
    axes: Axes
    if _takes_axes_of_run(op, x.shape, keepdims=keepdims):
        axes = _axes_of_run(op, x.shape, kind)
    else:
        axes = _reduced_axes(op, x.shape, keepdims=keepdims)
    if not axes:
        if kind in _CHANGES_ELEMENTS:
            raise RefusalError("it reduces nothing (noop_with_empty_axes)")
        return [x]
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
