"""Every schedule of the CUDA engine over odd sizes, alignments and special values, against float64."""

from __future__ import annotations

import math

import cuda_corpus as corpus
import numpy as np
import pytest
from gpu_runner import Check, check, check_all, random, run

from onnxfuse.custom_ops.types import to_numpy

FLOATS = ("f32", "f16", "bf16")
# Around the number of elements in a vector, a warp, and each step of the row schedules; then several blocks a row.
LENGTHS = (1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 127, 255, 256, 257, 768, 1000, 1023, 1024, 1025, 2048, 3000, 4096, 5003)
LONG = (8192, 12345, 16384, 20001, 32768, 40000, 65536, 131072, 200000)
COLUMNS = corpus.CHANNELS_FIRST
# Results near zero are differences of larger values.
FLOOR = {"f32": 2e-6, "f16": 2e-3, "bf16": 2e-2}
# Units in the last place of a softmax in f32: the difference from the maximum, up to 32 here, is rounded to 2^-20, up
# to 16 units of its exponential; the sum of up to 5000, the exponential and the quotient add a few each.
SOFTMAX_LIMIT = 32


def norm_check(type_: str, shape: tuple[int, ...], length: str = "") -> Check:
    """A LayerNorm over the last of two dimensions or the middle one of three."""
    n = shape[1]
    scale, bias = random((n,), type_, 1), random((n,), type_, 2)
    floor = FLOOR[type_] * (100 if n < 8 else 1)  # two of few values may differ in few correct digits only
    if len(shape) == 2:
        return Check(corpus.layer_norm(type_, length), [random(shape, type_), scale, bias], floor=floor)
    text = corpus.layer_norm(type_, length, COLUMNS["space"], COLUMNS["dims"], "d1, 0")
    return Check(text, [random(shape, type_), scale[:, None], bias[:, None]], floor=floor)


def softmax_check(type_: str, shape: tuple[int, ...], scale: float = 3) -> Check:
    text = corpus.softmax(type_, "", **(COLUMNS if len(shape) == 3 else {}))
    return Check(text, [random(shape, type_, scale=scale)], limit=SOFTMAX_LIMIT)


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=["short", "long"])
def test_layer_norm_rows(lengths: tuple[int, ...], type_: str) -> None:
    check_all([norm_check(type_, (37 if n <= 4096 else 3, n)) for n in lengths])


def test_fixed_length() -> None:
    """Kernels that know the length of the row."""
    check_all([norm_check("f32", (5, n), f"={n}") for n in (1, 30, 64, 768, 1000, 1024, 4096, 16384, 32768, 131072)])
    check_all([norm_check("f16", (5, n), f"={n}") for n in (768, 4096, 16384, 131072)])


@pytest.mark.parametrize("type_", [*FLOATS, "f64"])
@pytest.mark.parametrize("lengths", [LENGTHS, LONG], ids=["short", "long"])
def test_softmax_rows(lengths: tuple[int, ...], type_: str) -> None:
    check_all([softmax_check(type_, (37 if n <= 4096 else 3, n)) for n in lengths])


def test_parts_of_a_warp() -> None:
    """So many rows that a warp has several."""
    checks = [softmax_check(type_, (10007, n)) for type_ in ("f32", "f16") for n in (8, 40, 64, 100, 256)]
    check_all([*checks, *(norm_check(type_, (10007, n)) for type_ in ("f32", "f16") for n in (16, 128, 256))])


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize(
    ("rows", "n"), [(1, 65536), (1, 1 << 22), (2, 1000003), (8, 200000), (65, 65537), (300, 70000)]
)
def test_few_long_rows(rows: int, n: int, type_: str) -> None:
    """Rows that several blocks share."""
    shape = (rows, n)
    if rows * n > 1 << 23 and type_ != "f32":
        pytest.skip("takes long to evaluate in float64")
    moments = Check(corpus.mean_variance(type_), [random(shape, type_)], limit=64, floor=1e-6)
    check_all([moments, softmax_check(type_, shape, 1), norm_check(type_, shape)])


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("inner", [1, 3, 8, 49, 196, 500])
def test_columns(inner: int, type_: str) -> None:
    shapes = [(3, n, inner) for n in (1, 2, 3, 64, 100, 257, 1024, 5000)]
    check_all([make(type_, shape) for shape in shapes for make in (norm_check, softmax_check)])


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_many_columns(type_: str) -> None:
    check_all(
        [norm_check(type_, (40, 256, 784)), softmax_check(type_, (40, 96, 784)), norm_check(type_, (8, 24, 4096))]
    )


@pytest.mark.parametrize("shape", [(1, 100000, 5), (1, 65536, 64), (2, 70001, 3), (1, 4096, 8), (300, 5000, 8)])
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_few_long_columns(shape: tuple[int, ...], type_: str) -> None:
    text = corpus.reduction("reduce_mean", type_, "d0 | d1 | d2", "d0, d1, d2", "d0, d2")
    check_all([softmax_check(type_, shape, 1), Check(text, [random(shape, type_)], limit=64, floor=1e-6)])


REDUCTIONS = [
    (name, type_)
    for name, row in corpus.PRIMITIVES.items()
    if row.kind == "reduction"
    for type_ in ([*row.types, "f16", "bf16"] if "f32" in row.types else row.types)
]


@pytest.mark.parametrize(("name", "type_"), REDUCTIONS)
def test_reduction(name: str, type_: str) -> None:
    """Every reduction of every type, in rows, columns, over all, with nothing to reduce, and over two dimensions."""
    small = name == "reduce_prod"

    def data(*shape: int) -> np.ndarray:
        x = random(shape, type_)
        return np.exp(x.astype(np.float64) * 0.01).astype(x.dtype) if small and x.dtype.kind not in "iub" else x

    row, full = corpus.reduction(name, type_), corpus.reduction(name, type_, "| d0 |", "d0", "")
    column = corpus.reduction(name, type_, "d0 | d1 | d2", "d0, d1, d2", "d0, d2")
    two = corpus.reduction(name, type_, "d0 | d1 d2 |", "d1, d0, d2", "d0")
    cases: list[tuple[str, tuple[int, ...]]] = [(row, s) for s in ((5, 1), (7, 33), (3, 1024), (2, 50001), (4, 0))]
    cases += [(column, s) for s in ((2, 3, 64), (2, 300, 7), (1, 9000, 4), (2, 0, 3))]
    cases += [(full, (300007,)), (two, (6, 5, 70))]
    # A product's relative rounding errors add up: like the root of their number, as they are independent.
    limits = [max(64, math.prod(shape) ** 0.5) if small else 64 for _, shape in cases]
    check_all(
        [Check(text, [data(*shape)], limit=n, floor=1e-6) for (text, shape), n in zip(cases, limits, strict=True)]
    )


@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_elementwise(type_: str) -> None:
    checks = []
    for shape in ((4, 8), (3, 7), (1, 5003), (5003, 1), (129, 4096), (1000, 1023), (2, 3, 0)):
        x = random((int(np.prod(shape)),), type_)
        checks += [Check(corpus.chain(type_, length), [x]) for length in (3, 12, 60)]
        if len(shape) == 2:
            inputs = [x.reshape(shape), random(shape[1:], type_)]
            checks.append(Check(corpus.bias_gelu(type_), inputs, floor=FLOOR[type_]))
    check_all(checks)


@pytest.mark.parametrize("type_", FLOATS)
def test_channels(type_: str) -> None:
    inputs = [random((5, 1), type_, k) for k in (1, 2)]
    images = [random((3, 5, inner), type_) for inner in (1, 4, 7, 49, 64, 3136)]
    check_all([Check(corpus.hardswish(type_), [x, *inputs], floor=FLOOR[type_]) for x in images])


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("offset", [2, 4, 8])
def test_unaligned(offset: int, type_: str) -> None:
    if offset % to_numpy(type_).itemsize:
        pytest.skip("elements lie at multiples of their size")
    checks = [softmax_check(type_, shape) for shape in ((5, 64), (5, 1000), (5, 4096), (5, 40000), (2, 64, 64))]
    checks += [Check(corpus.chain(type_, 6), [random((n + 1,), type_)]) for n in (64, 1000, 4096, 40000)]
    check_all([*checks, norm_check(type_, (5, 4096)), norm_check(type_, (2, 300, 64))], offset)


@pytest.mark.parametrize("op", ["erf", "tanh"])
@pytest.mark.parametrize("type_", FLOATS)
def test_one_plus_a_sigmoid_function(type_: str, op: str) -> None:
    """Both ends, where the sum is 0 and 2; nothing cancels, so that the error is relative also where it is tiny."""
    x = np.concatenate([np.linspace(-12, 12, 20001), [np.inf, -np.inf, np.nan, -0.0]]).astype(np.float32)
    text = corpus.program(
        "d0",
        "%0 = input 0 f32 [d0]",
        f"%1 = {op} f32 %0",
        "%2 = const f32 1.0",
        "%3 = add f32 %1 %2",
        f"output 0 {type_} [d0] %3",
    )
    check(text, x, limit=4, floor=1.2e-7 if type_ == "f32" else 6e-8)


@pytest.mark.parametrize(("rows", "columns"), [(33, 64), (33, 63), (1, 1), (1, 64), (33, 1), (0, 5)])
def test_mixed_types(rows: int, columns: int) -> None:
    check(
        corpus.MIXED,
        random((rows, columns), "f16"),
        random((rows, columns), "bool"),
        random((columns,), "f32"),
        random((rows, 1), "i64"),
    )


def test_strided_and_lacking_dimensions() -> None:
    check(corpus.STRIDED, random((40, 20), "f32"), random((6, 40), "f32"), random((40,), "f32"))


def test_group_norm() -> None:
    images = [random((2, 32, inner), "f32") for inner in (1, 49, 64, 196, 12544)]
    check_all([Check(corpus.GROUP_NORM, [x, random((32, 1), "f32")], floor=2e-6) for x in images])


def test_no_dimensions_and_two_kernels() -> None:
    check(corpus.SCALAR, np.array(2.5))
    check(corpus.TWO_KERNELS, random((1000,), "f32"), random((64, 100), "f32"), limit=SOFTMAX_LIMIT)


def test_broadcast_at_run_time() -> None:
    """The map says d0 and d1; the tensors say which of them are broadcast."""
    text = (
        "onnxfuse 1\nspace d0 d1 d2\n%0 = input 0 f32 [d0, d1, d2]\n%1 = input 1 f32 [d0, d1, d2]\n"
        "%2 = sub f32 %0 %1\noutput 0 f32 [d0, d1, d2] %2\n"
    )
    shapes = [((1, 3, 8), (4, 1, 8), (4, 3, 1), (1, 1, 1), (4, 3, 8)), ((4, 3, 8), (1, 3, 8), (4, 1, 1))]
    check_all([Check(text, [random(a, "f32"), random(b, "f32", 1)]) for a in shapes[0] for b in shapes[1]])


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_rows_with_special_values(special: float) -> None:
    """One odd element spoils its own row, and no other."""
    checks = []
    for n in (30, 1000, 8192, 100000):
        x = random((6, n), "f32")
        x[1, n // 2] = special
        x[2, 0] = special
        x[3] = special
        checks += [Check(corpus.softmax("f32"), [x], limit=SOFTMAX_LIMIT)]
        checks += [Check(corpus.reduction(f"reduce_{name}", "f32"), [x]) for name in ("max", "min")]
        checks += [Check(corpus.reduction("reduce_sum", "f32"), [x], limit=64, floor=1e-4)]
    check_all(checks)


@pytest.mark.parametrize("n", [256, 1024, 40000])
def test_variance_of_a_huge_offset(n: int) -> None:
    """Two passes: no cancellation, where the mean is 10^4 standard deviations away."""
    x = (random((5, n), "f32").astype(np.float64) + 1e4).astype(np.float32)
    check(corpus.mean_variance("f32"), x, limit=2000)


def test_sum_of_many_equal_values() -> None:
    """A single accumulator would be off by a thousandth."""
    (total,) = run(corpus.reduction("reduce_sum", "f32"), np.full((1, 1 << 25), 0.1, np.float32))
    assert abs(float(total[0]) / (float(np.float32(0.1)) * (1 << 25)) - 1) < 2e-7


def test_large_exponents_in_16_bits() -> None:
    """What the approximate functions do at the ends of their ranges."""
    x = np.linspace(-100, 100, 4001, dtype=np.float32)
    for type_ in ("f16", "bf16"):
        for op in ("exp", "sigmoid"):
            text = corpus.program("d0", "%0 = input 0 f32 [d0]", f"%1 = {op} f32 %0", f"output 0 {type_} [d0] %1")
            check(text, x)
