"""Rolls: an index that starts elsewhere and wraps around, in programs and in graphs."""

from __future__ import annotations

import numpy as np
import pytest
import roll_corpus
from cpu_runner import check as check_program
from cuda_corpus import Case
from graphs import fused, optimized
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException
from strategies import array
from test_program_errors import load

from onnxfuse.custom_ops.parser import parse
from onnxfuse.custom_ops.program import Entry, Input, Roll
from onnxfuse.errors import ProgramError

CASES = [case for type_ in ("f32", "f16", "i32") for case in roll_corpus.cases(type_) if case.name != "windows-i32"]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("threads", [1, 2])
def test_programs(case: Case, threads: int) -> None:
    rng = np.random.default_rng(0)
    types = [type_ for type_, _ in parse(case.text).inputs]
    inputs = [array(type_, shape, rng) for type_, shape in zip(types, case.shapes, strict=True)]
    check_program(case.text, *inputs, threads=threads, floor=1e-6)


def test_text_of_a_roll() -> None:
    text = "onnxfuse 1\nspace d0=3 d1=4\nr0 = roll 5 d1 d0\n%0 = input 0 f32 [2*r0+1]\noutput 0 f32 [r0:12] %0\n"
    (kernel,) = parse(text).kernels
    assert kernel.rolls == (Roll(5, (1, 0)),)
    read = kernel.statements[0]
    assert isinstance(read, Input)
    assert read.map == (Entry(((8, 2),), 1),)
    assert kernel.extent(8) == 12
    assert parse(text).text() == text


@pytest.mark.parametrize(
    ("roll", "message", "in_library"),
    [
        ("r0 = roll 0 d0", "from 1 to 2", "line 3: a roll of 3 points"),
        ("r0 = roll 3 d0", "from 1 to 2", "line 3: a roll of 3 points"),
        ("r1 = roll 1 d0", "line 3: expected 'r0 = roll NUMBER dK ...'", "line 3: expected r0"),
        ("r0 = roll 1", "line 3: expected 'r0 = roll NUMBER dK ...'", "line 3: expected ' '"),
        ("r0 = roll 1 d1", "d1 is none", "line 3: a roll runs over dimensions of known extent"),
        ("r0 = roll 1 d2", "d2 is none", "line 3: a roll runs over dimensions of known extent"),
        ("r0 = roll 1 d3", "has no d3", "line 3: a roll runs over dimensions of known extent"),
        ("r0 = roll 1 d0 d0", "twice in a roll", "line 3: d0 stands twice in a roll"),
        ("r0 = roll 1 r0", "line 3: expected 'r0 = roll NUMBER dK ...'", "line 3: expected a dimension of the space"),
    ],
)
def test_wrong_rolls(roll: str, message: str, in_library: str) -> None:
    text = f"onnxfuse 1\nspace d0=3 | d1=4 | d2\n{roll}\n%0 = input 0 f32 [d2, r0]\noutput 0 f32 [d2, r0:3] %0\n"
    with pytest.raises(ProgramError, match="line 3") as error:
        parse(text)
    assert message in str(error.value)
    with pytest.raises(RuntimeException, match="line 3") as failure:
        load(text, outputs=1)
    assert in_library in str(failure.value)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ("[r0] %0", "the extent must be written"),
        ("[r0:2] %0", "out of the extent"),
        ("[r0:3, d0] %0", "stands twice"),
        ("[r1:3] %0", "r1"),
        ("[r0:4] %0", "4 elements, of which 3 are stored"),
    ],
)
def test_wrong_stores(stored: str, message: str) -> None:
    text = f"onnxfuse 1\nspace d0=3\nr0 = roll 1 d0\n%0 = input 0 f32 [d0]\noutput 0 f32 {stored}\n"
    with pytest.raises(ProgramError) as error:
        parse(text)
    assert message in str(error.value)


def test_rolls_cut_a_space_into_few_parts() -> None:
    space = "onnxfuse 1\nspace d0=3 d1=3 d2=3 d3=3 d4=3 d5=3 d6=3 d7=3\n"
    rolls = "".join(f"r{k} = roll 1 d0 d1 d2 d3 d4 d5 d6 d7\n" for k in range(3))
    with pytest.raises(ProgramError, match="line 5: the rolls cut the space into more than 1024 parts"):
        parse(f"{space}{rolls}%0 = input 0 f32 [r0]\noutput 0 f32 [r0:6561] %0\n")
    with pytest.raises(RuntimeException, match="line 5: the rolls cut the space into more than 1024 parts"):
        load(f"{space}{rolls}%0 = input 0 f32 [r0]\noutput 0 f32 [r0:6561] %0\n", outputs=1)


def rolled(x: str, y: str, axis: int, shift: int) -> str:
    """y = x from element `shift` on along an axis, then what is before it."""
    return (
        f"{y}1 = Slice <axes = [{axis}], starts = [{shift}], ends = [9223372036854775807]> ({x})"
        f"{y}0 = Slice <axes = [{axis}], starts = [0], ends = [{shift}]> ({x})"
        f"{y} = Concat <axis = {axis}> ({y}1, {y}0)"
    )


NUMBERS = ", ".join(f"int64[1] n{n} = {{{n}}}" for n in (0, 1, 2, 3, 11)) + ", int64[1] end = {9223372036854775807}"


def by_constants(x: str, y: str, axis: int, shift: int) -> str:
    """The same from opset 10 on, with the constants of NUMBERS."""
    return (
        f"{y}1 = Slice ({x}, n{shift}, end, n{axis}) {y}0 = Slice ({x}, n0, n{shift}, n{axis})"
        f" {y} = Concat <axis = {axis}> ({y}1, {y}0)"
    )


def graph(inputs: str, outputs: str, body: str) -> str:
    return f"g ({inputs}) => ({outputs}) {{ {body} }}"


@pytest.mark.parametrize("type_", ["float", "float16", "double", "int32"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shift", [1, 3, 5])
def test_roll_between_elementwise_operators(type_: str, axis: int, shift: int) -> None:
    body = f"a = Abs (x) {rolled('a', 'b', axis, shift)} y = Add (b, z)"
    ops, model, report = optimized(
        graph(f"{type_}[6, 6, 6] x, {type_}[6, 6, 6] z", f"{type_}[6, 6, 6] y", body), opset=9, target="cuda"
    )
    assert ops == ["FusedElementwise"]
    assert len(model.graph.node) == 1
    assert report.fusions[0].launches_saved == 4


@pytest.mark.parametrize("axis", [0, 1])
def test_roll_of_what_only_others_compute(axis: int) -> None:
    body = f"m = MatMul (x, w) {rolled('m', 'b', axis, 2)} c = Add (b, z) y = Tanh (c)"
    _, model, _ = optimized(
        graph("float[5, 5] x, float[5, 5] w, float[5] z", "float[5, 5] y", body), opset=9, target="cuda"
    )
    assert [n.op_type for n in model.graph.node] == ["MatMul", "FusedOutOfPlace"]


WINDOWS = """
    n = Add (x, bias)
    l = LayerNormalization <axis = -1> (n, scale, shift)
    {there}
    s = Reshape (h, split)
    t = Transpose <perm = [0, 1, 3, 2, 4, 5]> (s)
    w = Reshape (t, windows)
    q = MatMul (w, weight)
    v = Reshape (q, parted)
    u = Transpose <perm = [0, 1, 3, 2, 4, 5]> (v)
    i = Reshape (u, image)
    {back}
    r = Add (n, k)
    y = LayerNormalization <axis = -1> (r, scale, shift)
"""
SIZES = (
    "int64[6] split = {0, 2, 7, 2, 7, 8}, int64[3] windows = {-1, 49, 8}, int64[6] parted = {-1, 2, 2, 7, 7, 8},"
    " int64[4] image = {-1, 14, 14, 8}"
)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("type_", ["float", "float16"])
def test_shifted_windows(batch: int, type_: str) -> None:
    """A block of a Swin transformer: normalization, roll and windows are one kernel, and so is the way back."""
    there = by_constants("l", "g", 1, 3) + by_constants("g", "h", 2, 3)
    back = by_constants("i", "j", 1, 11) + by_constants("j", "k", 2, 11)
    text = (
        f"swin ({type_}[B, 14, 14, 8] x, {type_}[8] bias, {type_}[8] scale, {type_}[8] shift, {type_}[8, 8] weight)"
        f" => ({type_}[B, 14, 14, 8] y) <{SIZES}, {NUMBERS}> {{ {WINDOWS.format(there=there, back=back)} }}"
    )
    _, model, report = optimized(text, sizes={"B": batch}, target="cuda")
    kinds = [n.op_type for n in model.graph.node]
    assert kinds == ["FusedLayerNorm", "Reshape", "MatMul", "Reshape", "FusedLayerNorm"]
    assert all("roll" in f.program for f in report.fusions)


def test_roll_there_and_back_is_none() -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 0, 2)} c = Exp (b) {rolled('c', 'd', 0, 3)} y = Neg (d)"
    _, _, report = optimized(graph("float[5, 7] x", "float[5, 7] y", body), opset=9, target="cuda")
    assert "roll" not in report.fusions[0].program


def test_both_sides_of_a_roll_are_stored() -> None:
    body = f"a = Abs (x) b = Exp (a) {rolled('b', 'c', 1, 2)} y = Neg (c)"
    text = graph("float[5, 7] x", "float[5, 7] y, float[5, 7] b", body)
    assert fused(text, opset=9, target="cuda") == ["FusedElementwise"]


def test_a_value_and_its_roll_do_not_meet() -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 1, 2)} c = Exp (b) y = Add (c, a)"
    _, _, report = optimized(graph("float[5, 7] x", "float[5, 7] y", body), opset=9, target="cuda")
    assert any("from different starts" in r.reason for r in report.refusals)


def test_a_tensor_and_its_roll_meet_where_both_are_read() -> None:
    body = f"{rolled('x', 'b', 1, 2)} c = Exp (b) y = Add (c, x)"
    assert fused(graph("float[5, 7] x", "float[5, 7] y", body), opset=9, target="cuda") == ["FusedElementwise"]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reductions_beside_a_roll(axis: int, keepdims: int) -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 1, 2)} y = ReduceSum <axes = [{axis}], keepdims = {keepdims}> (b)"
    shape = [4, 5, 6]
    shape[axis : axis + 1] = [1] * keepdims
    optimized(graph("float[4, 5, 6] x", f"float{shape} y", body), opset=9, target="cuda")


def test_softmax_of_what_is_rolled_along_its_axis() -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 1, 2)} c = Softmax <axis = 1> (b) y = Mul (c, z)"
    optimized(graph("float[4, 5] x, float[4, 5] z", "float[4, 5] y", body), opset=9, target="cuda")


def test_scan_of_what_is_rolled() -> None:
    body = f"a = Abs (x) {by_constants('a', 'b', 1, 2)} c = CumSum (b, axis) y = Mul (c, z)"
    text = f"g (float[4, 5] x, float[4, 5] z) => (float[4, 5] y) <int64 axis = {{1}}, {NUMBERS}> {{ {body} }}"
    optimized(text, target="cuda")


NEAR_MISSES = {
    "the parts in their order": "p = Slice <axes = [1], starts = [2], ends = [7]> (a)"
    "q = Slice <axes = [1], starts = [0], ends = [2]> (a) b = Concat <axis = 1> (q, p)",
    "another tensor": "p = Slice <axes = [1], starts = [2], ends = [7]> (a)"
    "q = Slice <axes = [1], starts = [0], ends = [2]> (x) b = Concat <axis = 1> (p, q)",
    "parts that overlap": "p = Slice <axes = [1], starts = [1], ends = [6]> (a)"
    "q = Slice <axes = [1], starts = [0], ends = [2]> (a) b = Concat <axis = 1> (p, q)",
    "parts of two axes": "p = Slice <axes = [0, 1], starts = [0, 2], ends = [5, 7]> (a)"
    "q = Slice <axes = [0, 1], starts = [0, 0], ends = [5, 2]> (x) b = Concat <axis = 1> (p, q)",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_no_rolls(name: str) -> None:
    body = f"a = Abs (x) {NEAR_MISSES[name]} c = Exp (b) y = Add (c, z)"
    _, _, report = optimized(graph("float[5, 7] x, float[5, 7] z", "float[5, 7] y", body), opset=9, target="cuda")
    assert all("roll" not in f.program for f in report.fusions)


@pytest.mark.parametrize("also", ["b1", "b0"])
def test_a_part_that_is_used_elsewhere_stays(also: str) -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 1, 2)} c = Exp (b) y = Add (c, z) w = Neg ({also})"
    count = {"b1": 5, "b0": 2}[also]
    text = graph("float[5, 7] x, float[5, 7] z", f"float[5, 7] y, float[5, {count}] w", body)
    _, model, report = optimized(text, opset=9, target="cuda")
    assert all("roll" not in f.program for f in report.fusions)
    assert "Concat" in [n.op_type for n in model.graph.node]


def test_a_part_that_is_an_output_stays() -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 1, 2)} c = Exp (b) y = Add (c, z)"
    text = graph("float[5, 7] x, float[5, 7] z", "float[5, 7] y, float[5, 2] b0", body)
    _, model, _ = optimized(text, opset=9, target="cuda")
    assert "Concat" in [n.op_type for n in model.graph.node]


def test_parts_of_a_split() -> None:
    cut = "p, q = Split <axis = 1, split = [3, 4]> (a) b = Concat <axis = -1> (q, p)"
    text = graph("float[5, 7] x, float[5, 7] z", "float[5, 7] y", f"a = Abs (x) {cut} c = Exp (b) y = Add (c, z)")
    _, model, report = optimized(text, opset=11, target="cuda")
    assert len(model.graph.node) == 1
    assert "roll" in report.fusions[0].program


def test_equal_halves() -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 1, 4)} c = Exp (b) y = Add (c, z)"
    _, _, report = optimized(graph("float[5, 8] x, float[5, 8] z", "float[5, 8] y", body), opset=9, target="cuda")
    assert "roll 4" in report.fusions[0].program


def test_a_roll_with_no_neighbour_stays() -> None:
    _, model, _ = optimized(graph("float[5, 7] x", "float[5, 7] b", rolled("x", "b", 1, 2)), opset=9, target="cuda")
    assert [n.op_type for n in model.graph.node] == ["Slice", "Slice", "Concat"]


def test_a_symbolic_dimension_is_not_rolled() -> None:
    body = f"a = Abs (x) {rolled('a', 'b', 1, 2)} c = Exp (b) y = Add (c, z)"
    text = graph("float[5, N] x, float[5, N] z", "float[5, N] y", body)
    _, model, _ = optimized(text, opset=9, sizes={"N": 7}, target="cuda")
    assert "Concat" in [n.op_type for n in model.graph.node]


@pytest.mark.parametrize("shape", ["[5, 2, 7]", "[5, 7, 2]", "[70]", "[1, 70]"])
def test_a_reshape_of_what_is_rolled(shape: str) -> None:
    """The rolled dimension is split, or joined with another one."""
    extents = [int(n) for n in shape.strip("[]").split(",")]
    body = f"a = Abs (x) {rolled('a', 'b', 1, 3)} c = Reshape (b, s) y = Exp (c)"
    text = (
        f"g (float[5, 14] x) => (float{shape} y) <int64[{len(extents)}] s = {{{', '.join(map(str, extents))}}}>"
        f" {{ {body} }}"
    )
    _, model, _ = optimized(text, opset=9, target="cuda")
    assert len(model.graph.node) == 1


def test_a_reshape_on_both_sides() -> None:
    """It cannot be the digits of both."""
    body = f"s = Reshape (x, two) a = Abs (s) t = Reshape (a, one) {rolled('t', 'b', 1, 3)}"
    body += " c = Reshape (b, two) y = Exp (c)"
    sizes = "<int64[3] two = {5, 2, 7}, int64[2] one = {5, 14}>"
    optimized(f"g (float[5, 14] x) => (float[5, 2, 7] y) {sizes} {{ {body} }}", opset=9, target="cuda")


def test_a_split_upstream_whose_part_is_rolled() -> None:
    """What a Split makes is read through it by others; a roll that reads a part keeps working."""
    body = f"p, q = Split <axis = 1, split = [7, 7]> (x){rolled('p', 'b', 1, 3)} c = Exp (b) y = Add (c, q)"
    optimized(graph("float[5, 14] x", "float[5, 7] y", body), opset=9, target="cuda")


@pytest.mark.parametrize("start", ["zero", "one"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("before", ["a = MatMul (x, x)", "a = Exp (x)"])
def test_a_part_of_what_is_rolled(before: str, axis: int, start: str) -> None:
    """As where padding goes behind a roll: it wraps at its own extent, not at that of the part."""
    graph = (
        "g (float[5, 5] x) => (float[?, ?] y) "
        f"<int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] three = {{3}}, int64[1] all = {{5}}, "
        f"int64[1] axis = {{{axis}}}> {{ {before} p = Slice (a, one, all, axis) q = Slice (a, zero, one, axis) "
        f"o = Concat <axis = {axis}> (p, q) z = Slice (o, {start}, three, axis) y = Tanh (z) }}"
    )
    optimized(graph, target="cuda")
