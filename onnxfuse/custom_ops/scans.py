"""Scans and arguments in standard operators."""

from __future__ import annotations

import math

from onnx import helper

from onnxfuse.custom_ops.emit import Emitter, NoFunctionError
from onnxfuse.custom_ops.layout import FULL, Space, Value
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply
from onnxfuse.custom_ops.spell import compute_type, spell
from onnxfuse.custom_ops.types import integer_range, is_float, to_onnx

__all__ = ["argument", "scan"]

# What a scan combines two values with.
_STEPS = {"scan_sum": "add", "scan_prod": "mul", "scan_max": "max", "scan_min": "min"}


def scan(space: Space, apply: Apply, x: Value) -> Value:
    """A scan of x: the operator that computes it, and where there is none, a loop.

    Raises:
        NoFunctionError: the opset cannot say it.
    """
    e = space.emitter
    reduced = space.kernel.reduced_dims
    x = space.spread(x, sorted(reduced))
    name, axis = _block(space, x)
    primitive = PRIMITIVES[apply.op]
    wide = compute_type(primitive, x.type, e.opset) if primitive.onnx else None
    if primitive.onnx and wide in primitive.runtime:
        flags = dict.fromkeys(apply.flags, 1)
        widened = e.node(primitive.onnx, [e.cast(name, x.type, wide), e.scalar(axis, "i64")], **flags)
        name = e.cast(widened, wide, x.type)
    else:
        rank = x.rank - space.kernel.reduced + 1
        name = _loop(e, apply, x.type, name, rank, axis)
    if space.kernel.reduced > 1:
        name = e.reshape(name, e.node("Shape", [x.name]), zeros=True)
    return Value(name, x.type, x.rank, {**x.sources, **dict.fromkeys(reduced, frozenset((FULL,)))})


def argument(space: Space, apply: Apply, x: Value) -> Value:
    """The index of the greatest or smallest element of x.

    ONNX does not say which index it is where there are NaNs.

    Raises:
        NoFunctionError: the opset cannot say it.
    """
    e = space.emitter
    primitive = PRIMITIVES[apply.op]
    x = space.spread(x, sorted(space.kernel.reduced_dims))
    name, axis = _block(space, x)
    wide = compute_type(primitive, x.type, e.opset)
    if wide is None or primitive.onnx is None:
        raise NoFunctionError(f"{primitive.onnx} of {x.type} does not exist in opset {e.opset}")
    if x.type == "u64":  # as int64 less half of the range, it keeps its order
        wide = "i64"
        name = spell(e, "add", wide, [e.cast(name, x.type, wide), e.scalar(integer_range(wide)[0], wide)])
    name = e.cast(name, x.type if x.type != "u64" else wide, wide)
    if "last" not in apply.flags:
        index = e.node(primitive.onnx, [name], axis=axis)
    elif e.opset >= 12:
        index = e.node(primitive.onnx, [name], axis=axis, select_last_index=1)
    else:  # the first one from behind
        flipped = e.slice(name, [axis], [-1], [None], [-1])
        end = spell(e, "sub", "i64", [e.extent(name, axis), e.ints([1])])
        index = spell(e, "sub", "i64", [end, e.node(primitive.onnx, [flipped], axis=axis)])
    index = e.unsqueeze(index, range(axis + 1, axis + space.kernel.reduced))
    sources = {k: own for k, own in x.sources.items() if k not in space.kernel.reduced_dims}
    return Value(index, "i64", x.rank, sources)


def _block(space: Space, x: Value) -> tuple[str, int]:
    """x, which has the reduced dimensions in full extent, with these as one axis; and the number of that axis."""
    kernel, e = space.kernel, space.emitter
    start = space.axes(x.rank).index(kernel.outer)
    if kernel.reduced == 1:
        return x.name, start
    end = start + kernel.reduced
    shape = e.node("Shape", [x.name])
    points = e.reduce("ReduceProd", e.slice(shape, [0], [start], [end], [1]), [0])
    parts = [e.slice(shape, [0], [first], [last], [1]) for first, last in ((0, start), (end, x.rank)) if first < last]
    new = e.concat([*parts[: start > 0], points, *parts[start > 0 :]], 0)
    return e.reshape(x.name, new, zeros=True), start


def _loop(e: Emitter, apply: Apply, type_: str, x: str, rank: int, axis: int) -> str:
    """The operator Scan: what came before, combined with one slice of x along the axis after the other.

    ONNX Runtime's takes no empty x.
    """
    prefix = e.body_prefix()
    before, now, after, result = (f"{prefix}{name}" for name in ("before", "now", "after", "result"))
    body = Emitter(e.opset, prefix)
    combined = spell(body, _STEPS[apply.op], type_, [before, now])
    results = [combined, before if "exclusive" in apply.flags else combined]
    nodes = body.finish(results, [after, result], [before, now])
    values = [
        helper.make_tensor_value_info(name, to_onnx(type_), [None] * (rank - 1))  # ONNX Runtime wants the ranks
        for name in (before, now, after, result)
    ]
    graph = helper.make_graph(nodes, f"{prefix}body", values[:2], values[2:])
    first = e.scalar(_identity(apply.op, type_), type_)
    if rank > 1:
        others = [k for k in range(rank) if k != axis]
        first = e.expand(first, e.gather(e.node("Shape", [x]), e.ints(others), 0))
    return e.scan(graph, first, x, axis, "reverse" in apply.flags)


def _identity(op: str, type_: str) -> float:
    if op in ("scan_sum", "scan_prod"):
        return int(op == "scan_prod")
    lowest, highest = (-math.inf, math.inf) if is_float(type_) else integer_range(type_)
    return lowest if op == "scan_max" else highest
