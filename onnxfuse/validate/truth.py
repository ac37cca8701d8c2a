"""Two outputs against a float64 evaluation: which of the models is off, and by how much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxfuse.validate.compare import TOLERANCES, OutputComparison, agrees, difference, is_float

__all__ = ["against_truth"]

_FURTHER = 2.0


def against_truth(
    c: OutputComparison, a: np.ndarray, b: np.ndarray | None, truth: np.ndarray, asked: bool
) -> OutputComparison:
    """The comparison with both models' errors against the truth, and the verdict that follows.

    Where the original misses the truth and the optimized model does not, the verdict is "better". With `asked` (the
    user wants the truth as the reference), outputs that agree with each other but not with the truth are "different"
    where the optimized model is more than twice as far from it as the original.
    """
    comparable = b is not None and b.shape == a.shape == truth.shape and b.dtype == a.dtype and is_float(a.dtype)
    if b is None or not comparable:
        return c
    limit = c.tolerance if c.tolerance is not None else TOLERANCES[a.dtype.name]
    with np.errstate(all="ignore"):
        rounded = truth.astype(a.dtype)  # what overflows the output's own type is no fault of either model
    exact = np.where(np.isfinite(rounded.astype(np.float64)), truth.astype(np.float64), rounded.astype(np.float64))
    missed = [difference(exact, values) for values in (a, b)]
    c = replace(c, original_error=missed[0], optimized_error=missed[1])
    by = "the optimized model misses a float64 evaluation by {1:.2g}, the original by {0:.2g}".format(*missed)
    if agrees(rounded, b, limit).all():
        if c.ok:
            return c
        hint = ": it overflows" if _overflows(a, rounded) else ""
        return replace(c, verdict="better" if missed[1] <= missed[0] else "close", note=by + hint)
    if c.ok and not (asked and missed[1] > _FURTHER * missed[0]):
        return replace(c, note=by) if asked else c
    return replace(c, verdict="different", note=f"{c.note}; {by}" if c.note else by)


def _overflows(a: np.ndarray, truth: np.ndarray) -> bool:
    return bool(np.any(~np.isfinite(a.astype(np.float64)) & np.isfinite(truth.astype(np.float64))))
