"""The fused operators: their names, the program language, its meaning in standard operators and in numpy."""

from __future__ import annotations

__all__ = ["DOMAIN", "OPSET_VERSION", "OP_TYPES", "OUT_OF_PLACE", "REWRITES"]

# The domain of the fused nodes and its version.
DOMAIN = "onnxfuse"
OPSET_VERSION = 1

# The names of the rewrites, which `skip` and `only` take, and the op type that each makes. All share one engine; the op
# type says what the node's program contains.
REWRITES = {
    "elementwise": "FusedElementwise",
    "layer_norm": "FusedLayerNorm",
    "rms_norm": "FusedRMSNorm",
    "softmax": "FusedSoftmax",
    "reduction": "FusedReduction",
    "scan": "FusedScan",
    "runtime_axes": "FusedRuntimeAxes",
}
# What is elementwise, but must not be written over what it reads (in_place.py).
OUT_OF_PLACE = "FusedOutOfPlace"
OP_TYPES = (*REWRITES.values(), OUT_OF_PLACE)
