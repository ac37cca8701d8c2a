"""What a fusion saves, and where it is more accurate than the original, for the report."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnxfuse.custom_ops.types import size
from onnxfuse.rewrites.dims import element_count
from onnxfuse.rewrites.graph import GraphView, node_label
from onnxfuse.rewrites.lowering.data_movement import FREE

__all__ = ["accuracy_notes", "bytes_saved"]


def _bytes(view: GraphView, names: Iterable[str]) -> int | None:
    total = 0
    for name in names:
        known = view.type_of(name)
        count = element_count(known.shape) if known.shape is not None else None
        if count is None or not known.type:
            return None
        total += count * size(known.type)
    return total


def bytes_saved(view: GraphView, nodes: Iterable[int], inputs: Collection[str], outputs: Collection[str]) -> int | None:
    """Reads and writes of all operators on their own, less those of the fused node."""
    before = 0
    for i in nodes:
        proto = view.protos[i]
        if proto.op_type in FREE:
            continue
        moved = _bytes(view, [n for n in (*proto.input, *proto.output) if n])
        if moved is None:
            return None
        before += moved
    after = _bytes(view, [*inputs, *outputs])
    return None if after is None else before - after


def accuracy_notes(view: GraphView, nodes: Iterable[int], outputs: Collection[str]) -> tuple[str, ...]:
    """Where the original is less accurate than the fused form: float16 results that stay in float32 now."""
    growing = ("Pow", "Mul", "Exp", "ReduceSum", "ReduceSumSquare", "ReduceL2", "Sum", "Add")
    inner = [
        view.protos[i]
        for i in nodes
        if view.protos[i].op_type in growing
        and any(view.type_of(n).type == "f16" and n not in outputs for n in view.protos[i].output)
    ]
    squares = [
        p
        for p in inner
        if p.op_type in ("Pow", "ReduceSumSquare", "ReduceL2") or (p.op_type == "Mul" and len(set(p.input)) == 1)
    ]
    if squares:
        return (f"{node_label(squares[0])} is computed in float32: values above 255 no longer overflow float16 there",)
    return ()
