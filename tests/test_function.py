"""The lowering to standard operators: against the numpy interpreter, run by ONNX Runtime and by onnx's own evaluator.

Nothing here uses the library: these are the models that run where it is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered import OPSETS, assert_agree, check, model_of, run
from strategies import SCANNING, SMOOTH, array, arrays_for, programs

from onnxfuse.custom_ops.function import NoFunctionError, to_function, to_nodes
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.types import value_type


@settings(max_examples=200, deadline=None, derandomize=True)
@given(programs(operations=SMOOTH) | programs(operations=SCANNING), st.integers(0, 2**32), st.sampled_from(OPSETS))
def test_any_program_in_any_opset(program: Program, seed: int, opset: int) -> None:
    inputs = arrays_for(program, np.random.default_rng(seed), broadcast=0.3)
    if inputs is None:
        return
    try:
        model = model_of(program, opset)
    except NoFunctionError:
        assert opset < 13 or "u64" in program.text()
        return
    try:
        found = run(model, inputs)
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        # ONNX Runtime has no kernel for some comparisons of uint64, in the original model neither.
        assert "u64" in program.text()
        return
    assert_agree(program, found, inputs, (program.text(), opset))


MAPS = {
    "scalar": ("space", "[]", "[]", ()),
    "trailing": ("space d0=3 d1", "[d1]", "[d0, d1]", (4,)),
    "leading": ("space d0 d1=4", "[d0, 0]", "[d0, d1]", (3, 1)),
    "first element": ("space d0 d1=4", "[d0, 0]", "[d0, d1]", (3, 6)),
    "missing dimension": ("space d0 d1=4", "[d0]", "[d0, d1]", (3,)),
    "a later element": ("space d0", "[2, d0]", "[d0]", (4, 3)),
    "first part": ("space d0 d1=3", "[d0, d1:5]", "[d0, d1]", (2, 5)),
    "first part, transposed": ("space d0=3 d1", "[d1, d0:5]", "[d0, d1]", (2, 5)),
    "first part, diagonal": ("space d0=3 d1", "[d0:5, d1, d0]", "[d0, d1]", (5, 2, 3)),
    "transposed": ("space d0 d1 d2", "[d2, d0, d1]", "[d0, d1, d2]", (2, 3, 4)),
    "transposed output": ("space d0 d1 d2", "[d0, d1, d2]", "[d2, d0, d1]", (2, 3, 4)),
    "range": ("space d0=3 d1", "[d1, d0+2]", "[d0, d1]", (2, 7)),
    "steps": ("space d0=3 d1", "[d1, 2*d0+1]", "[d0, d1]", (2, 7)),
    "reversed": ("space d0=3 d1", "[d1, -1*d0+2]", "[d0, d1]", (2, 3)),
    "reversed steps": ("space d0=3 d1", "[-2*d0+5, d1]", "[d0, d1]", (6, 2)),
    "diagonal with an offset": ("space d0", "[d0, d0+2]", "[d0]", (3, 5)),
    "merged": ("space d0 d1=3 d2=4", "[d0, 4*d1+d2]", "[d0, d1, d2]", (2, 12)),
    "merged, transposed": ("space d0=3 d1 d2=4", "[d1, 4*d0+d2]", "[d0, d1, d2]", (2, 12)),
    "merged, a part": ("space d0 d1=3 d2=2", "[4*d1+d2+1, d0]", "[d0, d1, d2]", (12, 2)),
    "merged in front": ("space d0=3 d1=4 d2", "[4*d0+d1, d2]", "[d0, d1, d2]", (12, 2)),
    "merged output": ("space d0 d1=3 d2=4", "[d0, d1, d2]", "[d0, 4*d1+d2:12]", (2, 3, 4)),
    "merged, transposed output": ("space d0=3 d1 d2=4", "[d0, d1, d2]", "[4*d0+d2:12, d1]", (3, 2, 4)),
    "merged and reversed output": ("space d0=3 d1=4", "[d0, d1]", "[-4*d0+d1+8:12]", (3, 4)),
    "sliding window": ("space d0=3 d1=4", "[d0+d1]", "[d0, d1]", (6,)),
    "reversed output": ("space d0=3 d1", "[d0, d1]", "[-1*d0+2:3, d1]", (3, 2)),
    "diagonal": ("space d0", "[d0, d0]", "[d0]", (3, 3)),
    "diagonal, broadcast": ("space d0", "[d0, d0]", "[d0]", (1, 3)),
    "diagonal and more": ("space d0 d1", "[d1, d0, d1, 1]", "[d0, d1]", (3, 2, 3, 2)),
    "output lacks a dimension": ("space d0 d1=4", "[d0]", "[d0]", (3,)),
    "output with ones": ("space d0 d1", "[d0, d1]", "[0, d0, 0, d1]", (3, 4)),
    "empty": ("space d0 d1", "[d0, d1]", "[d0, d1]", (0, 4)),
    "merged output, empty": ("space d0 d1 d2=3 d3=4", "[d0, d1, d2, d3]", "[0, d0, d1, 4*d2+d3:12]", (0, 2, 3, 4)),
    "merged in front of an empty one": ("space d0=3 d1=4 d2", "[d0, d1, d2]", "[4*d0+d1:12, d2]", (3, 4, 0)),
}
# What the old opsets lack for these maps.
SINCE = {
    "first part, diagonal": 10,
    "diagonal with an offset": 10,
    "diagonal": 10,
    "diagonal, broadcast": 10,
    "diagonal and more": 10,
}


@pytest.mark.parametrize("type_", ["f16", "f32", "i64", "u8", "bool"])
@pytest.mark.parametrize("name", MAPS)
def test_maps(name: str, type_: str) -> None:
    space, read, write, shape = MAPS[name]
    value = value_type(type_)
    text = f"onnxfuse 1\n{space}\n%0 = input 0 {type_} {read}\noutput 0 {type_} {write} %0\n"
    if type_ != "bool":
        op = "abs" if value != "u8" else "sign"
        text = text.replace("output", f"%1 = {op} {value} %0\noutput").replace(" %0\n", " %1\n").replace("%1\n%1", "%1")
        text = f"onnxfuse 1\n{space}\n%0 = input 0 {type_} {read}\n%1 = {op} {value} %0\noutput 0 {type_} {write} %1\n"
    since = max(SINCE.get(name, 7), 9 if value == "u8" else 7)
    inputs = [array(type_, shape, np.random.default_rng(0))]
    check(text, inputs, [opset for opset in OPSETS if opset >= since])


@pytest.mark.parametrize("extents", [(2, 0), (0, 2), (3, 2)])
@pytest.mark.parametrize("type_", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "bool", "f16", "f32"])
@pytest.mark.parametrize("op", ["reduce_max", "reduce_min"])
@pytest.mark.parametrize("axes", [False, True])
def test_maximum_and_minimum_of_nothing(op: str, type_: str, extents: tuple[int, int], axes: bool) -> None:
    """Both are an end of the type's own range, whatever wider type standard operators compute in."""
    given, tensor = ("axes 0 i64 [1] d0 d1\n", 1) if axes else ("", 0)
    text = (
        f"onnxfuse 1\nspace d0 {'d1' if axes else '| d1 |'}\n{given}%0 = input {tensor} {type_} [d0, d1]\n"
        f"%1 = {op} {value_type(type_)} %0\noutput 0 {type_} [d0, {'d1' if axes else '0'}] %1\n"
    )
    program, x = Program.parse(text), array(type_, extents, np.random.default_rng(0))
    inputs = [np.array([1]), x] if axes else [x]
    for opset in (18, 20) if axes else (11, 12, 13, 18, 20):
        assert_agree(program, run(model_of(program, opset), inputs), inputs, opset)


def parts_program(space: str, maps: Sequence[str]) -> str:
    lines = ["%0 = input 0 f32 [d0, d1]", "%1 = neg f32 %0", "%2 = const f32 0.5"]
    stores = [f"output 0 f32 {map_} %{n % 2}" for n, map_ in enumerate(maps)]
    return "\n".join(["onnxfuse 1", space, *lines, *stores, ""])


@pytest.mark.parametrize(
    ("space", "maps"),
    [
        ("space d0 d1=4", ["[d0, d1+4:8]", "[d0, d1:8]"]),
        ("space d0=3 d1=4", ["[d0:9, d1]", "[d0+3:9, d1]", "[d0+6:9, d1]"]),
        ("space d0 d1=4", ["[d0, 0:2, d1]", "[d0, 1:2, d1]"]),
        ("space d0=3 d1=4", ["[d0, 2*d1:8]", "[d0, 2*d1+1:8]"]),
        ("space d0=3 d1=4", ["[d0, 0:2, d1:5]", "[d0, 1:2, d1+1:5]"]),
    ],
)
def test_several_outputs_fill_one_tensor(space: str, maps: list[str]) -> None:
    x = array("f32", (3, 4), np.random.default_rng(0))
    text = parts_program(space, maps)
    if "d1:5" in text:  # two more parts fill the corners
        text += "output 0 f32 [d0, 0:2, 4:5] %3\noutput 0 f32 [d0, 1:2, 0:5] %3\n"
        text = text.replace("output", "%3 = input 0 f32 [d0, 0]\noutput", 1)
    check(text, [x], [opset for opset in OPSETS if opset >= 9])


def test_parts_from_several_kernels() -> None:
    text = (
        "onnxfuse 1\n"
        "space d0 d1=4\n%0 = input 0 f32 [d0, d1]\n%1 = relu f32 %0\noutput 0 f32 [d0, d1:7] %1\n"
        "output 1 f32 [d0, d1] %0\n"
        "space d0 d1\n%0 = input 1 f32 [d0, d1]\n%1 = neg f32 %0\noutput 0 f32 [d0, d1+4:7] %1\n"
    )
    rng = np.random.default_rng(0)
    check(text, [array("f32", (5, 4), rng), array("f32", (5, 3), rng)])


BROADCAST_SUM = """\
onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = input 1 f32 [d0, d1]
%2 = reduce_sum f32 %0
%3 = reduce_prod f32 %0
%4 = add f32 %2 %1
output 0 f32 [d0, d1] %4
output 1 f32 [d0] %3
output 2 f32 [d0, d1] %2
output 3 f32 [d0, d1] %0
"""


@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 1), (3, 4)), ((3, 4), (1, 1)), ((1, 1), (3, 4)), ((1, 4), (3, 1))]
)
def test_tensors_that_turn_out_to_be_broadcast(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """A reduction counts, and an output has, all points of the space, also where the tensor has extent 1."""
    rng = np.random.default_rng(0)
    inputs = [array("f32", shape, rng) for shape in shapes]
    check(BROADCAST_SUM, inputs, [opset for opset in OPSETS if opset >= 8])


def test_ranges_and_merged_entries_of_unknown_extent() -> None:
    text = (
        "onnxfuse 1\nspace d0 d1=3\n%0 = input 0 f32 [d0]\n%1 = input 1 f32 [d0+2, 1]\n%2 = input 1 f32 [2*d0, d1]\n"
        "%3 = input 2 f32 [3*d0+d1]\n%4 = add f32 %0 %1\n%5 = add f32 %2 %3\n%6 = add f32 %4 %5\n"
        "output 0 f32 [d0, d1] %6\noutput 1 f32 [3*d0+d1:12] %6\n"
    )
    rng = np.random.default_rng(0)
    inputs = [array("f32", shape, rng) for shape in ((4,), (7, 3), (12,))]
    check(text, inputs, [opset for opset in OPSETS if opset >= 9])


def test_a_sum_counts_the_dimensions_that_its_operand_lacks() -> None:
    text = (
        "onnxfuse 1\nspace | d0=3 d1=4 |\n%0 = input 0 f32 [d1]\n%1 = reduce_sum f32 %0\n%2 = reduce_mean f32 %0\n"
        "%3 = reduce_max f32 %0\noutput 0 f32 [] %1\noutput 1 f32 [] %2\noutput 2 f32 [] %3\n"
    )
    check(text, [np.array([1, 2, 3, -4], np.float32)])


LAYER_NORM = """\
onnxfuse 1
space d0 d1 | d2=96 |
%0 = input 0 {t} [d0, d1, d2]
%1 = reduce_mean f32 %0
%2 = sub f32 %0 %1
%3 = mul f32 %2 %2
%4 = reduce_mean f32 %3
%5 = const f32 1e-05
%6 = add f32 %4 %5
%7 = sqrt f32 %6
%8 = div f32 %2 %7
%9 = input 1 {t} [d2]
%10 = mul f32 %8 %9
output 0 {t} [d0, d1, d2] %10
"""


@pytest.mark.parametrize("type_", ["f16", "bf16", "f32"])
def test_layer_norm_needs_no_more_nodes_than_its_operations(type_: str) -> None:
    text = LAYER_NORM.format(t=type_)
    program = Program.parse(text)
    nodes = to_nodes(program, ["x", "g"], ["y"], 21, "n")
    operators = [node.op_type for node in nodes]
    assert [op for op in operators if op not in ("Cast", "Constant")] == [
        *("ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Mul")
    ]
    assert operators.count("Cast") == (0 if type_ == "f32" else 3)
    rng = np.random.default_rng(0)
    inputs = [array(type_, (2, 3, 96), rng), array(type_, (96,), rng)]
    check(text, inputs, [opset for opset in OPSETS if type_ != "bf16" or opset >= 13], reference=type_ == "f32")


def test_names() -> None:
    """Inputs and outputs are named as asked, also where a value is an input or serves twice; all others are new."""
    text = (
        "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = relu f32 %0\n"
        "output 0 f32 [d0] %1\noutput 1 f32 [d0] %1\noutput 2 f32 [d0] %0\n"
    )
    nodes = to_nodes(Program.parse(text), ["a"], ["b", "c", "d"], 13, "p/")
    assert [node.op_type for node in nodes] == ["Relu", "Identity", "Identity"]
    names = [name for node in nodes for name in node.output]
    assert sorted(names) == ["b", "c", "d"]
    assert len({node.name for node in nodes}) == 3
    check(text, [np.array([-1, 2], np.float32)])


def test_the_function_is_named_by_the_program() -> None:
    program = Program.parse(LAYER_NORM.format(t="f16"))
    function = to_function(program, "FusedLayerNorm", 17)
    assert (function.domain, function.name, function.overload) == ("onnxfuse", "FusedLayerNorm", program.digest())
    assert list(function.input) == ["x0", "x1"]
    assert list(function.output) == ["y0"]
    assert list(function.attribute) == ["program"]
    assert [(entry.domain, entry.version) for entry in function.opset_import] == [("", 17)]


def test_a_clip_in_opset_7() -> None:
    text = (
        "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = const f32 0.0\n%2 = const f32 6.0\n%3 = max f32 %0 %1\n"
        "%4 = min f32 %3 %2\noutput 0 f32 [d0] %4\n"
    )
    check(text, [np.array([-1, 2, 7], np.float32)])


def test_the_interpreter_in_float64_and_with_float32_for_float16() -> None:
    program = Program.parse(LAYER_NORM.format(t="f16"))
    rng = np.random.default_rng(0)
    inputs = [array("f16", (2, 3, 96), rng), array("f16", (96,), rng)]
    (rounded,) = evaluate(program, inputs)
    (exact,) = evaluate(program, inputs, float64=True)
    assert (rounded.dtype, exact.dtype) == (np.float16, np.float64)
    x, g = (value.astype(np.float64) for value in inputs)
    x = x - x.mean(-1, keepdims=True)
    np.testing.assert_allclose(exact, x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * g, rtol=1e-12)
    (widened,) = evaluate(program, [value.astype(np.float32) for value in inputs])
    assert widened.dtype == np.float32
    np.testing.assert_array_equal(widened, rounded.astype(np.float32))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 4), (5,)), "input 1 has extent 5 along d1, expected 4"),
        (((3, 4), (4,), (9,)), "zip"),
    ],
)
def test_the_interpreter_refuses_shapes_that_do_not_fit(shapes: Any, message: str) -> None:
    program = Program.parse(
        "onnxfuse 1\nspace d0 d1\n%0 = input 0 f32 [d0, d1]\n%1 = input 1 f32 [d1]\n%2 = add f32 %0 %1\n"
        "output 0 f32 [d0, d1] %2\n"
    )
    with pytest.raises(ValueError, match=message):
        evaluate(program, [np.zeros(shape, np.float32) for shape in shapes])
