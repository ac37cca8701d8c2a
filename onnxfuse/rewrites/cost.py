"""The cost model: what a step costs, and what is left to ONNX Runtime because it does it better.

Costs are in simple arithmetic operations an element (the `cost` column of primitives.toml). A fused kernel is bound by
memory traffic: an NVIDIA H200 does some 16 float32 operations in the time it moves one float, so work is repeated
for a broadcast only while it is well below that.
"""

from __future__ import annotations

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.rewrites.fragment import Value

__all__ = ["MAX_NODES", "MAX_TENSORS", "REPEATED_WORK", "step_cost"]

# Work of a region that a broadcast to a larger shape may repeat for each element there.
REPEATED_WORK = 32
# Source nodes in a region: the program language allows 1024 statements, and compile time grows with them.
MAX_NODES = 800
# Inputs, and outputs, of a fused node (the program language allows 64 of each).
MAX_TENSORS = 48


def step_cost(step: Value) -> int:
    """The cost of one step, an element."""
    return PRIMITIVES[step.op].cost if step.op in PRIMITIVES else 1
