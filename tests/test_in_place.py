"""Results that ONNX Runtime has written over what they are computed from, and those that must not be."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_check import check, fused_nodes
from graphs import parse
from truth import run

import onnxfuse
from onnxfuse.benchmark.account import take_account
from onnxfuse.custom_ops import OUT_OF_PLACE
from onnxfuse.custom_ops.in_place import OVERWRITTEN, is_pointwise
from onnxfuse.custom_ops.program import Program

SIDE = 96  # more than a tile of any engine
# What follows reads `h`, made by a node that is not fused, so that its buffer may be used again.
HEAD = f"g (float[{SIDE}, {SIDE}] x, float[{SIDE}, {SIDE}] w) => (float[{SIDE}, {SIDE}] y) {{ h = MatMul (x, w) "


POINTWISE = {
    "chain": "a = Relu (h) b = Exp (a) c = MatMul (b, w) d = Abs (c) y = Sqrt (d)",
    "residual": "a = Relu (h) b = Add (a, h) c = MatMul (b, w) d = Mul (c, b) y = Tanh (d)",
    "beside what a run brings": "a = Mul (x, h) b = Sigmoid (a) y = MatMul (b, w)",
    "two results": "a = Add (h, x) b = LeakyRelu (a) c = MatMul (b, w) y = MatMul (a, c)",
    "twice": "a = Sin (h) b = Cos (h) c = Mul (a, b) y = MatMul (c, w)",
}
# What reads other elements than it makes, and has its input's shape.
APART = {
    "transposed": "a = Relu (h) t = Transpose (a) b = Mul (t, t) y = MatMul (b, w)",
    "transposed and not": "t = Transpose (h) b = Mul (t, h) c = Exp (b) y = MatMul (c, w)",
    "flipped": (
        "s = Constant <value_ints = [-1]> () e = Constant <value_ints = [-99]> () q = Constant <value_ints = [1]> () "
        "f = Slice (h, s, e, q, s) a = Mul (f, h) b = Relu (a) y = MatMul (b, w)"
    ),
    "rolled": (
        "z = Constant <value_ints = [0]> () m = Constant <value_ints = [3]> () e = Constant <value_ints = [96]> () "
        "q = Constant <value_ints = [1]> () p = Slice (h, m, e, q) r = Slice (h, z, m, q) f = Concat <axis = 1> (p, r) "
        "a = Mul (f, h) b = Relu (a) y = MatMul (b, w)"
    ),
}
# On the CPU, nothing is read through a roll.
MUST_NOT = [(name, target) for name in APART for target in ("cpu", "cuda") if (name, target) != ("rolled", "cpu")]
# The input is read for the second result when the first is stored.
SEVERAL = "a = Sin (h) b = Cos (h) c = MatMul (a, w) d = MatMul (b, w) e = MatMul (a, b) f = Add (c, d) y = Add (f, e)"


def square(text: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    feeds = {name: (rng.standard_normal((SIDE, SIDE)) / 5).astype(np.float32) for name in "xw"}
    return parse(HEAD + text + " }"), feeds


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with FusedElementwise in place of FusedOutOfPlace, which no rewrite would call it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for named in (*copy.graph.node, *copy.functions):
        if isinstance(named, onnx.NodeProto) and named.op_type == OUT_OF_PLACE:
            named.op_type = "FusedElementwise"
        elif isinstance(named, onnx.FunctionProto) and named.name == OUT_OF_PLACE:
            named.name = "FusedElementwise"
    return copy


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", POINTWISE)
def test_what_may_be_in_place(name: str, target: str) -> None:
    model, feeds = square(POINTWISE[name])
    optimized, _ = check(model, feeds, optimizations=True, target=target)
    assert set(fused_nodes(optimized)) == {"FusedElementwise"}


@pytest.mark.parametrize(("name", "target"), MUST_NOT)
def test_what_must_not(name: str, target: str) -> None:
    """By its name; and where somebody else named it, because it reads a copy."""
    model, feeds = square(APART[name])
    optimized, report = check(model, feeds, target=target, min_nodes=1)
    assert fused_nodes(optimized) == [OUT_OF_PLACE]
    assert report.fusions[0].op_type == OUT_OF_PLACE
    expected, other = run(optimized, feeds, library=True), run(renamed(optimized), feeds, library=True)
    np.testing.assert_array_equal(expected[0], other[0])


def test_several_outputs_on_the_cpu() -> None:
    model, feeds = square(SEVERAL)
    optimized, _ = check(model, feeds, target="cpu")
    assert fused_nodes(optimized)[0] == OUT_OF_PLACE
    expected, other = run(optimized, feeds, library=True), run(renamed(optimized), feeds, library=True)
    np.testing.assert_array_equal(expected[0], other[0])
    assert "FusedElementwise" in fused_nodes(check(model, feeds, target="cuda")[0])


def test_what_a_run_brings_is_never_written_over() -> None:
    model, feeds = square("a = Relu (x) t = Transpose (a) b = Mul (t, t) y = MatMul (b, w)")
    before = feeds["x"].copy()
    optimized, _ = check(model, feeds)
    assert fused_nodes(optimized) == ["FusedElementwise"]
    assert np.array_equal(feeds["x"], before)


def memory_in_and_out_of_place(provider: str, target: str) -> tuple[int, int]:
    """The most that a model asks of the arena, between whose matrix products lies what is larger than all else."""
    wide = ", ".join(["0.25"] * 8 * 64)
    graph = (
        f"g (float[N, 8] x) => (float[N, 8] y) <float[8, 64] w = {{{wide}}}, float[64, 8] v = {{{wide}}}> "
        "{ h = MatMul (x, w) a = Relu (h) b = Exp (a) c = MatMul (b, v) d = Abs (c) y = Sqrt (d) }"
    )
    feeds = {"x": np.zeros((4096, 8), np.float32)}
    peaks = []
    for op_type in ("FusedElementwise", OUT_OF_PLACE):
        optimized = onnxfuse.optimize(parse(graph), target=target, fallback=False).model
        assert fused_nodes(optimized) == ["FusedElementwise"] * 2
        for node in optimized.graph.node:
            if node.domain == "onnxfuse":
                node.op_type = op_type
        peaks.append(take_account(optimized, feeds, provider, [np.zeros((4096, 8), np.float32)], threads=1).peak_memory)
    if peaks[0] is None or peaks[1] is None:
        pytest.skip("this ONNX Runtime does not say how much memory a node asks for")
    return peaks[0], peaks[1]


def test_memory() -> None:
    """One large tensor, where there would be two."""
    in_place, out_of_place = memory_in_and_out_of_place("CPUExecutionProvider", "cpu")
    assert in_place < 0.7 * out_of_place


def test_groups_have_what_may_be_written_over_in_front() -> None:
    """Three biases: each result may be put over one of six tensors, and only the first result is."""
    text = " ".join(
        f"h{k} = MatMul (h, w) s{k} = Add (h{k}, w{k}) r{k} = Relu (s{k}) y{k} = MatMul (r{k}, w)" for k in "012"
    )
    biases = ", ".join(f"float[8] w{k} = {{1, 2, 3, 4, 5, 6, 7, {k}}}" for k in "012")
    weights = ", ".join(["0.5"] * 64)
    outputs = ", ".join(f"float[8, 8] y{k}" for k in "012")
    graph = f"g (float[8, 8] x) => ({outputs}) <float[8, 8] w = {{{weights}}}, {biases}> {{ h = MatMul (x, w) {text} }}"
    feeds = {"x": np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)}
    optimized, report = check(parse(graph), feeds, target="cuda")
    assert len(report.groups) == 1
    (node,) = (n for n in optimized.graph.node if n.domain == "onnxfuse")
    assert node.op_type == report.groups[0].op_type == "FusedElementwise"
    program = Program.parse(next(a.s for a in node.attribute if a.name == "program").decode())
    assert program.text() == report.groups[0].program
    for k in range(OVERWRITTEN):
        assert program.inputs[k][1] == 1 or is_pointwise(program, k, 0)


def test_both_sides_name_as_many_inputs() -> None:
    header = Path(__file__).parent.parent / "cuda_ops" / "in_place.h"
    assert re.search(r"kOverwritten = (\d+);", header.read_text())[1] == str(OVERWRITTEN)
