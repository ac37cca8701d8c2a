"""QuantizeLinear and DequantizeLinear, of the standard and of ONNX Runtime's own domain.

As ONNX Runtime computes them: the division and the product are float32 operations, also where the scale is float16, and
what is quantized is clipped before it is rounded and the zero point is added. NaN becomes some value of the type: ONNX
Runtime's kernels on the CPU give the lowest.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.custom_ops.types import integer_range, is_float, to_onnx
from onnxfuse.rewrites.fragment import Builder, RefusalError, Value
from onnxfuse.rewrites.lowering.contrib import DOMAIN
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__ = ["DEQUANTIZE", "QUANTIZE", "QUANTIZERS"]

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
QUANTIZERS = frozenset((QUANTIZE, DEQUANTIZE))
# The opset from which on it divides in the type of its input by default; ONNX Runtime 1.32 does so, 1.31 does not.
_OWN_PRECISION = 23
_QUANTIZED = ("u8", "i8", "u16", "i16")


def _quantized_type(op: Operator) -> str:
    """The element type that a QuantizeLinear gives. Raises RefusalError for one that no program has."""
    if op.has(2):
        return op.storage(2)
    number = int(op.attribute("output_dtype", 0))
    return op.onnx_type(number) if number else "u8"


def _parameter(op: Operator, i: int, x: Value) -> Value:
    """The scale or the zero point as what goes along with `x`: one number, or a vector along the axis."""
    value = op.value(i)
    if all(d == 1 for d in value.shape) and len(value.shape) < 2:
        return op.build.view(value, ())
    if len(value.shape) != 1:
        raise RefusalError("its scale or zero point is neither a number nor a vector")
    rank, axis = len(x.shape), int(op.attribute("axis", 1))
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank:
        raise RefusalError("its axis does not fit its input")
    if value.shape[0] != x.shape[axis]:
        raise RefusalError("its scale or zero point is not known to have an element for each index of its axis")
    return op.build.along(value, axis, rank)


def _check(op: Operator) -> None:
    """Refuses what no program says, and what ONNX Runtime has no kernels for."""
    if op.attribute("block_size", 0):
        raise RefusalError("it quantizes in blocks")
    if op.storage(1) not in ("f32", "f16"):
        raise RefusalError(f"{op.op_type} with a scale of {op.storage(1)} is left to the runtime")


@lowering(DEQUANTIZE, domain=DOMAIN)
@lowering(DEQUANTIZE)
def _dequantize_linear(op: Operator) -> Sequence[Value]:
    _check(op)
    x, b = op.value(0), op.build
    scale = _parameter(op, 1, x)
    if int(op.attribute("output_dtype", 0)) not in (0, to_onnx(op.storage(1))):
        raise RefusalError("its result has another type than its scale")
    if x.op == "const" or is_float(x.type) or x.type not in (*_QUANTIZED, "i32"):
        raise RefusalError(f"{op.op_type} of {x.type} is left to the runtime")
    zero = _parameter(op, 2, x) if op.has(2) else None
    if zero is not None and zero.type != x.type:
        raise RefusalError("its zero point has another type than its input")
    if zero is not None and zero.op == "const" and zero.const == 0:
        zero = None
    if zero is not None and x.type == "i32":  # float32 does not hold all of these
        x, zero = b("sub", x, zero), None
    y = b.cast(x, "f32")
    if zero is not None:
        y = b("sub", y, b.cast(zero, "f32"))
    return [_of_shape(op, b("mul", y, scale), x)]


@lowering(QUANTIZE, domain=DOMAIN)
@lowering(QUANTIZE)
def _quantize_linear(op: Operator) -> Sequence[Value]:
    _check(op)
    x, b = op.value(0), op.build
    scale = _parameter(op, 1, x)
    own = op.opset >= _OWN_PRECISION and op.domain != DOMAIN
    precision = int(op.attribute("precision", 0)) or (to_onnx(op.storage(0)) if own else 0)
    if op.storage(0) != op.storage(1) or precision not in (0, to_onnx("f32")):
        raise RefusalError("it may divide in another type than float32")
    if x.op == "const":
        raise RefusalError("its input is constant")
    type_ = _quantized_type(op)
    if type_ not in _QUANTIZED:
        raise RefusalError(f"{op.op_type} to {type_} is left to the runtime")
    zero = b.cast(_parameter(op, 2, x), "f32") if op.has(2) else b.const(0.0, "f32")
    low, high = (_bound(b, limit, zero) for limit in integer_range(type_))
    q = b("div", x, scale)
    q = b("round", b("min", b("max", q, low), high))
    if zero.op != "const" or zero.const != 0:
        q = b("add", q, zero)
    return [_of_shape(op, b.cast(q, type_), x)]


def _bound(b: Builder, limit: int, zero: Value) -> Value:
    """A limit of the quantized type before the zero point is added."""
    if zero.op == "const":
        return b.const(limit - float(zero.const), "f32")
    return b("sub", float(limit), zero)


def _of_shape(op: Operator, y: Value, x: Value) -> Value:
    if y.shape != x.shape:
        raise RefusalError(f"what {op.op_type} gives is not known to have its input's shape")
    return y
