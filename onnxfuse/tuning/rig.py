"""The stand on which candidates are measured against each other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxfuse.benchmark.runner import Runner, make_runner, plain_outputs
from onnxfuse.measure import LEAST_NOISE, Interval, in_turn, paired_ratio
from onnxfuse.runtime import make_session

__all__ = ["Rig"]

_SHARE = 0.05  # of the time in all that one measurement takes at most
_LONGEST = 4.0  # seconds of one measurement
_ROUNDS = 12


@dataclass
class Rig:
    """Runs models on the same inputs; `feeds` has one set for each shape that counts."""

    provider: str
    threads: int | None
    feeds: list[dict[str, np.ndarray]]
    outputs: list[list[Any]]
    seconds: float
    started: float
    noise: float = LEAST_NOISE

    @classmethod
    def around(
        cls, model: Any, provider: str, threads: int | None, feeds: list[dict[str, np.ndarray]], seconds: float
    ) -> Rig:
        """A rig for variants of the model, which is run once on each set of inputs."""
        outputs = [plain_outputs(model, f, provider) for f in feeds]
        return cls(provider, threads, feeds, outputs, seconds, time.perf_counter())

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.passed >= self.seconds

    def runner(self, model: onnx.ModelProto | Any) -> Callable[[], None]:
        """One call runs the model once on each set of inputs."""
        # The threads of a session that has just run would look for more work in a loop during the next one's run.
        config = {"session.force_spinning_stop": "1"}
        session = make_session(model, provider=self.provider, threads=self.threads, config=config)
        runners: list[Runner] = [
            make_runner(session, feeds, self.provider, outputs)
            for feeds, outputs in zip(self.feeds, self.outputs, strict=True)
        ]

        def call() -> None:
            for runner in runners:
                runner()

        return call

    def compare(self, calls: Sequence[Callable[[], None]]) -> list[Interval]:
        """How many times as fast each other call is as the first."""
        seconds = min(_LONGEST, _SHARE * self.seconds)
        times = in_turn(calls, warmup=3, seconds=seconds, min_runs=_ROUNDS)
        return [paired_ratio(times[0], series) for series in times[1:]]

    def measure_noise(self, model: Any) -> None:
        """Finds by how much two equal sessions seem to differ."""
        (ratio,) = self.compare([self.runner(model), self.runner(model)])
        self.noise = max(LEAST_NOISE, math.exp(max(abs(math.log(x)) for x in (ratio.value, ratio.low, ratio.high))))
