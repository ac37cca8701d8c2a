"""Activation functions, opened into primitives so that their neighbours can join them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxfuse.custom_ops.types import is_float
from onnxfuse.rewrites.fragment import Builder, RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__ = ["COMPOSITE", "gelu"]

# ONNX Runtime's CUDA provider computes these by the operators of their definitions, each a kernel.
COMPOSITE = frozenset(("HardSwish", "Mish", "Celu", "Swish", "SwiGLU"))


def _float(op: Operator) -> Value:
    x = op.value(0)
    if not is_float(x.type):
        raise RefusalError(f"{op.op_type} of elements of type {x.type} is left to the runtime")
    return x


@lowering("LeakyRelu")
def _leaky_relu(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    return [b("where", b("less", x, 0.0), b("mul", x, op.float_attribute("alpha", 0.01)), x)]


@lowering("PRelu")
def _prelu(op: Operator) -> Sequence[Value]:
    x, slope, b = op.value(0), op.value(1), op.build
    return [b("where", b("less", x, 0), b("mul", x, slope), x)]


@lowering("ThresholdedRelu")
def _thresholded_relu(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    return [b("where", b("greater", x, op.float_attribute("alpha", 1.0)), x, 0.0)]


@lowering("Elu")
def _elu(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    return [b("where", b("less", x, 0.0), b("mul", b("expm1", x), op.float_attribute("alpha", 1.0)), x)]


@lowering("Selu")
def _selu(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    alpha, gamma = (
        op.float_attribute("alpha", 1.67326319217681884765625),
        op.float_attribute("gamma", 1.05070102214813232421875),
    )
    negative = b("mul", b("expm1", x), alpha)
    return [b("mul", b("where", b("greater", x, 0.0), x, negative), gamma)]


@lowering("Celu")
def _celu(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    alpha = op.float_attribute("alpha", 1.0)
    negative = b("mul", b("expm1", b("div", x, alpha)), alpha)
    return [b("add", b("max", x, 0.0), b("min", negative, 0.0))]


@lowering("HardSigmoid")
def _hard_sigmoid(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    line = b("add", b("mul", x, op.float_attribute("alpha", 0.2)), op.float_attribute("beta", 0.5))
    return [b("max", b("min", line, 1.0), 0.0)]


@lowering("HardSwish")
def _hard_swish(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    line = b("add", b("mul", x, 1 / 6), 0.5)
    return [b("mul", x, b("max", b("min", line, 1.0), 0.0))]


@lowering("Softsign")
def _softsign(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    return [b("div", x, b("add", b("abs", x), 1.0))]


@lowering("Shrink")
def _shrink(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    lambd, bias = op.float_attribute("lambd", 0.5), op.float_attribute("bias", 0.0)
    above = b("where", b("greater", x, lambd), b("sub", x, bias), 0.0)
    return [b("where", b("less", x, -lambd), b("add", x, bias), above)]


def gelu(b: Builder, x: Value, approximate: str) -> Value:
    """GELU: with erf, or with tanh where `approximate` is "tanh" (Hendrycks and Gimpel, arXiv:1606.08415)."""
    if approximate == "tanh":
        cube = b("mul", b("mul", x, x), x)
        inner = b("mul", b("add", x, b("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
        gate = b("tanh", inner)
    else:
        gate = b("erf", b("mul", x, math.sqrt(0.5)))
    return b("mul", b("mul", x, 0.5), b("add", gate, 1.0))


@lowering("Gelu")
def _gelu(op: Operator) -> Sequence[Value]:
    return [gelu(op.build, _float(op), op.attribute("approximate", "none"))]


@lowering("Mish")
def _mish(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    return [b("mul", x, b("tanh", b("softplus", x)))]


@lowering("Swish")
def _swish(op: Operator) -> Sequence[Value]:
    x, b = _float(op), op.build
    alpha = op.float_attribute("alpha", 1.0)
    return [b("mul", x, b("sigmoid", x if alpha == 1 else b("mul", x, alpha)))]


@lowering("SwiGLU")
def _swiglu(op: Operator) -> Sequence[Value]:
    (gate,) = _swish(op)
    linear = op.value(1)
    if linear.shape != gate.shape:
        raise RefusalError("its inputs are not known to have the same shape")
    return [op.build("mul", gate, linear)]
