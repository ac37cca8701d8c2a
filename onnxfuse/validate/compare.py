"""The difference between two arrays that should be equal, and whether it is within tolerance.

The rule: a floating-point value agrees where |b - a| <= tolerance * m, with m the largest finite |a| of the output;
NaN agrees with NaN and an infinity with the same infinity, at the same place. Everything else must be equal. Fusing
changes where values are rounded, and a network passes the difference on, so the tolerance is a share of what the
output holds and not of each value: of values that cancel to nearly nothing, only rounding is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["TOLERANCES", "OutputComparison", "agrees", "alike", "compare", "difference", "worst"]

# A few hundred units in the last place of the type, but for the narrow ones, where a unit is much already.
TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}

_UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class OutputComparison:
    """How one output of the optimized model differs from the original's.

    The errors are those of the floating-point values that are finite on both sides, None for other types. `relative`
    leaves out where the original is 0. `ulp` counts the representable values from one to the other. `mismatches` is the
    share of the values that do not agree, `argmax` the share of rows (along the last axis) whose largest value stands
    at the same place in both. `original_error` and `optimized_error` are the largest differences from a float64
    evaluation, where one was made. `verdict` is "equal" (to the bit), "close" (within `tolerance`), "different", or
    "better": not within tolerance, but the original is what is off, by a float64 evaluation; `note` then says how, and
    otherwise what a reader should know.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    verdict: str
    tolerance: float | None = None
    absolute: float | None = None
    relative: float | None = None
    ulp: int | None = None
    cosine: float | None = None
    mismatches: float = 0.0
    argmax: float | None = None
    original_error: float | None = None
    optimized_error: float | None = None
    seed: int = 0
    note: str = ""

    @property
    def ok(self) -> bool:
        """False where the outputs differ by more than the tolerance and it is not the original that is off."""
        return self.verdict != "different"


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for the four types that have a tolerance."""
    return dtype.name in TOLERANCES


def agrees(a: np.ndarray, b: np.ndarray, tolerance: float) -> np.ndarray:
    """Where b agrees with a by the rule above: booleans of their (one) shape."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    largest = float(np.abs(x[finite]).max(initial=0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(y - x) <= tolerance * largest
    same: np.ndarray = (x == y) | (np.isnan(x) & np.isnan(y)) | (finite & np.isfinite(y) & close)
    return same


def alike(a: np.ndarray, b: np.ndarray, tolerance: float | None = None) -> bool:
    """Whether `compare` would find no difference: the verdict alone, in a fraction of the time."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not is_float(a.dtype):
        return bool(np.array_equal(a, b))
    bits = _UNSIGNED[a.dtype.itemsize]
    if np.array_equal(np.ascontiguousarray(a).view(bits), np.ascontiguousarray(b).view(bits)):
        return True
    return bool(agrees(a, b, TOLERANCES[a.dtype.name] if tolerance is None else tolerance).all())


def _order(values: np.ndarray) -> np.ndarray:
    """Floats as integers that count representable values; both zeros are 0."""
    bits = np.ascontiguousarray(values).view(_UNSIGNED[values.dtype.itemsize])
    sign = bits >> (values.dtype.itemsize * 8 - 1)
    top = bits.dtype.type(1 << (values.dtype.itemsize * 8 - 1))
    magnitude = (bits & ~top).astype(np.int64)
    order: np.ndarray = np.where(sign == 1, -magnitude, magnitude)
    return order


def _ulp(a: np.ndarray, b: np.ndarray) -> int:
    if not a.size:
        return 0
    x, y = _order(a), _order(b)
    # Two float64 values of opposite sign can be further apart than int64 holds: Python's integers take that pair.
    apart = np.abs(x.astype(np.float64) - y.astype(np.float64))
    far = int(np.argmax(apart))
    exact = apart.max() < 2**52
    return int(np.abs(x - y).max()) if exact else abs(int(x.flat[far]) - int(y.flat[far]))


def compare(
    name: str, original: np.ndarray, optimized: np.ndarray, tolerance: float | None = None, seed: int = 0
) -> OutputComparison:
    """Compares one output of the two models; a tolerance of None takes the type's from TOLERANCES."""
    a, b = np.asarray(original), np.asarray(optimized)
    result = OutputComparison(name, a.dtype.name, a.shape, "different", seed=seed)
    if a.dtype != b.dtype:
        return replace(result, mismatches=1.0, note=f"type {a.dtype.name} became {b.dtype.name}")
    if a.shape != b.shape:
        return replace(result, mismatches=1.0, note=f"shape {list(a.shape)} became {list(b.shape)}")
    if not is_float(a.dtype):
        wrong = float(np.mean(a != b)) if a.size else 0.0
        return replace(result, mismatches=wrong, verdict="different" if wrong else "equal")
    limit = TOLERANCES[a.dtype.name] if tolerance is None else tolerance
    same = agrees(a, b, limit)
    both = np.isfinite(a.astype(np.float64)) & np.isfinite(b.astype(np.float64))
    x, y = a[both].astype(np.float64), b[both].astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(y - x)
        nonzero = x != 0
        norm = float(np.linalg.norm(x) * np.linalg.norm(y))
        cosine = float(np.dot(x, y) / norm) if 0 < norm < np.inf else None
    equal = bool(np.array_equal(a.view(_UNSIGNED[a.dtype.itemsize]), b.view(_UNSIGNED[a.dtype.itemsize])))
    return replace(
        result,
        verdict="equal" if equal else "close" if same.all() else "different",
        tolerance=limit,
        absolute=float(error.max(initial=0.0)),
        relative=float((error[nonzero] / np.abs(x[nonzero])).max(initial=0.0)),
        ulp=_ulp(a[both], b[both]),
        cosine=None if cosine is None else min(cosine, 1.0),
        mismatches=float(np.mean(~same)) if same.size else 0.0,
        argmax=_argmax_agreement(a, b),
        note=_places(a, b),
    )


def _argmax_agreement(a: np.ndarray, b: np.ndarray) -> float | None:
    if a.ndim == 0 or a.shape[-1] < 2 or not a.size:
        return None
    x, y = (v.astype(np.float64).argmax(axis=-1) for v in (a, b))
    return float(np.mean(x == y))


def _places(a: np.ndarray, b: np.ndarray) -> str:
    """What to say where NaN and infinities do not stand at the same places."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    nan = int(np.sum(np.isnan(x) != np.isnan(y)))
    inf = int(np.sum((np.isinf(x) | np.isinf(y)) & (x != y) & ~np.isnan(x) & ~np.isnan(y)))
    parts = [f"NaN in {nan} places of one model only"] if nan else []
    parts += [f"infinities differ in {inf} places"] if inf else []
    return "; ".join(parts)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest |b - a| over finite pairs; infinity where only one is finite or NaN. Shapes must be equal."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(y - x))
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0))


def worst(comparisons: list[OutputComparison]) -> OutputComparison:
    """Of one output under several seeds, the one to report: the worst verdict, then the largest error."""
    order = ("equal", "close", "better", "different")
    return max(comparisons, key=lambda c: (order.index(c.verdict), c.mismatches, c.absolute or 0.0))
