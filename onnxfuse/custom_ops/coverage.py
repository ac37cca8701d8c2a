"""Which elements of an output tensor a program stores: each exactly once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from onnxfuse.custom_ops.program import Entry, Kernel
from onnxfuse.errors import ProgramError

__all__ = ["Axis", "Stores", "axis_of", "fail_at"]


@dataclass(frozen=True)
class Axis:
    """Indices that an output stores along one dimension of its tensor; None is what is known at run time only."""

    extent: int | None
    low: int | None
    high: int | None
    offset: int
    scales: tuple[int, ...]

    def inside(self) -> bool:
        """True where no index is known to be outside of the tensor."""
        below = self.low is not None and self.low < 0
        above = self.high is not None and self.extent is not None and self.high >= self.extent
        return not (below or above)

    def apart(self, other: Axis) -> bool:
        """True where it is certain that the two share no index."""
        for a, b in ((self, other), (other, self)):
            if a.high is not None and b.low is not None and a.high < b.low:
                return True
        step = math.gcd(*self.scales, *other.scales)
        difference = self.offset - other.offset
        return difference % step != 0 if step else difference != 0


def axis_of(kernel: Kernel, entry: Entry, natural: int | None) -> Axis:
    """What an output's map entry stores; `natural` is the extent that can be read off the entry."""
    low: int | None = entry.offset
    high: int | None = entry.offset
    for k, scale in entry.terms:
        extent = kernel.extent(k)
        reach = None if extent is None else scale * max(extent - 1, 0)
        if scale < 0:
            low = None if low is None or reach is None else low + reach
        else:
            high = None if high is None or reach is None else high + reach
    extent = natural if entry.extent is None else entry.extent
    return Axis(extent, low, high, entry.offset, tuple(scale for _, scale in entry.terms))


class Stores:
    """What each output tensor's elements are stored by: every element once."""

    def __init__(self) -> None:
        self.parts: dict[int, list[tuple[int, list[Axis], int | None]]] = {}

    def add(self, line: int, tensor: int, axes: list[Axis], points: int | None) -> None:
        """Another output of the tensor, on that line, of so many points; raises ProgramError where it meets others."""
        parts = self.parts.setdefault(tensor, [])
        for other_line, other, _ in parts:
            for place, (a, b) in enumerate(zip(axes, other, strict=True)):
                if a.extent is not None and b.extent is not None and a.extent != b.extent:
                    fail_at(
                        line,
                        f"dimension {place} of output {tensor} has extent {b.extent} on line {other_line}, "
                        f"here {a.extent}",
                    )
            if not any(a.apart(b) for a, b in zip(axes, other, strict=True)):
                fail_at(line, f"output {tensor} may store to elements that line {other_line} stores to as well")
        parts.append((line, axes, points))

    def check_covered(self) -> None:
        """Raises ProgramError where it is known that elements of a tensor are not stored."""
        for tensor, parts in self.parts.items():
            extents = [axis.extent for axis in parts[0][1]]
            points = [points for _, _, points in parts]
            if None in extents or None in points:
                continue  # known at run time only
            elements = math.prod(extent for extent in extents if extent is not None)
            stored = sum(count for count in points if count is not None)
            if stored != elements:
                fail_at(parts[-1][0], f"output {tensor} has {elements} elements, of which {stored} are stored")


def fail_at(line: int, message: str) -> NoReturn:
    """Raises ProgramError for a line of the program's text."""
    raise ProgramError(f"line {line}: {message}")
