"""Programs of the language that docs/program.md defines: the data, its text, and what follows from it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.runtime_axes import RuntimeAxes
from onnxfuse.custom_ops.types import is_float, value_type

__all__ = [
    "FIRST_ROLL",
    "ONE",
    "VERSION_LINE",
    "Apply",
    "Const",
    "Entry",
    "Input",
    "Kernel",
    "Map",
    "Output",
    "Program",
    "Roll",
    "Statement",
    "dependence",
    "dependencies",
    "dim",
    "statement_type",
]

VERSION_LINE = "onnxfuse 1"
# What r0 is numbered as among the indices of a map; those below are dimensions of the space.
FIRST_ROLL = 8


@dataclass(frozen=True)
class Entry:
    """The index along one dimension of a tensor: offset + sum of scale * (index along space dimension dim).

    `terms` are pairs (dim, scale) ordered by dim, which may be a roll (from FIRST_ROLL on). `extent` is the extent of
    the tensor's dimension, where the map must say it: in an output where it cannot be read off, in an input where a
    plain dk reads the first part only.
    """

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0
    extent: int | None = None

    @property
    def plain(self) -> int | None:
        """The space dimension where the index is that of one dimension as it stands (a plain dk), else None."""
        if self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 and self.terms[0][0] < FIRST_ROLL:
            return self.terms[0][0]
        return None

    @property
    def roll(self) -> int | None:
        """The roll where the index is that of one as it stands (a plain rk), else None."""
        plain = self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1
        return self.terms[0][0] if plain and self.terms[0][0] >= FIRST_ROLL else None

    @property
    def whole(self) -> int | None:
        """In an input's map: the space dimension that runs over all of the tensor's (or is broadcast), else None."""
        return self.plain if self.extent is None else None

    def __str__(self) -> str:
        parts = [_index_name(k) if scale == 1 else f"{scale}*{_index_name(k)}" for k, scale in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return "+".join(parts) + ("" if self.extent is None else f":{self.extent}")


def _index_name(k: int) -> str:
    return f"d{k}" if k < FIRST_ROLL else f"r{k - FIRST_ROLL}"


Map: TypeAlias = tuple[Entry, ...]

# Index 0: the only element along a dimension of extent 1.
ONE = Entry()


def dim(k: int) -> Entry:
    """The plain entry dk."""
    return Entry(((k, 1),))


@dataclass(frozen=True)
class Input:
    """A value read from the node's input `tensor`, whose elements have `type`, through `map`."""

    tensor: int
    type: str
    map: Map

    def __str__(self) -> str:
        return f"input {self.tensor} {self.type} {_map_text(self.map)}"


@dataclass(frozen=True, eq=False)
class Const:
    """A constant. A float is rounded to `type`; two constants are equal where their texts are (so 0.0 is not -0.0)."""

    type: str
    value: float | int | bool

    def __post_init__(self) -> None:
        value: float | int | bool
        if self.type == "bool":
            value = bool(self.value)
        elif is_float(self.type):
            with np.errstate(over="ignore"):
                value = float(np.float32(self.value)) if self.type == "f32" else float(self.value)
        else:
            value = int(self.value)
        object.__setattr__(self, "value", value)

    @property
    def literal(self) -> str:
        """The shortest decimal that reads back to the same value of the type."""
        if self.type == "bool":
            return "true" if self.value else "false"
        if self.type == "f32":
            # The digits that tell the float32 from its neighbours, laid out as Python does (numpy's layout varies).
            return repr(float(np.format_float_scientific(np.float32(self.value), unique=True)))
        return repr(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"const {self.type} {self.literal}"


@dataclass(frozen=True)
class Apply:
    """An operation of the table, or `cast`, on earlier values; `type` is that of the value it defines.

    `flags` are those of a scan ("exclusive", "reverse") or an argument ("last"), in this order.
    """

    op: str
    type: str
    operands: tuple[int, ...]
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.op, *self.flags, self.type, *(f"%{operand}" for operand in self.operands)))


Statement: TypeAlias = Input | Const | Apply


@dataclass(frozen=True)
class Roll:
    """An index that maps use beside those of the space's dimensions: one that starts elsewhere and wraps around.

    It is the row-major index over `dims` plus `shift`, modulo their number of points. The extents of `dims` are known.
    """

    shift: int
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join((f"roll {self.shift}", *(f"d{k}" for k in self.dims)))


@dataclass(frozen=True)
class Output:
    """A store of `value` to the node's output `tensor`, whose elements have `type`, through `map`.

    `squeezed`: the tensor is without the dimensions that the kernel's run-time axes name.
    """

    tensor: int
    type: str
    map: Map
    value: int
    squeezed: bool = False

    def __str__(self) -> str:
        how = "squeezed " if self.squeezed else ""
        return f"output {self.tensor} {self.type} {how}{_map_text(self.map)} %{self.value}"


@dataclass(frozen=True)
class Kernel:
    """One iteration space and what happens at its points.

    `extents` are those of the space's dimensions (None: the tensors show it at run time); dimensions
    [outer, outer + reduced) are reduced. Where nothing is reduced, `reduced` is 0 and `outer` the rank of the space.
    With `axes`, a run shows which dimensions are.
    """

    extents: tuple[int | None, ...]
    outer: int
    reduced: int
    statements: tuple[Statement, ...]
    outputs: tuple[Output, ...]
    rolls: tuple[Roll, ...] = ()
    axes: RuntimeAxes | None = None

    @property
    def rank(self) -> int:
        """The number of the space's dimensions."""
        return len(self.extents)

    @property
    def reduced_dims(self) -> frozenset[int]:
        """The reduced dimensions."""
        return frozenset(range(self.outer, self.outer + self.reduced))

    def extent(self, k: int) -> int | None:
        """The extent of dk, or the number of points of a roll; None where a run shows it."""
        if k < FIRST_ROLL:
            return self.extents[k]
        return math.prod(self.extents[d] or 0 for d in self.rolls[k - FIRST_ROLL].dims)

    def counted(self, entry: Entry) -> tuple[int, int] | None:
        """The dimension of unknown extent, and its coefficient, where an entry counts row-major through it and others.

        The tensor's extent is then the coefficient times that of the dimension. The coefficient is the product of the
        others' extents, which are known; None where the entry is no such one.
        """
        terms = entry.terms
        if len(terms) < 2 or entry.offset or entry.extent is not None or any(k >= self.rank for k, _ in terms):
            return None
        weight = 1
        for k, scale in reversed(terms[1:]):
            extent = self.extents[k]
            if not extent or scale != weight:
                return None
            weight *= extent
        k, scale = terms[0]
        return (k, scale) if scale == weight and self.extents[k] is None else None

    def behind(self, k: int) -> tuple[int, ...]:
        """The space's dimensions that an index depends on: dk itself, or those that a roll runs over."""
        return (k,) if k < FIRST_ROLL else self.rolls[k - FIRST_ROLL].dims

    def dims(self, *entries: Entry) -> list[int]:
        """The space's dimensions that the entries of a map depend on, in the order of the entries and their terms."""
        return [d for entry in entries for k, _ in entry.terms for d in self.behind(k)]

    def lines(self) -> list[str]:
        """The kernel's lines of text."""
        dims = [f"d{k}" if extent is None else f"d{k}={extent}" for k, extent in enumerate(self.extents)]
        if self.reduced:
            end = self.outer + self.reduced
            dims = [*dims[: self.outer], "|", *dims[self.outer : end], "|", *dims[end:]]
        body = [f"%{number} = {statement}" for number, statement in enumerate(self.statements)]
        rolls = [f"r{number} = {roll}" for number, roll in enumerate(self.rolls)]
        axes = [] if self.axes is None else [str(self.axes)]
        return [" ".join(["space", *dims]), *axes, *rolls, *body, *(str(output) for output in self.outputs)]


@dataclass(frozen=True)
class Program:
    """One kernel or more, run in order. Building one checks nothing: `verify.verify` does, and `parse` calls it."""

    kernels: tuple[Kernel, ...]

    @staticmethod
    def parse(text: str) -> Program:
        """The program that the text says, verified.

        Raises:
            ProgramError: the text is not a program, or not spelled as the printer spells it; the message names the
                line and what would be right.
        """
        from onnxfuse.custom_ops.parser import parse

        return parse(text)

    @cached_property
    def _text(self) -> str:
        return "\n".join([VERSION_LINE, *(line for kernel in self.kernels for line in kernel.lines())]) + "\n"

    def text(self) -> str:
        """The canonical text: equal programs have equal texts."""
        return self._text

    def digest(self) -> str:
        """128 bits over version and text, in hexadecimal: the overload of the nodes that carry the program."""
        return hashlib.sha256(self._text.encode()).hexdigest()[:32]

    @property
    def axes(self) -> RuntimeAxes | None:
        """The axes that arrive with a run, as the node's input 0."""
        return self.kernels[0].axes if self.kernels else None

    @cached_property
    def inputs(self) -> tuple[tuple[str, int], ...]:
        """Type and rank of the node's inputs."""
        found = {s.tensor: (s.type, len(s.map)) for k in self.kernels for s in k.statements if isinstance(s, Input)}
        if self.axes is not None:
            found[0] = (self.axes.type, self.axes.rank)
        return tuple(found[tensor] for tensor in sorted(found))

    @cached_property
    def outputs(self) -> tuple[tuple[str, int], ...]:
        """Type and rank of the node's outputs."""
        left_out = (self.axes.count or 0) if self.axes is not None else 0
        found = {o.tensor: (o.type, len(o.map) - left_out * o.squeezed) for k in self.kernels for o in k.outputs}
        return tuple(found[tensor] for tensor in sorted(found))


def _map_text(map_: Map) -> str:
    return "[" + ", ".join(str(entry) for entry in map_) + "]"


def statement_type(statement: Statement) -> str:
    """The type of the value that the statement defines."""
    return value_type(statement.type) if isinstance(statement, Input) else statement.type


def dependence(kernel: Kernel, statement: Statement, earlier: Sequence[frozenset[int]]) -> frozenset[int]:
    """The space dimensions that a statement's value depends on, from those of the earlier statements' values."""
    if isinstance(statement, Input):
        return frozenset(kernel.dims(*statement.map))
    if isinstance(statement, Const):
        return frozenset()
    dims = frozenset(k for operand in statement.operands for k in earlier[operand])
    primitive = PRIMITIVES.get(statement.op)
    if primitive is None:
        return dims
    reduced = kernel.reduced_dims
    return dims - reduced if primitive.reduces else dims | reduced if primitive.scans else dims


def dependencies(kernel: Kernel) -> tuple[frozenset[int], ...]:
    """For each statement, the space dimensions that its value depends on."""
    found: list[frozenset[int]] = []
    for statement in kernel.statements:
        found.append(dependence(kernel, statement, found))
    return tuple(found)
