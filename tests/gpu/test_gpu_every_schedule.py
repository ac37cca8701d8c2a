"""Each schedule of the CUDA engine once, in programs small enough for compute-sanitizer: scripts/sanitize_gpu.py."""

from __future__ import annotations

import cuda_corpus as corpus
import pytest
import scan_corpus
from gpu_runner import Check, check_all, random
from test_gpu_scans import scan_check
from test_gpu_schedules import FLOOR, norm_check, softmax_check


def elementwise(type_: str, offset: int) -> list[Check]:
    x, bias = random((33, 1023), type_), random((1023,), type_, 1)
    image, scales = random((3, 5, 49), type_), [random((5, 1), type_, k) for k in (1, 2)]
    checks = [Check(corpus.chain(type_, 12), [random((n,), type_)], name=f"chain of {n}") for n in (1, 1001, 4096)]
    checks.append(Check(corpus.bias_gelu(type_), [x, bias], floor=FLOOR[type_], name="broadcast row"))
    checks.append(Check(corpus.hardswish(type_), [image, *scales], floor=FLOOR[type_], name="channels"))
    if not offset:
        mixed = [random((33, 63), "f16"), random((33, 63), "bool"), random((63,), "f32"), random((33, 1), "i64")]
        strided = [random((40, 20), "f32"), random((6, 40), "f32"), random((40,), "f32")]
        checks += [Check(corpus.MIXED, mixed, name="mixed types"), Check(corpus.STRIDED, strided, name="strides")]
    return checks


def rows(type_: str) -> list[Check]:
    """Parts of a warp, a warp, blocks, clusters, what is read in every pass, several blocks a row."""
    checks = [softmax_check(type_, (10007, 40)), norm_check(type_, (10007, 64))]
    for shape in ((37, 768), (5, 1023), (5, 4096), (5, 16384), (3, 40001), (2, 131072), (1, 1 << 19)):
        checks += [norm_check(type_, shape), softmax_check(type_, shape)]
    quotient = corpus.scaled_deviation(type_)
    checks += [Check(quotient, [random(shape, type_)], floor=FLOOR[type_]) for shape in ((37, 768), (5, 16384))]
    in_turns = ((70, 70001), (70, 40000))  # the first without vectors
    two = [random((40, 131072), type_, k) for k in (3, 4)]
    checks.append(
        Check(corpus.skip_rms_norm(type_), [*two, random((131072,), type_, 2)], floor=FLOOR[type_], name="two")
    )
    scores = [random((2, 4, 5, 131072), type_, 5), random((2, 1, 1, 131072), type_, 1)]
    checks.append(Check(corpus.masked_softmax(type_), scores, floor=FLOOR[type_], name="two in two passes"))
    return [*checks, *(make(type_, shape) for shape in in_turns for make in (norm_check, softmax_check))]


def columns(type_: str) -> list[Check]:
    """A thread, a warp and a block for each group of columns; what is read in every pass; several blocks a column."""
    shapes = ((3, 3, 49), (3, 64, 64), (2, 300, 65), (1, 5000, 640), (1, 65536, 64))
    return [make(type_, shape) for shape in shapes for make in (norm_check, softmax_check)]


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_elementwise(type_: str, offset: int) -> None:
    check_all(elementwise(type_, offset), offset)


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_rows(type_: str) -> None:
    check_all(rows(type_))


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_columns(type_: str) -> None:
    check_all(columns(type_))


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_scans(type_: str) -> None:
    """Parts of a warp, blocks, whole columns, a thread a column."""
    shapes = [(70, 60), (37, 1023), (5, 4096), (3, 3, 49), (2, 257, 65), (24, 200, 784), (1, 513, 16896)]
    check_all([scan_check(type_, shape, flags=flags) for shape in shapes for flags in ("", " reverse")])


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_scans_in_turns(type_: str) -> None:
    """Tiles of rows and of columns, which blocks take in turns; chunks, two passes."""
    shapes = [(1100, 20000), (3, 40000), (1, 300001), (1, 1 << 20), (1, 40000, 64)]
    x, tall = random((2, 100000), type_), random((1, 20000, 24), type_)
    checks = [scan_check(type_, shape, flags=flags) for shape in shapes for flags in ("", " reverse")]
    texts = [(scan_corpus.softmax_scan(type_), x), (scan_corpus.softmax_scan(type_, "", scan_corpus.COLUMNS), tall)]
    check_all([*checks, *(Check(text, [data], limit=64, floor=1e-4) for text, data in texts)])


def test_other_programs() -> None:
    checks = [
        Check(corpus.GROUP_NORM, [random((2, 32, 196), "f32"), random((32, 1), "f32")], floor=2e-6),
        Check(corpus.mean_variance("f32"), [random((70, 8192), "f32")], floor=1e-6),
        Check(corpus.TWO_KERNELS, [random((1000,), "f32"), random((64, 100), "f32")], limit=32),
    ]
    for name, types in (
        ("reduce_sum", ("i8", "i64", "u16")),
        ("reduce_max", ("bool", "u8")),
        ("reduce_mean", ("i32",)),
    ):
        checks += [Check(corpus.reduction(name, t), [random((7, 1000), t)]) for t in types]
    check_all(checks)
