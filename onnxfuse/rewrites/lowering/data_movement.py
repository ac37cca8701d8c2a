"""Operators that only rearrange elements: a fused kernel reads and writes through them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from onnxfuse.rewrites import views
from onnxfuse.rewrites.dims import Shape, element_count, reaches_end
from onnxfuse.rewrites.fragment import RefusalError, Value
from onnxfuse.rewrites.lowering.operator import Operator, lowering

__all__ = ["COPIES", "FREE"]

# ONNX Runtime runs these without a kernel: only the shape changes.
FREE = frozenset(("Identity", "Dropout", "Squeeze", "Unsqueeze", "Reshape", "Flatten"))
# Elements between the parts of a Concat up to which both are in cache when a kernel that reads them all needs one.
_NEAR = 4096
# These cost a kernel and a trip through memory each.
COPIES = frozenset(("Transpose", "Expand", "Slice", "Split", "Concat", "Gather", "Pad"))


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


def _result_shape(op: Operator, i: int = 0) -> Shape:
    known = op.types.get(op.outputs[i])
    if known is None or known.shape is None:
        raise RefusalError("the shape that it gives is unknown")
    return known.shape


@lowering("Reshape", "Flatten")
def _reshape(op: Operator) -> Sequence[Value]:
    return [op.build.reshape(op.value(0), _result_shape(op))]


@lowering("Transpose")
def _transpose(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    perm = [int(p) for p in op.attribute("perm", range(len(x.shape))[::-1])]
    if sorted(perm) != list(range(len(x.shape))):
        raise RefusalError(f"its perm {perm} is no permutation of {len(x.shape)} dimensions")
    return [op.build.through(x, views.transposition(x.shape, perm))]


@lowering("Expand")
def _expand(op: Operator) -> Sequence[Value]:
    x, shape = op.value(0), _result_shape(op)
    if op.build.symbols.broadcast((x.shape, shape)) != shape:
        raise RefusalError("its input is not known to broadcast to its result")
    return [op.build.through(x, views.expansion(x.shape, shape), shape)]


@lowering("Slice")
def _slice(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    rank = len(x.shape)
    if op.opset >= 10:
        starts, ends = (op.constant(i, f"its input {op.inputs[i]}").reshape(-1).tolist() for i in (1, 2))
        axes = op.constant(3, "its axes input").reshape(-1).tolist() if op.has(3) else list(range(len(starts)))
        steps = op.constant(4, "its steps input").reshape(-1).tolist() if op.has(4) else [1] * len(starts)
    else:
        starts, ends = op.attribute("starts", []), op.attribute("ends", [])
        axes, steps = op.attribute("axes", range(len(starts))), [1] * len(starts)
    cuts: dict[int, tuple[int, int, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = x.shape[axis % rank]
        if isinstance(extent, str):
            if start == 0 and step == 1 and reaches_end(x.shape, axis % rank, end):
                continue
            raise RefusalError("it slices a dimension whose extent is not static")
        indices = range(*slice(start, end, step).indices(extent))
        if not indices:
            raise RefusalError("its result is empty")
        if len(indices) != extent or step != 1:
            cuts[axis % rank] = (indices[0], step, len(indices))
    return [op.build.through(x, views.slicing(x.shape, cuts))]


@lowering("Split")
def _split(op: Operator) -> Sequence[Value]:
    x = op.value(0)
    axis = int(op.attribute("axis", 0)) % len(x.shape)
    results, start = [], 0
    for i in range(len(op.outputs)):
        count = _result_shape(op, i)[axis]
        if not isinstance(count, int) or not isinstance(x.shape[axis], int) or count == 0:
            raise RefusalError("it splits a dimension whose extent is not static")
        results.append(op.build.through(x, views.slicing(x.shape, {axis: (start, 1, count)})))
        start += count
    return results


@lowering("Gather")
def _gather(op: Operator) -> Sequence[Value]:
    """Constant indices at equal distances: a slice, and for a scalar index one without the dimension."""
    x, indices = op.value(0), op.constant(1, "its index")
    rank = len(x.shape)
    axis = int(op.attribute("axis", 0))
    axis += rank if axis < 0 else 0
    extent = x.shape[axis]
    if x.op == "const" or not isinstance(extent, int):
        raise RefusalError("it gathers along a dimension whose extent is not static")
    chosen = [int(k) + extent * (int(k) < 0) for k in indices.reshape(-1)]
    if not chosen or any(not 0 <= k < extent for k in chosen):
        raise RefusalError("its indices do not fit its input")
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    if indices.ndim > 1 or step == 0 or any(b - a != step for a, b in itertools.pairwise(chosen)):
        raise RefusalError("its indices do not lie at equal distances")
    whole = len(chosen) == extent and step == 1
    part = x if whole else op.build.through(x, views.slicing(x.shape, {axis: (chosen[0], step, len(chosen))}))
    return [part if indices.ndim else op.build.view(part, [k for k in range(rank) if k != axis])]


@lowering("Pad")
def _pad(op: Operator) -> Sequence[Value]:
    """Pads of nothing, and less than nothing: what is added comes from no tensor."""
    x = op.value(0)
    rank = len(x.shape)
    if op.has(1):
        pads = [int(p) for p in op.constant(1, "its pads input").reshape(-1)]
    else:
        pads = [int(p) for p in op.attribute("pads", [])]
    given = [int(a) % rank for a in op.constant(3, "its axes input").reshape(-1)] if op.has(3) else range(rank)
    if any(p > 0 for p in pads):
        raise RefusalError("it adds elements at the edges")
    cuts: dict[int, tuple[int, int, int]] = {}
    for k, axis in enumerate(given):
        extent, before, after = x.shape[axis], -pads[k], -pads[k + len(given)]
        if not before and not after:
            continue
        if not isinstance(extent, int) or extent <= before + after:
            raise RefusalError("it crops a dimension whose extent is not static, or all of it")
        cuts[axis] = (before, 1, extent - before - after)
    return [op.build.through(x, views.slicing(x.shape, cuts))]


@lowering("Concat")
def _concat(op: Operator) -> Sequence[Value]:
    """Equal parts: along a new dimension that counts them, each is chosen where its number is (rotary embeddings)."""
    parts, b = [op.value(i) for i in range(len(op.inputs))], op.build
    rank = len(parts[0].shape)
    axis = int(op.attribute("axis", 0))
    axis += rank if axis < 0 else 0
    count = element_count(parts[0].shape[axis:])
    if len({p.shape for p in parts}) > 1 or any(p.op == "const" for p in parts) or count is None:
        raise RefusalError("its parts are not known to be equally large")
    if not 2 <= len(parts) <= 4 or count * len(parts) > _NEAR:
        raise RefusalError("its parts are too many or too far apart to be read together")
    shape = tuple(d * len(parts) if k == axis and isinstance(d, int) else d for k, d in enumerate(parts[0].shape))
    stacked = [b.view(p, [*range(axis), None, *range(axis, rank)]) for p in parts]
    result = stacked[-1]
    for i in reversed(range(len(parts) - 1)):
        chosen = b.view(b.is_part(i, len(parts)), [0, *(None for _ in range(rank - axis))])
        result = b("where", chosen, stacked[i], result)
    return [b.reshape(result, shape)]
