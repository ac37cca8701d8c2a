"""Reductions of columns on the CPU engine: few ones in bands, many in blocks, and items that threads share."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from cpu_runner import Array, check, run

RNG = np.random.default_rng(0)

NORMALIZATION = """onnxfuse 1
space d0 | d1 | d2
%0 = input 0 {t} [d0, d1, d2]
%1 = reduce_mean f32 %0
%2 = sub f32 %0 %1
%3 = mul f32 %2 %2
%4 = reduce_mean f32 %3
%5 = const f32 1e-05
%6 = add f32 %4 %5
%7 = sqrt f32 %6
%8 = div f32 %2 %7
%9 = input 1 {t} [d1]
%10 = mul f32 %8 %9
%11 = input 2 {t} [d0, d2]
%12 = add f32 %10 %11
output 0 {t} [d0, d1, d2] %12
output 1 {t} [d0, d2] %1
output 2 {t} [d0, 0, d2] %4
output 3 {t} [d2, d1, d0] %2
"""

LOG_SUM_EXP = """onnxfuse 1
space d0 | d1 | d2
%0 = input 0 f32 [d0, d1, d2]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = reduce_sum f32 %3
%5 = log f32 %4
%6 = add f32 %5 %1
%7 = div f32 %3 %4
output 0 f32 [d0, 0, d2] %6
output 1 f32 [d0, d1, d2] %7
"""

# Reduced dimensions that do not merge, columns of two dimensions, values that depend on any of them.
BROADCAST = """onnxfuse 1
space d0 | d1 d2 | d3 d4
%0 = input 0 f32 [d0, d1, d2, d3, d4]
%1 = input 1 f32 [d2, d3, d4]
%2 = input 2 f32 [d1, d4]
%3 = input 3 f32 [d4, d3]
%4 = input 4 f32 [d1]
%5 = input 5 f32 [d0, d2]
%6 = mul f32 %0 %1
%7 = add f32 %6 %2
%8 = sub f32 %7 %3
%9 = mul f32 %8 %4
%10 = add f32 %9 %5
%11 = reduce_sum f32 %10
%12 = reduce_max f32 %2
%13 = mul f32 %4 %5
%14 = reduce_mean f32 %13
%15 = sub f32 %10 %11
%16 = abs f32 %15
%17 = reduce_max f32 %16
%18 = div f32 %15 %17
%19 = mul f32 %18 %14
output 0 f32 [d0, d1, d2, d3, d4] %19
output 1 f32 [d0, d3, d4] %11
output 2 f32 [d3, d4] %12
output 3 f32 [d0] %14
output 4 f32 [d4, d0, d3] %17
"""

EDGES = [
    (1, 300, 3),
    (2, 512, 2),
    (3, 37, 7),
    (2, 257, 15),
    (5, 16, 16),
    (4, 600, 1),
    (3, 70, 31),
    (2, 129, 33),
    (9, 100, 100),
    (2, 9, 255),
    (2, 9, 257),
    (1, 700, 500),
    (3, 4, 511),
    (1, 9, 512),
    (2, 40, 513),
    (2, 33, 1023),
    (1, 40, 1024),
    (1, 50, 1025),
    (2, 20, 5000),
]


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype("float32")


def reduction(op: str, storage: str, computed: str) -> str:
    return f"""onnxfuse 1
space d0 | d1 | d2
%0 = input 0 {storage} [d0, d1, d2]
%1 = {op} {computed} %0
output 0 {storage} [d0, 0, d2] %1
"""


@pytest.mark.parametrize("shape", EDGES)
@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
def test_normalization_with_all_its_values(shape: tuple[int, int, int], type_: str) -> None:
    dtype = np.dtype({"f32": "float32", "f16": "float16", "bf16": ml_dtypes.bfloat16}[type_])
    x = normal(*shape) / 4 + np.linspace(-2, 2, shape[1], dtype=np.float32)[:, None]  # a variance that is not small
    inputs = [a.astype(dtype) for a in (x, normal(shape[1]), normal(shape[0], shape[2]))]
    limit, floor = (40, 4e-6) if type_ == "f32" else (0.51, 1e-5)
    check(NORMALIZATION.format(t=type_), *inputs, limit=limit, floor=floor, threads=2)


@pytest.mark.parametrize("shape", EDGES)
def test_log_of_a_sum_of_exponentials(shape: tuple[int, int, int]) -> None:
    check(LOG_SUM_EXP, normal(*shape) * 5, limit=60, floor=1e-6, threads=2)


@pytest.mark.parametrize(
    ("type_", "op"),
    [
        *itertools.product(["f32", "f64"], ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"]),
        *itertools.product(["i8", "u16", "i32", "u64"], ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"]),
        *itertools.product(["bool"], ["reduce_max", "reduce_min"]),
    ],
)
def test_kinds_and_types(op: str, type_: str) -> None:
    for shape in EDGES:
        if type_[0] == "f":
            x = normal(*shape).astype("float" + type_[1:])
            x = np.exp(x * 0.02) if op == "reduce_prod" else x
            check(reduction(op, type_, type_), x, limit=600, floor=2e-6, threads=2)
            continue
        dtype = np.dtype("bool" if type_ == "bool" else ("uint" if type_[0] == "u" else "int") + type_[1:])
        x = RNG.integers(0, 2 if type_ == "bool" else 5, shape).astype(dtype)
        function = {"reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_max": np.max, "reduce_min": np.min}[op]
        wide = {"dtype": dtype} if op in ("reduce_sum", "reduce_prod") else {}
        expected = function(x, axis=1, keepdims=True, **wide)
        np.testing.assert_array_equal(run(reduction(op, type_, type_), x, threads=2)[0], expected)


@pytest.mark.parametrize("extents", [(2, 3, 40, 5, 4), (1, 20, 7, 16, 3), (2, 2, 300, 9, 30), (1, 4, 9, 40, 30)])
@pytest.mark.parametrize("missing", [(), (1,), (2,), (3,), (4,), (1, 3)])
def test_operands_that_are_broadcast(extents: tuple[int, ...], missing: tuple[int, ...]) -> None:
    e = extents
    shapes = [(2, 3, 4), (1, 4), (4, 3), (1,), (0, 2)]
    others = [normal(*(1 if d in missing else e[d] for d in dims)) for dims in shapes]
    others[3:] = [np.abs(x) + 0.5 for x in others[3:]]  # whose mean product does not cancel
    points = math.prod(e[1:3])
    check(BROADCAST, normal(*e), *others, limit=100, floor=2e-6 * points**0.5 + 4e-6, threads=2)


@pytest.mark.parametrize("shape", [(1, 20000, 30), (1, 300000, 2), (2, 3000, 1000), (1, 1000, 2500), (40, 300, 49)])
@pytest.mark.parametrize("text", [NORMALIZATION.format(t="f32"), LOG_SUM_EXP], ids=["normalization", "log_sum_exp"])
def test_results_do_not_depend_on_the_number_of_threads(text: str, shape: tuple[int, int, int]) -> None:
    inputs = [normal(*shape), normal(shape[1]), normal(shape[0], shape[2])][: 3 if "input 1" in text else 1]
    check(text, *inputs, limit=100, floor=4e-6)
    results = [run(text, *inputs, threads=threads) for threads in (1, 2, 3)]
    for one, two, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one.view(np.int32), two.view(np.int32))
        np.testing.assert_array_equal(one.view(np.int32), three.view(np.int32))


@pytest.mark.parametrize("shape", [(300, 3), (40, 100), (5000, 30), (30, 5000)])
def test_nan_and_infinities(shape: tuple[int, int]) -> None:
    x = normal(1, *shape)
    x[0, shape[0] - 1, 1] = np.nan
    x[0, 0, 0] = np.inf
    for op in ("reduce_max", "reduce_sum", "reduce_min"):
        (y,) = run(reduction(op, "f32", "f32"), x, threads=2)
        assert np.flatnonzero(np.isnan(y)).tolist() == [1]
        assert (y[0, 0, 0] == np.inf) == (op != "reduce_min")


@pytest.mark.parametrize("shape", [(1, 300, 3), (2, 70, 33), (1, 130, 100), (3, 50, 512), (2, 40, 700), (70, 100, 301)])
def test_sums_that_floats_do_not_hold(shape: tuple[int, int, int]) -> None:
    x = np.full(shape, 1.5e38, dtype=np.float32)
    x[:, ::3] *= -0.5
    text = reduction("reduce_mean", "f32", "f32").replace(
        "output 0", "%2 = sub f32 %0 %1\noutput 1 f32 [d0, d1, d2] %2\noutput 0"
    )
    check(text, x, limit=4, floor=0, threads=2)


@pytest.mark.parametrize("rows", [5, 64, 300])
@pytest.mark.parametrize("columns", [1, 3, 17, 48, 100, 333, 512, 600])
def test_every_row_of_every_column_counts(rows: int, columns: int) -> None:
    """Each column's extremes and its sum are given by one element, another one in each column, or it is NaN."""
    x = np.zeros((2, rows, columns), np.float32)
    at = (np.arange(columns) * 7 + 3) % rows
    x[0, at, np.arange(columns)] = np.arange(1, columns + 1)
    x[1, at, np.arange(columns)] = np.nan
    for op, sign in (("reduce_max", 1), ("reduce_min", -1), ("reduce_sum", 1), ("reduce_sum", -1)):
        (y,) = run(reduction(op, "f32", "f32"), sign * x, threads=2)
        np.testing.assert_array_equal(y[0, 0], sign * np.arange(1, columns + 1))
        assert np.isnan(y[1]).all()


@pytest.mark.parametrize("columns", [5, 300])
def test_no_rows(columns: int) -> None:
    x = np.zeros((3, 0, columns), np.float32)
    for op, expected in (("reduce_sum", 0), ("reduce_max", -np.inf), ("reduce_min", np.inf), ("reduce_mean", np.nan)):
        np.testing.assert_array_equal(run(reduction(op, "f32", "f32"), x)[0], np.full((3, 1, columns), expected))


def test_columns_of_a_transposed_input() -> None:
    text = reduction("reduce_mean", "f32", "f32").replace("[d0, d1, d2]", "[d2, d0, d1]")
    text = text.replace("output 0", "%2 = sub f32 %0 %1\noutput 1 f32 [d1, d2, d0] %2\noutput 0")
    for shape in EDGES:
        check(text, normal(shape[2], shape[0], shape[1]), limit=40, floor=2e-6, threads=2)


def test_arguments_and_scans_of_columns_keep_their_order() -> None:
    for shape in EDGES:
        x = RNG.integers(0, 7, shape).astype(np.float32)
        text = reduction("reduce_argmax", "i64", "f32").replace("input 0 i64", "input 0 f32")
        text = text.replace("%1 = reduce_argmax f32", "%1 = reduce_argmax i64")
        np.testing.assert_array_equal(run(text, x, threads=2)[0], x.argmax(1, keepdims=True))
        text = reduction("scan_sum", "f32", "f32").replace("[d0, 0, d2]", "[d0, d1, d2]")
        np.testing.assert_array_equal(run(text, x, threads=2)[0], x.cumsum(1))


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_older_machines(isa: str) -> None:
    """The other instruction sets, each in a process of its own, since the choice is made once."""
    subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            __file__,
            "-k",
            "not older and not threads",
        ],
        env=os.environ | {"ONNXFUSE_CPU": isa},
        check=True,
    )
