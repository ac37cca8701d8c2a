"""What the report says of a fusion: its values, what it saves, and where it is more accurate than the original."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import onnx

from onnxfuse.custom_ops.types import size
from onnxfuse.outline import node_label, source_node
from onnxfuse.report import SourceNode, Tensor
from onnxfuse.rewrites.dims import element_count
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering.data_movement import FREE

__all__ = ["accuracy_notes", "bytes_saved", "described", "traffic", "traffic_saved"]


def traffic(names: Iterable[str], tensors: Mapping[str, Tensor]) -> int | None:
    """Bytes of the named tensors; None where an extent or a type is not known."""
    total = 0
    for name in filter(None, names):
        known = tensors.get(name)
        count = element_count(known.shape) if known is not None and known.shape is not None else None
        if known is None or count is None or not known.type:
            return None
        total += count * size(known.type)
    return total


def bytes_saved(view: GraphView, nodes: Iterable[int], inputs: Collection[str], outputs: Collection[str]) -> int | None:
    """Reads and writes of all operators on their own, less those of the fused node."""
    protos = [view.protos[i] for i in nodes]
    tensors = described(view, protos, (*inputs, *outputs))
    return traffic_saved([source_node(p, view.name) for p in protos], inputs, outputs, tensors)


def traffic_saved(
    nodes: Iterable[SourceNode], inputs: Iterable[str], outputs: Iterable[str], tensors: Mapping[str, Tensor]
) -> int | None:
    """The same of nodes and tensors as the report has them; None where an extent or a type is not known."""
    moved = [traffic((*n.inputs, *n.outputs), tensors) for n in nodes if n.operator not in FREE]
    after = traffic((*inputs, *outputs), tensors)
    known = [m for m in moved if m is not None]
    return sum(known) - after if after is not None and len(known) == len(moved) else None


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


def described(view: GraphView, nodes: Iterable[onnx.NodeProto], more: Iterable[str]) -> dict[str, Tensor]:
    """What is known of all values that the nodes read and make, and of those named in `more`."""
    names = dict.fromkeys(n for n in (*(n for p in nodes for n in (*p.input, *p.output)), *more) if n)
    return {name: _described(view, name) for name in names}


def _described(view: GraphView, name: str) -> Tensor:
    known, value = view.type_of(name), view.constants.values.get(name)
    return Tensor(
        type=known.type,
        shape=known.shape,
        constant=name in view.constants.names or name in view.new_constants,
        value=str(value.reshape(-1)[0]) if value is not None and value.size == 1 else None,
    )
