"""A kernel whose axes arrive with a run, and what it is for the axes of one run: a kernel like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import ONE, Apply, Entry, Input, Kernel, Output, Statement, dim

__all__ = ["named_dims", "over", "variation", "varying"]


def named_dims(kernel: Kernel, numbers: Sequence[int]) -> frozenset[int]:
    """The dimensions that a run's axes name. Negative ones count from the end; one that stands twice counts once.

    Raises:
        ValueError: one is out of range, there are not as many as the program says, or one stands twice where the
            result is squeezed.
    """
    axes = kernel.axes
    assert axes
    rank = len(axes.dims)
    if axes.count is not None and len(numbers) != axes.count:
        raise ValueError(f"input 0 holds {len(numbers)} axes; the program takes {axes.count}")
    if not numbers:
        return frozenset() if axes.noop else frozenset(axes.dims)
    if wrong := [n for n in numbers if not -rank <= n < rank]:
        raise ValueError(f"input 0 names axis {wrong[0]} of a tensor of rank {rank}")
    dims = frozenset(axes.dims[n] for n in numbers)
    if len(dims) < len(numbers) and any(output.squeezed for output in kernel.outputs):
        raise ValueError("input 0 names an axis twice")
    return dims


def variation(kernel: Kernel, statement: Statement, earlier: Sequence[frozenset[int]]) -> frozenset[int]:
    """The dimensions along which a value varies whatever the axes are: those that it depends on other than through a
    reduction. `earlier` has those of the statements before.
    """
    if isinstance(statement, Input):
        return frozenset(kernel.dims(*statement.map))
    if not isinstance(statement, Apply) or _reduces(statement.op):
        return frozenset()
    if statement.op in PRIMITIVES and PRIMITIVES[statement.op].scans:
        return frozenset(range(kernel.rank))
    return frozenset(k for operand in statement.operands for k in earlier[operand])


def varying(kernel: Kernel) -> tuple[frozenset[int], ...]:
    """The same for each statement."""
    found: list[frozenset[int]] = []
    for statement in kernel.statements:
        found.append(variation(kernel, statement, found))
    return tuple(found)


def over(kernel: Kernel, reduced: Collection[int]) -> Kernel:
    """The kernel with these dimensions reduced: they come to stand next to each other, the last one where it is.

    Of nothing reduced, each value is its own sum, product, maximum, minimum and mean.
    """
    last = max(reduced, default=kernel.rank)
    outer = [k for k in range(last) if k not in reduced]
    order = [*outer, *sorted(reduced), *(k for k in range(last, kernel.rank) if k not in reduced)]
    place = {k: n for n, k in enumerate(order)}
    vary = varying(kernel)

    def moved(entries: Iterable[Entry]) -> Iterator[Entry]:
        """Where a dimension counts through an entry, it stands first, wherever it lies now."""
        for e in entries:
            terms = [(place[k], scale) for k, scale in e.terms]
            yield replace(e, terms=tuple(terms if kernel.counted(e) else sorted(terms)))

    statements: list[Statement] = []
    value: list[int] = []
    for s in kernel.statements:
        kept = s
        if isinstance(s, Apply):
            if not reduced and _reduces(s.op):
                value.append(value[s.operands[0]])
                continue
            kept = replace(s, operands=tuple(value[o] for o in s.operands))
        elif isinstance(s, Input):
            kept = replace(s, map=tuple(moved(s.map)))
        value.append(len(statements))
        statements.append(kept)
    outputs = []
    for output in kernel.outputs:
        entries = []
        for k in kernel.dims(*output.map):
            if k not in reduced or k in vary[output.value]:
                entries.append(dim(place[k]))
            elif not output.squeezed:
                entries.append(ONE)
        outputs.append(Output(output.tensor, output.type, tuple(entries), value[output.value]))
    extents = tuple(kernel.extents[k] for k in order)
    start = len(outer) if reduced else kernel.rank
    return replace(
        kernel, extents=extents, outer=start, reduced=len(reduced), statements=tuple(statements),
        outputs=tuple(outputs), axes=None,
    )  # fmt: skip


def _reduces(op: str) -> bool:
    return op in PRIMITIVES and PRIMITIVES[op].reduces
