"""From ONNX operators to primitives: one function an operator, found by its domain and type."""

from __future__ import annotations

import functools

import onnx

from onnxfuse.rewrites.fragment import Fragment, RefusalError
from onnxfuse.rewrites.lowering import (
    activations,
    contrib,
    data_movement,
    elementwise,
    normalizations,
    quantization,
    reductions,
    scans,
    softmax,
)
from onnxfuse.rewrites.lowering.operator import LOWERINGS, Operator

__all__ = ["LOWERINGS", "Fragment", "Operator", "RefusalError", "lower"]

# The last opset whose operators the lowerings know; later ones may give an operator another meaning.
NEWEST_OPSET = 28
# The last opset that ONNX Runtime 1.31 and 1.32 load: local functions are written in it at the newest.
RUNNABLE_OPSET = 26
# Importing these modules fills LOWERINGS.
_MODULES = (activations, contrib, data_movement, elementwise, normalizations, quantization, reductions, scans, softmax)


def lower(operator: Operator) -> Fragment:
    """The fragment of an operator. Raises RefusalError where it cannot be fused, with the reason."""
    found = LOWERINGS.get((operator.domain, operator.op_type))
    if found is None:
        raise RefusalError(f"{operator.op_type} is not an operator that onnxfuse fuses")
    if operator.opset < 7:
        raise RefusalError(
            "before opset 7 broadcasting follows other rules; convert the model with onnx.version_converter"
        )
    if operator.opset > NEWEST_OPSET:
        raise RefusalError(f"opset {operator.opset} is newer than what onnxfuse knows ({NEWEST_OPSET})")
    most = _most_inputs(operator.op_type, operator.domain, operator.opset)
    if len(operator.inputs) > most:
        raise RefusalError(f"it has {len(operator.inputs)} inputs, where {operator.op_type} takes {most} at most")
    results = found(operator)
    for i in range(len(results), len(operator.outputs)):
        if operator.used(i):
            raise RefusalError(f"its output {i} is used")
    b = operator.build
    for name, value in zip(operator.outputs, results, strict=False):
        if name:
            declared = operator.output_type(name)
            if declared and value.type != declared:
                raise RefusalError(f"its output {name} has an element type that the fused form does not give")
            b.fragment.outputs[name] = value
    return b.fragment


@functools.cache
def _most_inputs(op_type: str, domain: str, opset: int) -> int:
    if domain not in ("", "ai.onnx") or not onnx.defs.has(op_type, domain):
        return 1 << 31
    try:
        return int(onnx.defs.get_schema(op_type, opset, domain).max_input)
    except onnx.defs.SchemaError:  # newer than this opset, or than this version of onnx
        return 1 << 31
