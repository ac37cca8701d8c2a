"""ONNX Runtime's own operators (domain com.microsoft), where they come in with a model that was optimized before."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.custom_ops.types import is_float
from onnxfuse.rewrites.fragment import RefusalError, Value
from onnxfuse.rewrites.lowering.activations import gelu
from onnxfuse.rewrites.lowering.normalizations import standardize
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__ = ["DOMAIN"]

DOMAIN = "com.microsoft"


def _float(op: Operator) -> Value:
    x = op.value(0)
    if not is_float(x.type) or x.op == "const":
        raise RefusalError(f"{op.op_type} of constants or integers is left to the runtime")
    return x


@lowering("Gelu", domain=DOMAIN)
def _gelu(op: Operator) -> Sequence[Value]:
    return [gelu(op.build, _float(op), "none")]


@lowering("FastGelu", domain=DOMAIN)
def _fast_gelu(op: Operator) -> Sequence[Value]:
    x = _float(op)
    return [gelu(op.build, op.build("add", x, op.value(1)) if op.has(1) else x, "tanh")]


@lowering("BiasGelu", domain=DOMAIN)
def _bias_gelu(op: Operator) -> Sequence[Value]:
    return [gelu(op.build, op.build("add", _float(op), op.value(1)), "none")]


@lowering("QuickGelu", domain=DOMAIN)
def _quick_gelu(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    return [b("mul", x, b("sigmoid", b("mul", x, op.float_attribute("alpha", 1.702))))]


def _root_mean_square(op: Operator, x: Value, scale: Value, epsilon: float) -> tuple[Value, Value]:
    """x / sqrt(mean of squares over the last axis + epsilon) * scale, and the reciprocal of the root."""
    b = op.build
    inverse = b("reciprocal", b("sqrt", b("add", b.reduce("mean", b("mul", x, x), [-1]), epsilon)))
    return b("mul", b("mul", x, inverse), scale), inverse


@lowering("SimplifiedLayerNormalization", domain=DOMAIN)
@lowering("SimplifiedLayerNormalization")
def _simplified_layer_normalization(op: Operator) -> Sequence[Value]:
    x = _float(op)
    if int(op.attribute("axis", -1)) % len(x.shape) != len(x.shape) - 1:
        raise RefusalError("it normalizes more than the last axis")
    return _root_mean_square(op, x, op.value(1), op.float_attribute("epsilon", 1e-5))


def _skip(op: Operator, bias: int) -> Value:
    """The sum of input, skip and optional bias."""
    total = op.build("add", _float(op), op.value(1))
    total = op.build("add", total, op.value(bias)) if op.has(bias) else total
    if total.shape != op.value(0).shape:
        raise RefusalError("its skip or bias is not known to broadcast into its input's shape")
    return total


@lowering("SkipLayerNormalization", domain=DOMAIN)
def _skip_layer_normalization(op: Operator) -> Sequence[Value]:
    b, total = op.build, _skip(op, 4)
    y, mean, inverse = standardize(b, total, [-1], op.float_attribute("epsilon", 1e-12))
    y = b("mul", y, op.value(2))
    return [b("add", y, op.value(3)) if op.has(3) else y, mean, inverse, total]


@lowering("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def _skip_simplified_layer_normalization(op: Operator) -> Sequence[Value]:
    total = _skip(op, 3)
    y, inverse = _root_mean_square(op, total, op.value(2), op.float_attribute("epsilon", 1e-12))
    return [y, inverse, inverse, total]
