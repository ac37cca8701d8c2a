"""Text of the page: escaping, and how numbers, types and shapes are written."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable

from onnxfuse.report import Tensor

__all__ = ["compact", "escape", "shape_text", "shorten", "type_text", "with_unit"]

_LONGEST_DIMENSION = 10


def escape(text: object) -> str:
    """The text for HTML, in content and in attributes; control characters, which HTML forbids, are spelled out."""
    shown = "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )
    return html.escape(shown, quote=True)


def shorten(text: str, width: int) -> str:
    """The text in at most `width` characters: of a long name the end says more than its beginning."""
    if len(text) <= width:
        return text
    head = max(width // 4, 1)
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"


def compact(operators: Iterable[str]) -> str:
    """Each operator once, in order of first appearance, with its count: "Mul ×2, Add"."""
    return ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in Counter(operators).items())


def shape_text(shape: tuple[int | str, ...] | None) -> str:
    """A shape for a reader: "2×16×768"; an extent that has no name of its own is "?", a computed one "…"."""
    if shape is None:
        return "any shape"
    return "×".join(map(_dimension, shape)) or "scalar"


def _dimension(extent: int | str) -> str:
    text = str(extent)
    if text[:1] in "?!":
        return "?"
    named = text.replace("_", "").replace(".", "").isalnum()  # else it is an expression
    return shorten(text, _LONGEST_DIMENSION) if named else "…"


def type_text(tensor: Tensor | None) -> str:
    """Type and shape: "f16 2×768"."""
    if tensor is None:
        return ""
    return f"{tensor.type or 'other'} {shape_text(tensor.shape)}"


def with_unit(count: float, unit: str = "B", base: int = 1024) -> str:
    """A quantity with a prefix that keeps it short: "1.5 MiB"."""
    prefixes = ("", "Ki", "Mi", "Gi", "Ti") if base == 1024 else ("", "k", "M", "G", "T")
    for prefix in prefixes:
        if abs(count) < base or prefix == prefixes[-1]:
            break
        count /= base
    digits = f"{count:.0f}" if not prefix or abs(count) >= 100 else f"{count:.1f}"
    return f"{digits} {prefix}{unit}".rstrip()
