"""Element-wise arithmetic, comparisons, logic and conversions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import ml_dtypes
import numpy as np

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.types import is_float, is_narrow, size, to_numpy
from onnxfuse.rewrites.fragment import RefusalError, Value
from onnxfuse.rewrites.lowering.operator import LOWERINGS, Operator, lowering

__all__: list[str] = []


def _direct(primitive: str, arity: int) -> None:
    def lower(op: Operator) -> Sequence[Value]:
        return [op.build(primitive, *(op.value(i) for i in range(arity)))]

    LOWERINGS["", str(PRIMITIVES[primitive].onnx)] = lower


# A primitive whose table entry names an operator without attributes computes just that operator.
for _name, _primitive in PRIMITIVES.items():
    if _primitive.onnx and not _primitive.attributes and _primitive.kind == "element" and _name not in ("isinf", "pow"):
        _direct(_name, _primitive.arity)


def _variadic(onnx_name: str, primitive: str) -> None:
    def lower(op: Operator) -> Sequence[Value]:
        values = [op.value(i) for i in range(len(op.inputs))]
        return [reduce(lambda a, b: op.build(primitive, a, b), values)]

    LOWERINGS["", onnx_name] = lower


for _onnx_name, _op in (("Min", "min"), ("Max", "max"), ("Sum", "add")):
    _variadic(_onnx_name, _op)


@lowering("Mean")
def _mean(op: Operator) -> Sequence[Value]:
    values = [op.value(i) for i in range(len(op.inputs))]
    return [op.build("div", reduce(lambda a, b: op.build("add", a, b), values), len(values))]


@lowering("Mod")
def _mod(op: Operator) -> Sequence[Value]:
    return [op.build("fmod" if op.attribute("fmod", 0) else "mod", op.value(0), op.value(1))]


@lowering("Pow")
def _pow(op: Operator) -> Sequence[Value]:
    base, exponent = op.value(0), op.value(1)
    b = op.build
    if exponent.op == "const" and is_float(base.type) and len(exponent.shape) <= len(base.shape):
        # The squares and cubes of spelled-out norms and GELUs are products, as in ONNX Runtime; others are not exact.
        if exponent.const == 1:
            return [b("add", base, -0.0)]
        if exponent.const == 2:
            return [b("mul", base, base)]
        if exponent.const == 3:
            return [b("mul", b("mul", base, base), base)]
    if base.type == exponent.type:
        return [b("pow", base, exponent)]
    if is_float(base.type):
        return [b("pow", base, b.cast(exponent, base.type))]
    if is_float(exponent.type):
        return [b.cast(b("pow", b.cast(base, "f64"), b.cast(exponent, "f64")), base.type)]
    return [b("pow", base, b.cast(exponent, base.type))]


@lowering("BitShift")
def _bit_shift(op: Operator) -> Sequence[Value]:
    x, count, b = op.value(0), op.value(1), op.build
    left = op.attribute("direction", "LEFT") == "LEFT"
    shift = "shift_left" if left else "shift_right"
    if op.opset < 28:
        return [b(shift, x, count)]
    # By less than nothing or all its bits, an element leaves its sign alone; else bits move, in unsigned integers.
    width = 8 * size(x.type)
    if x.type.startswith("u"):
        inside = b("less", count, width)
        return [b("where", inside, b(shift, x, b("where", inside, count, 0)), 0)]
    unsigned = f"u{width}"
    negative = b("less", x, 0)
    inside = b("and", b("less", count, width), b("greater_equal", count, 0))
    by = b.cast(b("where", inside, count, 0), unsigned)
    positive = b.cast(b("where", negative, b("bitwise_not", x), x), unsigned)
    if not left:
        moved = b.cast(b(shift, positive, by), x.type)
        moved = b("where", inside, moved, 0)
        return [b("where", negative, b("bitwise_not", moved), moved)]
    bits = b(shift, b("where", negative, b("bitwise_not", positive), positive), by)
    high = b.cast(b("shift_right", bits, width - 1), "bool")
    moved = b.cast(b("where", high, b("bitwise_not", bits), bits), x.type)
    return [b("where", inside, b("where", high, b("bitwise_not", moved), moved), 0)]


@lowering("IsInf")
def _is_inf(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    positive, negative = bool(op.attribute("detect_positive", 1)), bool(op.attribute("detect_negative", 1))
    if positive and negative:
        return [op.build("isinf", x)]
    if positive or negative:
        return [op.build("equal", x, np.inf if positive else -np.inf)]
    return [op.build("not", op.build("equal", op.build("isnan", x), op.build("isnan", x)))]


@lowering("Clip")
def _clip(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    rank = len(x.shape)
    bounds: list[Value | None] = [None, None]
    if is_float(x.type):  # a missing bound is the type's last finite value: infinities do not pass
        # ONNX Runtime has kernels for float32 alone before opset 12.
        wide = op.opset < 11 or (op.opset < 12 and is_narrow(op.storage(0)))
        limits = ml_dtypes.finfo(to_numpy("f32" if wide else op.storage(0)))  # type: ignore[no-untyped-call]
        low, high = float(limits.min), float(limits.max)
        if op.opset < 11:
            low, high = op.float_attribute("min", low), op.float_attribute("max", high)
        bounds = [op.build.const(low, x.type), op.build.const(high, x.type)]
    if op.opset >= 11:
        bounds = [op.value(i) if op.has(i) else bound for i, bound in zip((1, 2), bounds, strict=True)]
    y = x
    for bound, name in zip(bounds, ("max", "min"), strict=True):
        if bound is not None:
            if any(d != 1 for d in bound.shape):
                raise RefusalError("its bounds are not known to be scalars")
            y = op.build(name, y, op.build.view(bound, ()))
    if y is x:
        y = op.build.view(x, range(rank))
    return [y]


@lowering("Cast")
def _cast(op: Operator) -> Sequence[Value]:
    return [op.build.cast(op.value(0), op.onnx_type(op.attribute("to", 0)))]


@lowering("CastLike")
def _cast_like(op: Operator) -> Sequence[Value]:
    return [op.build.cast(op.value(0), op.storage(1))]
