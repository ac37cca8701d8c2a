"""Every schedule of the CUDA engine over odd sizes, alignments and special values, against float64."""

from __future__ import annotations

import cuda_corpus as corpus
import numpy as np
import pytest
from gpu_runner import check, random, run

from onnxfuse.custom_ops.types import to_numpy

FLOATS = ("f32", "f16", "bf16")
# Around the number of elements in a vector, a warp, and each step of the row schedules; then several blocks a row.
LENGTHS = (1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 127, 255, 256, 257, 768, 1000, 1023, 1024, 1025, 2048, 3000, 4096, 5003)
LONG = (8192, 12345, 16384, 20001, 32768, 40000, 65536, 131072, 200000)
# Results near zero are differences of larger values.
FLOOR = {"f32": 2e-6, "f16": 2e-3, "bf16": 2e-2}
# Units in the last place of a softmax in f32: the difference from the maximum, up to 32 here, is rounded to 2^-20, which
# is up to 16 units of its exponential; the sum of up to 5000, the exponential and the quotient add a few each.
SOFTMAX_LIMIT = 32


def layer_norm_floor(n: int, type_: str) -> float:
    """Of few values, two may be so close that their difference has few correct digits."""
    return FLOOR[type_] * (100 if n < 8 else 1)


def parameters(n: int, type_: str) -> tuple[np.ndarray, np.ndarray]:
    return random((n,), type_, 1), random((n,), type_, 2)


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("n", LENGTHS + LONG)
def test_layer_norm_rows(n: int, type_: str) -> None:
    rows = 37 if n <= 4096 else 3
    check(corpus.layer_norm(type_), random((rows, n), type_), *parameters(n, type_), floor=layer_norm_floor(n, type_))


@pytest.mark.parametrize("n", [1, 30, 64, 768, 1000, 1024, 4096, 16384, 32768, 131072])
def test_fixed_length(n: int) -> None:
    """Kernels that know the length of the row."""
    text = corpus.layer_norm("f32", f"={n}")
    check(text, random((5, n), "f32"), *parameters(n, "f32"), floor=FLOOR["f32"])


@pytest.mark.parametrize("type_", [*FLOATS, "f64"])
@pytest.mark.parametrize("n", LENGTHS + LONG)
def test_softmax_rows(n: int, type_: str) -> None:
    rows = 37 if n <= 4096 else 3
    check(corpus.softmax(type_), random((rows, n), type_, scale=3), limit=SOFTMAX_LIMIT)


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize(
    ("rows", "n"), [(1, 65536), (1, 1 << 22), (2, 1000003), (8, 200000), (65, 65537), (300, 70000)]
)
def test_few_long_rows(rows: int, n: int, type_: str) -> None:
    """Rows that several blocks share."""
    x = random((rows, n), type_)
    check(corpus.mean_variance(type_), x, limit=64, floor=1e-6)
    check(corpus.softmax(type_), x, limit=64)
    check(corpus.layer_norm(type_), x, *parameters(n, type_), floor=FLOOR[type_])


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("inner", [1, 3, 8, 49, 196, 500])
@pytest.mark.parametrize("n", [1, 2, 3, 64, 100, 257, 1024, 5000])
def test_columns(n: int, inner: int, type_: str) -> None:
    shape = (3, n, inner)
    space = corpus.CHANNELS_FIRST
    text = corpus.layer_norm(type_, "", space["space"], space["dims"], "d1, 0")
    scale, bias = parameters(n, type_)
    check(text, random(shape, type_), scale[:, None], bias[:, None], floor=layer_norm_floor(n, type_))
    check(corpus.softmax(type_, "", space["space"], space["dims"]), random(shape, type_, scale=3), limit=SOFTMAX_LIMIT)


@pytest.mark.parametrize("shape", [(1, 100000, 5), (1, 65536, 64), (2, 70001, 3), (1, 4096, 8), (300, 5000, 64)])
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_few_long_columns(shape: tuple[int, ...], type_: str) -> None:
    space = corpus.CHANNELS_FIRST
    check(corpus.softmax(type_, "", space["space"], space["dims"]), random(shape, type_), limit=64)
    text = corpus.reduction("reduce_mean", type_, "d0 | d1 | d2", "d0, d1, d2", "d0, d2")
    check(text, random(shape, type_), limit=64, floor=1e-6)


REDUCTIONS = [
    (name, type_)
    for name, row in corpus.PRIMITIVES.items()
    if row.reduces
    for type_ in ([*row.types, "f16", "bf16"] if "f32" in row.types else row.types)
]


@pytest.mark.parametrize(("name", "type_"), REDUCTIONS)
def test_reduction(name: str, type_: str) -> None:
    """Every reduction of every type, in rows, columns, over all, with nothing to reduce, and over two dimensions."""
    small = name == "reduce_prod"

    def data(*shape: int) -> np.ndarray:
        x = random(shape, type_)
        return np.exp(x.astype(np.float64) * 0.01).astype(x.dtype) if small and x.dtype.kind not in "iub" else x

    row = corpus.reduction(name, type_)
    for shape in ((5, 1), (7, 33), (3, 1024), (2, 50001), (4, 0)):
        check(row, data(*shape), limit=64, floor=1e-6)
    column = corpus.reduction(name, type_, "d0 | d1 | d2", "d0, d1, d2", "d0, d2")
    for shape3 in ((2, 3, 64), (2, 300, 7), (1, 9000, 4), (2, 0, 3)):
        check(column, data(*shape3), limit=64, floor=1e-6)
    check(corpus.reduction(name, type_, "| d0 |", "d0", ""), data(300007), limit=64, floor=1e-6)
    text = corpus.reduction(name, type_, "d0 | d1 d2 |", "d1, d0, d2", "d0")
    check(text, data(6, 5, 70), limit=64, floor=1e-6)


@pytest.mark.parametrize("type_", ["f32", "f16"])
@pytest.mark.parametrize("shape", [(4, 8), (3, 7), (1, 5003), (5003, 1), (129, 4096), (1000, 1023), (2, 3, 0)])
def test_elementwise(shape: tuple[int, ...], type_: str) -> None:
    x = random((int(np.prod(shape)),), type_)
    for length in (3, 12, 60):
        check(corpus.chain(type_, length), x)
    if len(shape) == 2:
        check(corpus.bias_gelu(type_), x.reshape(shape), random(shape[1:], type_), floor=FLOOR[type_])


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("inner", [1, 4, 7, 49, 64, 3136])
def test_channels(inner: int, type_: str) -> None:
    parameters_ = [random((5, 1), type_, k) for k in (1, 2)]
    check(corpus.hardswish(type_), random((3, 5, inner), type_), *parameters_, floor=FLOOR[type_])


@pytest.mark.parametrize("type_", FLOATS)
@pytest.mark.parametrize("offset", [2, 4, 8])
def test_unaligned(offset: int, type_: str) -> None:
    if offset % to_numpy(type_).itemsize:
        pytest.skip("elements lie at multiples of their size")
    for n in (64, 1000, 4096, 40000):
        check(corpus.softmax(type_), random((5, n), type_), limit=SOFTMAX_LIMIT, offset=offset)
        check(corpus.chain(type_, 6), random((n + 1,), type_), offset=offset)
    space = corpus.CHANNELS_FIRST
    check(corpus.softmax(type_, "", space["space"], space["dims"]), random((2, 64, 64), type_), limit=SOFTMAX_LIMIT, offset=offset)


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


@pytest.mark.parametrize("inner", [1, 49, 64, 196, 12544])
def test_group_norm(inner: int) -> None:
    check(corpus.GROUP_NORM, random((2, 32, inner), "f32"), random((32, 1), "f32"), floor=2e-6)


def test_no_dimensions_and_two_kernels() -> None:
    check(corpus.SCALAR, np.array(2.5))
    check(corpus.TWO_KERNELS, random((1000,), "f32"), random((64, 100), "f32"), limit=SOFTMAX_LIMIT)


def test_broadcast_at_run_time() -> None:
    """The map says d0 and d1; the tensors say which of them are broadcast."""
    text = (
        "onnxfuse 1\nspace d0 d1 d2\n%0 = input 0 f32 [d0, d1, d2]\n%1 = input 1 f32 [d0, d1, d2]\n"
        "%2 = sub f32 %0 %1\noutput 0 f32 [d0, d1, d2] %2\n"
    )
    for a in ((1, 3, 8), (4, 1, 8), (4, 3, 1), (1, 1, 1), (4, 3, 8)):
        for b in ((4, 3, 8), (1, 3, 8), (4, 1, 1)):
            check(text, random(a, "f32"), random(b, "f32", 1))


@pytest.mark.parametrize("n", [30, 1000, 8192, 100000])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_rows_with_special_values(n: int, special: float) -> None:
    """One odd element spoils its own row, and no other."""
    x = random((6, n), "f32")
    x[1, n // 2] = special
    x[2, 0] = special
    x[3] = special
    check(corpus.softmax("f32"), x, limit=SOFTMAX_LIMIT)
    check(corpus.reduction("reduce_max", "f32"), x)
    check(corpus.reduction("reduce_min", "f32"), x)
    check(corpus.reduction("reduce_sum", "f32"), x, limit=64, floor=1e-4)


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
