"""The normalization operators, with means and variances in two passes."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.custom_ops.types import is_float
from onnxfuse.rewrites.fragment import Builder, RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__ = ["NORMALIZATIONS", "standardize"]

NORMALIZATIONS = frozenset(
    (
        "LayerNormalization",
        "RMSNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "MeanVarianceNormalization",
        "LpNormalization",
    )
)


def _input(op: Operator) -> Value:
    x = op.value(0)
    if x.op == "const" or not is_float(x.type):
        raise RefusalError(f"{op.op_type} of constants or integers is left to the runtime")
    return x


def _axes_from(op: Operator, x: Value) -> range:
    """All axes from the attribute `axis` on."""
    rank = len(x.shape)
    axis = int(op.attribute("axis", -1))
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank:
        raise RefusalError("its axis does not fit its input")
    return range(axis, rank)


def standardize(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, the mean, and 1 / sqrt(variance + epsilon)."""
    mean = b.reduce("mean", x, axes)
    centred = b("sub", x, mean)
    variance = b.reduce("mean", b("mul", centred, centred), axes)
    inverse = b("reciprocal", b("sqrt", b("add", variance, epsilon)))
    return b("mul", centred, inverse), mean, inverse


@lowering("LayerNormalization")
def _layer_normalization(op: Operator) -> Sequence[Value]:
    x, b = _input(op), op.build
    y, mean, inverse = standardize(b, x, _axes_from(op, x), op.float_attribute("epsilon", 1e-5))
    y = b("mul", y, op.value(1))
    if op.has(2):
        y = b("add", y, op.value(2))
    if y.shape != x.shape:
        raise RefusalError("its scale or bias is not known to broadcast into its input's shape")
    return [y, mean, inverse]


@lowering("RMSNormalization")
def _rms_normalization(op: Operator) -> Sequence[Value]:
    x, b = _input(op), op.build
    square = b.reduce("mean", b("mul", x, x), _axes_from(op, x))
    inverse = b("reciprocal", b("sqrt", b("add", square, op.float_attribute("epsilon", 1e-5))))
    y = b("mul", b("mul", x, inverse), op.value(1))
    if y.shape != x.shape:
        raise RefusalError("its scale is not known to broadcast into its input's shape")
    return [y]


@lowering("InstanceNormalization")
def _instance_normalization(op: Operator) -> Sequence[Value]:
    x, b = _input(op), op.build
    rank = len(x.shape)
    if rank < 3:
        raise RefusalError("its input has no spatial dimensions")
    y, _, _ = standardize(b, x, range(2, rank), op.float_attribute("epsilon", 1e-5))
    return [b("add", b("mul", y, b.along(op.value(1), 1, rank)), b.along(op.value(2), 1, rank))]


@lowering("GroupNormalization")
def _group_normalization(op: Operator) -> Sequence[Value]:
    x, b = _input(op), op.build
    rank, groups = len(x.shape), int(op.attribute("num_groups", 1))
    channels = x.shape[1] if rank > 1 else 0
    if (
        rank < 3
        or not isinstance(channels, int)
        or channels % groups
        or not all(isinstance(d, int) for d in x.shape[2:])
    ):
        raise RefusalError("its channels or spatial dimensions are not static")
    split = (x.shape[0], groups, channels // groups, *x.shape[2:])
    y, _, _ = standardize(b, b.reshape(x, split), range(2, rank + 1), op.float_attribute("epsilon", 1e-5))
    scale, bias = op.value(1), op.value(2)
    if op.opset < 21:  # one scale and bias a group
        y = b("add", b("mul", y, b.along(scale, 1, rank + 1)), b.along(bias, 1, rank + 1))
        return [b.reshape(y, x.shape)]
    y = b.reshape(y, x.shape)
    return [b("add", b("mul", y, b.along(scale, 1, rank)), b.along(bias, 1, rank))]


@lowering("MeanVarianceNormalization")
def _mean_variance_normalization(op: Operator) -> Sequence[Value]:
    x, b = _input(op), op.build
    axes = [int(a) for a in op.attribute("axes", [0, 2, 3])]
    mean = b.reduce("mean", x, axes)
    centred = b("sub", x, mean)
    deviation = b("sqrt", b.reduce("mean", b("mul", centred, centred), axes))
    # The operator's definition adds 1e-9 to the deviation, outside of the root.
    return [b("div", centred, b("add", deviation, 1e-9))]


@lowering("BatchNormalization")
def _batch_normalization(op: Operator) -> Sequence[Value]:
    x, b = _input(op), op.build
    if op.attribute("training_mode", 0) or any(op.used(i) for i in range(1, 5)):
        raise RefusalError("it is in training mode")
    rank = len(x.shape)
    if rank < 2:
        raise RefusalError("its input has no channels")
    scale, bias, mean, variance = (b.along(op.value(i), 1, rank) for i in range(1, 5))
    if len({v.type for v in (x, scale, bias, mean, variance)}) > 1:
        raise RefusalError("its operands have different types")
    centred = b("sub", x, mean)
    factor = b("div", scale, b("sqrt", b("add", variance, op.float_attribute("epsilon", 1e-5))))
    return [b("add", b("mul", centred, factor), bias)]


@lowering("LpNormalization")
def _lp_normalization(op: Operator) -> Sequence[Value]:
    x, b = _input(op), op.build
    axis = int(op.attribute("axis", -1))
    if op.attribute("p", 2) == 1:
        norm = b.reduce("sum", b("abs", x), [axis])
    else:
        norm = b("sqrt", b.reduce("sum", b("mul", x, x), [axis]))
    # A row of zeros stays a row of zeros.
    return [b("where", b("equal", norm, 0.0), 0.0, b("div", x, norm))]
