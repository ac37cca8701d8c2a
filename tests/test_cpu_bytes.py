"""Bools and integers of 8 bits beside floats on the CPU engine, to the bit: bytes in memory, vectors in pipelines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cpu_runner import Array, run

SIZES = [1, 15, 127, 128, 129, 300, 1100]  # around the blocks of pipelines
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-45, -1e-45, 3e38], np.float32)
COMPARISONS = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def floats(*shape: int) -> Array:
    """Special values at places that differ, so that each meets each."""
    rng = np.random.default_rng(shape)
    values = rng.normal(size=shape).astype(np.float32)
    special = rng.choice(SPECIAL, shape)
    return np.where(rng.random(shape) < 0.4, special, values)


def bools(*shape: int) -> Array:
    return np.random.default_rng(shape).random(shape) < 0.5


def program(lines: str, *outputs: str, space: str = "d0 d1") -> str:
    stored = [f"output {k} {output}" for k, output in enumerate(outputs)]
    return "\n".join(
        ["onnxfuse 1", f"space {space}", *(line.strip() for line in lines.strip().split("\n")), *stored, ""]
    )


def expect(text: str, inputs: list[Array], *expected: Array) -> None:
    for found, value in zip(run(text, *inputs), expected, strict=True):
        wanted = np.broadcast_to(value, found.shape)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        if wanted.dtype == np.float32:
            numbers = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("second", ["d0, d1", "d1", "d0, 0", "const"])
def test_comparisons(op: str, second: str, n: int) -> None:
    """The bool is stored, chooses, and becomes a number."""
    x = floats(3, n)
    shapes = {"d0, d1": (3, n), "d1": (n,), "d0, 0": (3, 1)}
    other = np.float32(0.5) if second == "const" else np.resize(floats(3 * n + 1)[1:], shapes[second])
    given = "const f32 0.5" if second == "const" else f"input 1 f32 [{second}]"
    text = program(
        f"""%0 = input 0 f32 [d0, d1]
        %1 = {given}
        %2 = neg f32 %0
        %3 = {op} bool %2 %1
        %4 = where f32 %3 %0 %2
        %5 = cast f32 %3
        %6 = add f32 %5 %5""",
        "bool [d0, d1] %3",
        "f32 [d0, d1] %4",
        "f32 [d0, d1] %6",
    )
    right = COMPARISONS[op](-x, other)
    inputs = [x] if second == "const" else [x, other]
    expect(text, inputs, right, np.where(right, x, -x), 2 * right.astype(np.float32))


@pytest.mark.parametrize(("a", "b"), itertools.product(["memory", "block", "const", "row"], repeat=2))
@pytest.mark.parametrize("condition", ["input", "compared", "row"])
def test_choices(condition: str, a: str, b: str) -> None:
    x, y, flags = floats(3, 300), floats(1, 300), bools(3, 300)
    lines = ["%0 = input 0 f32 [d0, d1]", "%1 = input 1 f32 [0, d1]", "%2 = const f32 -7.0"]
    lines += ["%3 = input 2 bool [d0, d1]" if condition != "row" else "%3 = input 2 bool [d0, 0]"]
    values = {"memory": ("%0", x), "const": ("%2", np.float32(-7)), "row": ("%1", y), "block": ("%5", -x)}
    lines += ["%4 = greater bool %0 %1" if condition == "compared" else "%4 = not bool %3", "%5 = neg f32 %0"]
    lines += [f"%6 = where f32 %4 {values[a][0]} {values[b][0]}", "%7 = neg f32 %6"]
    if condition == "compared":
        lines += ["%8 = not bool %3"]
    given = flags[:, :1] if condition == "row" else flags
    chosen = x > y if condition == "compared" else ~given
    outputs = ["f32 [d0, d1] %7", "f32 [d0, d1] %6"] + (["bool [d0, d1] %8"] if condition == "compared" else [])
    right = np.where(chosen, values[a][1], values[b][1]).astype(np.float32)
    expected = [-right, right] + ([~flags] if condition == "compared" else [])
    expect(program("\n".join(lines), *outputs), [x, y, given], *expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", LOGIC)
def test_logic(op: str, n: int) -> None:
    x, y, flags = floats(2, n), floats(2, n), bools(2, n)
    text = program(
        f"""%0 = input 0 f32 [d0, d1]
        %1 = input 1 f32 [d0, d1]
        %2 = input 2 bool [d0, d1]
        %3 = isnan bool %0
        %4 = isinf bool %1
        %5 = {op} bool %3 %4
        %6 = {op} bool %2 %5
        %7 = not bool %6
        %8 = {op} bool %7 %7
        %9 = where f32 %7 %0 %1""",
        "bool [d0, d1] %5",
        "bool [d0, d1] %8",
        "f32 [d0, d1] %9",
    )
    of = LOGIC[op]
    first = of(np.isnan(x), np.isinf(y))
    second = ~of(flags, first)
    expect(text, [x, y, flags], first, of(second, second), np.where(second, x, y))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", COMPARISONS)
@pytest.mark.parametrize("type_", ["i32", "i64"])
def test_comparisons_of_integers(type_: str, op: str, n: int) -> None:
    """A class of rows against one of columns, and against a number; what is compared becomes a float as well."""
    dtype = np.dtype({"i32": "int32", "i64": "int64"}[type_])
    rng = np.random.default_rng(n)
    large = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0], dtype)
    x, row, column = (
        np.where(rng.random(s) < 0.3, rng.choice(large, s), rng.integers(-3, 3, s)).astype(dtype)
        for s in ((3, n), (1, n), (3, 1))
    )
    text = program(
        f"""%0 = input 0 {type_} [d0, d1]
        %1 = input 1 {type_} [0, d1]
        %2 = input 2 {type_} [d0, 0]
        %3 = {op} bool %2 %1
        %4 = cast f32 %3
        %5 = cast f32 %0
        %6 = add f32 %4 %5
        %7 = const {type_} 1
        %8 = {op} bool %0 %7
        %9 = where f32 %8 %6 %5""",
        "bool [d0, d1] %3",
        "f32 [d0, d1] %6",
        "f32 [d0, d1] %9",
    )
    first, second = COMPARISONS[op](column, row), COMPARISONS[op](x, dtype.type(1))
    total = first.astype(np.float32) + x.astype(np.float32)
    expect(text, [x, row, column], first, total, np.where(second, total, x.astype(np.float32)))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("type_", ["u8", "i8"])
def test_bytes_to_bytes(type_: str, n: int) -> None:
    """As a DequantizeLinear and a QuantizeLinear compute them."""
    dtype = np.dtype({"u8": "uint8", "i8": "int8"}[type_])
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.random.default_rng(n).integers(low, high, (2, n), dtype, endpoint=True)
    y = floats(2, n)
    text = program(
        f"""%0 = input 0 {type_} [d0, d1]
        %1 = cast f32 %0
        %2 = const f32 3.0
        %3 = sub f32 %1 %2
        %4 = const f32 0.5
        %5 = mul f32 %3 %4
        %6 = input 1 f32 [d0, d1]
        %7 = max f32 %6 %5
        %8 = const f32 0.3
        %9 = div f32 %7 %8
        %10 = round f32 %9
        %11 = const f32 {low}.0
        %12 = max f32 %10 %11
        %13 = const f32 {high}.0
        %14 = min f32 %12 %13
        %15 = cast {type_} %14""",
        f"{type_} [d0, d1] %15",
        "f32 [d0, d1] %7",
    )
    y[np.isnan(y) | (y == 0)] = 0  # which of two zeros is the maximum is the machine's affair
    most = np.maximum((x.astype(np.float32) - 3) / 2, y)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(most / np.float32(0.3))
    expect(text, [x, y], np.clip(steps, low, high).astype(dtype), most)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("type_", ["u8", "i8"])
def test_bytes_of_rows(type_: str, n: int) -> None:
    """Bytes that are the same for a row or a column, beside floats; the result goes into a reduction."""
    dtype = np.dtype({"u8": "uint8", "i8": "int8"}[type_])
    rng = np.random.default_rng(n)
    row, column = rng.integers(0, 100, (1, n)).astype(dtype), rng.integers(0, 100, (5, 1)).astype(dtype)
    x = rng.integers(-50, 50, (5, n)).astype(np.float32)
    text = program(
        f"""%0 = input 0 {type_} [0, d1]
        %1 = input 1 {type_} [d0, 0]
        %2 = cast f32 %0
        %3 = cast f32 %1
        %4 = input 2 f32 [d0, d1]
        %5 = add f32 %2 %4
        %6 = add f32 %5 %3
        %7 = reduce_max f32 %6
        %8 = cast {type_} %7
        %9 = cast {type_} %5""",
        f"{type_} [d0, 0] %8",
        f"{type_} [d0, d1] %9",
        space="d0 | d1 |",
    )
    sums = row.astype(np.float32) + x
    most = (sums + column).max(axis=1, keepdims=True)
    expect(text, [row, column, x], most.astype(np.int32).astype(dtype), sums.astype(np.int32).astype(dtype))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("op", "of"), [("round", np.rint), ("floor", np.floor), ("ceil", np.ceil)])
def test_rounding(op: str, of: np.ufunc, n: int) -> None:
    x = np.concatenate([np.arange(-300, 300) / 2, SPECIAL, [8388607.5, -8388607.5, 2.5e9, 0.49999997]])
    x = np.resize(x, (2, n)).astype(np.float32)
    text = program(f"%0 = input 0 f32 [d0, d1]\n%1 = neg f32 %0\n%2 = {op} f32 %1", "f32 [d0, d1] %2")
    expect(text, [x], of(-x))


def test_leaky_relu_writes_over_what_it_adds() -> None:
    """One of two outputs in the place of an input (`reads_before_storing`)."""
    x, y = floats(40, 5000), floats(40, 5000)
    text = program(
        """%0 = input 0 f32 [d0, d1]
        %1 = input 1 f32 [d0, d1]
        %2 = add f32 %0 %1
        %3 = const f32 0.0
        %4 = less bool %2 %3
        %5 = const f32 0.1
        %6 = mul f32 %2 %5
        %7 = where f32 %4 %6 %2""",
        "f32 [d0, d1] %2",
        "f32 [d0, d1] %7",
    )
    with np.errstate(invalid="ignore", over="ignore"):
        total = x + y
        expect(text, [x, y], total, np.where(total < 0, total * np.float32(0.1), total))
