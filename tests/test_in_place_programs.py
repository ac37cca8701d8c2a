"""Programs that ONNX Runtime has written over what they read compute what they compute elsewhere, to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from strategies import arrays_for, programs
from truth import PROVIDERS

from onnxfuse.custom_ops import OUT_OF_PLACE
from onnxfuse.custom_ops.library import library_path
from onnxfuse.custom_ops.parser import parse
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.types import to_onnx

Array = npt.NDArray[Any]


def between_copies(program: Program, arrays: Sequence[Array], op_type: str) -> onnx.ModelProto:
    """A model in which other nodes make what the fused node reads, and read what it makes.

    Only then does ONNX Runtime put a result in the place of an input, whose shapes it must know.
    """
    nodes, feeds, results, names = [], [], [], []
    for i, ((type_, rank), array) in enumerate(zip(program.inputs, arrays, strict=True)):
        feeds.append(helper.make_tensor_value_info(f"x{i}", to_onnx(type_), list(array.shape)))
        names.append(f"in{i}" if rank else f"x{i}")  # a tensor without dimensions cannot be concatenated
        if rank:
            nodes.append(helper.make_node("Concat", [f"x{i}"], [f"in{i}"], axis=0))
    outputs = [f"out{i}" if rank else f"y{i}" for i, (_, rank) in enumerate(program.outputs)]
    nodes.append(helper.make_node(op_type, names, outputs, domain="onnxfuse", program=program.text()))
    between = []
    for i, (type_, rank) in enumerate(program.outputs):
        if rank:
            nodes.append(helper.make_node("Concat", [f"out{i}"], [f"y{i}"], axis=0))
            between.append(helper.make_tensor_value_info(f"out{i}", to_onnx(type_), [None] * rank))  # for 1.18
        results.append(helper.make_tensor_value_info(f"y{i}", to_onnx(type_), [None] * rank))
    graph = helper.make_graph(nodes, "g", feeds, results, value_info=between)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("onnxfuse", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: onnx.ModelProto, arrays: Sequence[Array], provider: str = "cpu") -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # keeps the copies
    options.register_custom_ops_library(str(library_path()))
    session = ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS[provider])
    return list(session.run(None, {f"x{i}": array for i, array in enumerate(arrays)}))


def check(program: Program, arrays: Sequence[Array], provider: str = "cpu") -> None:
    expected = run(between_copies(program, arrays, OUT_OF_PLACE), arrays, provider)
    found = run(between_copies(program, arrays, "FusedElementwise"), arrays, provider)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=80, deadline=None)
@given(programs(types=("f32", "f16", "f64", "i32", "bool"), max_kernels=3), st.integers(0, 1000))
def test_random_programs(program: Program, seed: int) -> None:
    """Also those that read other elements than they make: they are not called FusedElementwise, but may be."""
    arrays = arrays_for(program, np.random.default_rng(seed))
    if arrays is not None:
        check(program, arrays)


@pytest.mark.parametrize("exponent", ["2", "3", "4"])
@pytest.mark.parametrize(("type_", "dot"), [("f32", ".0"), ("f64", ".0"), ("i32", ""), ("i64", "")])
def test_powers(type_: str, dot: str, exponent: str) -> None:
    """A cube is two products, of which the second reads the base again."""
    text = (
        f"onnxfuse 1\nspace d0 d1\n%0 = input 0 {type_} [d0, d1]\n%1 = const {type_} {exponent}{dot}\n"
        f"%2 = pow {type_} %0 %1\noutput 0 {type_} [d0, d1] %2\n"
    )
    array = (np.arange(96 * 50).reshape(96, 50) % 11 - 5).astype(onnx.helper.tensor_dtype_to_np_dtype(to_onnx(type_)))
    check(parse(text), [array])
    np.testing.assert_array_equal(
        run(between_copies(parse(text), [array], "FusedElementwise"), [array])[0], array ** int(exponent)
    )


ELSEWHERE = {
    "a kernel behind": (
        "space d0=64 d1=64\n%0 = input 0 f32 [d0, d1]\n%1 = exp f32 %0\noutput 0 f32 [d0, d1] %1\n"
        "space d0=64 d1=64\n%0 = input 0 f32 [d0, d1]\n%1 = relu f32 %0\noutput 1 f32 [d0, d1] %1\n"
    ),
    "halves that change places": (
        "space d0=32 d1=64\n%0 = input 0 f32 [d0+32, d1]\noutput 0 f32 [d0:64, d1] %0\n"
        "space d0=32 d1=64\n%0 = input 0 f32 [d0:64, d1]\noutput 0 f32 [d0+32:64, d1] %0\n"
    ),
    "behind a tensor of another rank": (
        "space d0=64 d1=64\n%0 = input 0 f32 [d1]\n%1 = input 1 f32 [d1, d0]\n%2 = mul f32 %0 %1\n"
        "output 0 f32 [d0, d1] %2\n"
    ),
    "a row read again": (  # a softmax whose row has a number far above its neighbours
        "space d0=64 | d1=64 |\n%0 = input 0 f32 [d0, d1]\n%1 = reduce_max f32 %0\n%2 = sub f32 %0 %1\n"
        "%3 = exp f32 %2\n%4 = reduce_sum f32 %3\n%5 = div f32 %3 %4\noutput 0 f32 [d0, d1] %5\n"
    ),
}


def elsewhere(name: str) -> tuple[Program, list[Array]]:
    """A program that reads other places than it writes, and inputs."""
    program = parse("onnxfuse 1\n" + ELSEWHERE[name])
    rng = np.random.default_rng(1)
    arrays: list[Array] = [
        rng.standard_normal([64, 64] if rank == 2 else [1]).astype(np.float32) for _, rank in program.inputs
    ]
    arrays[-1][:, 33] = 500
    return program, arrays


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_reads_other_places(name: str) -> None:
    check(*elsewhere(name))
