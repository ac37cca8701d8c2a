"""Programs whose axes arrive with a run: the engine, the local function and the interpreter, for all sets of axes."""

from __future__ import annotations

import itertools

import axes_corpus
import cpu_runner
import lowered
import onnxruntime as ort
import pytest
from axes_corpus import CASES, SCAN, SOFTMAX, SQUEEZED, TRANSPOSED, feeds, spellings
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxfuse.custom_ops.library import library_path
from onnxfuse.custom_ops.over_axes import over
from onnxfuse.custom_ops.program import Input, Program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.verify import verify
from onnxfuse.errors import ProgramError


@pytest.mark.parametrize("name", CASES)
def test_every_set_of_axes(name: str) -> None:
    text, shapes, counts = CASES[name]
    program = Program.parse(text)
    assert program.text() == text
    node = cpu_runner.session(text)
    function = lowered.model_of(program, 18, "FusedRuntimeAxes")
    for count in counts:
        for axes in spellings(len(shapes[0]), count):
            inputs = feeds(program, axes, shapes)
            cpu_runner.check(text, *inputs, node=node, limit=6)
            lowered.assert_agree(program, lowered.run(function, inputs), inputs, axes)


@pytest.mark.parametrize("name", CASES)
def test_every_set_of_axes_is_a_program(name: str) -> None:
    """What is left for the axes of a run keeps all rules, but that input 0 is read by none of its statements."""
    kernel = Program.parse(CASES[name][0]).kernels[0]
    for count in CASES[name][2]:
        for dims in itertools.combinations(range(kernel.rank), count):
            left = over(kernel, dims)
            lines = "\n".join(left.lines())
            for number in range(1, 3):
                lines = lines.replace(f"input {number} ", f"input {number - 1} ")
            verify(Program.parse(f"onnxfuse 1\n{lines}\n"))


@settings(max_examples=60, deadline=None)
@given(axes_corpus.programs(), st.data())
def test_random_programs(program: Program, data: st.DataObject) -> None:
    assert Program.parse(program.text()) == program
    axes, (kernel,) = program.kernels[0].axes, program.kernels
    assert axes is not None
    extents = data.draw(st.lists(st.integers(1, 5), min_size=kernel.rank, max_size=kernel.rank))
    shapes = [tuple(extents[k] for k in kernel.dims(*s.map)) for s in kernel.statements if isinstance(s, Input)]
    count = data.draw(st.integers(0, kernel.rank)) if axes.count is None else axes.count
    names = data.draw(st.permutations(range(kernel.rank)))[:count]
    inputs = feeds(program, [a - kernel.rank if data.draw(st.booleans()) else a for a in names], shapes)
    cpu_runner.check(program.text(), *inputs, limit=16, floor=1e-5)
    lowered.assert_agree(program, lowered.run(lowered.model_of(program, 18, "FusedRuntimeAxes"), inputs), inputs, names)


def test_an_extent_of_one_is_broadcast() -> None:
    """A bias that varies along what is reduced keeps its extent."""
    node = cpu_runner.session(TRANSPOSED)
    inputs = feeds(Program.parse(TRANSPOSED), [2, 0], [(2, 3, 5), (3,)])
    wide, narrow = cpu_runner.run_in(node, TRANSPOSED, inputs)
    assert wide.shape == (1, 2, 3)
    assert narrow.shape == (2,)


def test_empty_dimensions() -> None:
    program = Program.parse(SOFTMAX)
    node = cpu_runner.session(SOFTMAX)
    for axes in ([0], [1], [2], [0, 2], []):
        inputs = feeds(program, axes, [(2, 0, 3)])
        cpu_runner.check(SOFTMAX, *inputs, node=node)


@pytest.mark.parametrize(
    ("name", "axes", "message"),
    [
        ("softmax", [3], "input 0 names axis 3 of a tensor of rank 3, whose axes are -3 to 2"),
        ("softmax", [0, -4], "input 0 names axis -4 of a tensor of rank 3"),
        ("squeezed 2", [1, -2], "input 0 names axis -2 twice"),
        ("squeezed 2", [1], "input 0 holds 1 axes; the program takes 2"),
    ],
)
def test_axes_that_do_not_fit(name: str, axes: list[int], message: str) -> None:
    text, shapes, _ = CASES[name]
    node = cpu_runner.session(text)
    inputs = feeds(Program.parse(text), axes, shapes)
    with pytest.raises(Exception, match=message) as caught:
        cpu_runner.run_in(node, text, inputs)
    assert "node '" in str(caught.value)
    with pytest.raises(ValueError, match="input 0"):
        evaluate(Program.parse(text), inputs)


def test_an_axis_that_stands_twice_counts_once() -> None:
    node = cpu_runner.session(SOFTMAX)
    inputs = feeds(Program.parse(SOFTMAX), [1, -2], [(3, 4, 5)])
    cpu_runner.check(SOFTMAX, *inputs, node=node)


def session_of(text: str, op_type: str) -> object:
    """A session of a node with axes and one tensor."""
    node = helper.make_node(op_type, ["a", "x"], ["y"], domain="onnxfuse", program=text)
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.INT64, [None]),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * 3),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("onnxfuse", 1)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


PLAIN = """onnxfuse 1
space d0 d1 d2
%0 = input 1 f32 [d0, d1, d2]
%1 = input 0 i64 [0]
%2 = cast f32 %1
%3 = mul f32 %0 %2
output 0 f32 [d0, d1, d2] %3
"""


@pytest.mark.parametrize(
    ("op_type", "text", "message"),
    [
        ("FusedReduction", SQUEEZED.format(count=1), "only FusedRuntimeAxes runs a program with axes"),
        ("FusedRuntimeAxes", PLAIN, "FusedRuntimeAxes needs a program with axes"),
    ],
)
def test_op_type_and_program_must_agree(op_type: str, text: str, message: str) -> None:
    """Input 0 lies in host memory for one op type alone: with another, a GPU would read what it cannot."""
    Program.parse(text)
    with pytest.raises(Exception, match=message):
        session_of(text, op_type)


def edited(old: str, new: str) -> str:
    assert old in SQUEEZED
    return SQUEEZED.replace(old, new).format(count=1)


@pytest.mark.parametrize(
    "text",
    [
        edited("axes 0", "axes 1"),
        edited("i64", "f32"),
        edited("[{count}]", "[0]"),
        edited("[{count}]", "[4]"),
        edited("[{count}]", "[?]"),  # squeezed
        edited("[{count}]", "[{count}] noop"),
        edited("] d0 d1 d2", "] d0 d1"),
        edited("] d0 d1 d2", "] d0 d1 d1"),
        edited("] d0 d1 d2", "] d0 d1 d3"),
        edited("space d0 d1=3 d2", "space d0 | d1=3 | d2"),
        edited("input 1", "input 0"),
        edited("squeezed [d0, d1, d2]", "squeezed [d0, d2, d1]"),
        edited("squeezed [d0, d1, d2]", "squeezed [d0, d1]"),
        edited("squeezed [d0, d1, d2]", "[d0, d1+1:5, d2]"),
        edited("%2\n", "%1\n"),
        edited("%0 = input 1 f32 [d0, d1, d2]", "%0 = input 1 f32 [d0, 0, d2]"),
        edited("reduce_mean f32", "reduce_argmax i64"),
        SCAN.replace("[]", "[2]"),
        SCAN.replace("[]", "[?]"),
        SCAN + SCAN.removeprefix("onnxfuse 1\n").replace("output 0", "output 1"),
        "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\noutput 0 f32 squeezed [d0] %0\n",
    ],
)
def test_rules(text: str) -> None:
    """Neither the package nor the library takes it."""
    with pytest.raises(ProgramError):
        Program.parse(text)
    op_type = "FusedRuntimeAxes" if "axes" in text else "FusedReduction"
    with pytest.raises(Exception, match=r"program line|is missing|without gaps"):
        session_of(text, op_type)
