"""Softmax on the CPU engine, which has a loop of its own for it, and what looks like it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cuda_corpus
import numpy as np
import pytest
from cpu_runner import Array, check, run, ulps

SOFTMAX = cuda_corpus.softmax("f32")

SHARE = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = reduce_sum f32 %0
%2 = div f32 %0 %1
output 0 f32 [d0, d1] %2
"""

# Units in the last place: of the exponential, the sum, its reciprocal and the product. In 200 million shares of normal
# numbers times 0.1 to 60 the worst was 8.8, of the smallest ones: see RowExponential.
LIMIT = 9
LENGTHS = [16, 17, 63, 64, 65, 100, 256, 1000, 1024, 1039, 2047, 2048, 3000, 16384]


def normal(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def softmax(x: Array) -> Array:
    """In float64, of the differences that the type of x has."""
    with np.errstate(all="ignore"):
        e = np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float64))
        return np.asarray(e / e.sum(axis=-1, keepdims=True))


def error(y: Array, x: Array) -> float:
    """The worst of y in units in the last place: from the true value, or that of differences rounded to float32."""
    return float(np.minimum(ulps(y, softmax(x.astype(np.float64))), ulps(y, softmax(x))).max())


@pytest.mark.parametrize("columns", [*LENGTHS, 20000])
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_error(rows: int, columns: int) -> None:
    for scale in (0.1, 3, 30):
        x = normal(rows, columns) * np.float32(scale)
        assert error(run(SOFTMAX, x, threads=2)[0], x) <= LIMIT


@pytest.mark.parametrize("columns", LENGTHS)
def test_special_rows(columns: int) -> None:
    x = normal(12, columns)
    x[1, columns // 2] = np.inf
    x[2, -1] = np.nan
    x[3] = -np.inf
    x[4, 1:] = -np.inf
    x[5, columns // 3 :] = -1e30
    x[6] = 3e38
    x[7, 0] = np.nan
    x[8, :-1] = -np.inf
    (y,) = run(SOFTMAX, x)
    assert error(y, x) <= LIMIT
    assert y[4, 0] == y[8, -1] == 1


NAN_REPLACED = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = {before}
%2 = reduce_max f32 %1
%3 = sub f32 %1 %2
%4 = exp f32 %3
%5 = reduce_sum f32 %4
%6 = div f32 %4 %5
%7 = isnan bool %6
%8 = const f32 {instead}
%9 = where f32 %7 %8 %6
output 0 f32 [d0, d1] %9
"""


@pytest.mark.parametrize("also", ["", "output 1 f32 [d0, d1] %6\n", "output 1 bool [d0, d1] %7\n"])
@pytest.mark.parametrize("before", ["mul f32 %0 %0", "input 1 f32 [d0, d1]"])
@pytest.mark.parametrize("instead", ["0.0", "-2.5", "nan", "inf"])
@pytest.mark.parametrize("columns", [7, 16, 65, 1000, 3000])
def test_nan_replaced(columns: int, instead: str, before: str, also: str) -> None:
    """As attention with masks is exported: a row that is masked as a whole, or has no softmax, gets a constant."""
    x = normal(40, columns)
    x[1, columns // 2], x[2, -1], x[3], x[4, 1:], x[5] = np.inf, np.nan, -np.inf, -np.inf, 3e38
    reads_it = before.startswith("input")
    results = run(NAN_REPLACED.format(before=before, instead=instead) + also, x, *[x][: int(reads_it)], threads=2)
    with np.errstate(all="ignore"):
        z = x if reads_it else x * x
    expected = softmax(z.astype(np.float64))
    nan = np.isnan(expected)
    assert nan.any()
    assert not nan.all()
    if also:
        second = results[1] if results[1].dtype == bool else np.isnan(results[1])
        np.testing.assert_array_equal(second, nan)
    np.testing.assert_array_equal(results[0][nan], np.float32(instead))
    kept = np.where(nan.any(axis=-1, keepdims=True), 0, z)
    assert error(np.where(nan, softmax(kept), results[0]).astype(np.float32), kept) <= LIMIT


@pytest.mark.parametrize("columns", [16, 40, 300, 3000])
def test_rows_whose_maximum_is_hard_to_guess(columns: int) -> None:
    """The loop looks at the first, a middle and the last few elements; the others may be anything."""
    x = normal(64, columns)
    x[:16] += np.linspace(-600, 600, 16, dtype=np.float32)[:, None]
    for row, height in zip(x[16:32], np.linspace(10, 70, 16), strict=True):
        row[columns // 3] = height
    x[32, : columns - 1] = -1e30
    x[33] = -1e30
    x[34, columns // 3 :] -= 88  # shares below the normal range
    x[35, columns // 3 :] -= 103
    x[36] = np.linspace(-104, 0, columns)
    x[37] = np.linspace(0, -200, columns)
    x[38] = np.finfo(np.float32).min
    x[39, 1:] = np.finfo(np.float32).min
    x[40, 1:] = np.finfo(np.float32).max
    x[41] *= 1e-40
    x[42:] *= np.float32(8)
    (y,) = run(SOFTMAX, x)
    assert error(y, x) <= LIMIT
    assert y[39, 0] == 1
    np.testing.assert_allclose(y.sum(axis=1, dtype=np.float64), 1, rtol=1e-6)


@pytest.mark.parametrize("columns", [16, 100, 256, 1024, 5000])
def test_a_row_does_not_depend_on_its_neighbours(columns: int) -> None:
    x = normal(30, columns) * np.float32(20)
    x[7], x[8, 0], x[20] = 500, np.nan, -np.inf
    alone = np.concatenate([run(SOFTMAX, row[None])[0] for row in x[:24]])
    np.testing.assert_array_equal(run(SOFTMAX, x)[0][:24], alone)
    np.testing.assert_array_equal(run(SOFTMAX, x, threads=2)[0][:24], alone)


@pytest.mark.parametrize("shape", [(1, 32001), (2, 256000), (8, 131072), (9, 60001), (1, 524289), (9000, 600)])
def test_long_rows_and_rows_from_memory(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    x[-1] *= 60
    for threads in (1, 2):
        assert error(run(SOFTMAX, x, threads=threads)[0], x) <= LIMIT


@pytest.mark.parametrize(
    "shape",
    [
        *((140000, 16), (9000, 257), (2100, 1001), (2100, 1024), (130, 16384), (130, 16383)),
        *((70000, 16), (4500, 257), (1100, 1001)),  # there only where one thread computes them
    ],
)
def test_results_that_go_past_the_caches_are_the_same(shape: tuple[int, int]) -> None:
    """They leave by another way than a few rows do, whose bits they have; masked and special rows in between."""
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x[3], x[50, 1:], x[51, : shape[1] // 2] = np.nan, -np.inf, np.finfo(np.float32).min
    x[70:80] = 300 * x[70:80]
    x[81, shape[1] // 2] = 80
    x[82], x[-1, 0], x[-2, -1] = -np.inf, np.inf, np.finfo(np.float32).min
    x[90:120, shape[1] // 3 :] = -1e9
    few = np.concatenate([run(SOFTMAX, x[:60])[0], run(SOFTMAX, x[60:130])[0], run(SOFTMAX, x[-2:])[0]])
    for threads in (1, 2):
        (y,) = run(SOFTMAX, x, threads=threads)
        found = np.concatenate([y[:130], y[-2:]])
        np.testing.assert_array_equal(found.view(np.uint32), few.view(np.uint32))
        assert error(y, x) <= LIMIT


TWO = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = reduce_sum f32 %3
%5 = div f32 %3 %4
%6 = input 1 f32 [d0, d1]
%7 = reduce_max f32 %6
%8 = sub f32 %6 %7
%9 = exp f32 %8
%10 = reduce_sum f32 %9
%11 = div f32 %9 %10
output 0 f32 [d0, d1] %5
output 1 f32 [d0, d1] %11
"""


@pytest.mark.parametrize("shape", [(40, 1000), (400, 1000), (1500, 1000), (300, 20000), (20000, 100)])
def test_two_of_one_kernel(shape: tuple[int, int]) -> None:
    """Each has a state of its own, in memory where other programs have left something."""
    x, y = normal(*shape), normal(*reversed(shape)).reshape(shape)
    check(SHARE, np.abs(normal(64, 16384)) + 1, limit=50)
    for threads in (1, 2):
        results = run(TWO, x, y, threads=threads)
        assert error(results[0], x) <= LIMIT
        assert error(results[1], y) <= LIMIT


MASKED = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = const f32 0.125
%2 = mul f32 %0 %1
%3 = input 1 f32 [d1]
%4 = add f32 %2 %3
%5 = reduce_max f32 %4
%6 = sub f32 %4 %5
%7 = exp f32 %6
%8 = reduce_sum f32 %7
%9 = div f32 %7 %8
output 0 f32 [d0, d1] %9
"""


@pytest.mark.parametrize("shape", [(9000, 257), (5000, 512), (2100, 1024), (20, 131072), (70000, 16)])
def test_masked_results_that_go_past_the_caches_are_the_same(shape: tuple[int, int]) -> None:
    """Where a machine writes past the caches what is computed in tiles first."""
    x, mask = normal(*shape) * np.float32(8), normal(shape[1])
    mask[:3], mask[-1] = -np.inf, -1e9
    x[3], x[5, -2], x[6, 5] = np.nan, np.inf, 700
    few = np.concatenate([run(MASKED, row[None], mask)[0] for row in x[:12]])
    for threads in (1, 2):
        (y,) = run(MASKED, x, mask, threads=threads)
        np.testing.assert_array_equal(y[:12].view(np.uint32), few.view(np.uint32))
        assert error(y[7:], x[7:] * np.float32(0.125) + mask) <= LIMIT


@pytest.mark.parametrize("shape", [(20, 131072), (150, 16385), (34, 70001), (20, 131073)])
def test_long_rows_that_go_past_the_caches_are_the_same(shape: tuple[int, int]) -> None:
    """Of such rows one is kept at a time; the last shape has rows that are too long for it."""
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    x[1], x[3, 1:], x[4, shape[1] // 2] = np.nan, -np.inf, 80
    x[6, shape[1] // 3 :], x[-1, 0] = -1e9, np.inf
    alone = np.concatenate([run(SOFTMAX, row[None])[0] for row in x])
    for threads in (1, 2):
        (y,) = run(SOFTMAX, x, threads=threads)
        np.testing.assert_array_equal(y.view(np.uint32), alone.view(np.uint32))
    assert error(alone, x) <= LIMIT


@pytest.mark.parametrize("also", ["%1", "%2", "%3", "%4", "%0"])
@pytest.mark.parametrize("columns", [40, 1000])
def test_a_part_of_it_is_used_elsewhere(also: str, columns: int) -> None:
    row = also in ("%1", "%4")
    text = SOFTMAX + f"output 1 f32 [d0, {'0' if row else 'd1'}] {also}\n"
    check(text, normal(9, columns), limit=50)
    check(
        SOFTMAX.replace("output 0", f"%6 = sub f32 %5 {also}\noutput 0").replace("d1] %5", "d1] %6"),
        normal(9, columns),
        limit=50,
        floor=1e-6,
    )


@pytest.mark.parametrize("space", ["d0 | d1 d2 |", "d0 d1 | d2 |"])
def test_mask_before_and_scale_behind(space: str) -> None:
    text = f"""onnxfuse 1
space {space}
%0 = input 0 f32 [d0, d1, d2]
%1 = const f32 0.125
%2 = mul f32 %0 %1
%3 = input 1 f32 [d0, d2]
%4 = add f32 %2 %3
%5 = reduce_max f32 %4
%6 = sub f32 %4 %5
%7 = exp f32 %6
%8 = reduce_sum f32 %7
%9 = div f32 %7 %8
%10 = input 2 f32 [d1, d2]
%11 = mul f32 %9 %10
output 0 f32 [d0, d1, d2] %11
"""
    for shape in ((2, 3, 20), (3, 40, 130), (1, 5, 1100)):
        check(text, normal(*shape), normal(shape[0], shape[2]), normal(*shape[1:]), limit=30, threads=2)
    x, mask, scale = normal(1, 4000, 1030), normal(1, 1030), np.ones((4000, 1030), np.float32)  # more than the cache
    expected = softmax((x * np.float32(0.125) + mask).reshape((1, -1) if space == "d0 | d1 d2 |" else (4000, 1030)))
    assert np.abs(run(text, x, mask, scale, threads=2)[0].reshape(expected.shape) / expected - 1).max() < 1e-5


@pytest.mark.parametrize("columns", [16, 50, 1000, 20000])
def test_shares_of_sums_of_any_size(columns: int) -> None:
    x = np.random.default_rng(columns).uniform(0.5, 1, (8, columns)).astype(np.float32)
    x *= np.array([[1], [1e-30], [1e-40], [1e33], [0], [-1e-38], [-3], [np.inf]], np.float32)
    with np.errstate(all="ignore"):
        total = x.astype(np.float64).sum(axis=1, keepdims=True).astype(np.float32).astype(np.float64)
        expected = x.astype(np.float64) / total
    normal_size = (np.abs(expected) > 1e-37) | ~np.isfinite(expected) | (expected == 0)
    assert ulps(run(SHARE, x)[0], expected)[normal_size].max() <= 4


def test_what_is_kept_in_the_output_does_not_hide_the_input() -> None:
    text = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = reduce_mean f32 %0
%2 = sub f32 %0 %1
%3 = mul f32 %2 %2
%4 = reduce_mean f32 %3
%5 = add f32 %2 %4
output 0 f32 [d0, d1] %5
%6 = mul f32 %0 %4
output 1 f32 [d0, d1] %6
"""
    text = text.replace("output 0 f32 [d0, d1] %5\n", "") + "output 0 f32 [d0, d1] %5\n"
    for columns in LENGTHS:
        check(text, normal(5, columns), limit=64, floor=1e-6)


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_machines_with_less(isa: str) -> None:
    """The other instruction sets, each in a process of its own, since the choice is made once."""
    here = Path(__file__)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-k", "not less and not mask and not memory", here.name]
    env = dict(os.environ, ONNXFUSE_CPU=isa)
    found = subprocess.run(command, cwd=here.parent, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
