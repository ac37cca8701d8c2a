"""Programs that are written over what they read, on the GPU: they compute what they compute elsewhere, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import arrays_for, programs
from test_in_place_programs import ELSEWHERE, check, elsewhere

from onnxfuse.custom_ops.parser import parse
from onnxfuse.custom_ops.program import Program

# What a thread may do with its elements before all of them are stored; each has the shape of its input.
POINTWISE = {
    "two outputs, one of them transposed": (
        "space d0 d1\n%0 = input 0 f32 [d0, d1]\n%1 = exp f32 %0\n%2 = sub f32 %0 %1\n"
        "output 0 f32 [d0, d1] %1\noutput 1 f32 [d1, d0] %2\n"
    ),
    "transposed alike": (
        "space d0 d1\n%0 = input 0 f32 [d1, d0]\n%1 = input 1 f32 [d0, d1]\n%2 = mul f32 %0 %1\n"
        "output 0 f32 [d1, d0] %2\n"
    ),
    "reduced dimensions without a reduction": (
        "space d0 | d1 |\n%0 = input 0 f32 [d0, d1]\n%1 = exp f32 %0\n%2 = sub f32 %0 %1\noutput 0 f32 [d0, d1] %2\n"
        "output 1 f32 [d0, d1] %1\n"
    ),
    "columns without a reduction": (
        "space | d0 | d1\n%0 = input 0 f32 [d0, d1]\n%1 = exp f32 %0\n%2 = sub f32 %0 %1\noutput 0 f32 [d0, d1] %2\n"
        "output 1 f32 [d0, d1] %1\n"
    ),
    "another type of the same size": (
        "space d0 d1\n%0 = input 0 i32 [d0, d1]\n%1 = cast f32 %0\n%2 = sin f32 %1\noutput 0 f32 [d0, d1] %2\n"
        "output 1 f32 [d0, d1] %1\n"
    ),
    "halves by kernels of their own": (
        "space d0=64 d1=128\n%0 = input 0 f32 [d0:128, d1]\n%1 = exp f32 %0\noutput 0 f32 [d0:128, d1] %1\n"
        "space d0=64 d1=128\n%0 = input 0 f32 [d0+64, d1]\n%1 = relu f32 %0\noutput 0 f32 [d0+64:128, d1] %1\n"
    ),
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("side", [128, 131])  # vectors, and what is left of them
def test_what_a_thread_does(name: str, side: int) -> None:
    program = parse("onnxfuse 1\n" + POINTWISE[name])
    side = 128 if "halves" in name else side
    rng = np.random.default_rng(1)
    types = {"f32": np.float32, "i32": np.int32}
    arrays = [(4 * rng.standard_normal((side, side))).astype(types[type_]) for type_, _ in program.inputs]
    for _ in range(3):
        check(program, arrays, "cuda")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_reads_other_places(name: str) -> None:
    check(*elsewhere(name), "cuda")


@settings(max_examples=30, deadline=None)
@given(programs(types=("f32", "f16", "i32", "bool"), max_kernels=3), st.integers(0, 1000))
def test_random_programs(program: Program, seed: int) -> None:
    arrays = arrays_for(program, np.random.default_rng(seed))
    if arrays is not None:
        check(program, arrays, "cuda")
