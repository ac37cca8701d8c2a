"""Operators that only change how elements are arranged, where a fused kernel reads or writes through it for nothing."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.rewrites.dims import Shape
from onnxfuse.rewrites.fragment import RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__ = ["MOVEMENT"]

# These compute nothing: a region of them alone is not worth a kernel.
MOVEMENT = frozenset(("Identity", "Dropout", "Squeeze", "Unsqueeze", "Reshape", "Flatten"))


@lowering("Identity")
def _identity(op: Operator) -> Sequence[Value]:
    return [op.value(0)]


@lowering("Dropout")
def _dropout(op: Operator) -> Sequence[Value]:
    if op.has(2) and bool(op.constant(2, "its training_mode").any()):
        raise RefusalError("it is in training mode")
    return [op.value(0)]


def _axes(op: Operator) -> list[int]:
    if op.has(1):
        return [int(a) for a in op.constant(1, "its axes input").reshape(-1)]
    return [int(a) for a in op.attribute("axes", [])]


@lowering("Unsqueeze")
def _unsqueeze(op: Operator) -> Sequence[Value]:
    x, axes = op.value(0), _axes(op)
    rank = len(x.shape) + len(axes)
    new, rest = {a % rank for a in axes}, iter(range(len(x.shape)))
    return [op.build.view(x, [None if k in new else next(rest) for k in range(rank)])]


@lowering("Squeeze")
def _squeeze(op: Operator) -> Sequence[Value]:
    x, axes = op.value(0), _axes(op)
    rank = len(x.shape)
    gone = {a % rank for a in axes} if axes else {k for k, d in enumerate(x.shape) if d == 1}
    if any(x.shape[k] != 1 for k in gone) or (not axes and not all(isinstance(d, int) for d in x.shape)):
        raise RefusalError("the dimensions that it removes are not known to be 1")
    return [op.build.view(x, [k for k in range(rank) if k not in gone])]


def match_dimensions(source: Shape, target: Shape) -> list[int | None] | None:
    """`target` as `source` with dimensions of extent 1 added or removed: the source dimension of each, or None."""
    entries: list[int | None] = []
    k = 0
    for d in target:
        while k < len(source) and source[k] == 1 and d != 1:
            k += 1
        if k < len(source) and source[k] == d:
            entries.append(k)
            k += 1
        elif d == 1:
            entries.append(None)
        else:
            return None
    return entries if all(d == 1 for d in source[k:]) else None


@lowering("Reshape", "Flatten")
def _reshape(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    target = op.types.get(op.outputs[0])
    if target is None or target.shape is None:
        raise RefusalError("the shape that it gives is unknown")
    entries = match_dimensions(x.shape, target.shape)
    if entries is None:
        raise RefusalError("it joins or splits dimensions")
    return [op.build.view(x, entries)]
