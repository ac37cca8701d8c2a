"""The values of the primitives in numpy, of arrays of their operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = ["ARGUMENTS", "FORMULAS", "REDUCTIONS", "SCANS", "argument", "scan"]

Array: TypeAlias = npt.NDArray[Any]


def _integer(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _guarded(b: Array) -> Array:
    return np.where(b == 0, np.ones((), b.dtype), b)


def _divide(a: Array, b: Array) -> Array:
    if not _integer(a):
        return np.asarray(a / b)
    b = _guarded(b)
    quotient = np.floor_divide(a, b)
    # Integers are divided as in C: towards zero.
    return np.asarray(np.where((quotient < 0) & (quotient * b != a), quotient + np.ones((), a.dtype), quotient))


def _pow(a: Array, b: Array) -> Array:
    if not _integer(a):
        return np.asarray(np.power(a, b))
    negative = b < 0
    power = np.power(a, np.where(negative, np.zeros((), b.dtype), b))
    inverse = np.where(a == 1, 1, np.where(a + np.ones((), a.dtype) == 0, np.where(b % 2 == 0, 1, -1), 0))
    return np.asarray(np.where(negative, inverse, power))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, small, np.ones((), x.dtype)) / (1 + small))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)))


# The value of each primitive, of arrays of its operands.
FORMULAS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "neg": np.negative,
    "sign": np.sign,
    "reciprocal": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "softplus": lambda a: np.logaddexp(a, np.zeros((), a.dtype)),
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.rint,
    "relu": lambda a: np.maximum(a, np.zeros((), a.dtype)),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "round_f16": lambda a: a.astype(np.float16),
    "round_bf16": lambda a: a.astype(ml_dtypes.bfloat16),
    "not": np.logical_not,
    "bitwise_not": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "mod": lambda a, b: np.mod(a, _guarded(b) if _integer(b) else b),
    "fmod": lambda a, b: np.fmod(a, _guarded(b) if _integer(b) else b),
    "pow": _pow,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "where": np.where,
}


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    wide = np.float64 if x.dtype.kind == "f" else x.dtype  # integers wrap in their own type
    return np.asarray(np.sum(x, axes, dtype=wide, keepdims=True))


def _prod(x: Array, axes: tuple[int, ...]) -> Array:
    wide = np.float64 if x.dtype.kind == "f" else x.dtype
    return np.asarray(np.prod(x, axes, dtype=wide, keepdims=True))


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    count = math.prod(x.shape[axis] for axis in axes)
    if x.dtype.kind == "f":
        return np.asarray(_sum(x, axes) / np.float64(count))
    return _divide(_sum(x, axes), np.array(max(count, 1)).astype(x.dtype))


def _lowest(dtype: np.dtype[Any]) -> Any:
    lowest = {"f": -np.inf, "b": False}.get(dtype.kind)
    return np.iinfo(dtype).min if lowest is None else lowest


def _highest(dtype: np.dtype[Any]) -> Any:
    highest = {"f": np.inf, "b": True}.get(dtype.kind)
    return np.iinfo(dtype).max if highest is None else highest


def _max(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.max(x, axes, keepdims=True, initial=_lowest(x.dtype)))


def _min(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.min(x, axes, keepdims=True, initial=_highest(x.dtype)))


REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "reduce_sum": _sum,
    "reduce_prod": _prod,
    "reduce_max": _max,
    "reduce_min": _min,
    "reduce_mean": _mean,
}

# The accumulated function of each scan, and what stands before the first operand.
SCANS: dict[str, tuple[np.ufunc, Callable[[np.dtype[Any]], Any]]] = {
    "scan_sum": (np.add, lambda _: 0),
    "scan_prod": (np.multiply, lambda _: 1),
    "scan_max": (np.maximum, _lowest),
    "scan_min": (np.minimum, _highest),
}


def scan(op: str, x: Array, axis: int, flags: tuple[str, ...]) -> Array:
    """A scan along one axis; floats are accumulated in (and given as) float64."""
    combine, identity = SCANS[op]
    x = np.moveaxis(x.astype(np.float64) if x.dtype.kind == "f" else x, axis, 0)
    x = x[::-1] if "reverse" in flags else x
    result: Array = np.asarray(combine.accumulate(x, axis=0, dtype=x.dtype)) if len(x) else x
    if "exclusive" in flags:
        first = np.full_like(result[:1], identity(x.dtype))
        result = np.concatenate([first, result[:-1]])
    return np.moveaxis(result[::-1] if "reverse" in flags else result, 0, axis)


ARGUMENTS: dict[str, Callable[..., Any]] = {"reduce_argmax": np.argmax, "reduce_argmin": np.argmin}


def argument(op: str, x: Array, axis: int, flags: tuple[str, ...]) -> Array:
    """The index of the greatest or smallest element along one axis, which goes; numpy too has a NaN win."""
    count = x.shape[axis]
    if not count:
        return np.zeros([n for k, n in enumerate(x.shape) if k != axis], np.int64)
    if "last" in flags:
        return np.asarray(count - 1 - ARGUMENTS[op](np.flip(x, axis), axis))
    return np.asarray(ARGUMENTS[op](x, axis))
