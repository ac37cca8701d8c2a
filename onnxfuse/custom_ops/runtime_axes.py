"""Axes that arrive with a run: which dimensions of a kernel are reduced is known only then (docs/program.md)."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

__all__ = ["RuntimeAxes", "choices"]


@dataclass(frozen=True)
class RuntimeAxes:
    """The node's input 0: numbers of `type` (i32 or i64), each of which names one of the space's `dims`.

    `count` is how many there are (None: a run shows it), in a tensor without dimensions where `scalar`, else in a
    vector. Where there are none, nothing is reduced with `noop`, else everything is.
    """

    type: str
    count: int | None
    dims: tuple[int, ...]
    scalar: bool = False
    noop: bool = False

    @property
    def rank(self) -> int:
        """The rank of the tensor of axes."""
        return 0 if self.scalar else 1

    def __str__(self) -> str:
        extent = "" if self.scalar else "?" if self.count is None else str(self.count)
        return " ".join((f"axes 0 {self.type} [{extent}]{' noop' * self.noop}", *(f"d{k}" for k in self.dims)))


def choices(rank: int, count: int | None) -> int:
    """How many sets of axes of a tensor of that rank `count` different ones can be (None: any number of them)."""
    return 2**rank if count is None else comb(rank, count)
