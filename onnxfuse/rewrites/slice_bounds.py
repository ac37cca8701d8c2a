"""Bounds of Slices of which ONNX Runtime means otherwise than numpy, onnx.reference and ONNX's shape inference.

Backwards (a step below 0), it begins at the first element where the start is in front of the tensor, and goes down to
it where the end is the largest int32 or int64, which says "to the end" to it in both directions. The others find
nothing to take there.
"""

from __future__ import annotations

__all__ = ["means_otherwise"]

_TO_THE_END = (2**31 - 1, 2**63 - 1)


def means_otherwise(start: int, end: int, step: int, extent: int) -> bool:
    """Whether what a Slice takes of a dimension depends on who computes it."""
    return step < 0 and (start < -extent or end in _TO_THE_END)
