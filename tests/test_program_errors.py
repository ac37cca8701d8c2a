"""The library's answers to wrong programs: errors that name the node, the line and what would be right."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxfuse.custom_ops.library import library_path

# A LayerNorm-like row program; the cases below change it.
GOOD = """onnxfuse 1
space d0 | d1=4 |
%0 = input 0 f32 [d0, d1]
%1 = reduce_mean f32 %0
%2 = sub f32 %0 %1
%3 = const f32 1e-05
%4 = add f32 %2 %3
%5 = less bool %4 %3
%6 = where f32 %5 %3 %4
%7 = input 1 f16 [d1]
%8 = mul f32 %6 %7
output 0 f16 [d0, d1] %8
output 1 f32 [d0, 0] %1
"""


def load(program: str | bytes, op_type: str = "FusedReduction", outputs: int = 2) -> onnxruntime.InferenceSession:
    """A session with one node that has the program, called "the node"."""
    node = helper.make_node(
        op_type, ["x", "s"], [f"y{i}" for i in range(outputs)], name="the node", domain="onnxfuse", program=program
    )
    types = [TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.FLOAT]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("s", TensorProto.FLOAT16, [4]),
        ],
        [helper.make_tensor_value_info(f"y{i}", types[i], None) for i in range(outputs)],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("onnxfuse", 1)], ir_version=9
    )
    return session(model)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library_path()))
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def changed(line: int, text: str | None) -> str:
    """GOOD with one line replaced, or removed."""
    lines = GOOD.split("\n")
    lines[line - 1 : line] = [] if text is None else [text]
    return "\n".join(lines)


def test_good_program_loads() -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    y0, y1 = load(GOOD).run(None, {"x": x, "s": np.ones(4, np.float16)})
    np.testing.assert_array_equal(y1, [[1.5], [5.5]])
    assert y0.dtype == np.float16
    assert y0.shape == (2, 4)


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        # the grammar
        (1, "onnxfuse 2", "line 1: expected 'onnxfuse 1'"),
        (1, "onnxfuse 1 ", "line 1: expected the end of the line, found ' '"),
        (2, "spaces d0 | d1=4 |", "line 2: expected the end of the line, found 's d0"),
        (2, "space d0 | d1=4", "line 2: expected ' |', the second bar, found the end of the line"),
        (2, "space d0 | | d1=4", "line 2: expected a reduced dimension between the bars"),
        (2, "space d0 | d1=4 | |", "line 2: expected no more than two bars"),
        (2, "space d1 | d0=4 |", "line 2: expected d0, the dimensions in order, found 'd1 |"),
        (2, "space d0 | d1=04 |", "line 2: expected the extent of the dimension, a number without leading zeros"),
        (2, "space d0 | d1=-4 |", "line 2: expected the extent of the dimension, a number, found '-4 |'"),
        (2, "space d0 | d1=281474976710656 |", "line 2: expected the extent of the dimension, at most 281474976710655"),
        (2, "space d0 | d1=99999999999999999999 |", "at most 281474976710655"),
        (2, "space d0 d1 d2 d3 d4 d5 d6 d7 d8", "line 2: expected no more than 8 dimensions, found 'd8'"),
        (3, "%1 = input 0 f32 [d0, d1]", "line 3: expected %0, the values in order, found '%1 ="),
        (3, "%0 = input 0 f32 [d0,d1]", "line 3: expected ']' (end of the index map), found ',d1]'"),
        (3, "%0 = input 0 f32 d0, d1", "line 3: expected '[' (start of the index map)"),
        (3, "%0 = input 0 f8 [d0, d1]", "line 3: expected the type of the input, one of f16 bf16"),
        (3, "%0 = input 0 f32 [d0, d1] ", "line 3: expected the end of the line, found ' '"),
        (3, "%0 = input 64 f32 [d0, d1]", "line 3: expected the number of the input, at most 63"),
        (3, "%0  = input 0 f32 [d0, d1]", "line 3: expected ' = ' (after the value)"),
        (3, "%0 = input 0 f32 [d0, 1*d1]", "line 3: expected an index with a factor other than 0 and 1, found '1*d1]'"),
        (3, "%0 = input 0 f32 [d0, 0*d1]", "line 3: expected an index with a factor other than 0 and 1"),
        (3, "%0 = input 0 f32 [d0, d1+0]", "line 3: expected an offset other than 0"),
        (3, "%0 = input 0 f32 [d0, d1+d0]", "line 3: expected the dimensions of an index in ascending order"),
        (3, "%0 = input 0 f32 [d0, d2]", "line 3: d2 is no dimension of this kernel's space, which has 2"),
        (3, "%0 = input 0 f32 [d0, d1:4]", "line 3: an extent (':' and a number) stands in the map of an input only"),
        (4, "%1 = reduce_mean f32", "line 4: expected ' ' (before an operand; reduce_mean takes 1)"),
        (4, "%1 = reduce_mean f32 %0 %0", "line 4: expected the end of the line, found ' %0'"),
        (4, "%1 = reduce_median f32 %0", "line 4: 'reduce_median' is no operation of the language"),
        (4, "%1 = reduce_mean f32 %1", "line 4: expected an operand that is defined on an earlier line"),
        (4, "%1 = reduce_mean f32 %-1", "line 4: expected an operand, a number, found '-1'"),
        (4, "", "line 4: expected '%' (a statement), 'output' or 'space', found the end of the line"),
        (4, "# a comment", "line 4: expected '%' (a statement), 'output' or 'space'"),
        (12, None, "output 0 is missing; outputs are numbered without gaps"),
        # constants
        (6, "%3 = const f32 1", "line 6: '1' is not a decimal like 1.0 or 1e-05"),
        (6, "%3 = const f32 1e400", "line 6: '1e400' is not a decimal like"),
        (6, "%3 = const f32 1e+39", "line 6: '1e+39' does not fit the type of the constant"),
        (6, "%3 = const f32 1e-60", "line 6: '1e-60' does not fit the type of the constant"),
        (6, "%3 = const f32 0x1.0p0", "line 6: '0x1.0p0' is not a decimal"),
        (6, "%3 = const f32 1,5", "line 6: '1,5' is not a decimal"),
        (6, "%3 = const f32 infinity", "line 6: 'infinity' is not a decimal"),
        (6, "%3 = const f32 -nan", "line 6: '-nan' is not a decimal"),
        (6, "%3 = const f16 1.0", "line 6: a constant cannot be f16, a type of tensors only; use f32"),
        (6, "%3 = const i8 128", "line 6: '128' is not an integer from -128 to 127"),
        (6, "%3 = const u8 -1", "line 6: '-1' is not an integer from 0 to 255"),
        (6, "%3 = const i32 007", "line 6: '007' is not an integer"),
        (6, "%3 = const i64 -0", "line 6: '-0' is not an integer"),
        (6, "%3 = const bool 1", "line 6: '1' is not true or false"),
        # types
        (5, "%2 = sub f64 %0 %1", "line 5: sub of f32 gives f32, not f64"),
        (5, "%2 = sub f16 %0 %1", "line 5: a value cannot be f16, a type of tensors only"),
        (6, "%3 = const f64 1.0", "line 7: add needs operands of one type; %2 is f32 and %3 is f64"),
        (7, "%4 = bitwise_and f32 %2 %3", "line 7: bitwise_and takes i8 i16 i32 i64 u8 u16 u32 u64; %2 is f32"),
        (8, "%5 = less f32 %4 %3", "line 8: less of f32 gives bool, not f32"),
        (8, "%5 = mul f32 %4 %3", "line 9: the first operand of where must be bool; %5 is f32"),
        (8, "%5 = cast f32 %4", "line 8: %4 is f32 already; use it without the cast"),
        (12, "output 0 f64 [d0, d1] %8", "line 12: %8 is f32 and cannot be stored as f64 without a cast"),
        # scans and arguments
        (4, "%1 = scan_sum reverse exclusive f32 %0", "line 4: expected the type of the value, one of f16"),
        (4, "%1 = scan_sum exclusive exclusive f32 %0", "line 4: expected 'reverse' or the type of the value, one of"),
        (4, "%1 = scan_sum last f32 %0", "line 4: expected 'exclusive', 'reverse' or the type of the value, one of"),
        (4, "%1 = scan_sum exclusive", "line 4: expected 'exclusive', 'reverse' or the type of the value, one of"),
        (4, "%1 = reduce_argmax reverse i64 %0", "line 4: expected 'last' or the type of the value, one of f16"),
        (4, "%1 = reduce_argmax last last i64 %0", "line 4: expected the type of the value, one of f16"),
        (4, "%1 = reduce_mean last f32 %0", "line 4: expected the type of the value, one of f16"),
        (4, "%1 = reduce_argmax f32 %0", "line 4: reduce_argmax of f32 gives i64, not f32"),
        (4, "%1 = scan_sum f64 %0", "line 4: scan_sum of f32 gives f32, not f64"),
        (8, "%5 = scan_max bool %4", "line 8: scan_max of f32 gives f32, not bool"),
        (9, "%6 = scan_max bool %5", "line 9: scan_max takes f32 f64 i8 i16 i32 i64 u8 u16 u32 u64; %5 is bool"),
        (5, "%2 = scan_sum f32 %1", "line 5: scan_sum needs an operand that depends on a reduced dimension; %1 does"),
        (4, "%1 = scan_sum f32 %0", "line 13: %1 depends on d1, which the output's map lacks"),
        # dependence
        (4, "%1 = reduce_mean f32 %9", "line 4: expected an operand that is defined on an earlier line"),
        (2, "space d0 d1=4", "line 4: reduce_mean needs an operand that depends on a reduced dimension; %0 does not"),
        (3, "%0 = input 0 f32 [2*d0, d1]", "line 2: the extent of d0 is not known: write d0=N"),
        (12, "output 0 f16 [d0, 0] %8", "line 12: %8 depends on d1, which the output's map lacks"),
        (12, "output 0 f16 [d0, d0, d1] %8", "line 12: d0 stands twice in the output's map"),
        (
            12,
            "output 0 f16 [d0, 2*d1] %8",
            "line 12: an index of an output other than 0 or a plain dimension needs ':'",
        ),
        (12, "output 0 f16 [d0, d1:4] %8", "line 12: the extent 4 is that of the index itself; leave it out"),
        (13, "output 1 f32 [d0, 0:1] %1", "line 13: the extent 1 is that of the index itself; leave it out"),
        (13, "output 1 f32 [d0, 0] %11", "line 13: expected a value of this kernel, found '%11'"),
        # tensors
        (10, "%7 = input 0 f16 [d1]", "line 10: input 0 is f16 of rank 1 here, but f32 of rank 2 before"),
        (10, "%7 = input 2 f16 [d1]", "input 1 is missing; inputs are numbered without gaps"),
        (13, "output 0 f32 [d0, 0] %1", "line 13: output 0 is f32 of rank 2 here, but f16 of rank 2 before"),
        (13, "output 2 f32 [d0, 0] %1", "output 1 is missing; outputs are numbered without gaps"),
        (13, None, "the program has 1 outputs, the node 2"),
        (10, "%7 = input 1 f16 [0, d1]", "input 1 has rank 1; the program reads it with rank 2"),
        (10, "%7 = input 1 bf16 [d1]", "input 1 is f16; the program reads it as bf16"),
        (2, "space d0 | d1=5 |", "input 0 has extent 4 in dimension 1, where the program has d1=5"),
    ],
)
def test_wrong_line(line: int, text: str | None, message: str) -> None:
    with pytest.raises(Exception, match="onnxfuse: node 'the node': ") as error:
        load(changed(line, text))
    assert message in str(error.value)


def test_a_reduced_dimension_needs_no_written_extent() -> None:
    load(changed(2, "space d0 | d1 |"))


COLLECTIVE = """onnxfuse 1
space d0 | d1=4 |
%0 = input 0 f32 [d0, d1]
%1 = {}
%2 = cast f64 %1
%3 = cast f32 %2
%4 = {}
%5 = input 1 f16 [d1]
output 0 f16 [d0, d1] %3
output 1 f32 [d0, d1] %4
"""


@pytest.mark.parametrize("op", ["scan_sum", "scan_min", "reduce_sum", "reduce_argmin"])
def test_no_reduction_and_no_scan_comes_after_a_scan(op: str) -> None:
    with pytest.raises(Exception, match=f"line 7: {op} needs an operand that depends on no scan; %3 doe"):
        load(COLLECTIVE.format("scan_prod f32 %0", f"{op} {'i64' if 'arg' in op else 'f32'} %3"))


@pytest.mark.parametrize("line", ["scan_sum exclusive reverse f32 %0", "reduce_argmax last i64 %0"])
def test_flags_stand_before_the_type(line: str) -> None:
    load(COLLECTIVE.format(line, "abs f32 %3"), "FusedScan")
    op, type_, operand = line.split(" ", maxsplit=1)[0], *line.split(" ")[-2:]
    with pytest.raises(Exception, match="line 4: "):
        load(COLLECTIVE.format(f"{op} {type_} reverse {operand}", "abs f32 %3"), "FusedScan")


KERNEL = "space d0\n%0 = input 0 f32 [d0, 0]\n%1 = input 1 f16 [0]\n"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("", "program: expected 'onnxfuse 1' and at least one kernel"),
        ("onnxfuse 1\n", "program: expected 'onnxfuse 1' and at least one kernel"),
        (GOOD[:-1], "program line 13: the line does not end with a newline"),
        (GOOD + "\n", "program line 14: expected '%' (a statement), 'output' or 'space'"),
        (GOOD + "%9 = relu f32 %8\n", "program line 14: expected an output or a new kernel after an output"),
        (GOOD + KERNEL, "program line 16: the kernel has no output"),
        (GOOD + KERNEL + KERNEL, "program line 17: expected an output before the next kernel"),
        (GOOD.replace("\n", "\r\n"), "program line 1: expected the end of the line, found '?'"),
        (GOOD.replace("sub", "s\0b"), "program line 5: 's?b' is no operation"),
        (GOOD.replace("sub", "sub\x1b[31m"), "program line 5: 'sub?[31m' is no operation"),
        (GOOD.replace("sub", "s\u00fcb"), "program line 5: 's??b' is no operation"),
        (GOOD.replace("sub", "s" * 1000), "program line 5: '" + "s" * 40 + "...' is no operation"),
        (GOOD + "#" * 70000, "bytes; at most 65536 are read"),
        (GOOD + (KERNEL + "output 2 f32 [d0] %0\n") * 16, "no more than 16 kernels"),
        (
            "onnxfuse 1\n" + KERNEL + "".join(f"%{i} = relu f32 %0\n" for i in range(2, 1026)),
            "no more than 1024 statements in a kernel",
        ),
        (b"onnxfuse 1\n\xff\xfe\n", "program line 2: expected 'space', the start of a kernel, found '??'"),
        ("onnxfuse 1\n" + "[" * 60000 + "\n", "expected 'space', the start of a kernel"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_wrong_program(program: str | bytes, message: str) -> None:
    with pytest.raises(Exception, match="onnxfuse: node 'the node': program") as error:
        load(program)
    assert message in str(error.value)


def test_wrong_number_of_outputs() -> None:
    with pytest.raises(Exception, match="node 'the node': the program has 2 outputs, the node 3"):
        load(GOOD, outputs=3)


def test_missing_attribute() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    node = helper.make_node("FusedElementwise", ["x"], ["y"], name="the node", domain="onnxfuse")
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("onnxfuse", 1)], ir_version=9)
    with pytest.raises(Exception, match=r"node 'the node'.*program"):
        session(model)


def test_random_changes_never_crash() -> None:
    """Whatever a hand or a file system does to the text, the session loads or says what is wrong."""
    generator = random.Random(0)
    pieces = [*"%[]|:=+*-.,\n\0 d019ex", "-1*d0", "d7", "%1023", "output 1 f32 [d0, 0] %1\n", "=0", "281474976710655*"]
    answers = set()
    for _ in range(400):
        text = GOOD
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(text))
            text = text[:at] + generator.choice(pieces) + text[at + generator.randint(0, 3) :]
        try:
            load(text)
            answers.add("loaded")
        except Exception as error:
            answers.add("refused" if "onnxfuse: node 'the node': " in str(error) else f"{error} of {text}")
    assert answers == {"loaded", "refused"}
