"""Long rows, many of them: clusters take one after the other, with several at work at a time."""

from __future__ import annotations

import cuda_corpus as corpus
import numpy as np
import pytest
from gpu_runner import Check, check, check_all, random, run
from test_gpu_schedules import FLOATS, FLOOR, norm_check, softmax_check

# Rows for 2, 4 and 8 blocks, in vectors and not; with more turns of a cluster than there are buffers, and with a last
# turn that not all clusters have.
SHAPES = {
    "f32": ((150, 20000), (290, 33000), (40, 98304)),
    "f16": ((140, 20001), (70, 40000), (137, 66000)),
    "bf16": ((70, 40000), (40, 70001)),
}
# A dimension that only some inputs have, and one along which the rows of a tensor are not neighbours.
TRANSPOSED = corpus.program(
    "d0 d1 | d2 |",
    "%0 = input 0 f32 [d1, d0, d2]",
    "%1 = input 1 f32 [d0, d2]",
    "%2 = mul f32 %0 %1",
    "%3 = reduce_max f32 %2",
    "%4 = sub f32 %2 %3",
    "%5 = input 2 f32 [d2]",
    "%6 = add f32 %4 %5",
    "output 0 f32 [d0, d1, d2] %6",
)
STRIDED = corpus.program(  # beside elements that are neighbours, some that are not: they are not copied ahead
    "d0 | d1 |",
    "%0 = input 0 f32 [d0, 2*d1+1]",
    "%1 = input 1 f32 [d0, d1]",
    "%2 = mul f32 %0 %1",
    "%3 = reduce_max f32 %2",
    "%4 = sub f32 %2 %3",
    "output 0 f32 [d0, d1] %4",
)


@pytest.mark.parametrize(("type_", "shape"), [(type_, shape) for type_ in FLOATS for shape in SHAPES[type_]])
def test_norms(type_: str, shape: tuple[int, int]) -> None:
    moments = Check(corpus.mean_variance(type_), [random(shape, type_)], limit=64, floor=1e-6)
    check_all([norm_check(type_, shape), softmax_check(type_, shape, 1), moments])


@pytest.mark.parametrize("type_", FLOATS)
def test_two_inputs(type_: str) -> None:
    arrays = [random((70, 40000), type_), random((70, 40000), type_, 1), random((40000,), type_, 2)]
    check_all([Check(corpus.skip_rms_norm(type_), arrays, floor=FLOOR[type_])])


@pytest.mark.parametrize("type_", FLOATS)
def test_two_long_inputs(type_: str) -> None:
    """As much as the registers hold of what two inputs make."""
    checks = []
    for n in (131072, 100003):
        rows = [random((40, n), type_, 3), random((40, n), type_, 4), random((n,), type_, 2)]
        checks.append(Check(corpus.skip_rms_norm(type_), rows, floor=FLOOR[type_], name=f"skip_rms_norm {n}"))
        scores = [random((2, 4, 5, n), type_, 5), random((2, 1, 1, n), type_, 1)]
        checks.append(Check(corpus.masked_softmax(type_), scores, floor=FLOOR[type_], name=f"masked_softmax {n}"))
    check_all(checks)


@pytest.mark.parametrize("type_", FLOATS)
def test_three_passes(type_: str) -> None:
    rows, n = 70, 40000
    arrays = [random((rows, n), type_), random((n,), type_, 1), random((rows, 1), type_, 2)]
    check_all([Check(corpus.biased_softmax_rms(type_), arrays, limit=64)])


def test_strides() -> None:
    inputs = [random((7, 10, 40000), "f32"), random((10, 40000), "f32", 1), random((40000,), "f32", 2)]
    check(TRANSPOSED, *inputs, floor=2e-6)
    check(STRIDED, random((70, 80000), "f32"), random((70, 40000), "f32", 1), floor=2e-6)


@pytest.mark.parametrize(("name", "type_"), [("reduce_sum", "i64"), ("reduce_max", "i32"), ("reduce_prod", "f64")])
def test_other_types(name: str, type_: str) -> None:
    x = random((70, 40000), type_)
    check_all([Check(corpus.reduction(name, type_), [1 + x / 4e4 if type_ == "f64" else x], limit=1e5)])


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_special_values(type_: str) -> None:
    """What is in one row is not seen in the others."""
    x = random((70, 40000), type_)
    for row, value in ((3, np.nan), (34, np.inf), (37, -np.inf), (50, np.nan), (69, np.inf)):
        x[row, (row * 997) % 40000] = value
    x[5], x[41] = -np.inf, 60000
    with np.errstate(all="ignore"):
        check(corpus.softmax(type_), x, limit=32)


def test_equal_bits() -> None:
    x, scale = random((512, 131072), "f16"), random((131072,), "f16", 1)
    text, shapes = corpus.layer_norm("f16"), [x.shape]
    first = run(text, x, scale, scale, shapes=shapes)[0].view(np.uint16)
    for _ in range(5):
        assert (run(text, x, scale, scale, shapes=shapes)[0].view(np.uint16) == first).all()
