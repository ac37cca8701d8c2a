"""Programs of all shapes on the CPU engine, against their evaluation in float64."""

from __future__ import annotations

import itertools

import cuda_corpus
import ml_dtypes
import numpy as np
import pytest
from cpu_runner import Array, check, run, run_in, session, ulps
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import SMOOTH, arrays_for, programs

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Program

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.normal(size=shape).astype(dtype)


def dims(rank: int, start: int = 0) -> str:
    return ", ".join(f"d{k}" for k in range(start, rank))


def elementwise(rank: int, maps: list[str], body: list[str], type_: str = "f32") -> str:
    """Inputs of these maps, then the statements of the body; stores its last value."""
    lines = ["onnxfuse 1", " ".join(["space", *(f"d{k}" for k in range(rank))])]
    lines += [f"%{i} = input {i} {type_} [{m}]" for i, m in enumerate(maps)]
    lines += [f"%{i + len(maps)} = {statement}" for i, statement in enumerate(body)]
    lines.append(f"output 0 {type_} [{dims(rank)}] %{len(maps) + len(body) - 1}")
    return "\n".join(lines) + "\n"


def reduction(op: str, type_: str, outer: int, reduced: int, inner: int, scale: bool = False) -> str:
    """A reduction of input 0, and with `scale` its product with each point besides."""
    rank = outer + reduced + inner
    names = [f"d{k}" for k in range(rank)]
    groups = [names[:outer], names[outer : outer + reduced], names[outer + reduced :]]
    space = " ".join(["space", *groups[0], "|", *groups[1], "|", *groups[2]])
    kept = ", ".join(groups[0] + ["0"] * reduced + groups[2])
    lines = [
        "onnxfuse 1",
        space,
        f"%0 = input 0 {type_} [{dims(rank)}]",
        f"%1 = {op} {type_} %0",
        f"output 0 {type_} [{kept}] %1",
    ]
    if scale:
        lines[4:] = [f"%2 = mul {type_} %0 %1", lines[4], f"output 1 {type_} [{dims(rank)}] %2"]
    return "\n".join(lines) + "\n"


LAYER_NORM = """onnxfuse 1
space d0 | d1 |
%0 = input 0 {t} [d0, d1]
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
%11 = input 2 {t} [d1]
%12 = add f32 %10 %11
output 0 {t} [d0, d1] %12
"""

SOFTMAX = cuda_corpus.softmax("f32")


@pytest.mark.parametrize("rank", range(7))
@pytest.mark.parametrize("extent", [1, 2, 3, 5])
def test_ranks(rank: int, extent: int) -> None:
    text = elementwise(rank, [dims(rank), dims(rank)], ["mul f32 %0 %1", "add f32 %2 %0"])
    shape = tuple(max(1, extent - k % 2) for k in range(rank))
    check(text, normal(*shape), normal(*shape), floor=1e-6)


@pytest.mark.parametrize("broadcast", list(itertools.product([False, True], repeat=3)))
def test_extents_of_one_are_broadcast_at_run_time(broadcast: tuple[bool, ...]) -> None:
    text = elementwise(3, [dims(3), dims(3), "d2"], ["mul f32 %0 %1", "add f32 %3 %2", "tanh f32 %4"])
    for shape in ((2, 3, 5), (7, 1, 130), (3, 50, 2), (40, 41, 3), (2, 3, 1100)):
        small = [1 if b else n for b, n in zip(broadcast, shape, strict=True)]
        check(text, normal(*shape), normal(*small), normal(small[2]), floor=1e-6)
        check(text, normal(*small), normal(*shape), normal(1), floor=1e-6)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 33, 63, 127, 129, 255, 257, 1023, 1024, 1025, 2049, 40001])
def test_odd_sizes(n: int) -> None:
    text = elementwise(1, ["d0", "0"], ["add f32 %0 %1", "exp f32 %2", "sub f32 %0 %3"])
    check(text, normal(n), normal(1), threads=2, limit=40, floor=1e-5)


@pytest.mark.parametrize("type_", ["f32", "f64", "i8", "u16", "i32", "i64", "u64"])
def test_scalar_operands_on_either_side(type_: str) -> None:
    body = [f"const {type_} {'2.0' if type_[0] == 'f' else 2}", f"sub {type_} %0 %1", f"sub {type_} %1 %2"]
    body += ["less bool %3 %1", f"where {type_} %4 %1 %3", f"where {type_} %4 %5 %1", f"mul {type_} %6 %5"]
    text = elementwise(1, ["d0"], body, type_)
    dtype = {"f32": "float32", "f64": "float64", "i8": "int8", "u16": "uint16"}.get(
        type_, type_.replace("i", "int").replace("uint", "uint").replace("u6", "uint6")
    )
    check(text, (RNG.normal(size=1500) * 5).astype("int8").astype(dtype))


MAPS = {
    "transposed": ("space d0 d1", ["d1, d0"], [(7, 5), (300, 40), (1030, 3)]),
    "reversed": ("space d0=6 d1=5", ["-1*d0+5, d1", "d0, -1*d1+4"], [(6, 5)]),
    "strided": ("space d0=4 d1=300", ["2*d0+1, 3*d1", "d1"], [(9, 900)]),
    "window": ("space d0=30 d1=3", ["d0+d1", "2*d0+d1"], [(62,)]),
    "permuted": ("space d0 d1 d2 d3", ["d0, d2, d1, d3", "d3, d2, d1, d0"], [(2, 3, 4, 5)]),
    "diagonal": ("space d0", ["d0, d0"], [(40, 40)]),
    "fixed": ("space d0", ["2, d0, 1"], [(3, 70, 2)]),
}


@pytest.mark.parametrize("case", MAPS)
def test_input_maps(case: str) -> None:
    space, maps, shapes = MAPS[case]
    rank = space.count("d")
    for shape in shapes:
        lines = ["onnxfuse 1", space, *(f"%{i} = input {i} f32 [{m}]" for i, m in enumerate(maps))]
        lines += [f"%{len(maps)} = add f32 %0 %{len(maps) - 1}", f"output 0 f32 [{dims(rank)}] %{len(maps)}"]
        arrays = []
        for i, m in enumerate(maps):
            entries = m.split(", ")
            if case == "permuted" and i == 1:
                arrays.append(normal(shape[3], shape[1], shape[2], shape[0]))
            else:
                arrays.append(normal(*(shape if len(entries) == len(shape) else shape[-len(entries) :])))
        if case == "strided":
            arrays[1] = normal(300)
        check("\n".join(lines) + "\n", *arrays)


@pytest.mark.parametrize(
    ("space", "map_"),
    [
        ("space d0 d1", "d1, d0"),
        ("space d0 d1", "d0, 0, d1"),
        ("space d0=5 d1", "-1*d0+4:5, d1"),
        ("space d0=5 d1=7", "7*d0+d1:35"),
        ("space d0=5 d1=7", "d0+5*d1:35"),
        ("space d0=5 d1=7", "7*d0+-1*d1+6:35"),
    ],
)
def test_output_maps(space: str, map_: str) -> None:
    lines = ["onnxfuse 1", space, "%0 = input 0 f32 [d0, d1]", "%1 = neg f32 %0", f"output 0 f32 [{map_}] %1"]
    check("\n".join(lines) + "\n", normal(5, 7))
    check("\n".join(lines).replace("f32", "f16").replace("neg f16", "neg f32") + "\n", normal(5, 7, dtype="float16"))


def test_two_outputs_fill_one_tensor() -> None:
    text = """onnxfuse 1
space d0=4 d1=300
%0 = input 0 f32 [d0, d1]
%1 = neg f32 %0
output 0 f32 [d0, 2*d1:600] %0
output 0 f32 [d0, 2*d1+1:600] %1
"""
    check(text, normal(4, 300))


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (200, 3), (2, 2000)])
def test_outputs_that_lack_dimensions(shape: tuple[int, int]) -> None:
    text = """onnxfuse 1
space d0 d1
%0 = input 0 f32 [d0, d1]
%1 = input 1 f32 [d0]
%2 = input 2 f32 [d1]
%3 = neg f32 %1
%4 = neg f32 %2
%5 = add f32 %0 %3
%6 = add f32 %5 %4
%7 = const f32 1.5
output 0 f32 [d0, 0] %3
output 1 f32 [d1] %4
output 2 f32 [d0, d1] %6
output 3 f32 [] %7
output 4 f32 [d1, d0] %3
output 5 f32 [0] %7
"""
    check(text, normal(*shape), normal(shape[0]), normal(shape[1]), floor=1e-6)


def test_programs_of_several_kernels() -> None:
    text = """onnxfuse 1
space d0 d1
%0 = input 0 f32 [d0, d1]
%1 = exp f32 %0
output 0 f32 [d0, d1] %1
space d0 | d1 |
%0 = input 1 f64 [d0, d1]
%1 = reduce_sum f64 %0
output 1 f64 [d0] %1
space
%0 = const i32 7
output 2 i32 [] %0
"""
    check(text, normal(3, 70), normal(9, 33, dtype="float64"), floor=1e-14)


FLOAT_REDUCTIONS = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"]


@pytest.mark.parametrize("op", FLOAT_REDUCTIONS)
@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("layout", [(1, 1, 0), (0, 1, 1), (1, 1, 1), (2, 2, 0), (0, 2, 2), (1, 2, 1), (0, 3, 0)])
def test_reductions(op: str, type_: str, layout: tuple[int, int, int]) -> None:
    text = reduction(op, type_, *layout, scale=True)
    rank = sum(layout)
    sets = {
        2: [(5, 7), (3, 1030), (1030, 3), (64, 64), (2, 20000)],
        3: [(3, 5, 7), (2, 300, 17), (2, 17, 300), (4, 40, 1)],
    }
    rng = np.random.default_rng(0)  # of its own: a sum may be near 0 by chance
    for shape in sets.get(rank, [(2, 3, 4, 5), (3, 20, 30, 2), (2, 4, 5, 50)]):
        x = rng.normal(size=shape)
        x = np.exp(x * 0.02) if op == "reduce_prod" else x
        check(text, x.astype("float32" if type_ == "f32" else "float64"), threads=2, limit=600, floor=2e-6)


@pytest.mark.parametrize("type_", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"])
@pytest.mark.parametrize("layout", [(1, 1, 0), (0, 1, 1)])
def test_integer_reductions(type_: str, layout: tuple[int, int, int]) -> None:
    ops = [op for op in FLOAT_REDUCTIONS if type_ in PRIMITIVES[op].types]
    dtype = "bool" if type_ == "bool" else ("uint" if type_[0] == "u" else "int") + type_[1:]
    for op, shape in itertools.product(ops, [(3, 300), (300, 30), (1, 1), (20, 5)]):
        x = RNG.integers(0, 2, shape) if type_ == "bool" else RNG.integers(-3 if type_[0] == "i" else 0, 4, shape)
        (actual,) = run(reduction(op, type_, *layout), x.astype(dtype))
        axis = layout[0]
        wide = x.astype(dtype)
        function = {"reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_max": np.max, "reduce_min": np.min}.get(op)
        if function is None:
            total = np.sum(wide, axis, dtype=dtype, keepdims=True)
            expected = np.trunc(total / wide.shape[axis])
        else:
            kwargs = {"dtype": dtype} if op in ("reduce_sum", "reduce_prod") else {}
            expected = function(wide, axis=axis, keepdims=True, **kwargs)
        np.testing.assert_array_equal(actual, expected.astype(dtype))


@pytest.mark.parametrize("op", FLOAT_REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_reductions_of_nothing(op: str, shape: tuple[int, int]) -> None:
    identity = {"reduce_sum": 0.0, "reduce_prod": 1.0, "reduce_max": -np.inf, "reduce_min": np.inf}.get(op, np.nan)
    (row,) = run(reduction(op, "f32", 1, 1, 0), np.zeros(shape, np.float32))
    np.testing.assert_array_equal(row, np.full((shape[0], 1), identity if shape[1] == 0 else 0, np.float32))
    (column,) = run(reduction(op, "f32", 0, 1, 1), np.zeros(shape, np.float32))
    np.testing.assert_array_equal(column, np.full((1, shape[1]), identity if shape[0] == 0 else 0, np.float32))


@pytest.mark.parametrize("op", ["reduce_max", "reduce_min"])
@pytest.mark.parametrize("at", [0, 1, 500, 1299])
@pytest.mark.parametrize("transposed", [False, True])
def test_nan_wins(op: str, at: int, transposed: bool) -> None:
    x = normal(20, 1300)
    x[7, at] = np.nan
    (y,) = run(reduction(op, "f32", 0, 1, 1) if transposed else reduction(op, "f32", 1, 1, 0), x.T if transposed else x)
    assert np.flatnonzero(np.isnan(y.ravel())).tolist() == [7]


def test_sums_are_accurate() -> None:
    x = (RNG.uniform(0.5, 1, (3, 1 << 18)) + 1000).astype(np.float32)
    check(reduction("reduce_sum", "f32", 1, 1, 0), x, limit=1)
    check(reduction("reduce_sum", "f32", 1, 1, 0), np.ascontiguousarray(x[:, :16000]), limit=2)
    check(reduction("reduce_mean", "f32", 0, 1, 1), np.ascontiguousarray(x[:, :9000].T), limit=1)
    check(reduction("reduce_mean", "f32", 1, 1, 0), np.full((2, 5000), 3e38, np.float32), limit=1)


def test_a_broadcast_operand_counts_as_often_as_it_is_read() -> None:
    text = """onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = input 1 f32 [d0, d1]
%2 = reduce_sum f32 %0
%3 = reduce_sum f32 %1
output 0 f32 [d0] %2
output 1 f32 [d0] %3
"""
    for n in (5, 1500):
        check(text, normal(3, 1), normal(3, n), limit=30)
        check(text, normal(3, n), normal(1, 1), limit=30, floor=1e-5)


@pytest.mark.parametrize("columns", [1, 3, 16, 100, 768, 1025, 16384, 16400, 300000])
@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
def test_layer_norm(columns: int, type_: str) -> None:
    dtype = {"f32": np.dtype("float32"), "f16": np.dtype("float16"), "bf16": np.dtype(ml_dtypes.bfloat16)}[type_]
    x = normal(3, columns) / 4 + np.linspace(-2, 2, columns, dtype=np.float32)  # a variance that is not small
    x, gamma, beta = (a.astype(dtype) for a in (x, normal(columns), normal(columns)))
    limit, floor = (16, 1e-6) if type_ == "f32" else (0.51, 1e-5)
    check(LAYER_NORM.format(t=type_), x, gamma, beta, limit=limit, floor=floor, threads=2)


@pytest.mark.parametrize("columns", [1, 7, 64, 1000, 5000, 300000])
def test_softmax(columns: int) -> None:
    check(SOFTMAX, normal(4, columns) * 10, limit=100, threads=2)  # the difference rounds before exp enlarges it
    x = np.full((2, columns), -np.inf, np.float32)
    assert np.isnan(run(SOFTMAX, x)[0]).all()


def test_group_norm_scale_inside_the_reduced_block() -> None:
    text = """onnxfuse 1
space d0 d1 | d2 d3 |
%0 = input 0 f32 [d0, 4*d1+d2, d3]
%1 = reduce_mean f32 %0
%2 = sub f32 %0 %1
%3 = mul f32 %2 %2
%4 = reduce_mean f32 %3
%5 = sqrt f32 %4
%6 = div f32 %2 %5
%7 = input 1 f32 [4*d1+d2]
%8 = mul f32 %6 %7
output 0 f32 [d0, d1, d2, d3] %8
"""
    for points in (3, 50, 3000):
        text_here = text.replace("d0 d1 | d2 d3 |", f"d0 d1=2 | d2=4 d3={points} |")
        check(text_here, normal(2, 8, points), normal(8), limit=40, floor=1e-6)


def test_channels_first_layer_norm() -> None:
    text = LAYER_NORM.format(t="f32").replace("space d0 | d1 |", "space d0 | d1 | d2")
    text = text.replace("input 0 f32 [d0, d1]", "input 0 f32 [d0, d1, d2]").replace(
        "output 0 f32 [d0, d1]", "output 0 f32 [d0, d1, d2]"
    )
    for shape in ((2, 40, 16), (2, 256, 300), (1, 3, 5000), (3, 20, 2)):
        x = normal(*shape) / 4 + np.linspace(-2, 2, shape[1], dtype=np.float32)[:, None]  # a variance that is not small
        check(text, x, normal(shape[1]), normal(shape[1]), limit=40, floor=2e-6, threads=2)


@pytest.mark.parametrize("text", [SOFTMAX, LAYER_NORM.format(t="f32")], ids=["softmax", "layer_norm"])
@pytest.mark.parametrize("shape", [(600, 257), (2, 600000), (1, 300001)])
def test_results_do_not_depend_on_the_number_of_threads(text: str, shape: tuple[int, int]) -> None:
    inputs = [normal(*shape), normal(shape[1]), normal(shape[1])][: 3 if "input 1" in text else 1]
    one = run(text, *inputs, threads=1)[0]
    two = run(text, *inputs, threads=2)[0]
    np.testing.assert_array_equal(one.view(np.int32), two.view(np.int32))


def test_one_session_takes_many_shapes() -> None:
    text = elementwise(2, ["d0, d1", "d1"], ["add f32 %0 %1"])
    node = session(text)
    for n in (*range(1, 50), 7, 3, 1):
        x, b = normal(n, 2 * n), normal(2 * n)
        np.testing.assert_array_equal(run_in(node, text, [x, b])[0], x + b)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_sixteen_bit_floats_round_once(type_: str) -> None:
    dtype = np.dtype(np.float16) if type_ == "f16" else np.dtype(ml_dtypes.bfloat16)
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    text = "onnxfuse 1\nspace d0\n%0 = input 0 T [d0]\noutput 0 T [d0] %0\n".replace("T", type_)
    (same,) = run(text, x)
    nan = np.isnan(x.astype(np.float32))
    np.testing.assert_array_equal(same[~nan].view(np.uint16), x[~nan].view(np.uint16))
    assert np.isnan(same[nan].astype(np.float32)).all()
    wide = np.concatenate([RNG.integers(0, 2**32, 60001, np.uint32).view(np.float32), normal(1000)])
    text = f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\noutput 0 {type_} [d0] %0\n"
    with np.errstate(all="ignore"):
        expected = wide.astype(dtype)
    nan = np.isnan(wide)
    np.testing.assert_array_equal(run(text, wide)[0][~nan].view(np.uint16), expected[~nan].view(np.uint16))
    assert np.isnan(run(text, wide)[0][nan].astype(np.float32)).all()


@settings(max_examples=150, deadline=None)
@given(programs(types=("f32", "f64", "i32", "i64", "u8", "bool", "f16"), operations=SMOOTH), st.integers(0, 10**6))
def test_random_programs(program: Program, seed: int) -> None:
    inputs = arrays_for(program, np.random.default_rng(seed), broadcast=0.2)
    if inputs is not None:
        check(program.text(), *inputs, limit=64, floor=1e-5, as_typed=True)


@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("n", [1, 31, 32, 127, 128, 129, 300, 1024, 1100, 5000])  # around the blocks of pipelines
def test_chains_that_read_a_value_again(n: int, type_: str) -> None:
    text = f"""onnxfuse 1
space d0 d1
%0 = input 0 {type_} [d0, d1]
%1 = input 1 {type_} [d1]
%2 = add f32 %0 %1
%3 = relu f32 %2
%4 = sub f32 %1 %3
%5 = sigmoid f32 %4
%6 = mul f32 %2 %5
%7 = input 2 {type_} [d0, 0]
%8 = max f32 %7 %6
%9 = div f32 %8 %3
output 0 {type_} [d0, d1] %6
output 1 f32 [d0, d1] %8
output 2 {type_} [d0, d1] %9
"""
    dtype = {"f32": np.dtype("float32"), "f16": np.dtype("float16"), "bf16": np.dtype(ml_dtypes.bfloat16)}[type_]
    x, y, z = (a.astype(dtype) for a in (normal(3, n), normal(n), normal(3, 1)))
    check(text, x, y, z, limit=12, floor=1e-6)


@pytest.mark.parametrize("divisor", ["8.0", "-0.5", "1.2676506e+30", "1.7014118e+38", "3.0", "0.0"])
def test_division_by_a_constant_rounds_once(divisor: str) -> None:
    x = np.concatenate([normal(300), normal(300) * 1e-38, [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, 1e-45]])
    x = x.astype(np.float32)
    text = (
        f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = const f32 {divisor}\n"
        "%2 = div f32 %0 %1\noutput 0 f32 [d0] %2\n"
    )
    with np.errstate(all="ignore"):
        expected = x / np.float32(divisor)
    actual = run(text, x)[0]
    np.testing.assert_array_equal(actual, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]))


# 8 MB and more go past the caches of common machines; rows of odd lengths lie anywhere between cache lines.
@pytest.mark.parametrize("shape", [(1, 2500000), (3, 800001), (150, 16385), (9000, 257), (300, 8192)])
def test_outputs_larger_than_caches(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    chain = elementwise(2, ["d0, d1", "d0, 0"], ["relu f32 %0", "add f32 %2 %1", "mul f32 %3 %0"])
    np.testing.assert_array_equal(run(chain, x, x[:, :1], threads=2)[0], (np.maximum(x, 0) + x[:, :1]) * x)
    y = run(SOFTMAX, x, threads=2)[0]
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, wide / wide.sum(axis=1, keepdims=True), rtol=2e-6)
    gamma = normal(shape[1])
    z = run(LAYER_NORM.format(t="f32"), x, gamma, gamma, threads=2)[0]
    d = x.astype(np.float64) - x.mean(axis=1, keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(z, d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * gamma + gamma, atol=1e-5)


@pytest.mark.parametrize("columns", [64, 128, 300, 1500, 20000])
@pytest.mark.parametrize("op", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min"])
def test_reductions_of_chains(op: str, columns: int) -> None:
    """Reductions at the end of pipelines: of values that are stored too, of products, overflow, infinity and NaN."""
    text = f"""onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = input 1 f32 [d1]
%2 = mul f32 %0 %1
%3 = abs f32 %2
%4 = {op} f32 %3
%5 = mul f32 %2 %0
%6 = {op} f32 %5
%7 = sub f32 %2 %4
output 0 f32 [d0, d1] %3
output 1 f32 [d0] %4
output 2 f32 [d0] %6
output 3 f32 [d0, d1] %7
"""
    x, w = normal(7, columns), normal(columns)
    check(text, x, w, limit=4, floor=1e-4, threads=2)
    for special in (np.inf, -np.inf, np.nan, 3e38):
        x[2], x[3, 5], x[4, -1], x[5, columns // 2] = special, special, special, special
        check(text, x, np.ones(columns, np.float32), limit=4, floor=1e-4)


@pytest.mark.parametrize("divisor", [3.0, 1e-30, 1e-38, 1e-45, 0.0, -0.0, 1e31, 3e38, np.inf, np.nan, -7.0])
def test_quotients_by_a_value_of_the_row(divisor: float) -> None:
    x = np.concatenate([normal(200), normal(200) * 1e-38, [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, 1e-45]])
    x = np.stack([x, x]).astype(np.float32)
    d = np.array([[divisor], [-divisor]], np.float32)
    text = elementwise(2, ["d0, d1", "d0, 0"], ["div f32 %0 %1"])
    chain = elementwise(2, ["d0, d1", "d0, 0"], ["neg f32 %0", "div f32 %2 %1", "neg f32 %3"])
    with np.errstate(all="ignore"):
        expected = x.astype(np.float64) / d
        subnormal = (np.abs(x) < 1e-30) | (np.abs(expected) < 1e-30)
    for program in (text, chain):
        actual = run(program, x, d)[0]
        error = ulps(actual, expected)
        assert error[~subnormal].max() <= 0.5
        assert error.max() <= 2


def test_what_all_rows_share_is_stored_in_each_part_of_an_output() -> None:
    # Computed for a task's first item alone, right in the output: the second one's part was never written.
    text = """onnxfuse 1
space d0=2 d1=7 | d2=16 |
%0 = input 0 f32 [d2]
%1 = add f32 %0 %0
%2 = input 1 f32 [d1, d2]
%3 = reduce_sum f32 %1
%4 = mul f32 %2 %3
output 0 f32 [d0, d2] %1
output 1 f32 [d1, d2] %4
"""
    check(text, normal(16), normal(7, 16), limit=4, floor=1e-4)


@pytest.mark.parametrize("extent", [1, 5])
def test_results_along_some_of_the_reduced_dimensions_where_another_is_empty(extent: int) -> None:
    """No point of the space would store them."""
    text = """onnxfuse 1
space | d0 d1 |
%0 = input 0 f32 [d0, d1]
%1 = reduce_sum f32 %0
%2 = input 1 f32 [d1]
%3 = add f32 %1 %2
output 0 f32 [d1] %3
"""
    z = np.arange(extent, dtype=np.float32)
    np.testing.assert_array_equal(run(text, np.ones((2, extent), np.float32), z)[0], z + 2 * extent)
    if extent == 1:
        np.testing.assert_array_equal(run(text, np.zeros((0, 1), np.float32), z)[0], z)
        return
    with pytest.raises(Exception, match=r"output 0 varies along a reduced dimension, but not along another one"):
        run(text, np.zeros((0, extent), np.float32), z)
