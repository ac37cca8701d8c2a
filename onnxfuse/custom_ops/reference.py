"""A small interpreter of programs in numpy: what they mean, independent of the lowering and of both back ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnxfuse.custom_ops.program import Apply, Const, Entry, Input, Kernel, Map, Output, Program
from onnxfuse.custom_ops.types import is_float, is_narrow, to_numpy, value_type

__all__ = ["FORMULAS", "REDUCTIONS", "evaluate"]

Array: TypeAlias = npt.NDArray[Any]


def evaluate(program: Program, inputs: Sequence[Array], float64: bool = False) -> list[Array]:
    """The program's outputs.

    Args:
        program: a verified program.
        inputs: arrays of the types and ranks of `program.inputs`; float32 may stand in for f16 and bf16, which makes
            the outputs of that type float32, rounded through it.
        float64: compute all floats in float64, and give all float outputs as float64, not rounded. `round_f16` and
            `round_bf16` still round.

    Raises:
        ValueError: shapes that do not fit the program; the message names the input.
    """
    arrays = [np.asarray(x) for x in inputs]
    results: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            run = _Run(kernel, arrays, float64)
            values = run.values()
            for output in kernel.outputs:
                run.store(output, values[output.value], results)
    declared = [type_ for type_, _ in program.inputs]
    widened = {t for t, x in zip(declared, arrays, strict=True) if is_narrow(t) and x.dtype == np.float32}
    finished = []
    for number, (type_, _) in enumerate(program.outputs):
        result = results[number]
        if not (float64 and is_float(type_)):
            with np.errstate(all="ignore"):
                result = result.astype(to_numpy(type_))
            result = result.astype(np.float32) if type_ in widened else result
        finished.append(result)
    return finished


class _Run:
    """One kernel on actual inputs. Values are arrays of the space's rank, of extent 1 where they do not depend."""

    def __init__(self, kernel: Kernel, inputs: Sequence[Array], float64: bool) -> None:
        self.kernel = kernel
        self.inputs = inputs
        self.float64 = float64
        self.extents = [self.extent(k) for k in range(kernel.rank)]

    def dtype(self, type_: str) -> np.dtype[Any]:
        return np.dtype(np.float64) if self.float64 and is_float(type_) else to_numpy(value_type(type_))

    def extent(self, k: int) -> int:
        """The extent of dk: what the program says, or what its tensors show. An extent of 1 is broadcast."""
        extent = self.kernel.extents[k]
        for statement in self.kernel.statements:
            if not isinstance(statement, Input):
                continue
            for axis, entry in enumerate(statement.map):
                shown = self.inputs[statement.tensor].shape[axis]
                if entry.whole != k or shown == 1:
                    continue
                if extent not in (None, shown):
                    raise ValueError(f"input {statement.tensor} has extent {shown} along d{k}, expected {extent}")
                extent = shown
        return 1 if extent is None else extent

    def index(self, map_: Map, dims: Sequence[int]) -> tuple[Array, ...]:
        """For each entry, the indices as an array over the dimensions."""
        grid = dict(zip(dims, np.ogrid[tuple(slice(self.extents[k]) for k in dims)], strict=True)) if dims else {}

        def affine(entry: Entry) -> Array:
            total = np.full((1,) * len(dims), entry.offset, np.int64)
            for k, scale in entry.terms:
                total = total + scale * grid[k]
            return total

        return tuple(affine(entry) for entry in map_)

    def values(self) -> list[Array]:
        found: list[Array] = []
        for statement in self.kernel.statements:
            if isinstance(statement, Input):
                found.append(self.read(statement))
            elif isinstance(statement, Const):
                constant = np.array(statement.value, to_numpy(statement.type)).astype(self.dtype(statement.type))
                found.append(constant.reshape((1,) * self.kernel.rank))
            else:
                found.append(self.apply(statement, [found[operand] for operand in statement.operands]))
        return found

    def read(self, statement: Input) -> Array:
        x = self.inputs[statement.tensor].astype(self.dtype(statement.type))
        plain = [entry.whole for entry in statement.map if entry.whole is not None]
        if len(set(plain)) == len(statement.map):  # no index needed; large tensors are read this way
            missing = [k for k in range(self.kernel.rank) if k not in plain]
            return np.expand_dims(np.transpose(x, np.argsort(plain)), missing)
        index = []
        for axis, (entry, indices) in enumerate(
            zip(statement.map, self.index(statement.map, range(self.kernel.rank)), strict=True)
        ):
            extent = x.shape[axis]
            if entry.extent not in (None, extent):
                raise ValueError(f"input {statement.tensor}: dimension {axis} is {extent}, expected {entry.extent}")
            if entry.whole is not None and extent == 1:
                indices = np.zeros_like(indices)  # noqa: PLW2901 - broadcast
            if indices.size and not (indices.min() >= 0 and indices.max() < extent):
                raise ValueError(f"input {statement.tensor}: '{entry}' is out of extent {extent} of dimension {axis}")
            index.append(indices)
        return x[tuple(index)] if index else x.reshape((1,) * self.kernel.rank)

    def apply(self, statement: Apply, operands: list[Array]) -> Array:
        dtype = self.dtype(statement.type)
        if statement.op == "cast":
            return operands[0].astype(dtype)
        if statement.op in REDUCTIONS:
            x = operands[0]
            dims = self.kernel.reduced_dims
            x = np.broadcast_to(x, [self.extents[k] if k in dims else n for k, n in enumerate(x.shape)])
            return REDUCTIONS[statement.op](x, tuple(sorted(dims))).astype(dtype)
        return np.asarray(FORMULAS[statement.op](*operands)).astype(dtype)

    def store(self, output: Output, value: Array, results: dict[int, Array]) -> None:
        dims = sorted(k for entry in output.map for k, _ in entry.terms)
        shape = []
        for entry in output.map:
            natural = self.extents[entry.plain] if entry.plain is not None else 1
            shape.append(natural if entry.extent is None else entry.extent)
        if output.tensor not in results:
            results[output.tensor] = np.zeros(shape, value.dtype)
        target = results[output.tensor]
        if target.shape != tuple(shape):
            raise ValueError(f"output {output.tensor} has shape {target.shape} in one place, {tuple(shape)} in another")
        value = value.reshape([value.shape[k] for k in dims])
        target[self.index(output.map, dims)] = np.broadcast_to(value, [self.extents[k] for k in dims])


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


def _max(x: Array, axes: tuple[int, ...]) -> Array:
    lowest = {"f": -np.inf, "b": False}.get(x.dtype.kind)
    return np.asarray(np.max(x, axes, keepdims=True, initial=np.iinfo(x.dtype).min if lowest is None else lowest))


def _min(x: Array, axes: tuple[int, ...]) -> Array:
    highest = {"f": np.inf, "b": True}.get(x.dtype.kind)
    return np.asarray(np.min(x, axes, keepdims=True, initial=np.iinfo(x.dtype).max if highest is None else highest))


REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "reduce_sum": _sum,
    "reduce_prod": _prod,
    "reduce_max": _max,
    "reduce_min": _min,
    "reduce_mean": _mean,
}
