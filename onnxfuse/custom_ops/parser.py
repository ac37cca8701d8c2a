"""From text to program. Only the printer's spelling is accepted, so that equal programs are equal strings."""

from __future__ import annotations

import math
import re
from typing import NoReturn

from onnxfuse.custom_ops.program import (
    FIRST_ROLL,
    VERSION_LINE,
    Apply,
    Const,
    Entry,
    Input,
    Kernel,
    Map,
    Output,
    Program,
    Roll,
    Statement,
)
from onnxfuse.custom_ops.runtime_axes import RuntimeAxes
from onnxfuse.custom_ops.types import TYPES, VALUE_TYPES, integer_range, is_float
from onnxfuse.custom_ops.verify import MAX_TEXT, verify
from onnxfuse.errors import ProgramError

__all__ = ["parse"]

_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_TERM = re.compile(rf"(?:(-?{_NUMBER})\*)?([dr])({_NUMBER})")
_DIM = re.compile(rf"d({_NUMBER})(?:=({_NUMBER}))?")
_AXES = re.compile(rf"axes 0 (\w+) \[({_NUMBER}|\?|)\]( noop)?((?: d{_NUMBER})+)")
_ROLL = re.compile(rf"r({_NUMBER}) = roll ({_NUMBER})((?: d{_NUMBER})+)")
_STATEMENT = re.compile(rf"%({_NUMBER}) = (.+)")
_INPUT = re.compile(rf"input ({_NUMBER}) (\w+) \[(.*)\]")
_CONST = re.compile(r"const (\w+) (\S+)")
_APPLY = re.compile(rf"(\w+)((?: \w+)*) (\w+)((?: %{_NUMBER})+)")
_OUTPUT = re.compile(rf"output ({_NUMBER}) (\w+) (squeezed )?\[(.*)\] %({_NUMBER})")
_FLOAT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?|-?inf|nan")
_INTEGER = re.compile(rf"-?{_NUMBER}|[1-9][0-9]{{18,19}}|-[1-9][0-9]{{18}}")


def parse(text: str) -> Program:
    """The verified program that the text says; raises ProgramError, see Program.parse."""
    if len(text.encode("utf-8", "replace")) > MAX_TEXT:
        raise ProgramError(f"the program is longer than {MAX_TEXT} bytes")
    if not text.endswith("\n"):
        raise ProgramError(f"line {text.count(chr(10)) + 1}: a program ends with a newline")
    lines = text[:-1].split("\n")
    if lines[0] != VERSION_LINE:
        raise ProgramError(f"line 1: expected {VERSION_LINE!r}, found {_shown(lines[0])}")
    program = _Parser(lines).program()
    verify(program)
    for number, (given, canonical) in enumerate(zip(lines, program.text().split("\n"), strict=False), 1):
        if given != canonical:
            raise ProgramError(f"line {number}: spelled {_shown(given)}, must be {canonical!r}")
    return program


class _Parser:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 1  # index of the line to read next

    def fail(self, message: str) -> NoReturn:
        raise ProgramError(f"line {self.at + 1}: {message}")

    def line(self) -> str:
        return self.lines[self.at] if self.at < len(self.lines) else ""

    def program(self) -> Program:
        kernels = []
        while self.at < len(self.lines):
            kernels.append(self.kernel())
        if not kernels:
            self.fail("expected a kernel, which starts with 'space'")
        return Program(tuple(kernels))

    def kernel(self) -> Kernel:
        extents, outer, reduced = self.space()
        self.at += 1
        axes: RuntimeAxes | None = None
        if self.line().startswith("axes"):
            axes = self.axes()
            self.at += 1
        rolls: list[Roll] = []
        while self.line().startswith("r"):
            rolls.append(self.roll(len(rolls)))
            self.at += 1
        statements: list[Statement] = []
        while self.line().startswith("%"):
            statements.append(self.statement(len(statements)))
            self.at += 1
        outputs: list[Output] = []
        while self.line().startswith("output "):
            outputs.append(self.output())
            self.at += 1
        if not outputs:
            self.fail(f"expected a statement ('%{len(statements)} = ...') or an output, found {_shown(self.line())}")
        if self.at < len(self.lines) and self.line().split(" ")[0] != "space":
            self.fail(f"expected an output, 'space' or the end, found {_shown(self.line())}")
        return Kernel(extents, outer, reduced, tuple(statements), tuple(outputs), tuple(rolls), axes)

    def space(self) -> tuple[tuple[int | None, ...], int, int]:
        words = self.line().split(" ")
        if words[0] != "space":
            self.fail(f"expected 'space', found {_shown(self.line())}")
        extents: list[int | None] = []
        bars: list[int] = []
        for word in words[1:]:
            if word == "|":
                bars.append(len(extents))
                continue
            match = _DIM.fullmatch(word)
            if not match or int(match[1]) != len(extents):
                self.fail(f"expected 'd{len(extents)}', 'd{len(extents)}=N' or '|', found {_shown(word)}")
            extents.append(None if match[2] is None else int(match[2]))
        if not bars:
            return tuple(extents), len(extents), 0
        if len(bars) != 2:
            self.fail(f"a space has no bars or two, found {len(bars)}")
        if bars[0] == bars[1]:
            self.fail("no dimension between the bars; a space that reduces nothing has no bars")
        return tuple(extents), bars[0], bars[1] - bars[0]

    def axes(self) -> RuntimeAxes:
        match = _AXES.fullmatch(self.line())
        if not match:
            self.fail(f"expected 'axes 0 TYPE [NUMBER] dK ...', found {_shown(self.line())}")
        count = 1 if not match[2] else None if match[2] == "?" else int(match[2])
        dims = tuple(int(word[1:]) for word in match[4].split())
        return RuntimeAxes(self.type(match[1], TYPES), count, dims, not match[2], match[3] is not None)

    def roll(self, number: int) -> Roll:
        match = _ROLL.fullmatch(self.line())
        if not match or int(match[1]) != number:
            self.fail(f"expected 'r{number} = roll NUMBER dK ...', found {_shown(self.line())}")
        return Roll(int(match[2]), tuple(int(word[1:]) for word in match[3].split()))

    def statement(self, number: int) -> Statement:
        match = _STATEMENT.fullmatch(self.line())
        if not match:
            self.fail(f"expected '%{number} = ...', found {_shown(self.line())}")
        if int(match[1]) != number:
            self.fail(f"values are numbered in order: expected %{number}, found %{match[1]}")
        body = match[2]
        word = body.split(" ")[0]
        if word == "input":
            found = _INPUT.fullmatch(body)
            if not found:
                self.fail("an input reads 'input NUMBER TYPE [entry, ...]'")
            return Input(int(found[1]), self.type(found[2], TYPES), self.map(found[3]))
        if word == "const":
            found = _CONST.fullmatch(body)
            if not found:
                self.fail("a constant reads 'const TYPE LITERAL'")
            return self.const(self.type(found[1], VALUE_TYPES), found[2])
        found = _APPLY.fullmatch(body)
        if not found:
            self.fail("a statement reads 'input ...', 'const ...' or 'OPERATION TYPE %operand ...'")
        operands = tuple(int(operand[1:]) for operand in found[4].split())
        return Apply(found[1], self.type(found[3], VALUE_TYPES), operands, tuple(found[2].split()))

    def output(self) -> Output:
        match = _OUTPUT.fullmatch(self.line())
        if not match:
            self.fail("an output reads 'output NUMBER TYPE [entry, ...] %value'")
        type_ = self.type(match[2], TYPES)
        return Output(int(match[1]), type_, self.map(match[4]), int(match[5]), match[3] is not None)

    def type(self, word: str, allowed: tuple[str, ...]) -> str:
        if word not in allowed:
            self.fail(f"unknown type {_shown(word)}; expected one of {' '.join(allowed)}")
        return word

    def map(self, text: str) -> Map:
        return tuple(self.entry(word) for word in text.split(", ")) if text else ()

    def entry(self, text: str) -> Entry:
        affine, colon, extent = text.partition(":")
        if colon and not re.fullmatch(_NUMBER, extent):
            self.fail(f"map entry {_shown(text)}: expected a number after the colon")
        terms: list[tuple[int, int]] = []
        offset = 0
        words = affine.split("+")
        for place, word in enumerate(words):
            if match := _TERM.fullmatch(word):
                index = int(match[3]) + (FIRST_ROLL if match[2] == "r" else 0)
                terms.append((index, 1 if match[1] is None else int(match[1])))
            elif place == len(words) - 1 and re.fullmatch(_NUMBER, word):
                offset = int(word)
            else:
                self.fail(
                    f"map entry {_shown(text)}: expected terms 'dK', 'rK' or 'N*dK', then a number, joined by '+'"
                )
        return Entry(tuple(terms), offset, int(extent) if colon else None)

    def const(self, type_: str, literal: str) -> Const:
        if type_ == "bool":
            if literal not in ("true", "false"):
                self.fail(f"expected true or false, found {_shown(literal)}")
            return Const(type_, literal == "true")
        if is_float(type_):
            if not _FLOAT.fullmatch(literal):
                self.fail(f"expected a decimal, inf, -inf or nan, found {_shown(literal)}")
            const = Const(type_, float(literal))
            if math.isinf(float(const.value)) and "inf" not in literal:
                self.fail(f"{_shown(literal)} is out of the range of {type_}; write inf or -inf")
            return const
        low, high = integer_range(type_)
        if not _INTEGER.fullmatch(literal):
            self.fail(f"expected an integer, found {_shown(literal)}")
        if not low <= int(literal) <= high:
            self.fail(f"{literal} is out of the range of {type_}, {low} to {high}")
        return Const(type_, int(literal))


def _shown(text: str) -> str:
    """A piece of the program as a message shows it: quoted, and short whatever it holds."""
    if not text:
        return "nothing"
    return ascii(text if len(text) <= 60 else text[:57] + "...")
