"""Programs: text, parsing, verification."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import programs

from onnxfuse.custom_ops.program import (
    ONE,
    Apply,
    Const,
    Entry,
    Input,
    Kernel,
    Output,
    Program,
    dependencies,
    dim,
    statement_type,
)
from onnxfuse.custom_ops.verify import verify
from onnxfuse.errors import ProgramError

LAYER_NORM = """\
onnxfuse 1
space d0 d1 | d2=768 |
%0 = input 0 f16 [d0, d1, d2]
%1 = reduce_mean f32 %0
%2 = sub f32 %0 %1
%3 = input 1 f16 [d2]
%4 = mul f32 %2 %3
output 0 f16 [d0, d1, d2] %4
output 1 f32 [d0, d1, 0] %1
"""


def relu(map_in: str = "[d0]", map_out: str = "[d0]", space: str = "space d0") -> str:
    return f"onnxfuse 1\n{space}\n%0 = input 0 f32 {map_in}\n%1 = relu f32 %0\noutput 0 f32 {map_out} %1\n"


@settings(max_examples=150, deadline=None)
@given(programs())
def test_every_program_reads_back_from_its_text(program: Program) -> None:
    verify(program)
    text = program.text()
    again = Program.parse(text)
    assert again == program
    assert again.text() == text
    assert again.digest() == program.digest()


@settings(max_examples=150, deadline=None)
@given(programs(), st.data())
def test_a_damaged_program_is_refused_or_is_another_program(program: Program, data: st.DataObject) -> None:
    text = program.text()
    place = data.draw(st.integers(0, len(text) - 1))
    end = min(len(text), place + data.draw(st.integers(0, 4)))
    damaged = text[:place] + data.draw(st.text("%=[]|d0189 +*:-fx,\n", max_size=3)) + text[end:]
    try:
        again = Program.parse(damaged)
    except ProgramError as error:
        message = str(error)
    else:
        assert again.text() == damaged
        return
    assert re.match(r"(line \d+: |the program is longer|\d+ kernels)", message)


def test_the_example_of_the_documentation_is_a_program(root: Path) -> None:
    document = (root / "docs" / "program.md").read_text(encoding="utf-8")
    example = re.search(r"```\n(onnxfuse 1\n.*?)```", document, re.DOTALL)
    assert example
    program = Program.parse(example[1])
    assert program.inputs == (("f16", 3), ("f16", 1), ("f16", 1))
    assert program.outputs == (("f16", 3),)


def test_what_follows_from_a_program() -> None:
    program = Program.parse(LAYER_NORM)
    (kernel,) = program.kernels
    assert kernel.extents == (None, None, 768)
    assert (kernel.outer, kernel.reduced) == (2, 1)
    assert program.inputs == (("f16", 3), ("f16", 1))
    assert program.outputs == (("f16", 3), ("f32", 3))
    point, row = frozenset({0, 1, 2}), frozenset({0, 1})
    assert dependencies(kernel) == (point, row, point, frozenset({2}), point)
    assert [statement_type(s) for s in kernel.statements] == ["f32"] * 5
    assert len(bytes.fromhex(program.digest())) >= 16
    assert program.digest() != Program.parse(LAYER_NORM.replace("mul", "add")).digest()


def test_a_program_built_by_hand_prints_as_its_text() -> None:
    kernel = Kernel(
        extents=(None, None, 768),
        outer=2,
        reduced=1,
        statements=(
            Input(0, "f16", (dim(0), dim(1), dim(2))),
            Apply("reduce_mean", "f32", (0,)),
            Apply("sub", "f32", (0, 1)),
            Input(1, "f16", (dim(2),)),
            Apply("mul", "f32", (2, 3)),
        ),
        outputs=(Output(0, "f16", (dim(0), dim(1), dim(2)), 4), Output(1, "f32", (dim(0), dim(1), ONE), 1)),
    )
    assert Program((kernel,)).text() == LAYER_NORM


@pytest.mark.parametrize(
    ("entry", "text", "plain"),
    [
        (ONE, "0", None),
        (dim(3), "d3", 3),
        (Entry(((1, -1),), 7), "-1*d1+7", None),
        (Entry(((0, 4), (1, 1)), 0, 64), "4*d0+d1:64", None),
        (Entry(((2, 1),), 3), "d2+3", None),
        (Entry((), 1, 2), "1:2", None),
        (Entry(((2, 1),), 0, 64), "d2:64", 2),
    ],
)
def test_map_entries(entry: Entry, text: str, plain: int | None) -> None:
    assert str(entry) == text
    assert entry.plain == plain


@pytest.mark.parametrize(
    ("type_", "value", "literal"),
    [
        ("f32", 1e-5, "1e-05"),
        ("f32", 0.1, "0.1"),
        ("f32", 16777217, "16777216.0"),
        ("f32", 1e300, "inf"),
        ("f32", -0.0, "-0.0"),
        ("f32", math.nan, "nan"),
        ("f32", 3.4028234663852886e38, "3.4028235e+38"),
        ("f32", 1e-45, "1e-45"),
        ("f64", 0.1, "0.1"),
        ("f64", -math.inf, "-inf"),
        ("f64", 5e-324, "5e-324"),
        ("f64", 1e22, "1e+22"),
        ("i8", -128, "-128"),
        ("i64", -(2**63), "-9223372036854775808"),
        ("u64", 2**64 - 1, "18446744073709551615"),
        ("bool", True, "true"),
        ("bool", 0, "false"),
    ],
)
def test_literals_are_the_shortest_that_read_back(type_: str, value: float, literal: str) -> None:
    const = Const(type_, value)
    assert const.literal == literal
    assert Program.parse(f"onnxfuse 1\nspace\n%0 = {const}\noutput 0 {type_} [] %0\n").kernels[0].statements == (const,)


def test_constants_are_equal_where_their_bits_are() -> None:
    assert Const("f32", math.nan) == Const("f32", float("nan"))
    assert Const("f32", 0.0) != Const("f32", -0.0)
    assert Const("f32", 1.0) != Const("f64", 1.0)
    assert Const("f32", np.float64(0.1)) == Const("f32", np.float32(0.1))
    assert len({Const("f32", 0.0), Const("f32", -0.0), Const("f32", 0)}) == 2


def scan(line: str = "scan_sum f32 %0", type_: str = "f32", space: str = "space d0 | d1 |") -> str:
    """A program of one scan or argument, and a value that depends on it."""
    return (
        f"onnxfuse 1\n{space}\n%0 = input 0 f32 [d0, d1]\n%1 = {line}\n%2 = abs {type_} %1\n"
        f"output 0 {type_} [d0, d1] %2\n"
    )


NOT_LEGAL = {
    # spelling
    "no newline at the end": ("onnxfuse 1\nspace", r"line 2: a program ends with a newline"),
    "version": ("onnxfuse 2\nspace\n", r"line 1: expected 'onnxfuse 1', found 'onnxfuse 2'"),
    "no kernel": ("onnxfuse 1\n", r"line 2: expected a kernel"),
    "blank line": (relu().replace("%1", "\n%1", 1), r"line 4: expected a statement \('%1 = ...'\) or an output"),
    "two spaces": (relu().replace("relu f32", "relu  f32"), r"line 4: a statement reads"),
    "zeros in front": (relu("[d00]"), r"line 3: map entry 'd00': expected terms"),
    "one times": (relu("[1*d0]"), r"line 3: spelled .*'%0 = input 0 f32 \[1\*d0\]', must be '.*\[d0\]'"),
    "plus zero": (relu("[d0+0]"), r"line 3: spelled .*, must be '.*\[d0\]'"),
    "number before the terms": (relu("[1+d0]"), r"line 3: map entry '1\+d0': expected terms"),
    "not the shortest decimal": (
        "onnxfuse 1\nspace\n%0 = const f32 0.10\noutput 0 f32 [] %0\n",
        r"line 3: spelled '%0 = const f32 0.10', must be '%0 = const f32 0.1'",
    ),
    "trailing text": (relu() + "end\n", r"line 6: expected an output, 'space' or the end, found 'end'"),
    "value numbers": (relu().replace("%1 =", "%2 ="), r"line 4: values are numbered in order: expected %1, found %2"),
    "unknown type": (relu().replace("relu f32", "relu float"), r"line 4: unknown type 'float'; expected one of f32"),
    "value of a tensor type": (relu().replace("relu f32", "relu f16"), r"line 4: unknown type 'f16'"),
    "constant of a tensor type": (
        "onnxfuse 1\nspace\n%0 = const bf16 1.0\noutput 0 bf16 [] %0\n",
        r"line 3: unknown type 'bf16'",
    ),
    "no decimal": ("onnxfuse 1\nspace\n%0 = const f32 1,0\noutput 0 f32 [] %0\n", r"line 3: expected a decimal"),
    "too large a float": (
        "onnxfuse 1\nspace\n%0 = const f32 1e+39\noutput 0 f32 [] %0\n",
        r"line 3: '1e\+39' is out of the range of f32; write inf",
    ),
    "no integer": ("onnxfuse 1\nspace\n%0 = const i8 1.0\noutput 0 i8 [] %0\n", r"line 3: expected an integer"),
    "too large an integer": (
        "onnxfuse 1\nspace\n%0 = const u8 256\noutput 0 u8 [] %0\n",
        r"line 3: 256 is out of the range of u8, 0 to 255",
    ),
    "no bool": ("onnxfuse 1\nspace\n%0 = const bool 1\noutput 0 bool [] %0\n", r"line 3: expected true or false"),
    "input without a map": (relu().replace(" [d0]\n%1", "\n%1"), r"line 3: an input reads 'input NUMBER TYPE"),
    "output without a value": (relu().replace("[d0] %1", "[d0]"), r"line 5: an output reads 'output NUMBER"),
    # space
    "dimension numbers": (relu(space="space d1"), r"line 2: expected 'd0', 'd0=N' or '\|', found 'd1'"),
    "one bar": (relu(space="space d0 |"), r"line 2: a space has no bars or two, found 1"),
    "nothing between the bars": (relu(space="space d0 | |"), r"line 2: no dimension between the bars"),
    "dimension that no tensor shows": (
        relu("[2*d0]"),
        r"line 2: d0 has no extent and stands alone in no input's map; write 'd0=N'",
    ),
    "too many dimensions": (
        relu(space="space d0 d1=1 d2=1 d3=1 d4=1 d5=1 d6=1 d7=1 d8=1"),
        r"line 2: 9 dimensions; a space may have 8",
    ),
    "large extent": (relu(space="space d0=281474976710656"), r"line 2: the extent of d0 is 281474976710656"),
    # maps
    "dimension not in the space": (relu("[d0, d1]"), r"line 3: map entry 'd1': the space has no d1, its rank is 1"),
    "coefficient 0": (relu("[d0, 0*d0]"), r"line 3: map entry '0\*d0': a coefficient may not be 0"),
    "terms out of order": (
        relu("[d0, d1, d1+d0]", "[d0, d1]", "space d0 d1"),
        r"line 3: map entry 'd1\+d0': each dimension once, in their order",
    ),
    "dimension twice in an entry": (relu("[d0, d0+d0]"), r"line 3: map entry 'd0\+d0': each dimension once"),
    "large coefficient": (relu("[d0, 281474976710656*d0]"), r"line 3: map entry .*: a coefficient is 281474976710656"),
    "large offset": (relu("[d0, d0+281474976710656]"), r"line 3: map entry .*: the number added is 281474976710656"),
    "extent in an input's map": (relu("[d0, d0:4]"), r"line 3: map entry 'd0:4': an input's map has an extent only wh"),
    "extent of a part that is none": (relu("[d0:4]", space="space d0=4"), r"line 3: map entry 'd0:4': an input's map"),
    "extent of another entry": (relu("[0:4, d0]"), r"line 3: map entry '0:4': an input's map has an extent only where"),
    # statements
    "unknown operation": (relu().replace("relu", "gelu"), r"line 4: unknown operation 'gelu'"),
    "operand count": (relu().replace("f32 %0\n", "f32 %0 %0\n"), r"line 4: relu takes 1 operands, found 2"),
    "operand not earlier": (relu().replace("f32 %0\n", "f32 %1\n"), r"line 4: %1 is not an earlier value"),
    "operand types": (
        "onnxfuse 1\nspace\n%0 = const f32 1.0\n%1 = const f64 1.0\n%2 = add f32 %0 %1\noutput 0 f32 [] %2\n",
        r"line 5: the operands of add must have one type, found f32 and f64",
    ),
    "type that the operation has not": (
        "onnxfuse 1\nspace\n%0 = const bool true\n%1 = add bool %0 %0\noutput 0 bool [] %1\n",
        r"line 4: add has no operands of type bool; expected one of f32 f64",
    ),
    "result type": (relu().replace("relu f32", "isnan f32"), r"line 4: isnan of f32 gives bool, not f32"),
    "condition": (
        "onnxfuse 1\nspace\n%0 = const f32 1.0\n%1 = where f32 %0 %0 %0\noutput 0 f32 [] %1\n",
        r"line 4: the condition of where must be bool, %0 is f32",
    ),
    "cast to the same type": (relu().replace("relu", "cast"), r"line 4: cast to the type that %0 has"),
    "reduction without reduced dimensions": (
        relu().replace("relu", "reduce_sum"),
        r"line 4: reduce_sum in a space that reduces nothing",
    ),
    "reduction of a row": (
        "onnxfuse 1\nspace d0 | d1=4 |\n%0 = input 0 f32 [d0]\n%1 = reduce_sum f32 %0\noutput 0 f32 [d0] %1\n",
        r"line 4: the operand of reduce_sum must depend on a reduced dimension, %0 does not",
    ),
    "scan without reduced dimensions": (
        scan(space="space d0 d1"),
        r"line 4: scan_sum in a space that reduces nothing; write bars around",
    ),
    "scan of a row": (
        "onnxfuse 1\nspace d0 | d1=4 |\n%0 = input 0 f32 [d0]\n%1 = scan_max f32 %0\noutput 0 f32 [d0, d1] %1\n",
        r"line 4: the operand of scan_max must depend on a reduced dimension, %0 does not",
    ),
    "scan of a scan": (
        scan().replace("abs", "scan_prod"),
        r"line 5: the operand of scan_prod may not depend on a scan, %1 does; use another kernel",
    ),
    "reduction of a scan": (
        scan().replace("%2 = abs f32 %1", "%2 = abs f32 %1\n%3 = reduce_max f32 %2"),
        r"line 6: the operand of reduce_max may not depend on a scan, %2 does",
    ),
    "argument of a scan": (
        scan().replace("%2 = abs f32 %1", "%2 = abs f32 %1\n%3 = reduce_argmax i64 %2"),
        r"line 6: the operand of reduce_argmax may not depend on a scan, %2 does",
    ),
    "scan of bool": (
        "onnxfuse 1\nspace | d0 |\n%0 = input 0 bool [d0]\n%1 = scan_max bool %0\noutput 0 bool [d0] %1\n",
        r"line 4: scan_max has no operands of type bool",
    ),
    "argument of another type": (scan("reduce_argmax f32 %0"), r"line 4: reduce_argmax of f32 gives i64, not f32"),
    "scan of another type": (scan("scan_sum i64 %0", "i64"), r"line 4: scan_sum of f32 gives f32, not i64"),
    "flag of another kind": (scan("scan_sum last f32 %0"), r"line 4: scan_sum has no flag 'last'; expected one of exc"),
    "scan's flag of an argument": (
        scan("reduce_argmin reverse i64 %0", "i64"),
        r"line 4: reduce_argmin has no flag 'reverse'; expected one of last",
    ),
    "flag of an element-wise operation": (relu().replace("relu", "relu last"), r"line 4: relu has no flag 'last'$"),
    "flag of a reduction": (scan("reduce_max last f32 %0"), r"line 4: reduce_max has no flag 'last'$"),
    "flag of a cast": (scan("cast exclusive f64 %0", "f64"), r"line 4: cast has no flag 'exclusive'$"),
    "flags out of order": (
        scan("scan_sum reverse exclusive f32 %0"),
        r"line 4: the flags of scan_sum stand in this order, each once: exclusive reverse",
    ),
    "flag twice": (scan("reduce_argmax last last i64 %0", "i64"), r"line 4: the flags of reduce_argmax stand in this"),
    "flag without a type": (scan("scan_sum exclusive %0"), r"line 4: unknown type 'exclusive'; expected one of f32"),
    "scan stored as a row": (
        scan().replace("output 0 f32 [d0, d1] %2", "output 0 f32 [d0] %1"),
        r"line 6: %1 depends on d1, which must stand in the output's map",
    ),
    "scan along a dimension that its operand lacks, stored without it": (
        "onnxfuse 1\nspace | d0=2 d1 |\n%0 = input 0 f32 [d1]\n%1 = scan_sum f32 %0\noutput 0 f32 [d1] %1\n",
        r"line 5: %1 depends on d0, which must stand in the output's map",
    ),
    # outputs
    "no output": (
        "onnxfuse 1\nspace\n%0 = const f32 1.0\n",
        r"line 4: expected a statement .* found nothing",
    ),
    "no such value": (relu().replace("] %1\n", "] %2\n"), r"line 5: %2 is not a value of this kernel"),
    "value of another type": (relu().replace("output 0 f32", "output 0 f64"), r"line 5: an output of type f64 stores"),
    "dimension missing": (relu("[d0]", "[0]"), r"line 5: %1 depends on d0, which must stand in the output's map"),
    "dimension in two entries": (relu("[d0]", "[d0, d0]"), r"line 5: d0 stands twice in the output's map"),
    "extent missing": (relu("[d0]", "[2*d0]"), r"line 5: map entry '2\*d0': the extent must be written"),
    "extent missing of an index": (relu("[d0]", "[d0, 1]"), r"line 5: map entry '1': the extent must be written"),
    "extent of a plain entry": (
        relu("[d0]", "[d0:4]", "space d0=4"),
        r"line 5: map entry 'd0:4': the extent is that of the entry itself",
    ),
    "extent 1 of index 0": (relu("[d0]", "[d0, 0:1]"), r"line 5: map entry '0:1': the extent is that of the entry"),
    "points that meet": (
        relu("[d0, d1]", "[3*d0+d1:16]", "space d0=4 d1=4"),
        r"line 5: map entry '3\*d0\+d1:16': two points may store to one element",
    ),
    "points that may meet at run time": (
        relu("[d0, d1]", "[4*d0+d1:16]", "space d0=4 d1"),
        r"line 5: map entry .*: two points may store to one element",
    ),
    "past the end": (relu("[d0]", "[2*d0+1:7]", "space d0=4"), r"line 5: .* indices go from 1 to 7, out of the extent"),
    "before the start": (
        relu("[d0]", "[-1*d0:4]", "space d0=4"),
        r"line 5: .* indices go from -3 to 0, out of",
    ),
    "elements that nothing stores": (
        relu("[d0]", "[2*d0:8]", "space d0=4"),
        r"line 5: output 0 has 8 elements, of which 4 are stored",
    ),
    "outputs that meet": (
        relu("[d0]", "[d0:6]", "space d0=4") + "output 0 f32 [d0+2:6] %1\n",
        r"line 6: output 0 may store to elements that line 5 stores to as well",
    ),
    "outputs of different extents": (
        relu("[d0]", "[d0:8]", "space d0=4") + "output 0 f32 [d0+4:9] %1\n",
        r"line 6: dimension 0 of output 0 has extent 8 on line 5, here 9",
    ),
    # tensors
    "input number missing": (
        relu().replace("input 0", "input 1"),
        r"line 3: inputs are numbered without gaps",
    ),
    "output number missing": (relu().replace("output 0", "output 1"), r"line 5: outputs are numbered without gaps"),
    "too many inputs": (relu().replace("input 0", "input 64"), r"line 3: input 64: a program may have 64 inputs"),
    "input of two types": (
        relu().replace("%1 = relu f32 %0", "%1 = input 0 i32 [d0]").replace("output 0 f32", "output 0 i32"),
        r"line 4: input 0 is f32 of rank 1 on line 3, here i32 of rank 1",
    ),
    "input of two ranks": (
        relu().replace("%1 = relu f32 %0", "%1 = input 0 f32 [d0, 0]"),
        r"line 4: input 0 is f32 of rank 1 on line 3, here f32 of rank 2",
    ),
    "output of two ranks": (
        relu("[d0]", "[d0, 0:2]") + "output 0 f32 [d0] %1\n",
        r"line 6: output 0 is f32 of rank 2 on line 5, here f32 of rank 1",
    ),
    # limits
    "long text": ("onnxfuse 1\n" + "x" * 65536, r"the program is longer than 65536 bytes"),
    "many kernels": (
        "onnxfuse 1\n" + "".join(f"space\n%0 = const f32 1.0\noutput {n} f32 [] %0\n" for n in range(17)),
        r"17 kernels; a program may have 16",
    ),
    "many statements": (
        "onnxfuse 1\nspace\n" + "".join(f"%{n} = const bool true\n" for n in range(1025)) + "output 0 bool [] %0\n",
        r"line 2: 1025 statements; a kernel may have 1024",
    ),
}


@pytest.mark.parametrize("name", NOT_LEGAL)
def test_what_is_not_legal_is_refused_with_the_line_and_what_is_right(name: str) -> None:
    text, message = NOT_LEGAL[name]
    with pytest.raises(ProgramError, match=message):
        Program.parse(text)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Kernel((), 0, 0, (Const("f16", 1.0),), (Output(0, "f16", (), 0),)), "line 3: no constant has type 'f16'"),
        (Kernel((), 0, 0, (Const("f32", 1.0),), ()), "line 3: the kernel has no output"),
        (Kernel((4,), 1, 1, (), ()), "line 2: reduced dimensions 1 to 2 are not in the space"),
        (Kernel((4,), 0, 0, (), ()), "line 2: nothing is reduced, so all 1 dimensions are outer ones, not 0"),
        (Kernel((), 0, 0, (Input(-1, "f32", ()),), ()), "line 3: input -1: a program may have 64 inputs"),
        (Kernel((), 0, 0, (Input(0, "f8", ()),), ()), "line 3: unknown type 'f8'"),
        (
            Kernel((4,), 1, 0, (Input(0, "f32", (Entry((), -1),)),), ()),
            "line 3: map entry '-1': the number added",
        ),
    ],
)
def test_what_only_a_program_built_by_hand_can_do_wrong(kernel: Kernel, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        verify(Program((kernel,)))
    with pytest.raises(ProgramError, match="expected a kernel"):
        verify(Program(()))


LEGAL = {
    "a point": "onnxfuse 1\nspace\n%0 = input 0 f32 []\noutput 0 f32 [] %0\n",
    "no input": "onnxfuse 1\nspace d0=4\n%0 = const i8 1\noutput 0 i8 [d0] %0\n",
    "a whole reduction": relu("[d0]", "[]", "space | d0 |").replace("relu", "reduce_sum"),
    "columns": (
        "onnxfuse 1\nspace d0 | d1 | d2\n%0 = input 0 f32 [d0, d1, d2]\n%1 = reduce_max f32 %0\n"
        "output 0 f32 [d0, 0, d2] %1\noutput 1 f32 [d0, d2] %1\n"
    ),
    "a scan": scan(),
    "a scan with its flags": scan("scan_sum exclusive reverse f32 %0"),
    "a scan with one flag": scan("scan_min reverse f32 %0"),
    "a scan along several dimensions, one of which its operand lacks": (
        "onnxfuse 1\nspace | d0=2 d1 |\n%0 = input 0 i8 [d1]\n%1 = scan_prod i8 %0\noutput 0 i8 [d0, d1] %1\n"
    ),
    "a scan after a reduction": (
        "onnxfuse 1\nspace | d0 | d1\n%0 = input 0 f64 [d0, d1]\n%1 = reduce_sum f64 %0\n%2 = div f64 %0 %1\n"
        "%3 = scan_sum f64 %2\noutput 0 f64 [d0, d1] %3\n"
    ),
    "an argument": scan("reduce_argmax i64 %0", "i64").replace("[d0, d1] %2", "[d0, 0] %2"),
    "the last argument": scan("reduce_argmin last i64 %0", "i64").replace("[d0, d1] %2", "[d0] %2"),
    "the first part of an input": relu("[d0:6]", "[d0]", "space d0=4"),
    "a diagonal": relu("[d0, d0]"),
    "a reversed input": relu("[-1*d0+3]", "[d0]", "space d0=4"),
    "a reversed output": relu("[d0]", "[-1*d0+3:4]", "space d0=4"),
    "a transposed output": relu("[d0, d1]", "[d1, d0]", "space d0 d1"),
    "a merged output": relu("[d0, d1]", "[4*d0+d1:16]", "space d0=4 d1=4"),
    "a merged output of unknown extent": relu("[d0, d1]", "[4*d0+d1:16]", "space d0 d1=4"),
    "a concatenation": relu("[d0]", "[d0:8]", "space d0=4") + "output 0 f32 [d0+4:8] %0\n",
    "a concatenation whose last part has an unknown extent": (
        relu("[d0]", "[d0:9]", "space d0=4") + "space d0\n%0 = input 1 f32 [d0]\noutput 0 f32 [d0+4:9] %0\n"
    ),
    "a stack": relu("[d0]", "[d0, 0:2]") + "output 0 f32 [d0, 1:2] %0\n",
    "interleaved": relu("[d0]", "[2*d0:8]", "space d0=4") + "output 0 f32 [2*d0+1:8] %0\n",
    "two reads of one input": relu("[d0]").replace("relu f32 %0", "input 0 f32 [0]").replace("[d0] %1", "[d0] %0"),
    "an empty dimension": "onnxfuse 1\nspace d0=0\n%0 = const i8 1\noutput 0 i8 [d0] %0\n",
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_is_legal(name: str) -> None:
    assert Program.parse(LEGAL[name]).text() == LEGAL[name]
