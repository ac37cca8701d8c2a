"""Every primitive of the table for every type that it has, on the CPU, against its value in float64."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_runner import Array, run, ulps

from onnxfuse.custom_ops.formulas import FORMULAS
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.types import VALUE_TYPES, integer_range, is_float, to_numpy

# Rounded correctly: the machine does them, or they only move bits.
EXACT = {
    *("abs", "neg", "sign", "reciprocal", "sqrt", "ceil", "floor", "round", "relu", "add", "sub", "mul", "div", "fmod"),
    *("min", "max", "where", "round_f16", "round_bf16"),
}
LIMIT = 4.0  # units in the last place, of the others
# Which of two zeros comes out is the machine's affair.
FREE_ZEROS = {"relu", "min", "max", "where"}

CASES = [(name, type_) for name, row in PRIMITIVES.items() if row.kind == "element" for type_ in row.types]


def program(name: str, type_: str) -> str:
    row = PRIMITIVES[name]
    types = ["bool", type_, type_] if name == "where" else [type_] * row.arity
    lines = ["onnxfuse 1", "space d0"]
    lines += [f"%{i} = input {i} {t} [d0]" for i, t in enumerate(types)]
    operands = " ".join(f"%{i}" for i in range(row.arity))
    result = row.result_type(type_)
    lines += [f"%{row.arity} = {name} {result} {operands}", f"output 0 {result} [d0] %{row.arity}"]
    return "\n".join(lines) + "\n"


def floats(type_: str, rng: np.random.Generator) -> Array:
    """Special values, all magnitudes, and the ranges where functions bend."""
    dtype = to_numpy(type_)
    info = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, -2.5, 2.0, float(info.max), float(info.min)]
    special += [float(info.tiny), -float(info.tiny), float(info.smallest_subnormal), float(info.tiny) / 3, 1e-30, 3e37]
    bits = rng.integers(0, 2**32, 20000, np.uint32).view(np.float32) if type_ == "f32" else np.empty(0)
    wide = np.exp(rng.uniform(-80, 80, 4000)) * rng.choice([-1, 1], 4000)
    near = [rng.uniform(-r, r, 6000) for r in (1, 4, 20, 105)]
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(special), bits.astype(np.float64), wide, *near]).astype(dtype)


def integers(type_: str, rng: np.random.Generator) -> Array:
    low, high = integer_range(type_)
    special = [v for v in (low, low + 1, -2, -1, 0, 1, 2, 3, 7, high - 1, high) if low <= v <= high]
    some = rng.integers(max(low, -100), min(high, 100), 3000, endpoint=True)
    dtype = to_numpy(type_)
    return np.concatenate([np.array(special, dtype), some.astype(dtype), rng.integers(low, high, 1000, dtype, True)])


def operands(name: str, type_: str) -> list[Array]:
    """Arrays of one length; the special values of binary operations meet each other."""
    rng = np.random.default_rng(hash_of(name, type_))
    make = floats if is_float(type_) else integers

    def column(t: str, seed: int) -> Array:
        if t == "bool":
            return np.random.default_rng(seed).integers(0, 2, 5000).astype(bool)
        return make(t, np.random.default_rng(seed))

    arity = PRIMITIVES[name].arity
    if arity == 1:
        return [column(type_, 1)]
    a, b = column(type_, 1), column(type_, 2)
    b = b[rng.permutation(b.size)][: a.size]
    a = a[: b.size]
    few = 19 if is_float(type_) else 2 if type_ == "bool" else 8
    a = np.concatenate([np.repeat(column(type_, 1)[:few], few), a])
    b = np.concatenate([np.tile(column(type_, 1)[:few], few), b])
    if name == "where":
        return [rng.integers(0, 2, a.size).astype(bool), a, b]
    if name in ("shift_left", "shift_right"):
        b = b % np.array(8 * b.itemsize, b.dtype)
    if name == "pow" and not is_float(type_):
        a, b = np.clip(a, 0 if type_[0] == "u" else -3, 3), np.clip(b, 0, 4)
    return [a, b]


def hash_of(*words: str) -> int:
    return sum(ord(c) * (i + 1) for i, c in enumerate("".join(words)))


@pytest.mark.parametrize(("name", "type_"), CASES, ids=str)
def test_primitive(name: str, type_: str) -> None:
    xs = operands(name, type_)
    (actual,) = run(program(name, type_), *xs)
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in xs]
        expected: Any = np.asarray(FORMULAS[name](*wide))
    if actual.dtype.kind != "f":
        if name in ("div", "mod", "fmod") and actual.dtype.kind in "iu":
            expected = np.where(xs[1] == 0, 0, expected).astype(actual.dtype)  # division by zero gives zero
        np.testing.assert_array_equal(actual, expected.astype(actual.dtype))
        return
    error = ulps(actual, expected.astype(np.float64))
    worst = int(error.argmax())
    limit = 0.0 if name in EXACT else LIMIT
    assert error[worst] <= (0.5 if limit == 0 else limit), (
        f"{name} of {[x[worst] for x in xs]}: {actual[worst]!r} instead of {expected[worst]!r}, {error[worst]} ulp"
    )
    if name not in FREE_ZEROS:
        zero = (actual == 0) & (expected == 0)
        np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize(("low", "high", "step"), [(0.0, 1.0, 641), (1.0, 2.0, 1), (2.0, 4.0, 1), (4.0, 104.0, 41)])
def test_sigmoid_of_every_float_of_a_range(low: float, high: float, step: int) -> None:
    """Between -4 and -1 the errors of the exponential, the sum and the quotient come together."""
    first, last = (int(np.float32(bound).view(np.uint32)) for bound in (low, high))
    bits = np.arange(first, last, step, dtype=np.uint32)
    for x in (bits.view(np.float32), -bits.view(np.float32)):
        error = ulps(run(program("sigmoid", "f32"), x)[0], 1 / (1 + np.exp(-x.astype(np.float64))))
        assert error.max() <= LIMIT, f"{x[error.argmax()]!r}: {error.max()}"


def test_functions_reach_their_limits() -> None:
    far = np.array([4, 5, 9.5, 40, 1e10, 3e38, np.inf] * 5, np.float32)
    for name, limit in (("erf", 1), ("tanh", 1), ("sigmoid", 1)):
        x = far[far > 9.1] if name == "tanh" else far[far > 17] if name == "sigmoid" else far
        np.testing.assert_array_equal(run(program(name, "f32"), x)[0], np.float32(limit))
    for name in ("erf", "tanh"):
        np.testing.assert_array_equal(run(program(name, "f32"), -far[far > 9.1])[0], np.float32(-1))
    np.testing.assert_array_equal(run(program("exp", "f32"), -far[far > 200])[0], np.float32(0))


@pytest.mark.parametrize(("source", "target"), [(s, t) for s in VALUE_TYPES for t in VALUE_TYPES if s != t])
def test_cast(source: str, target: str) -> None:
    rng = np.random.default_rng(3)
    if source == "bool":
        x = rng.integers(0, 2, 1000).astype(bool)
    elif is_float(source):
        x = np.concatenate(
            [rng.uniform(-300, 300, 500), [0.0, -0.0, 0.25, 2.0**31, 1e18, 2.0**63, np.nan, np.inf, -1e30]]
        )
        x = x.astype(to_numpy(source))
    else:
        x = integers(source, rng)
    text = f"onnxfuse 1\nspace d0\n%0 = input 0 {source} [d0]\n%1 = cast {target} %0\noutput 0 {target} [d0] %1\n"
    (actual,) = run(text, x)
    fits = np.ones(x.size, bool)
    if is_float(source) and target not in ("bool", "f32", "f64"):
        low, high = integer_range(target)
        with np.errstate(all="ignore"):
            wide = np.trunc(x.astype(np.float64))
        fits = (wide >= low) & (wide < float(high) + 1)  # the rest may become anything
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(actual[fits], x[fits].astype(to_numpy(target)))


def test_shifts_by_the_width_or_more_give_zero() -> None:
    x = np.array([1, 255, 255, 129], np.uint8)
    by = np.array([8, 9, 200, 7], np.uint8)
    np.testing.assert_array_equal(run(program("shift_left", "u8"), x, by)[0], [0, 0, 0, 128])
    np.testing.assert_array_equal(run(program("shift_right", "u8"), x, by)[0], [0, 0, 0, 1])
    x64, by64 = np.array([3, 3], np.uint64), np.array([63, 64], np.uint64)
    np.testing.assert_array_equal(run(program("shift_left", "u64"), x64, by64)[0], np.array([1 << 63, 0], np.uint64))


@pytest.mark.parametrize("type_", ["i8", "i16", "i32", "i64"])
def test_least_integer_by_minus_one_does_not_trap(type_: str) -> None:
    low = integer_range(type_)[0]
    x, by = (np.array([v, v], to_numpy(type_)) for v in (low, -1))
    np.testing.assert_array_equal(run(program("div", type_), x, by)[0], x)
    np.testing.assert_array_equal(run(program("mod", type_), x, by)[0], [0, 0])
    np.testing.assert_array_equal(run(program("fmod", type_), x, by)[0], [0, 0])


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, 1.0, -1.0, 4.0])
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_constant_exponent(type_: str, exponent: float) -> None:
    x = floats(type_, np.random.default_rng(5))
    text = (
        f"onnxfuse 1\nspace d0\n%0 = input 0 {type_} [d0]\n%1 = const {type_} {exponent}\n"
        f"%2 = pow {type_} %0 %1\noutput 0 {type_} [d0] %2\n"
    )
    with np.errstate(all="ignore"):
        assert ulps(run(text, x)[0], np.power(x.astype(np.float64), np.full(x.size, exponent))).max() <= 2


@pytest.mark.parametrize("bound", ["0.0", "-0.0", "3.0", "-2.5", "nan", "inf", "-inf", "1e-45"])
@pytest.mark.parametrize("lines", ["{op} f32 %0 %1\n%4 = mul f32 %3 %2", "mul f32 %0 %2\n%4 = {op} f32 %3 %1"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_bounds(op: str, lines: str, bound: str) -> None:
    """In a chain, from memory and from the step before; whole blocks and what is left: of equal zeros, the second."""
    rng = np.random.default_rng(6)
    c = np.float32(bound)
    x = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -2.5, 3, 7, -9, c], np.float32), 1027)
    text = (
        f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = const f32 {bound}\n%2 = const f32 1.0\n"
        f"%3 = {lines.format(op=op)}\noutput 0 f32 [d0] %4\n"
    )
    expected = np.where(x > c if op == "max" else x < c, x, c)
    expected = np.where(np.isnan(x), x, expected)
    (y,) = run(text, x)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(y[kept].view(np.uint32), expected[kept].view(np.uint32))


@pytest.mark.skipif("ONNXFUSE_CPU" in os.environ, reason="is the inner run")
@pytest.mark.parametrize("instructions", ["baseline", "avx2"])
def test_older_machines(instructions: str) -> None:
    """The library picks its loops once for a process, so the tests of those for older machines run in another one."""
    folder = Path(__file__).parent
    files = [str(folder / name) for name in ("test_cpu_primitives.py", "test_cpu_engine.py", "test_cpu_bytes.py")]
    result = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env=os.environ | {"ONNXFUSE_CPU": instructions},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:]
