"""Scans and arguments on the CPU engine: every type, direction and schedule, against numpy in float64."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_runner import Array, check, run, run_in, session
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import SMOOTH, arrays_for, programs

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply, Program
from onnxfuse.custom_ops.types import to_numpy

RNG = np.random.default_rng(0)
SCANS = [name for name, row in PRIMITIVES.items() if row.kind == "scan"]
ARGUMENTS = [name for name, row in PRIMITIVES.items() if row.kind == "argument"]
NUMBERS = PRIMITIVES["scan_sum"].types
FLAGS = ["", " exclusive", " reverse", " exclusive reverse"]
# whole rows, rows in tiles, columns, short rows; one row that tasks share
SHAPES = [(3, 300, 1), (2, 20000, 1), (3, 50, 17), (40, 5, 2), (2, 3, 1), (4, 1, 5), (1, 1, 1)]
SHARED = (1, 300001, 1)


def values(type_: str, shape: tuple[int, ...], op: str) -> Array:
    """Numbers whose sums and products stay in range, those of f32 exactly so."""
    if op == "scan_prod":
        return RNG.choice([-1, 1, 2, 0.5] if type_[0] == "f" else [1, 1, 2, 3], shape, p=[0.1, 0.8, 0.05, 0.05]).astype(
            to_numpy(type_)
        )
    low, high = (0 if type_[0] == "u" else -50), 50
    return RNG.integers(low, high, shape).astype(to_numpy(type_))


def program(statement: str, type_: str, result: str, kept: bool) -> str:
    output = "[d0, d1, d2]" if kept else "[d0, 0, d2]"
    lines = ["onnxfuse 1", "space d0 | d1 | d2", f"%0 = input 0 {type_} [d0, d1, d2]", f"%1 = {statement} %0"]
    return "\n".join([*lines, f"output 0 {result} {output} %1"]) + "\n"


@pytest.mark.parametrize(("op", "type_"), list(itertools.product(SCANS, NUMBERS)))
def test_scans(op: str, type_: str) -> None:
    for flags in FLAGS:
        node = session(text := program(f"{op}{flags} {type_}", type_, type_, kept=True), threads=2)
        for shape in [*SHAPES, SHARED] if type_ in ("f32", "f64", "i16", "u64") else SHAPES:
            x = values(type_, shape, op)
            check(text, x, limit=0.5, node=node)


@pytest.mark.parametrize(("op", "type_"), list(itertools.product(ARGUMENTS, NUMBERS)))
def test_arguments(op: str, type_: str) -> None:
    for flag in ("", " last"):
        node = session(text := program(f"{op}{flag} i64", type_, "i64", kept=False), threads=2)
        for shape in [*SHAPES, SHARED, (2, 0, 3), (2, 0, 1)]:
            check(text, values(type_, shape, op), node=node)
            check(text, np.zeros(shape, to_numpy(type_)), node=node)  # equal everywhere


@pytest.mark.parametrize("op", ARGUMENTS)
@pytest.mark.parametrize("shape", [(1, 300, 1), (1, 70, 16), (1, 20000, 1), (1, 300001, 1)])
def test_the_argument_of_nan_and_infinity(op: str, shape: tuple[int, ...]) -> None:
    n = shape[1]
    for flag, special in itertools.product(("", " last"), (np.nan, np.inf, -np.inf)):
        node = session(text := program(f"{op}{flag} i64", "f32", "i64", kept=False))
        for places in ([0], [n - 1], [5, n // 2, n - 3], range(n)):
            x = RNG.normal(size=shape).astype(np.float32)
            x[:, list(places)] = special
            check(text, x, node=node)


@pytest.mark.parametrize("op", SCANS)
@pytest.mark.parametrize("shape", [(2, 300, 1), (2, 70, 16), (2, 20000, 1), (1, 300001, 1)])
def test_nan_stays_and_infinity_is_a_number(op: str, shape: tuple[int, ...]) -> None:
    n = shape[1]
    for flags in FLAGS:
        node = session(text := program(f"{op}{flags} f32", "f32", "f32", kept=True), threads=2)
        for special, at in itertools.product((np.nan, np.inf, -np.inf), (0, n // 2, n - 1)):
            x = values("f32", shape, op)
            x[:, at] = special
            check(text, x, limit=0.5, node=node)


def test_a_sum_of_minus_zeros() -> None:
    x = np.full((1, 20, 1), -0.0, np.float32)
    inclusive = run(program("scan_sum f32", "f32", "f32", kept=True), x)[0]
    exclusive = run(program("scan_sum exclusive f32", "f32", "f32", kept=True), x)[0]
    assert np.signbit(inclusive).all()  # as numpy and ONNX Runtime have it
    assert not np.signbit(exclusive).any()


def test_long_sums_are_accurate() -> None:
    text = program("scan_sum f32", "f32", "f32", kept=True)
    check(text, (RNG.uniform(0.5, 1, (1, 1 << 20, 1)) + 1000).astype(np.float32), limit=0.51, threads=2)
    check(text, RNG.normal(size=(2, 16000, 1)).astype(np.float32), limit=0.51)
    check(text, RNG.normal(size=(2, 3000, 20)).astype(np.float32), limit=0.51)


BOTH_WAYS = """onnxfuse 1
space d0 | d1 | d2
%0 = input 0 f32 [d0, d1, d2]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = reduce_sum f32 %3
%5 = div f32 %3 %4
%6 = scan_sum f32 %5
%7 = scan_sum reverse f32 %5
%8 = sub f32 %6 %7
%9 = input 1 f32 [d1, 0]
%10 = scan_max f32 %9
%11 = mul f32 %8 %10
%12 = reduce_argmax i64 %0
%13 = neg f32 %6
output 0 f32 [d0, d1, d2] %5
output 1 f32 [d0, d1, d2] %11
output 2 i64 [d0, d2] %12
output 3 f32 [d0, d1, d2] %13
"""


@pytest.mark.parametrize("shape", [(3, 500, 1), (2, 30000, 1), (2, 60, 20), (1, 700001, 1), (3, 7, 2)])
def test_scans_both_ways_after_reductions(shape: tuple[int, ...]) -> None:
    x, w = RNG.normal(size=shape).astype(np.float32), RNG.normal(size=(shape[1], 1)).astype(np.float32)
    check(BOTH_WAYS, x, w, limit=100, floor=2e-6, threads=2)
    check(BOTH_WAYS, x, w[:1], limit=100, floor=2e-6)  # the scan of a broadcast element
    one_way = BOTH_WAYS.replace("scan_sum reverse", "scan_sum exclusive")
    check(one_way, x, w, limit=100, floor=2e-6, threads=2)
    other_way = BOTH_WAYS.replace("scan_sum f32", "scan_sum reverse f32").replace("scan_max", "scan_max reverse")
    check(other_way, x, w, limit=100, floor=2e-6, threads=2)


SEVERAL = """onnxfuse 1
space d0 | d1 d2 | d3
%0 = input 0 {t} [d2, d0, d3, d1]
%1 = input 1 {t} [d0, 0, d2, d3]
%2 = add f32 %0 %1
%3 = scan_sum{f} f32 %2
%4 = const f32 0.01
%5 = mul f32 %3 %4
%6 = add f32 %5 %0
%7 = reduce_argmin last i64 %2
output 0 {t} [d1, d2, d3, d0] %6
output 1 i64 [d3, d0] %7
"""


@pytest.mark.parametrize("type_", ["f32", "f16"])
@pytest.mark.parametrize("flags", FLAGS)
def test_several_reduced_dimensions_in_any_order(type_: str, flags: str) -> None:
    for d0, d1, d2, d3 in [(2, 3, 5, 4), (3, 20, 30, 1), (1, 40, 700, 1), (2, 4, 5, 33)]:
        x, y = RNG.normal(size=(d2, d0, d3, d1)), RNG.normal(size=(d0, 1, d2, d3))
        inputs = [a.astype(to_numpy(type_)) for a in (x, y)]
        check(SEVERAL.format(t=type_, f=flags), *inputs, limit=0.6 if type_ == "f16" else 30, floor=1e-5, threads=2)


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_bits_do_not_depend_on_threads_or_timing(flags: str, rows: int) -> None:
    text = (
        f"""onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = scan_sum{flags} f32 %3
%5 = scan_min{flags} f32 %0
%6 = scan_sum{flags} f64 %7
output 0 f32 [d0, d1] %4
output 1 f32 [d0, d1] %5
output 2 f64 [d0, d1] %6
""".replace("%6 = scan_sum", "%6 = cast f64 %3\n%7 = scan_sum")
        .replace("f64 %7\n", "f64 %6\n")
        .replace("] %6", "] %7")
    )
    x = RNG.normal(size=(rows, 400_001)).astype(np.float32)
    want = run(text, x, threads=1)
    for threads in (2, 3, 5):
        for one, several in zip(want, run_in(session(text, threads), text, [x]), strict=True):
            np.testing.assert_array_equal(one.view(np.uint8), several.view(np.uint8))


OPERATIONS = (*SMOOTH, *3 * ("scan_sum", "scan_max", "scan_min", *ARGUMENTS))


@settings(max_examples=150, deadline=None)
@given(programs(types=("f32", "f64", "i32", "i64", "u8", "f16"), operations=OPERATIONS), st.integers(0, 10**6))
def test_random_programs(program: Program, seed: int) -> None:
    used = {s.op for k in program.kernels for s in k.statements if isinstance(s, Apply)}
    inputs = arrays_for(program, np.random.default_rng(seed), broadcast=0.2)
    if inputs is not None and used & {*SCANS, *ARGUMENTS}:
        check(program.text(), *inputs, limit=64, floor=1e-5, as_typed=True)


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
def test_machines_with_less(isa: str) -> None:
    """The other instruction sets, each in a process of its own, since the choice is made once."""
    here = Path(__file__)
    names = "(test_scans and f32) or (test_arguments and f32) or nan_stays or minus_zeros or accurate"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-k", f"({names}) and not less", here.name]
    env = dict(os.environ, ONNXFUSE_CPU=isa)
    found = subprocess.run(command, cwd=here.parent, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
