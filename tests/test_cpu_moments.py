"""Means and variances of rows on the CPU engine, which finds both by one reading, and what is normalized by them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from cpu_runner import Array, run, run_in, session

MOMENTS = """onnxfuse 1
space d0 | d1 |
%0 = input 0 {t} [d0, d1]
%1 = reduce_mean f32 %0
%2 = sub f32 {difference}
%3 = mul f32 %2 %2
%4 = {squares} f32 %3
output 0 f32 [d0, 0] %1
output 1 f32 [d0, 0] %4
"""

NORMALIZED = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = {before}
%2 = reduce_mean f32 %1
%3 = sub f32 %1 %2
%4 = mul f32 %3 %3
%5 = reduce_mean f32 %4
%6 = const f32 1e-05
%7 = add f32 %5 %6
%8 = sqrt f32 %7
%9 = div f32 %3 %8
%10 = {after}
output 0 f32 [d0, d1] %10
"""

LENGTHS = [16, 17, 31, 63, 64, 65, 100, 255, 256, 1000, 1024, 1039, 2047, 4096, 16384]
LONG = [16385, 20000, 131072]  # longer than rows of other programs that are taken whole


def normal(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def moments(x: Array) -> tuple[Array, Array]:
    """In float64."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        mean = wide.mean(axis=-1, keepdims=True)
        return mean, ((wide - mean) ** 2).mean(axis=-1, keepdims=True)


def check_moments(x: Array, threads: int = 1, tolerance: float = 4e-7, **how: str) -> None:
    """Means by the size of what they are of, variances by their own."""
    text = MOMENTS.format(**{"t": "f32", "difference": "%0 %1", "squares": "reduce_mean"} | how)
    mean, variance = run(text, x, threads=threads)
    true_mean = moments(x)[0]
    true_variance = ((x.astype(np.float64) - mean) ** 2).mean(axis=-1, keepdims=True)  # off the mean as it is rounded
    if how.get("squares") == "reduce_sum":
        true_variance = true_variance * x.shape[-1]
    size = np.abs(x.astype(np.float64)).mean(axis=-1, keepdims=True)
    assert (np.abs(mean - true_mean) <= 6e-8 * np.abs(true_mean) + tolerance / 2 * size).all()
    np.testing.assert_allclose(variance, true_variance, rtol=tolerance, atol=1e-30)


@pytest.mark.parametrize("columns", LENGTHS + LONG)
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_error(rows: int, columns: int) -> None:
    for scale in (1e-3, 1, 1e6):
        check_moments(normal(rows, columns) * np.float32(scale), threads=2)


@pytest.mark.parametrize("how", [{"difference": "%1 %0"}, {"squares": "reduce_sum"}, {"t": "f16"}], ids=str)
@pytest.mark.parametrize("columns", [16, 100, 1000, 20000])
def test_spellings(columns: int, how: dict[str, str]) -> None:
    x = normal(9, columns) + np.float32(0.5)
    check_moments(x.astype(np.float16) if how.get("t") == "f16" else x, **how)


@pytest.mark.parametrize("columns", [16, 40, 300, 3000, 20000])
def test_means_far_from_zero(columns: int) -> None:
    """Numbers that have few bits left for what they differ in: squares of the numbers themselves would have none."""
    noise = np.round(normal(12, columns) * 8) / 8
    for offset in (100, -3000, 2**16):
        check_moments((noise + np.float32(offset)).astype(np.float32))


@pytest.mark.parametrize("columns", [16, 40, 300, 3000, 20000])
def test_rows_whose_mean_is_hard_to_guess(columns: int) -> None:
    """The loop looks at the first few elements and at some in the middle; the others may be anything."""
    x = normal(24, columns)
    x[0, :16], x[1, : columns // 4] = 1000, -1e6
    x[2, columns // 2 :], x[3, : columns // 2] = 1e4, 1e4
    x[4] = np.linspace(-100, 300, columns)
    x[5] = np.linspace(0, 1, columns) ** 9
    x[6, ::2], x[7, 0], x[8, -1] = -1e5, 1e6, 1e7
    x[9, 1:], x[10, :-1] = 7, 7
    x[11] = np.where(np.arange(columns) % 16 < 4, 5000, x[11])
    x[12] *= np.float32(1e-12)
    x[13:] *= np.geomspace(1e-6, 1e6, 11, dtype=np.float32)[:, None]
    check_moments(x, tolerance=1e-6)  # of 16 numbers that are added in float, all may be rounded the same way


@pytest.mark.parametrize("columns", [16, 100, 3000])
def test_numbers_next_to_each_other(columns: int) -> None:
    """Their mean is no float, so that the differences are off by as much as they are large."""
    x = np.full((3, columns), 2**24, np.float32)
    x[0, ::2] += 2
    x[1, 1::2] += 2
    x[2, 0] += 2
    check_moments(x)


@pytest.mark.parametrize("columns", [16, 100, 3000])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e30])
def test_equal_elements_have_no_variance(value: float, columns: int) -> None:
    x = np.full((5, columns), value, np.float32)
    mean, variance = run(MOMENTS.format(t="f32", difference="%0 %1", squares="reduce_mean"), x)
    np.testing.assert_array_equal(mean, x[:, :1])
    np.testing.assert_array_equal(variance, 0)


@pytest.mark.parametrize("columns", [16, 17, 100, 1000, 20000])
def test_special_rows(columns: int) -> None:
    x = normal(9, columns)
    x[0, columns // 3], x[1, 0], x[2, -1], x[3] = np.inf, -np.inf, np.nan, np.inf
    x[4, 0], x[5, columns // 2] = np.nan, np.inf
    x[6, ::2], x[6, 1::2] = 3e38, -3e38  # squares that no float holds
    x[7] = np.finfo(np.float32).max
    mean, variance = run(MOMENTS.format(t="f32", difference="%0 %1", squares="reduce_mean"), x)
    np.testing.assert_array_equal(mean[[0, 1, 3, 5], 0], [np.inf, -np.inf, np.inf, np.inf])
    assert np.isnan(mean[[2, 4]]).all()
    assert np.isnan(variance[:6]).all()
    assert variance[6] == np.inf
    assert mean[7] == np.finfo(np.float32).max
    assert variance[7] == 0
    np.testing.assert_allclose(variance[8], moments(x[8:])[1][0], rtol=4e-7)


@pytest.mark.parametrize("columns", [16, 100, 256, 1024, 5000, 20000])
def test_a_row_does_not_depend_on_its_neighbours(columns: int) -> None:
    x = normal(24, columns) * np.float32(20)
    x[7, :16], x[8, 0], x[20] = 1e6, np.nan, -np.inf
    text = NORMALIZED.format(before="neg f32 %0", after="neg f32 %9")
    alone = np.concatenate([run(text, row[None])[0] for row in x])
    for threads in (1, 2, 5):
        np.testing.assert_array_equal(run(text, x, threads=threads)[0], alone)


BEFORE = {"input": "add f32 %0 %0", "product": "mul f32 %0 %0", "function": "exp f32 %0"}
AFTER = {
    "difference again": "add f32 %9 %3",
    "both moments": "div f32 %5 %2",
    "what it is of": "sub f32 %9 %1",
    "a product with itself": "mul f32 %9 %9",
}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("columns", [16, 100, 3000, 20000])
@pytest.mark.parametrize("also", ["", "output 1 f32 [d0, d1] %3\n", "output 1 f32 [d0, 0] %5\n"])
def test_what_follows(columns: int, before: str, after: str, also: str) -> None:
    """The difference from the mean is computed where it is needed, if not stored."""
    x = normal(10, columns)
    results = run(NORMALIZED.format(before=before, after=after) + also, x, threads=2)
    wide = x.astype(np.float64)
    a = {"add": wide + wide, "mul": wide * wide, "exp": np.exp(wide)}[before.split(maxsplit=1)[0]]
    mean, variance = moments(a)
    d = a - mean
    y = d / np.sqrt(variance + 1e-5)
    expected = {"add": y + d, "div": variance / mean + 0 * a, "sub": y - a, "mul": y * y}[after.split(maxsplit=1)[0]]
    if not after.startswith("div"):  # by a mean near 0
        np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-5 * np.abs(a).max())
    if also:
        second = d if "d1" in also else variance
        np.testing.assert_allclose(results[1], second, rtol=1e-5, atol=1e-6 * np.abs(a).max())


TWO = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = input 1 f32 [d0, d1]
%2 = reduce_mean f32 %0
%3 = reduce_mean f32 %1
%4 = sub f32 %0 %2
%5 = sub f32 %3 %1
%6 = mul f32 %4 %4
%7 = mul f32 %5 %5
%8 = reduce_sum f32 %7
%9 = reduce_mean f32 %6
%10 = div f32 %4 %8
%11 = mul f32 %5 %9
%12 = mul f32 %4 %5
%13 = reduce_mean f32 %12
%14 = add f32 %10 %11
%15 = mul f32 %14 %13
output 0 f32 [d0, d1] %15
"""


@pytest.mark.parametrize("columns", [16, 100, 3000])
def test_two_at_once(columns: int) -> None:
    """Also with the mean of their product, as a correlation has it."""
    x, y = normal(7, columns), normal(7, 1, columns)[:, 0] + np.float32(2)
    (actual,) = run(TWO, x, y, threads=2)
    (mean_x, var_x), (mean_y, var_y) = moments(x), moments(y)
    dx, dy = x - mean_x, mean_y - y
    expected = (dx / (var_y * columns) + dy * var_x) * (dx * dy).mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)


RESIDUAL = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = input 1 f32 [d0, d1]
%2 = add f32 %0 %1
%3 = reduce_mean f32 %2
%4 = sub f32 %2 %3
%5 = mul f32 %4 %4
%6 = reduce_mean f32 %5
%7 = div f32 %4 %6
output 0 f32 [d0, d1] %2
output 1 f32 [d0, d1] %7
"""


STORED = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = {function} f32 %0
%2 = reduce_mean f32 %1
output 0 f32 [d0, d1] %1
output 1 f32 [d0, 0] %2
"""


@pytest.mark.parametrize("function", ["sin", "atan", "erf", "neg", "sqrt"])
@pytest.mark.parametrize("shape", [(300, 3000), (1100, 1000), (4000, 257)])
def test_stored_and_reduced(shape: tuple[int, int], function: str) -> None:
    """The sum's bits do not depend on whether the value goes past the caches."""
    x = np.abs(normal(*shape))
    text = STORED.format(function=function)
    few = run(text, x[:90])
    for threads in (1, 2):
        node = session(text, threads)
        for _ in range(4):
            for result, part in zip(run_in(node, text, [x]), few, strict=True):
                np.testing.assert_array_equal(result[:90].view(np.uint32), part.view(np.uint32))


@pytest.mark.parametrize("shape", [(900, 1000), (60, 16384), (50, 20000), (1300, 1001), (2500, 1024), (140, 20001)])
def test_results_that_go_past_the_caches_are_the_same(shape: tuple[int, int]) -> None:
    """They do so from sizes on that depend on the machine and on how many threads were seen at work before."""
    x, y = normal(*shape), normal(*reversed(shape)).reshape(shape)
    few = [np.concatenate(parts) for parts in zip(*(run(RESIDUAL, x[k:][:9], y[k:][:9]) for k in (0, 9)), strict=True)]
    for threads in (1, 2, 3):
        node = session(RESIDUAL, threads)
        for _ in range(4):
            results = run_in(node, RESIDUAL, [x, y])
            for result, part in zip(results, few, strict=True):
                np.testing.assert_array_equal(result[:18].view(np.uint32), part.view(np.uint32))
            np.testing.assert_array_equal(results[0], x + y)


@pytest.mark.parametrize("cpu", ["avx2", "baseline"])
def test_older_machines(cpu: str) -> None:
    """The other tests with the loops that such a machine takes, in a process of its own: the choice is made once."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not older_machines"]
    env = dict(os.environ, ONNXFUSE_CPU=cpu)
    found = subprocess.run([*command, __file__], env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
