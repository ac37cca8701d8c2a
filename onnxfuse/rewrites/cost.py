"""The cost model: what a step costs, and what is left to ONNX Runtime because it does it better.

Costs are in simple arithmetic operations an element (the `cost` column of primitives.toml). A fused kernel is bound by
memory traffic: an NVIDIA H200 does some 16 float32 operations in the time it moves one float, so work is repeated
for a broadcast only while it is well below that.
"""

from __future__ import annotations

from math import prod

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply, Input, Kernel
from onnxfuse.rewrites.fragment import Value
from onnxfuse.rewrites.lowering.activations import COMPOSITE
from onnxfuse.rewrites.lowering.normalizations import NORMALIZATIONS
from onnxfuse.rewrites.lowering.scans import SCANS

__all__ = [
    "LAUNCH_BYTES",
    "MAX_NODES",
    "MAX_TENSORS",
    "REPEATED_WORK",
    "SHARED_LAUNCH_BYTES",
    "SHORT_CHANNEL",
    "TYPICAL_EXTENT",
    "has_short_channels",
    "least_for_scan",
    "step_cost",
    "weight",
]

# Work of a region that a broadcast to a larger shape may repeat for each element there.
REPEATED_WORK = 32
# Source nodes in a region: the program language allows 1024 statements, and compile time grows with them.
MAX_NODES = 800
# Inputs, and outputs, of a fused node (the program language allows 64 of each).
MAX_TENSORS = 48
# Operators that are worth a fused node on their own: a normalization is a region of several operators already, and
# ONNX Runtime's running sums on the GPU take a thousand times as long as a copy; some activations are several kernels.
_SLOW = {"cuda": frozenset(SCANS) | COMPOSITE, "cpu": frozenset[str]()}
# Kernels that move more than this hardly gain by sharing a launch, which saves each 3 us on a stream and 1.6 us in a
# CUDA graph (8 that move 8 MiB each: 31.2 us one after the other, 18.1 together, H200); moving 16 MiB takes 4 us.
LAUNCH_BYTES = 16 << 20
# What those that share a launch may move together: what they read was just written, and should still be in the cache
# (50 MB on an H200, 40 on an A100), although all must be there before the first is read.
SHARED_LAUNCH_BYTES = 48 << 20
# Points of a channel from which on the CPU engine goes channel by channel.
SHORT_CHANNEL = 256
# A batch or a length that only a run shows, where a size has to be guessed: where launches dominate, it is small. It
# takes the same place in all tensors, so that the larger of two stays the larger.
TYPICAL_EXTENT = 16


def weight(op_type: str, target: str) -> int:
    """For how many operators one counts where a least number of them makes a fused node."""
    return 2 if op_type in NORMALIZATIONS or op_type in _SLOW[target] else 1


def least_for_scan(kernel: Kernel, target: str) -> int:
    """The least weight of operators that makes a fused node of a kernel, if it has a scan.

    On the CPU, ONNX Runtime's CumSum along another axis than the last took 0.5 to 0.7 of the time of a fused one, which
    with two more operators around it was even. An axis that arrives with a run may be any.
    """
    if not any(isinstance(s, Apply) and s.op.startswith("scan_") for s in kernel.statements):
        return 1
    inner = kernel.extents[1:] if kernel.axes is not None else kernel.extents[kernel.outer + kernel.reduced :]
    return 3 if target == "cpu" and any(extent != 1 for extent in inner) else 1


def has_short_channels(kernel: Kernel) -> bool:
    """Whether an operand is the same for few points in a row, and then another one: of channels of small images.

    The CPU engine lays such an operand out for each point. One operator between DequantizeLinear and QuantizeLinear,
    ONNX Runtime's time over that of a fused node (one thread of an EPYC), images of 200 x 2 x 96, 64 x 15 x 17,
    64 x 16 x 16 and 64 x 56 x 56:

        a product with a number a channel     0.71, 0.75, 1.14, 0.98
        dequantized by a scale a channel      0.34, 0.42, 0.97, 0.94
        BatchNormalization                    0.27, 0.34, 0.87, 0.89
    """
    last = [k for k, extent in enumerate(kernel.extents) if extent != 1]
    for statement in kernel.statements:
        dims = set(kernel.dims(*statement.map)) & set(last) if isinstance(statement, Input) else set()
        behind = [kernel.extents[k] for k in last if dims and k > max(dims)]
        if behind and all(extent is not None for extent in behind) and prod(e or 0 for e in behind) < SHORT_CHANNEL:
            return True
    return False


def step_cost(step: Value) -> int:
    """The cost of one step, an element."""
    return PRIMITIVES[step.op].cost if step.op in PRIMITIVES else 1
