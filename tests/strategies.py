"""Random legal programs and inputs for them, for property tests and fuzzers.

`programs()` is a hypothesis strategy; `arrays_for` makes inputs that fit a program.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import (
    FIRST_ROLL,
    ONE,
    Apply,
    Const,
    Entry,
    Input,
    Kernel,
    Map,
    Output,
    Program,
    Roll,
    dependencies,
    dim,
    statement_type,
)
from onnxfuse.custom_ops.types import TYPES, VALUE_TYPES, integer_range, is_float, is_integer, to_numpy, value_type

Draw = Any

# Operations whose results any two implementations agree on well: no poles, no chaos. Those that differ by design in
# undefined places (integer division by zero, shifts by more than the width, casts that overflow) are left out as well.
SMOOTH = (
    *("abs", "neg", "sign", "relu", "add", "sub", "min", "max", "tanh", "sigmoid"),
    *("equal", "less", "less_equal", "greater", "greater_equal", "where", "not", "and", "or", "xor"),
    *("reduce_max", "reduce_min", "reduce_mean", "reduce_sum"),
)

# Scans and arguments among operations that every implementation computes to the last bit: an index changes with it.
SCANNING = (
    *("abs", "neg", "sign", "relu", "min", "max", "equal", "less", "where", "not", "reduce_max", "reduce_min"),
    *("reduce_argmax", "reduce_argmin", "scan_sum", "scan_max", "scan_min"),
)


@st.composite
def programs(
    draw: Draw,
    types: tuple[str, ...] = TYPES,
    operations: tuple[str, ...] = tuple(PRIMITIVES),
    static: bool = False,
    max_kernels: int = 2,
) -> Program:
    """Verified programs with maps of all kinds. `static` gives every dimension its extent."""
    tensors: list[tuple[str, int]] = []  # type and rank of the inputs so far
    kernels: list[Kernel] = []
    outputs = 0
    for _ in range(draw(st.integers(1, max_kernels))):
        kernel, outputs = draw(_kernels(types, operations, static, tensors, outputs))
        kernels.append(kernel)
    return Program(tuple(kernels))


MOST_ELEMENTS = 1 << 22

# Small, now and then enough for the schedules of whole rows.
_EXTENTS = st.integers(0, 7).flatmap(lambda n: st.integers(16, 20) if n == 7 else st.integers(1, 5))


@st.composite
def _kernels(
    draw: Draw,
    types: tuple[str, ...],
    operations: tuple[str, ...],
    static: bool,
    tensors: list[tuple[str, int]],
    first_output: int,
) -> tuple[Kernel, int]:
    rank = draw(st.integers(0, 4))
    extents: list[int | None] = [draw(_EXTENTS) for _ in range(rank)]
    reduced = draw(st.integers(0, min(2, rank)))
    outer = draw(st.integers(0, rank - reduced)) if reduced else rank
    if not static:
        extents = [draw(st.sampled_from([extent, None])) for extent in extents]
    rolls = draw(_rolls([k for k in range(rank) if extents[k] and not outer <= k < outer + reduced], extents))
    kernel = Kernel(tuple(extents), outer, reduced, (), (), rolls)
    statements: list[Any] = []

    # One tensor that shows all dimensions without an extent, in any order.
    shown = draw(st.permutations([k for k in range(rank) if extents[k] is None or draw(st.booleans())]))
    type_ = draw(st.sampled_from(types))
    statements.append(Input(_tensor(tensors, type_, len(shown), None), type_, tuple(dim(k) for k in shown)))
    for _ in range(draw(st.integers(0, 3))):
        map_ = draw(input_maps(kernel))
        type_ = draw(st.sampled_from(types))
        old = [n for n, (t, r) in enumerate(tensors) if (t, r) == (type_, len(map_))]
        number = draw(st.sampled_from([None, *old]))
        statements.append(Input(_tensor(tensors, type_, len(map_), number), type_, map_))
    for _ in range(draw(st.integers(0, 2))):
        statements.append(draw(constants(draw(st.sampled_from([statement_type(s) for s in statements])))))
    for _ in range(draw(st.integers(0, 8))):
        kernel = replace(kernel, statements=tuple(statements))
        statements.append(draw(_applications(kernel, operations, types)))

    kernel = replace(kernel, statements=tuple(statements))
    depends = dependencies(kernel)
    stores = []
    for number in range(first_output, first_output + draw(st.integers(1, 3))):
        value = draw(st.integers(0, len(statements) - 1))
        found = statement_type(statements[value])
        storage = draw(st.sampled_from([t for t in TYPES if value_type(t) == found and (t == found or t in types)]))
        map_ = draw(output_maps(kernel, depends[value]))
        stores.append(Output(number, storage, map_, value))
    return replace(kernel, outputs=tuple(stores)), first_output + len(stores)


@st.composite
def _rolls(draw: Draw, dims: list[int], extents: list[int | None]) -> tuple[Roll, ...]:
    """Rolls over some of the dimensions, in any order."""
    found = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        chosen = [k for k in draw(st.permutations(dims)) if draw(st.booleans())]
        points = math.prod(extents[k] or 0 for k in chosen)
        if points > 1:
            found.append(Roll(draw(st.integers(1, points - 1)), tuple(chosen)))
    return tuple(found)


def _tensor(tensors: list[tuple[str, int]], type_: str, rank: int, number: int | None) -> int:
    if number is None:
        tensors.append((type_, rank))
        return len(tensors) - 1
    return number


@st.composite
def constants(draw: Draw, type_: str) -> Const:
    """Any constant of a value type, the special ones of floats included."""
    if type_ == "bool":
        return Const(type_, draw(st.booleans()))
    if is_float(type_):
        return Const(type_, draw(st.floats(width=32 if type_ == "f32" else 64)))
    low, high = integer_range(type_)
    return Const(type_, draw(st.integers(low, high)))


@st.composite
def input_maps(draw: Draw, kernel: Kernel) -> Map:
    """Maps that read a tensor: plain, constant, strided, reversed, merged and rolled entries, dimensions in several."""
    extents = kernel.extents
    dims = [k for k in range(len(extents)) if draw(st.booleans())]
    if draw(st.integers(0, 3)) == 0:
        dims = draw(st.permutations(dims))
    entries: list[Entry] = []
    while dims:
        k = dims.pop(0)
        kind = draw(st.sampled_from(["plain", "plain", "plain", "one", "part", "affine", "reversed", "merged"]))
        if kind == "plain":
            entries.append(dim(k))
        elif kind == "one":
            entries.append(ONE)
        elif kind == "part" and extents[k] is not None:
            entries.append(Entry(((k, 1),), 0, extents[k] + draw(st.integers(1, 2))))
        elif kind == "affine":
            entries.append(Entry(((k, draw(st.integers(1, 3))),), draw(st.integers(0, 2))))
        elif kind == "reversed" and extents[k] is not None:
            entries.append(Entry(((k, -1),), extents[k] - 1 + draw(st.integers(0, 1))))
        elif kind == "merged" and dims:
            other = dims.pop(0)
            terms = tuple(sorted(((k, draw(st.integers(1, 4))), (other, 1))))
            entries.append(Entry(terms, draw(st.integers(0, 1))))
        else:
            entries.append(dim(k))
    if draw(st.integers(0, 5)) == 0:
        entries.insert(draw(st.integers(0, len(entries))), Entry((), draw(st.integers(0, 2))))
    for number in range(len(kernel.rolls)):
        scale, offset = draw(
            st.sampled_from([(1, 0), (1, 0), (2, 1), (-1, (kernel.extent(FIRST_ROLL + number) or 0) - 1)])
        )
        terms = ((FIRST_ROLL + number, scale),)
        if draw(st.integers(0, 3)) == 0 and extents:
            terms = ((draw(st.integers(0, len(extents) - 1)), 1), *terms)
        entries.insert(draw(st.integers(0, len(entries))), Entry(terms, offset))
    return tuple(entries)


@st.composite
def output_maps(draw: Draw, kernel: Kernel, depends: frozenset[int]) -> Map:
    """Maps that store every element of a tensor once: permuted, reversed, merged, rolled entries and 0."""
    extents = kernel.extents
    dims = sorted(depends | {k for k in range(len(extents)) if draw(st.booleans())})
    if draw(st.integers(0, 3)) == 0:
        dims = draw(st.permutations(dims))
    entries: list[Entry] = []
    for number, roll in enumerate(kernel.rolls):
        k, points = FIRST_ROLL + number, kernel.extent(FIRST_ROLL + number) or 0
        if not set(roll.dims) <= set(dims) or draw(st.integers(0, 3)) == 0:
            continue
        dims = [d for d in dims if d not in roll.dims]
        kind = draw(st.sampled_from(["plain", "plain", "reversed", "merged"]))
        other = extents[dims[0]] if dims else None
        if kind == "reversed":
            entries.append(Entry(((k, -1),), points - 1, points))
        elif kind == "merged" and other is not None and other > 1:
            entries.append(Entry(((dims.pop(0), points), (k, 1)), 0, points * other))
        else:
            entries.append(Entry(((k, 1),), 0, points))
    while dims:
        k = dims.pop(0)
        extent = extents[k]
        kind = draw(st.sampled_from(["plain", "plain", "plain", "reversed", "merged"]))
        other = extents[dims[0]] if dims else None
        if kind == "reversed" and extent is not None and extent > 1:
            entries.append(Entry(((k, -1),), extent - 1, extent))
        elif kind == "merged" and extent is not None and other is not None and other > 1:
            terms = tuple(sorted(((k, other), (dims.pop(0), 1))))
            entries.append(Entry(terms, 0, extent * other))
        else:
            entries.append(dim(k))
    if draw(st.integers(0, 3)) == 0:
        entries.insert(draw(st.integers(0, len(entries))), ONE)
    return tuple(entries)


@st.composite
def _applications(
    draw: Draw,
    kernel: Kernel,
    operations: tuple[str, ...],
    types: tuple[str, ...],
) -> Apply:
    statements = kernel.statements
    depends = dependencies(kernel)
    scanned: set[int] = set()
    by_type: dict[str, list[int]] = {}
    for number, statement in enumerate(statements):
        if isinstance(statement, Apply) and (statement.op.startswith("scan_") or scanned & set(statement.operands)):
            scanned.add(number)
        by_type.setdefault(statement_type(statement), []).append(number)
    legal = []
    for op in operations:
        primitive = PRIMITIVES[op]
        for type_ in primitive.types:
            usable = by_type.get(type_, [])
            if primitive.reduces or primitive.scans:
                usable = [n for n in usable if depends[n] & kernel.reduced_dims and n not in scanned]
            if usable and (op != "where" or "bool" in by_type):
                legal.append((op, type_, usable))
    # No cast from float to integer: it is undefined where the value does not fit.
    source = draw(st.sampled_from(sorted(by_type)))
    targets = [t for t in VALUE_TYPES if t != source and (is_float(t) or not is_float(source)) and t in types]
    if targets and (not legal or draw(st.integers(0, 5)) == 0):
        return Apply("cast", draw(st.sampled_from(targets)), (draw(st.sampled_from(by_type[source])),))
    if not legal:
        return Apply("equal", "bool", (0, 0))
    op = draw(st.sampled_from(sorted({op for op, _, _ in legal})))
    op, type_, usable = draw(st.sampled_from([row for row in legal if row[0] == op]))
    operands = [draw(st.sampled_from(usable)) for _ in range(PRIMITIVES[op].arity)]
    if op == "where":
        operands[0] = draw(st.sampled_from(by_type["bool"]))
    flags = tuple(flag for flag in PRIMITIVES[op].flags if draw(st.booleans()))
    return Apply(op, PRIMITIVES[op].result_type(type_), tuple(operands), flags)


def extents_for(program: Program, rng: np.random.Generator) -> list[list[int]]:
    """For each kernel, extents of its dimensions; equal tensors of several kernels get what fits all."""

    def extent() -> int:
        return int(rng.integers(1, 5) if rng.random() < 0.85 else rng.integers(16, 24))

    return [[extent() if n is None else n for n in kernel.extents] for kernel in program.kernels]


def shapes_for(program: Program, extents: list[list[int]], rng: np.random.Generator, broadcast: float = 0.0) -> Any:
    """Shapes of the inputs that fit every read, or None where no shape does.

    With probability `broadcast` an axis that is only read through a plain dk, and whose extent another axis or the
    program shows as well, has extent 1.
    """
    # For each axis of an input, its reads: the kernel, the extent that it needs, whether that is written, and dk where
    # it runs over all of the axis.
    needs: dict[tuple[int, int], list[tuple[int, int, bool, int | None]]] = {}
    for place, kernel in enumerate(program.kernels):
        for statement in kernel.statements:
            if not isinstance(statement, Input):
                continue
            for axis, entry in enumerate(statement.map):
                spans = [(kernel.extent(k) or 0) if k >= FIRST_ROLL else extents[place][k] for k, _ in entry.terms]
                scales = [max(scale, 0) for _, scale in entry.terms]
                reach = entry.offset + sum(scale * (n - 1) for scale, n in zip(scales, spans, strict=True))
                extent = reach + 1 if entry.extent is None else entry.extent
                needs.setdefault((statement.tensor, axis), []).append(
                    (place, extent, entry.extent is not None, entry.whole)
                )
    shapes = [[1] * rank for _, rank in program.inputs]
    showing: dict[tuple[int, int], int] = {}
    for found in needs.values():
        for place, _, _, whole in found:
            if whole is not None:
                showing[place, whole] = showing.get((place, whole), 0) + 1
    for (tensor, axis), found in sorted(needs.items()):
        exact = {extent for _, extent, written, whole in found if written or whole is not None}
        extent = max(extent for _, extent, _, _ in found)
        if len(exact) > 1 or (exact and exact != {extent}):
            return None
        place, _, _, whole = found[0]
        if len(found) == 1 and whole is not None and showing[place, whole] > 1 and rng.random() < broadcast:
            showing[place, whole] -= 1
            extent = 1
        shapes[tensor][axis] = extent
    return [tuple(shape) for shape in shapes]


def array(type_: str, shape: tuple[int, ...], rng: np.random.Generator, special: bool = False) -> Any:
    """A random tensor: floats around 1, integers around 0; with `special`, NaN, infinities and signed zeros too."""
    count = math.prod(shape)
    if type_ == "bool":
        return rng.integers(0, 2, count).astype(bool).reshape(shape)
    if is_integer(type_):
        low = max(-9, integer_range(type_)[0])
        return rng.integers(low, 10, count).astype(to_numpy(type_)).reshape(shape)
    values = rng.standard_normal(count)
    if special and count:
        picks = rng.integers(0, count, max(1, count // 4))
        values[picks] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], len(picks))
    return values.reshape(shape).astype(to_numpy(type_))


def arrays_for(program: Program, rng: np.random.Generator, broadcast: float = 0.0, special: bool = False) -> Any:
    """Inputs that fit the program, or None where its reads contradict each other for the extents that were tried.

    Or where they reach so far, over several axes, that a tensor would take gigabytes.
    """
    for _ in range(4):
        shapes = shapes_for(program, extents_for(program, rng), rng, broadcast)
        if shapes is not None and all(math.prod(shape) <= MOST_ELEMENTS for shape in shapes):
            return [array(type_, shape, rng, special) for (type_, _), shape in zip(program.inputs, shapes, strict=True)]
    return None
