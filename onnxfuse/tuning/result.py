"""What tuning is asked for, and what it found."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onnxfuse.measure import Interval

__all__ = ["Decision", "Tune", "Tuning", "beyond"]


@dataclass(frozen=True)
class Tune:
    """How to tune: with which shapes and inputs, on how many threads, and for how long.

    `dims` are extents of free dimensions, by name or as `input.axis`; 2 where not given. Of several for one, each
    combination counts: a model's time is the sum over all of them. `inputs` are arrays by input name, or an .npz file
    of them; other inputs are made up from `seed`. `seconds` is the time to stop after, at the end of the measurement at
    hand; what was not measured by then stays fused, but every kind is measured. `provider` is where to measure, by
    default the target's.
    """

    dims: Mapping[str, int | Sequence[int]] | None = None
    inputs: Mapping[str, np.ndarray] | str | os.PathLike[str] | None = None
    threads: int | None = None
    seconds: float = 60.0
    seed: int = 0
    provider: str | None = None
    progress: Callable[[str, float], object] | None = None


@dataclass(frozen=True)
class Decision:
    """One question that was measured: are these fusions better left out?

    `regions` are the fusions, each named by the first tensor that it writes; `kind` is their rewrite. `gain` is how
    many times as fast the model became by the change that was asked about (leaving them out, or putting them back),
    `dropped` whether they were left out then.
    """

    kind: str
    regions: tuple[str, ...]
    gain: Interval
    dropped: bool


@dataclass(frozen=True)
class Tuning:
    """What was decided, on which figures.

    `dropped` names the regions that were left out: `optimize` with `drop` set to it makes the same model anywhere.
    `noise` is the ratio that two equal sessions seemed to differ by, `untuned` how many times as fast as the original
    the model was with all fusions, `tuned` without the dropped ones. `finished` is False where time ran out.
    """

    dropped: tuple[str, ...]
    decisions: tuple[Decision, ...]
    noise: float
    untuned: Interval
    tuned: Interval
    finished: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold."""
        return asdict(self)


def beyond(ratio: Interval, noise: float) -> bool:
    """Whether a ratio is above 1 by more than its own spread and by more than noise."""
    return ratio.low > 1 and math.log(ratio.value) > math.log(noise)
