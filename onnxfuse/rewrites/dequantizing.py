"""A DequantizeLinear is computed in each fused node that reads it, from bytes in place of floats.

It stays for its other users: what ONNX Runtime makes one kernel on bytes of (MatMul, Conv) needs it in front. So it
joins no region, and two nodes between which a value is quantized and dequantized can share one all the same.
"""

from __future__ import annotations

from onnxfuse.rewrites.fragment import Fragment, RefusalError
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering.quantization import DEQUANTIZE
from onnxfuse.rewrites.taking_in import taken_in

__all__ = ["take_dequantizers"]


def take_dequantizers(view: GraphView, fragments: dict[int, Fragment]) -> set[int]:
    """Has fragments dequantize what they read, in place; returns the nodes that do so now, which join no region."""
    found = {i for i in fragments if view.protos[i].op_type == DEQUANTIZE}
    # One that is scaled by what another one gives stays: there are no chains to follow.
    found = {i for i in found if not any(p in found for p in view.producers_of(i))}
    view.repeated = {i: set() for i in found}
    for i in sorted(fragments.keys() - found):
        if any(view.producer.get(name) in found for name in fragments[i].tensors()):
            try:
                fragments[i] = taken_in(view, fragments, i, found)
            except RefusalError:
                continue  # it reads what the operator gives
            for j in fragments[i].inlined & found:
                view.repeated[j].add(i)
    for i in found:
        del fragments[i]
    return found
