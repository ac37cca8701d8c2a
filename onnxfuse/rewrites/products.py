"""Products and quotients of dimensions that may be symbolic, in one spelling, so that equal ones are equal.

A product is an integer and factors in alphabetical order, "196*batch*seq"; what is no product (a sum, a rounded
quotient) is one factor. Extents are never negative.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

__all__ = ["exact_quotient", "factors", "quotient", "resized", "rounded", "scaled"]

_BEFORE_A_SIGN = re.compile(r"|[0-9.]+e")  # of a number, or of its exponent

Number: TypeAlias = int | str | float


def scaled(a: Number, b: Number) -> Any:
    """a * b; an expression where one of them is symbolic."""
    if not isinstance(a, str) and not isinstance(b, str):
        return a * b
    (m, p), (n, q) = factors(a), factors(b)
    return _text(m * n, (*p, *q))


def exact_quotient(a: Number, b: Number) -> Any:
    """a / b where it is a whole number whatever the symbols are, else None."""
    if b == 0 or isinstance(a, float) or isinstance(b, float):
        return None
    (m, p), (n, q) = factors(a), factors(b)
    left = Counter(p)
    left.subtract(q)
    if n == 0 or m % n or any(count < 0 for count in left.values()):
        return None
    return _text(m // n, tuple(left.elements()))


def quotient(a: Number, b: Number) -> Any:
    """a / b, rounded down; an expression where one of them is symbolic."""
    if not isinstance(a, str) and not isinstance(b, str):
        if b == 0:
            return f"({a})/0"
        return a // b if isinstance(a, int) and isinstance(b, int) else a / b
    exact = exact_quotient(a, b)
    return f"({a})/({b})" if exact is None else exact


def rounded(a: Number, how: str) -> Any:
    """`a` rounded, "floor" or "ceil"; what holds a broken number is a factor of its own then."""
    if isinstance(a, str):
        return f"{how}({a})" if "." in a else a
    return math.floor(a) if how == "floor" else math.ceil(a)


def resized(extent: int | str, scale: np.float32) -> Any:
    """The extent of what is resized by a scale: ONNX Runtime multiplies in float32 and rounds down.

    None where ONNX's inference, and so ONNX Runtime's, finds another one.
    """
    if not isinstance(extent, str):
        found = int(np.float32(extent) * scale)
        return found if found == int(extent * float(scale)) else None
    factor = float(scale)
    return rounded(scaled(extent, int(factor) if factor.is_integer() else factor), "floor")


def factors(a: Number) -> tuple[int, tuple[str, ...]]:
    """The integer and the symbolic factors of a product."""
    if isinstance(a, int):
        return a, ()
    return _split(a) if isinstance(a, str) else (1, (str(a),))


@lru_cache(maxsize=4096)
def _split(expression: str) -> tuple[int, tuple[str, ...]]:
    """The integer and the factors of an expression."""
    parts, depth = [""], 0
    for c in expression:
        depth += (c == "(") - (c == ")")
        if depth == 0 and c in "+-" and not _BEFORE_A_SIGN.fullmatch(parts[-1]):
            return 1, (f"({expression})",)
        if depth == 0 and c == "*":
            parts.append("")
        else:
            parts[-1] += c
    number, factors = 1, []
    for part in parts:
        if part.isdigit():
            number *= int(part)
        else:
            factors.append(part)
    return number, tuple(factors)


def _text(number: int, factors: tuple[str, ...]) -> int | str:
    if number == 0 or not factors:
        return number
    if number == 1 and len(factors) == 1:
        return _bare(factors[0])
    return "*".join(([str(number)] if number != 1 else []) + sorted(factors))


def _bare(factor: str) -> str:
    """A sum without the parentheses that made it a factor."""
    if factor[0] != "(" or factor[-1] != ")":
        return factor
    depth = 0
    for place, c in enumerate(factor):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return factor[1:-1] if place == len(factor) - 1 else factor
    return factor
