"""Primitive operations in standard operators: which, in which type, and spelled how where none computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxfuse.custom_ops.emit import Emitter, NoFunctionError, schema_types
from onnxfuse.custom_ops.primitives import PRIMITIVES, Primitive
from onnxfuse.custom_ops.types import (
    FLOAT_TYPES,
    INTEGER_TYPES,
    from_onnx,
    integer_range,
    is_float,
    is_integer,
    size,
    to_numpy,
)

__all__ = ["compute_type", "narrowed", "spell"]

# Exact in float64 for integers of up to 32 bits, whatever the operands.
_EXACT = (
    "abs",
    "neg",
    "sign",
    "relu",
    "min",
    "max",
    "equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "where",
)
# Right modulo 2^64, so that int64 can stand in for uint64.
_MODULAR = (
    *("add", "sub", "mul", "equal", "where", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    *("scan_sum", "scan_prod"),
)


def compute_type(primitive: Primitive, type_: str, opset: int) -> str | None:
    """The type in which the primitive's operator computes on operands of `type_`, or None where it cannot.

    ONNX Runtime has no kernel for some types that the operator allows; they are widened. A type that nothing holds
    (uint64 comparisons, say) stays where the operator allows it: ONNX Runtime could not run the original either.
    """
    assert primitive.onnx
    operand = 1 if primitive.name == "where" else 0
    allowed = {from_onnx(number) for number in schema_types(primitive.onnx, opset, operand)}
    runnable = allowed & set(primitive.runtime)
    if type_ in runnable:
        return type_
    if not is_float(type_):
        candidates: list[str] = sorted(INTEGER_TYPES, key=size)
        if primitive.name in _EXACT:
            candidates += ["f64", "f32"]
        for wider in candidates:
            if wider in runnable and _holds(wider, type_):
                return wider
        if type_ == "u64" and "i64" in runnable and primitive.name in _MODULAR:
            return "i64"
    return type_ if type_ in allowed else None


def _holds(wider: str, type_: str) -> bool:
    low, high = (0, 1) if type_ == "bool" else integer_range(type_)
    if is_integer(wider):
        wide_low, wide_high = integer_range(wider)
    else:
        wide_high = 2**24 if wider == "f32" else 2**53
        wide_low = -wide_high
    return wide_low <= low and high <= wide_high


def narrowed(emitter: Emitter, op: str, value: str, wide: str, type_: str, *, may_be_empty: bool) -> str:
    """What a reduction that was computed in a wider type gives, in its own.

    The maximum or minimum of nothing is an end of the wider type's range, which a Cast makes one of its own only where
    it is unsigned.
    """
    if may_be_empty and wide != type_ and type_ in ("bool", "i8", "i16", "i32"):
        low, high = (0, 1) if type_ == "bool" else integer_range(type_)
        if op == "reduce_max":
            value = spell(emitter, "max", wide, [value, emitter.scalar(low, wide)])
        elif op == "reduce_min":
            value = spell(emitter, "min", wide, [value, emitter.scalar(high, wide)])
    return emitter.cast(value, wide, type_)


def spell(emitter: Emitter, op: str, type_: str, operands: Sequence[str]) -> str:
    """The name of the value of a primitive (no reduction) on operands of a type (for `where`, that of the last two).

    Raises:
        NoFunctionError: the emitter's opset cannot say it.
    """
    primitive = PRIMITIVES[op]
    special = _SPELLED.get(op)
    if special:
        found = special(emitter, type_, *operands)
        if found is not None:
            return found
    if not primitive.onnx:
        raise NoFunctionError(f"{op} cannot be said in opset {emitter.opset}")
    wide = compute_type(primitive, type_, emitter.opset)
    if wide is None:
        raise NoFunctionError(f"{primitive.onnx} of {type_} does not exist in opset {emitter.opset}")
    kept = 1 if op == "where" else 0
    widened = [x if place < kept else emitter.cast(x, type_, wide) for place, x in enumerate(operands)]
    value = emitter.node(primitive.onnx, widened, **primitive.attributes)
    return emitter.cast(value, wide, type_) if primitive.result == "same" else value


def _expm1(e: Emitter, type_: str, x: str) -> str:
    # exp(x) - 1 cancels near 0; there 2t / (1 - t) with t = tanh(x / 2) is the same and does not.
    one = e.scalar(1, type_)
    t = e.node("Tanh", [e.node("Mul", [x, e.scalar(0.5, type_)])])
    near = e.node("Div", [e.node("Add", [t, t]), e.node("Sub", [one, t])])
    far = e.node("Sub", [e.node("Exp", [x]), one])
    small = e.node("Less", [e.node("Abs", [x]), one])
    return spell(e, "where", type_, [small, near, far])


def _log1p(e: Emitter, type_: str, x: str) -> str:
    # Kahan: with u = 1 + x as rounded, log(u) * x / (u - 1) makes good for the rounding. Where u is x there is nothing
    # to make good; where u is 1, log(1 + x) is x.
    one = e.scalar(1, type_)
    u = e.node("Add", [x, one])
    log = e.node("Log", [u])
    ratio = e.node("Div", [x, e.node("Sub", [u, one])])
    corrected = spell(e, "where", type_, [spell(e, "equal", type_, [u, x]), log, e.node("Mul", [log, ratio])])
    return spell(e, "where", type_, [spell(e, "equal", type_, [u, one]), x, corrected])


def _round_to(narrow: str) -> Callable[[Emitter, str, str], str]:
    return lambda e, type_, x: e.cast(e.cast(x, type_, narrow), narrow, type_)


def _mod(e: Emitter, type_: str, a: str, b: str) -> str | None:
    if not is_float(type_):
        return None
    # Mod of floats is C's fmod only; the sign of the divisor is brought about here.
    zero = e.scalar(0, type_)
    r = spell(e, "fmod", type_, [a, b])
    other_sign = e.node("Xor", [e.node("Less", [r, zero]), e.node("Less", [b, zero])])
    wrong = e.node("And", [other_sign, e.node("Not", [spell(e, "equal", type_, [r, zero])])])
    size = e.node("Abs", [spell(e, "where", type_, [wrong, e.node("Add", [r, b]), r])])
    return e.node("Mul", [size, e.node("Sign", [b])])  # ONNX Runtime's Where loses the sign of a zero


def _neg(e: Emitter, type_: str, x: str) -> str | None:
    if type_.startswith("u"):
        return spell(e, "sub", type_, [e.scalar(0, type_), x])
    return None


def _relu(e: Emitter, type_: str, x: str) -> str | None:
    if is_float(type_) or compute_type(PRIMITIVES["relu"], type_, e.opset) in PRIMITIVES["relu"].runtime:
        return None
    return spell(e, "max", type_, [x, e.scalar(0, type_)])


def _isnan(e: Emitter, type_: str, x: str) -> str | None:
    if e.opset >= 9:
        return None
    zero = e.scalar(0, type_)  # NaN is neither below nor above 0, and not 0
    ordered = e.node("Or", [e.node("Less", [x, zero]), e.node("Greater", [x, zero])])
    return e.node("And", [e.cast(x, type_, "bool"), e.node("Not", [ordered])])


def _isinf(e: Emitter, type_: str, x: str) -> str | None:
    if e.opset >= 10:
        return None
    return e.node("Greater", [e.node("Abs", [x]), e.scalar(float(np.finfo(to_numpy(type_)).max), type_)])


def _equal(e: Emitter, type_: str, a: str, b: str) -> str | None:
    if not is_float(type_) or e.opset >= 11:
        return None
    unordered = e.node("Or", [spell(e, "isnan", type_, [a]), spell(e, "isnan", type_, [b])])
    apart = e.node("Or", [e.node("Less", [a, b]), e.node("Greater", [a, b])])
    return e.node("Not", [e.node("Or", [apart, unordered])])


def _or_equal(strict: str) -> Callable[[Emitter, str, str, str], str | None]:
    def spelled(e: Emitter, type_: str, a: str, b: str) -> str | None:
        if e.opset >= 12:
            return None
        return e.node("Or", [spell(e, strict, type_, [a, b]), spell(e, "equal", type_, [a, b])])

    return spelled


def _clip(bound: str) -> Callable[[Emitter, str, str, str], str | None]:
    def spelled(e: Emitter, type_: str, a: str, b: str) -> str | None:
        if e.opset >= 8:
            return None
        # Min and Max do not broadcast yet; Clip serves a constant.
        for x, limit in ((a, b), (b, a)):
            constant = e.constant_value(limit)
            if constant is not None and constant.size == 1 and type_ in FLOAT_TYPES:
                return e.node("Clip", [x], **{bound: float(constant)})
        raise NoFunctionError(f"opset {e.opset} has no broadcasting in {'Max' if bound == 'min' else 'Min'}")

    return spelled


_SPELLED: dict[str, Callable[..., str | None]] = {
    "expm1": _expm1,
    "log1p": _log1p,
    "round_f16": _round_to("f16"),
    "round_bf16": _round_to("bf16"),
    "mod": _mod,
    "neg": _neg,
    "relu": _relu,
    "isnan": _isnan,
    "isinf": _isinf,
    "equal": _equal,
    "less_equal": _or_equal("less"),
    "greater_equal": _or_equal("greater"),
    "min": _clip("max"),
    "max": _clip("min"),
}
