"""Scans and arguments on the GPU, over every schedule, against their values in float64."""

from __future__ import annotations

import cuda_corpus
import numpy as np
import pytest
import scan_corpus as corpus
from gpu_runner import Array, Check, Tensor, bind, check_all, compare, new_session, random, run, session

from onnxfuse.custom_ops.types import to_numpy

# Half the distance from 1 to the next number of the type in which sums are gathered.
ROUNDING = {"f16": 2.0**-24, "bf16": 2.0**-24, "f32": 2.0**-24, "f64": 2.0**-53}
LENGTHS = (1, 2, 7, 30, 33, 64, 100, 256, 1000, 1023, 1024, 4096, 4097, 8192, 16384)
LONG = (16385, 32768, 50001, 131072)


def data(type_: str, shape: tuple[int, ...], op: str = "scan_sum") -> Array:
    x = random(shape, type_)
    if op == "scan_prod" and x.dtype.kind not in "iu":
        return np.exp(x.astype(np.float64) * 0.02).astype(x.dtype)
    return x


def error_of_sums(type_: str, x: Array) -> float:
    """The absolute error of running sums along axis 1, where they cancel.

    A rounding is of a partial sum; they meet in a tree. The reference of float64 adds one after the other.
    """
    if type_ not in ROUNDING or x.size == 0:
        return 0.0
    n = x.shape[1]
    largest = float(np.abs(np.cumsum(x.astype(np.float64), axis=1)).max())
    largest = max(largest, float(np.abs(np.cumsum(x[:, ::-1].astype(np.float64), axis=1)).max()))
    return ROUNDING[type_] * largest * float(n**0.5 if type_ == "f64" else max(4.0, np.log2(n)))


def scan_check(type_: str, shape: tuple[int, ...], op: str = "scan_sum", flags: str = "") -> Check:
    layout = corpus.COLUMNS if len(shape) == 3 else corpus.ROWS
    text, n = corpus.scan(type_, op, flags, layout), shape[1]
    limit = 4 + 2 * n**0.5 if op == "scan_prod" else 4  # relative errors of factors add up, in float64's truth as well
    x = data(type_, shape, op)
    floor = error_of_sums(type_, x) if op == "scan_sum" else 0.0
    return Check(text, [x], limit=limit, floor=floor, name=f"{op}{flags} {type_} {shape}")


@pytest.mark.parametrize("flags", corpus.FLAGS)
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_rows(type_: str, flags: str) -> None:
    check_all([scan_check(type_, (37 if n <= 4096 else 3, n), flags=flags) for n in (*LENGTHS, *LONG)])


@pytest.mark.parametrize("flags", corpus.FLAGS)
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_columns(type_: str, flags: str) -> None:
    shapes = [(3, n, inner) for n in (1, 2, 37, 257, 5000) for inner in (3, 8, 196)]
    shapes += [(1, 100000, 5), (1, 65536, 64), (40, 96, 784), (2, 9000, 1000)]
    check_all([scan_check(type_, shape, flags=flags) for shape in shapes])


@pytest.mark.parametrize("flags", corpus.FLAGS)
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_whole_columns(type_: str, flags: str) -> None:
    """Columns that a block has in registers: from one row to as many as fit, and beyond."""
    shapes = [(24, n, 784) for n in (1, 2, 15, 16, 17, 100, 255)] + [(1, 513, 16896)]
    if flags in ("", " exclusive reverse"):
        shapes += [(1, n, 16896) for n in (1024, 1025)]
    check_all([scan_check(type_, shape, flags=flags) for shape in shapes])


@pytest.mark.parametrize("flags", corpus.FLAGS)
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_tiles_of_columns(type_: str, flags: str) -> None:
    """Blocks take tiles of the columns in turns: with last tiles and last columns of all kinds, and many tiles."""
    shapes = [(1, 33000, 96), (3, 5001, 200), (2, 40000, 33), (1, 200000, 6), (1, 200001, 1), (1, 1 << 19, 8)]
    check_all([scan_check(type_, shape, flags=flags) for shape in shapes])


@pytest.mark.parametrize("op", corpus.SCANS)
def test_types_of_tiles_of_columns(op: str) -> None:
    shape = (1, 30001, 130)
    checks = [scan_check(type_, shape, op, flags) for type_ in corpus.TYPES for flags in ("", " exclusive reverse")]
    x = data("f16", (2, 9001, 300))
    check_all([*checks, Check(corpus.two_scans("f16"), [x], limit=8, floor=0.05)])


@pytest.mark.parametrize("op", corpus.SCANS)
def test_types_of_whole_columns(op: str) -> None:
    shape = (400, 17, 96)
    checks = [scan_check(type_, shape, op, flags) for type_ in corpus.TYPES for flags in ("", " exclusive reverse")]
    x = data("f32", (24, 70, 784))
    check_all([*checks, Check(corpus.all_scans("f32", " reverse", corpus.COLUMNS), [x], limit=16, floor=1e-4)])


@pytest.mark.parametrize("op", corpus.SCANS)
def test_types(op: str) -> None:
    shapes = [(5, 300), (2, 40000), (2, 300, 12)]
    for flags in ("", " exclusive reverse"):
        check_all([scan_check(type_, shape, op, flags) for type_ in corpus.TYPES for shape in shapes])


@pytest.mark.parametrize(
    ("rows", "n"), [(1, 1 << 22), (1, 3000001), (3, 1000003), (200, 40000), (1100, 20000), (1100, 20001)]
)
def test_long_rows(rows: int, n: int) -> None:
    """Rows that several blocks share, and blocks that go through long rows."""
    check_all([scan_check("f32", (rows, n), flags=flags) for flags in ("", " exclusive reverse")])


@pytest.mark.parametrize("method", ["0", "1", "2"])
def test_methods(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Each way through long rows, where the choice would be another one."""
    monkeypatch.setenv("ONNXFUSE_LONG_SCAN", method)
    session.cache_clear()
    shapes = [(3, 20000), (2, 1 << 20), (2, 5000, 24)]
    checks = [scan_check("f32", shape, op, flags) for shape in shapes for op in corpus.SCANS for flags in corpus.FLAGS]
    check_all(checks)
    session.cache_clear()


@pytest.mark.parametrize("layout", [corpus.ROWS, corpus.COLUMNS], ids=["rows", "columns"])
def test_with_reductions_and_other_scans(layout: tuple[str, str]) -> None:
    inner = () if layout == corpus.ROWS else (24,)
    checks = []
    for n in (5, 100, 1000, 4096, 20000, 100000):
        shape = (3, n, *inner) if n < 100000 else (1, n, *inner)
        x, scale = data("f32", shape), data("f32", (n,) if layout == corpus.ROWS else (n, 1))
        floor = 1e-4 * max(1, n / 4096) ** 0.5
        checks.append(Check(corpus.both_ways("f32", layout), [x, scale], limit=8, floor=floor, name=f"both {n}"))
        checks.append(Check(corpus.scans_and_maximum("f32", layout), [x], limit=8, floor=floor, name=f"max {n}"))
        for flags in ("", " exclusive reverse"):
            text = corpus.softmax_scan("f32", flags, layout)
            checks.append(Check(text, [x], limit=64, floor=2e-6, name=f"softmax{flags} {n}"))
    check_all(checks)


def test_clusters() -> None:
    """Rows that a cluster of blocks keeps until their reductions are known."""
    x = data("f32", (150, 70000))
    checks = [Check(corpus.softmax_scan("f32", flags), [x], limit=64, floor=2e-6) for flags in corpus.FLAGS]
    check_all([*checks, Check(corpus.scans_and_maximum("f32"), [x], limit=8, floor=1e-3)])
    half = data("f16", (150, 131072))
    check_all([Check(corpus.softmax_scan("f16", " reverse"), [half], floor=1e-4)])


@pytest.mark.parametrize("offset", [2, 4, 8])
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_unaligned(type_: str, offset: int) -> None:
    if offset % to_numpy(type_).itemsize:
        pytest.skip("elements lie at multiples of their size")
    shapes = [(5, 64), (5, 4096), (2, 40000), (2, 300, 64), (1, 40000, 64)]
    check_all([scan_check(type_, shape, flags=flags) for shape in shapes for flags in ("", " reverse")], offset)


def test_nothing_to_scan() -> None:
    checks = [scan_check("f32", shape) for shape in ((4, 0), (0, 4), (2, 0, 3), (2, 3, 0))]
    checks.append(Check(corpus.scans_and_maximum("f32"), [data("f32", (4, 0))]))
    checks += [Check(corpus.argument(type_), [data(type_, (4, 0))]) for type_ in ("f32", "i32")]
    check_all([*checks, Check(corpus.argument("f32", "reduce_argmin last", corpus.COLUMNS), [data("f32", (2, 0, 3))])])


@pytest.mark.parametrize("n", [300, 5000, 30000])
def test_special_values(n: int) -> None:
    """NaN stays, infinities of both signs give NaN, and a zero keeps a product 0 although all behind it overflows."""
    x = data("f32", (7, n))
    x[0, n // 3] = np.nan
    x[1, n // 3] = np.inf
    x[2, n // 3], x[2, n // 2] = np.inf, -np.inf
    x[3] = -0.0
    x[4, 0] = -np.inf
    checks = [
        Check(corpus.scan("f32", op, flags), [x], limit=8, floor=1e-4)
        for op in ("scan_sum", "scan_max", "scan_min")
        for flags in corpus.FLAGS
    ]
    twos = np.full((3, n), 2, np.float32)
    twos[0, 5] = 0
    twos[1, : n // 2] = 0.5
    twos[2, 9] = np.inf
    twos[2, 20] = -1
    products = [Check(corpus.scan(t, "scan_prod"), [twos.astype(to_numpy(t))]) for t in ("f32", "f64")]
    check_all([*checks, *products])
    (zeros,) = run(corpus.scan("f32"), x[3:4])
    assert np.signbit(zeros).all()
    (zeros,) = run(corpus.scan("f32", "scan_sum", " exclusive"), x[3:4])
    assert not np.signbit(zeros).any()


@pytest.mark.parametrize("shape", [(3, 40, 24), (24, 60, 784), (2, 20000, 64)])
def test_special_values_in_columns(shape: tuple[int, int, int]) -> None:
    n = shape[1]
    x = data("f32", shape)
    x[0, n // 3, 0] = np.nan
    x[0, n // 3, 1] = np.inf
    x[0, n // 3, 2], x[0, n // 2, 2] = np.inf, -np.inf
    x[0, :, 3] = -0.0
    x[0, 0, 4] = -np.inf
    operations = [(op, flags) for op in ("scan_sum", "scan_max", "scan_min") for flags in corpus.FLAGS]
    texts = [corpus.scan("f32", op, flags, corpus.COLUMNS) for op, flags in operations]
    check_all([Check(text, [x], limit=8, floor=1e-4) for text in texts])
    (zeros,) = run(corpus.scan("f32", "scan_sum", "", corpus.COLUMNS), x)
    assert np.signbit(zeros[0, :, 3]).all()
    (zeros,) = run(corpus.scan("f32", "scan_sum", " exclusive", corpus.COLUMNS), x)
    assert not np.signbit(zeros[0, :, 3]).any()


@pytest.mark.parametrize("n", [4096, 1 << 24])
def test_error_of_sums(n: int) -> None:
    """All values positive: the relative error is that of the last rounding and little more, however long the row."""
    x = np.random.default_rng(0).uniform(0, 1, (1, n)).astype(np.float32)
    (y,) = run(corpus.scan("f32"), x, shapes=[x.shape])
    exact = np.cumsum(x.astype(np.float64), axis=1)
    assert float((np.abs(y - exact) / exact).max()) < 2e-7


@pytest.mark.parametrize("op", corpus.ARGUMENTS)
def test_arguments(op: str) -> None:
    """Rounded values: nearly every row has its extreme several times."""
    rows = [(7, 1), (37, 33), (37, 1000), (5, 4096), (3, 16384), (150, 131072), (3, 50001), (1, 3000001)]
    columns = [(3, 37, 5), (2, 257, 64), (3, 5000, 8), (1, 100000, 5), (40, 96, 784)]
    checks = []
    for type_ in ("f32", "f16", "i32", "u8", "f64"):
        for shape in (*rows, *columns):
            if type_ not in ("f32", "f16") and np.prod(shape) > 1 << 20:
                continue
            x = data(type_, shape)
            x = np.round(x.astype(np.float64) * 4).astype(x.dtype) if x.dtype.kind not in "iu" else x
            layout = corpus.COLUMNS if len(shape) == 3 else corpus.ROWS
            checks.append(Check(corpus.argument(type_, op, layout), [x], name=f"{type_} {shape}"))
    check_all(checks)


def test_arguments_of_special_values() -> None:
    x = data("f32", (6, 3000))
    x[1, 500] = x[1, 700] = np.nan
    x[2, 5] = x[2, 2999] = np.inf
    x[3] = -np.inf
    x[4] = np.nan
    x[5] = np.inf
    tall = np.ascontiguousarray(x.T)[None]
    checks = [Check(corpus.argument("f32", op), [x], name=op) for op in corpus.ARGUMENTS]
    check_all([*checks, *(Check(corpus.argument("f32", op, corpus.COLUMNS), [tall]) for op in corpus.ARGUMENTS)])


def test_several_reduced_dimensions() -> None:
    check_all([Check(corpus.TWO_DIMENSIONS, [data("f32", shape)], floor=1e-4) for shape in ((6, 5, 70), (64, 3, 900))])


PROGRAMS = {
    "row": (corpus.scan_scale_bias("f32"), (1000, 4096)),
    "look back": (corpus.scan_scale_bias("f32"), (1, 1 << 24)),
    "look back, several rows": (corpus.all_scans("f16"), (5, 1000003)),
    "whole columns": (corpus.scan("f32", "scan_sum", "", corpus.COLUMNS), (24, 200, 784)),
    "tiles of columns": (corpus.scan("f32", "scan_sum", " reverse", corpus.COLUMNS), (1, 1 << 18, 24)),
    "tiles of many columns": (corpus.scan("f16", "scan_sum", "", corpus.COLUMNS), (1, 3000, 4096)),
    "two passes": (corpus.softmax_scan("f32", "", corpus.COLUMNS), (1, 100000, 24)),
    "reductions": (corpus.softmax_scan("f32"), (4, 1 << 20)),
    "cluster": (corpus.softmax_scan("f32"), (150, 70000)),
    "argument": (corpus.argument("f32"), (3, 1 << 20)),
}


def tensors(name: str, seed: int) -> tuple[str, Array, list[Tensor]]:
    text, shape = PROGRAMS[name]
    x = random(shape, "f16" if " f16 " in text else "f32", seed)
    program = cuda_corpus.parse(text)
    shapes = [shape if rank == len(shape) and "argument" not in name else (shape[0], 1) for _, rank in program.outputs]
    return text, x, [Tensor(s, t) for s, (t, _) in zip(shapes, program.outputs, strict=True)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_repeats_are_bit_identical(name: str) -> None:
    """200 runs, beside other work that shifts the order in which blocks get on."""
    import torch

    text, x, outputs = tensors(name, 0)
    node = new_session(text)
    source = Tensor(x.shape, "f16" if x.dtype == np.float16 else "f32", 0, x)
    binding = bind(node, [source], outputs)
    noise, other = torch.randn(1 << 22, device="cuda"), torch.cuda.Stream()
    first = None
    for k in range(200):
        with torch.cuda.stream(other):
            for _ in range(k % 5):
                noise = noise.roll(1)
        node.run_with_iobinding(binding)
        torch.cuda.synchronize()
        bits = [y.memory.clone() for y in outputs]
        first = first or bits
        assert all(torch.equal(a, b) for a, b in zip(first, bits, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_cuda_graph(name: str) -> None:
    """Captured in the first runs, replayed with other data afterwards."""
    import torch

    text, x, outputs = tensors(name, 0)
    node = new_session(text, enable_cuda_graph="1")
    source = Tensor(x.shape, "f16" if x.dtype == np.float16 else "f32", 0, x)
    binding = bind(node, [source], outputs)
    for repeat in range(3):
        fresh = tensors(name, repeat)[1]
        source.memory[: source.size] = torch.from_numpy(fresh.reshape(-1).view(np.uint8)).cuda()
        torch.cuda.synchronize()
        node.run_with_iobinding(binding)
        torch.cuda.synchronize()
        compare(text, [y.numpy() for y in outputs], [fresh], limit=64, floor=5e-2 if x.dtype == np.float16 else 5e-3)


def test_more_than_2_to_the_31_elements() -> None:
    """One row: the bits of a running maximum are those of PyTorch's."""
    import torch

    count = (1 << 31) + 1003
    x = torch.empty(count, dtype=torch.float16, device="cuda")
    for k in range(0, count, 1 << 28):
        x[k : k + (1 << 28)].normal_()
    x[count - 5] = 100
    y = torch.full_like(x, float("nan"))
    node = new_session(corpus.scan("f16", "scan_max"))
    binding = node.io_binding()
    binding.bind_input("x0", "cuda", 0, np.float16, [1, count], x.data_ptr())
    binding.bind_output("y0", "cuda", 0, np.float16, [1, count], y.data_ptr())
    torch.cuda.synchronize()
    node.run_with_iobinding(binding)
    torch.cuda.synchronize()
    carry = torch.tensor(float("-inf"), dtype=torch.float16, device="cuda")
    for part, got in zip(x.split(1 << 28), y.split(1 << 28), strict=True):
        expected = torch.maximum(part.cummax(0).values, carry)
        assert torch.equal(expected, got)
        carry = expected[-1]
