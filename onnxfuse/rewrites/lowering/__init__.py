"""From ONNX operators to primitives: one function an operator, found by its domain and type."""

from __future__ import annotations

from onnxfuse.rewrites.fragment import Fragment, Refused
from onnxfuse.rewrites.lowering import (
    activations,
    data_movement,
    elementwise,
    normalizations,
    reductions,
    softmax,
)
from onnxfuse.rewrites.lowering.operator import LOWERINGS, Operator

__all__ = ["LOWERINGS", "Fragment", "Operator", "Refused", "lower"]

# Importing these modules fills LOWERINGS.
_MODULES = (activations, data_movement, elementwise, normalizations, reductions, softmax)


def lower(operator: Operator) -> Fragment:
    """The fragment of an operator. Raises Refused where it cannot be fused, with the reason."""
    found = LOWERINGS.get((operator.domain, operator.op_type))
    if found is None:
        raise Refused(f"{operator.op_type} is not an operator that onnxfuse fuses")
    if operator.opset < 7:
        raise Refused("before opset 7 broadcasting follows other rules; convert the model with onnx.version_converter")
    results = found(operator)
    for i, name in enumerate(operator.outputs):
        if name and i >= len(results):
            raise Refused(f"its output {i} is used")
    b = operator.build
    for name, value in zip(operator.outputs, results, strict=False):
        if name:
            declared = operator.output_type(name)
            if declared and value.type != declared:
                raise Refused(f"its output {name} has an element type that the fused form does not give")
            b.fragment.outputs[name] = value
    return b.fragment
