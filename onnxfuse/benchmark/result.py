"""What `bench` returns."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from onnxfuse.benchmark.account import Account
from onnxfuse.benchmark.launch_cost import LaunchCost
from onnxfuse.measure import LEAST_NOISE, Interval, Latency

__all__ = ["BenchCase", "BenchResult", "Figures", "GraphCheck"]


@dataclass(frozen=True)
class Figures:
    """One model's figures for one set of shapes.

    `latency` is the wall time of one run in milliseconds, `throughput` the runs a second when they are queued back to
    back, `first_run` the milliseconds of the very first run (kernels are waited for, algorithms chosen).
    """

    latency: Latency
    throughput: float
    first_run: float
    account: Account | None


@dataclass(frozen=True)
class GraphCheck:
    """That replays of a CUDA graph computed what plain runs of the same model do, on `replays` sets of new data.

    `equal` is True where all bits were equal; `difference` is the largest absolute difference.
    """

    graph_id: int
    replays: int
    equal: bool
    difference: float


@dataclass(frozen=True)
class BenchCase:
    """Both models' figures for one set of shapes.

    `ratio` is how many times as fast the optimized model is (`measure.paired_ratio`), with its spread. `noise` is the
    same figure of two identical sessions of the original model, measured in the same rounds; None where that was left
    out.
    """

    dims: dict[str, int]
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    original: Figures
    optimized: Figures
    ratio: Interval
    noise: Interval | None
    graphs: tuple[GraphCheck, ...] = ()

    @property
    def noise_level(self) -> float:
        """The least ratio above 1 that noise does not explain: how far apart two identical sessions could seem.

        It is 1.01 or more: of less, the second session's own spread cannot tell.
        """
        if self.noise is None:
            return LEAST_NOISE
        apart = max(abs(math.log(x)) for x in (self.noise.value, self.noise.low, self.noise.high))
        return max(LEAST_NOISE, math.exp(apart))

    @property
    def verdict(self) -> str:
        """Says "faster" or "slower" where the ratio's spread leaves out 1 and it exceeds the noise, else "same"."""
        if self.ratio.low > 1 and self.ratio.value > self.noise_level:
            return "faster"
        if self.ratio.high < 1 and 1 / self.ratio.value > self.noise_level:
            return "slower"
        return "same"


@dataclass(frozen=True)
class BenchResult:
    """What `bench` measured, and on what.

    `session_ms` are the milliseconds to create a session of the original and of the optimized model, in a process whose
    provider is started and, for the optimized one, once with and once without its kernels in the cache on disk, where
    that made a difference: the first creation and the second. `launch_cost` is there on a GPU.
    """

    original: str
    optimized: str
    provider: str
    device: str
    runtime: str
    threads: int | None
    cuda_graph: bool
    session_ms: dict[str, tuple[float, float]]
    cases: tuple[BenchCase, ...]
    launch_cost: LaunchCost | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold."""
        result = {"schema": 1, **asdict(self)}
        for case, entry in zip(self.cases, result["cases"], strict=True):
            entry |= {"verdict": case.verdict, "noise_level": case.noise_level}
        return result
