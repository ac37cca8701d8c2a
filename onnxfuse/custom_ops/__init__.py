"""The fused operators: their names, the program language, its meaning in standard operators and in numpy."""

from __future__ import annotations

__all__ = ["DOMAIN", "OPSET_VERSION", "OP_TYPES"]

# The domain of the fused nodes and its version.
DOMAIN = "onnxfuse"
OPSET_VERSION = 1

# All share one engine; the name says what the node's program contains.
OP_TYPES = (
    "FusedElementwise",
    "FusedLayerNorm",
    "FusedRMSNorm",
    "FusedSoftmax",
    "FusedReduction",
    "FusedScan",
)
