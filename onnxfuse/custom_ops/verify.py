"""The rules of docs/program.md that a program must keep; the library has the same ones."""

from __future__ import annotations

import math
from typing import NoReturn

from onnxfuse.custom_ops.coverage import Stores, axis_of, fail_at
from onnxfuse.custom_ops.over_axes import variation
from onnxfuse.custom_ops.primitives import PRIMITIVES, Primitive
from onnxfuse.custom_ops.program import (
    FIRST_ROLL,
    Apply,
    Const,
    Entry,
    Input,
    Kernel,
    Map,
    Output,
    Program,
    Roll,
    dependence,
    statement_type,
)
from onnxfuse.custom_ops.types import TYPES, VALUE_TYPES, value_type
from onnxfuse.custom_ops.verify_axes import AxesCheck, names_of
from onnxfuse.errors import ProgramError

__all__ = ["MAX_TEXT", "verify"]

MAX_TEXT = 64 * 1024
MAX_KERNELS = 16
MAX_RANK = FIRST_ROLL
MAX_ROLLS = 8
MAX_ROLL_PARTS = 1024  # that the rolls of a kernel cut its space into: twice the dimensions of each
MAX_STATEMENTS = 1024
MAX_TENSORS = 64
MAX_MAGNITUDE = 2**48 - 1


def verify(program: Program) -> None:
    """Checks all rules.

    Raises:
        ProgramError: naming the line of the program's text, what is wrong there and what would be right.
    """
    if not program.kernels:
        raise ProgramError("line 2: expected a kernel, which starts with 'space'")
    if len(program.kernels) > MAX_KERNELS:
        raise ProgramError(f"{len(program.kernels)} kernels; a program may have {MAX_KERNELS}")
    if len(program.text().encode()) > MAX_TEXT:
        raise ProgramError(f"the program is longer than {MAX_TEXT} bytes")
    stores = Stores()
    inputs = _Tensors("input")
    outputs = _Tensors("output")
    line = 2
    for kernel in program.kernels:
        KernelCheck(kernel, line, inputs, outputs, stores).run()
        if kernel.axes is not None and len(program.kernels) > 1:
            fail_at(line, "a kernel with axes is the program's only one")
        line += 1 + (kernel.axes is not None) + len(kernel.rolls) + len(kernel.statements) + len(kernel.outputs)
    inputs.check_numbering()
    outputs.check_numbering()
    stores.check_covered()


class _Tensors:
    """The node's inputs or outputs: one type and one rank for each number, no gaps."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.known: dict[int, tuple[str, int, int]] = {}

    def add(self, line: int, tensor: int, type_: str, rank: int) -> None:
        if not 0 <= tensor < MAX_TENSORS:
            fail_at(line, f"{self.kind} {tensor}: a program may have {MAX_TENSORS} {self.kind}s, numbered from 0")
        if type_ not in TYPES:
            fail_at(line, f"unknown type {type_!r}; expected one of {' '.join(TYPES)}")
        known_type, known_rank, first = self.known.setdefault(tensor, (type_, rank, line))
        if (known_type, known_rank) != (type_, rank):
            fail_at(
                line,
                f"{self.kind} {tensor} is {known_type} of rank {known_rank} on line {first}, "
                f"here {type_} of rank {rank}",
            )

    def check_numbering(self) -> None:
        for place, tensor in enumerate(sorted(self.known)):
            if place != tensor:
                line = self.known[tensor][2]
                fail_at(line, f"{self.kind}s are numbered without gaps: {self.kind} {place} is missing")


class KernelCheck:
    """The rules of one kernel, whose text begins on `line`."""

    def __init__(self, kernel: Kernel, line: int, inputs: _Tensors, outputs: _Tensors, stores: Stores) -> None:
        self.kernel = kernel
        self.line = line
        self.inputs = inputs
        self.outputs = outputs
        self.stores = stores
        self.depends: list[frozenset[int]] = []
        self.scanned: set[int] = set()  # the values that depend on a scan
        self.varies: list[frozenset[int]] = []  # whatever the axes are (over_axes.py)
        self.over_axes: AxesCheck | None = None

    def fail(self, message: str) -> NoReturn:
        fail_at(self.line, message)

    def run(self) -> None:
        self.space()
        if self.kernel.axes is not None:
            self.line += 1
            self.inputs.add(self.line, 0, self.kernel.axes.type, self.kernel.axes.rank)
            self.over_axes = AxesCheck(self, self.kernel.axes)
        parts = 1
        for number, roll in enumerate(self.kernel.rolls):
            self.line += 1
            self.roll(number, roll)
            parts *= 2 * len(roll.dims)
            if parts > MAX_ROLL_PARTS:
                self.fail(f"the rolls cut the space into more than {MAX_ROLL_PARTS} parts")
        for number, statement in enumerate(self.kernel.statements):
            self.line += 1
            if isinstance(statement, Input):
                self.inputs.add(self.line, statement.tensor, statement.type, len(statement.map))
                self.map(statement.map)
                if self.over_axes and statement.tensor == 0:
                    self.fail("input 0 holds the axes, and is not read by a statement")
                for entry in statement.map:
                    self.input_extent(entry)
            elif isinstance(statement, Const):
                if statement.type not in VALUE_TYPES:
                    self.fail(f"no constant has type {statement.type!r}; expected one of {' '.join(VALUE_TYPES)}")
            else:
                self.apply(number, statement)
            self.depends.append(dependence(self.kernel, statement, self.depends))
            self.varies.append(variation(self.kernel, statement, self.varies))
        if not self.kernel.outputs:
            self.fail("the kernel has no output")
        for output in self.kernel.outputs:
            self.line += 1
            self.output(output)

    def space(self) -> None:
        kernel = self.kernel
        if kernel.rank > MAX_RANK:
            self.fail(f"{kernel.rank} dimensions; a space may have {MAX_RANK}")
        if len(kernel.statements) > MAX_STATEMENTS:
            self.fail(f"{len(kernel.statements)} statements; a kernel may have {MAX_STATEMENTS}")
        if kernel.outer < 0 or kernel.reduced < 0 or kernel.outer + kernel.reduced > kernel.rank:
            self.fail(f"reduced dimensions {kernel.outer} to {kernel.outer + kernel.reduced} are not in the space")
        if not kernel.reduced and kernel.outer != kernel.rank:
            self.fail(f"nothing is reduced, so all {kernel.rank} dimensions are outer ones, not {kernel.outer}")
        read = [e for s in kernel.statements if isinstance(s, Input) for e in s.map]
        shown = {e.whole for e in read} | {counted[0] for e in read if (counted := kernel.counted(e))}
        for k, extent in enumerate(kernel.extents):
            if extent is None and k not in shown:
                self.fail(f"d{k} has no extent and stands alone in no input's map; write 'd{k}=N' or read it plainly")
            if extent is not None:
                self.magnitude(extent, f"the extent of d{k}", 0)

    def roll(self, number: int, roll: Roll) -> None:
        kernel = self.kernel
        if number >= MAX_ROLLS:
            self.fail(f"a kernel may have {MAX_ROLLS} rolls")
        if len(set(roll.dims)) < len(roll.dims):
            self.fail("a dimension stands twice in a roll")
        for k in roll.dims:
            if not 0 <= k < kernel.rank:
                self.fail(f"the space has no d{k}, its rank is {kernel.rank}")
            if kernel.extents[k] is None or k in kernel.reduced_dims:
                self.fail(f"a roll runs over dimensions of known extent that are not reduced; d{k} is none")
        points = math.prod(kernel.extents[k] or 0 for k in roll.dims)
        self.magnitude(points, "the number of points of a roll", 0)
        if not 0 < roll.shift < points:
            self.fail(f"a roll of {points} points by {roll.shift}; the number must be from 1 to {max(points - 1, 0)}")

    def magnitude(self, number: int, what: str, lowest: int = -MAX_MAGNITUDE) -> None:
        if not lowest <= number <= MAX_MAGNITUDE:
            self.fail(f"{what} is {number}; it must be from {lowest} to 2^48-1")

    def map(self, map_: Map) -> None:
        for entry in map_:
            for k, scale in entry.terms:
                if not 0 <= k < self.kernel.rank and not 0 <= k - FIRST_ROLL < len(self.kernel.rolls):
                    self.fail(
                        f"map entry '{entry}': the space has no {Entry(((k, 1),))}, its rank is {self.kernel.rank}"
                    )
                if scale == 0:
                    self.fail(f"map entry '{entry}': a coefficient may not be 0; leave the term out")
                self.magnitude(scale, f"map entry '{entry}': a coefficient")
            dims = [k for k, _ in entry.terms]
            if dims != sorted(set(dims)):
                self.fail(f"map entry '{entry}': each dimension once, in their order")
            self.magnitude(entry.offset, f"map entry '{entry}': the number added", 0)
            if entry.extent is not None:
                self.magnitude(entry.extent, f"map entry '{entry}': the extent", 0)

    def input_extent(self, entry: Entry) -> None:
        if entry.extent is None:
            return
        known = None if entry.plain is None else self.kernel.extents[entry.plain]
        if known is None or entry.extent <= known:
            self.fail(
                f"map entry '{entry}': an input's map has an extent only where a plain dimension of known extent reads "
                "the first part of a longer one"
            )

    def apply(self, number: int, apply: Apply) -> None:
        primitive = PRIMITIVES.get(apply.op)
        if primitive is None and apply.op != "cast":
            self.fail(f"unknown operation {apply.op!r}; the table is onnxfuse/custom_ops/primitives.toml")
        arity = primitive.arity if primitive else 1
        if len(apply.operands) != arity:
            self.fail(f"{apply.op} takes {arity} operands, found {len(apply.operands)}")
        for operand in apply.operands:
            if not 0 <= operand < number:
                self.fail(f"%{operand} is not an earlier value of this kernel")
        if apply.flags:
            self.flags(apply, primitive)
        types = [statement_type(self.kernel.statements[operand]) for operand in apply.operands]
        if apply.type not in VALUE_TYPES:
            self.fail(f"no value has type {apply.type!r}; expected one of {' '.join(VALUE_TYPES)}")
        if primitive is None:
            if types[0] == apply.type:
                self.fail(f"cast to the type that %{apply.operands[0]} has; use the value itself")
        else:
            self.operand_types(apply, primitive, types)
            if primitive.reduces or primitive.scans:
                self.collective(apply)
        if (primitive and primitive.scans) or self.scanned.intersection(apply.operands):
            self.scanned.add(number)

    def flags(self, apply: Apply, primitive: Primitive | None) -> None:
        allowed = primitive.flags if primitive else ()
        for flag in apply.flags:
            if flag not in allowed:
                self.fail(
                    f"{apply.op} has no flag {flag!r}" + (f"; expected one of {' '.join(allowed)}" if allowed else "")
                )
        if list(apply.flags) != [flag for flag in allowed if flag in apply.flags]:
            self.fail(f"the flags of {apply.op} stand in this order, each once: {' '.join(allowed)}")

    def operand_types(self, apply: Apply, primitive: Primitive, types: list[str]) -> None:
        if apply.op == "where":
            if types[0] != "bool":
                self.fail(f"the condition of where must be bool, %{apply.operands[0]} is {types[0]}")
            types = types[1:]
        if len(set(types)) != 1:
            self.fail(f"the operands of {apply.op} must have one type, found {' and '.join(types)}")
        if types[0] not in primitive.types:
            self.fail(f"{apply.op} has no operands of type {types[0]}; expected one of {' '.join(primitive.types)}")
        if apply.type != primitive.result_type(types[0]):
            self.fail(f"{apply.op} of {types[0]} gives {primitive.result_type(types[0])}, not {apply.type}")

    def collective(self, apply: Apply) -> None:
        """What holds for a reduction and a scan: their operand is a value of the point that depends on no scan."""
        (operand,) = apply.operands
        if self.over_axes:
            self.over_axes.collective(apply, operand)
            return
        if not self.kernel.reduced:
            self.fail(f"{apply.op} in a space that reduces nothing; write bars around the reduced dimensions")
        if not self.depends[operand] & self.kernel.reduced_dims:
            self.fail(f"the operand of {apply.op} must depend on a reduced dimension, %{operand} does not")
        if operand in self.scanned:
            self.fail(f"the operand of {apply.op} may not depend on a scan, %{operand} does; use another kernel")

    def output(self, output: Output) -> None:
        kernel = self.kernel
        left_out = (kernel.axes.count or 0) if kernel.axes is not None else 0
        self.outputs.add(self.line, output.tensor, output.type, len(output.map) - left_out * output.squeezed)
        self.map(output.map)
        if not 0 <= output.value < len(kernel.statements):
            self.fail(f"%{output.value} is not a value of this kernel")
        if self.over_axes:
            self.over_axes.output(output)
        elif output.squeezed:
            self.fail("only a kernel with axes has squeezed outputs")
        found = statement_type(kernel.statements[output.value])
        if found != value_type(output.type):
            self.fail(f"an output of type {output.type} stores a {value_type(output.type)}, %{output.value} is {found}")
        dims = kernel.dims(*output.map)
        if missing := self.depends[output.value] - set(dims):
            self.fail(f"%{output.value} depends on {names_of(missing)}, which must stand in the output's map")
        for k in dims:
            if dims.count(k) > 1:
                self.fail(f"d{k} stands twice in the output's map")
        axes = []
        for entry in output.map:
            natural_less = entry.plain is None and (entry.terms or entry.offset) and not kernel.counted(entry)
            if entry.extent is None and natural_less:
                self.fail(f"map entry '{entry}': the extent must be written, as in '{entry}:64'")
            natural = kernel.extents[entry.plain] if entry.plain is not None else None if entry.terms else 1
            if entry.extent is not None and entry.extent == natural and entry.offset == 0:
                self.fail(f"map entry '{entry}': the extent is that of the entry itself; leave it out")
            self.injective(entry)
            axes.append(axis_of(kernel, entry, natural))
            if not axes[-1].inside() and all(kernel.extent(k) != 0 for k, _ in entry.terms):
                self.fail(f"map entry '{entry}': indices go from {axes[-1].low} to {axes[-1].high}, out of the extent")
        points = (
            math.prod(kernel.extents[k] or 0 for k in dims)
            if all(kernel.extents[k] is not None for k in dims)
            else None
        )
        self.stores.add(self.line, output.tensor, axes, points)

    def injective(self, entry: Entry) -> None:
        reach: int | None = 0
        for k, scale in sorted(entry.terms, key=lambda term: abs(term[1])):
            if reach is None or abs(scale) <= reach:
                self.fail(
                    f"map entry '{entry}': two points may store to one element; each coefficient must be larger "
                    "than the smaller ones, times their known extents less one, can sum up to"
                )
            extent = self.kernel.extent(k)
            reach = None if extent is None else reach + abs(scale) * max(extent - 1, 0)
