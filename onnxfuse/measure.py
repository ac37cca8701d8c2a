"""Latency of two calls, measured so that they can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["Comparison", "Latency", "compare_latency"]


@dataclass(frozen=True)
class Latency:
    """Wall times of one call, in milliseconds."""

    median: float
    p90: float
    fastest: float
    runs: int


@dataclass(frozen=True)
class Comparison:
    """Two calls' latencies."""

    a: Latency
    b: Latency

    @property
    def speedup(self) -> float:
        """How many times as fast b is: the median of a over the median of b."""
        return self.a.median / self.b.median


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e6


def _latency(times: list[float]) -> Latency:
    median, p90 = np.percentile(times, (50, 90))
    return Latency(float(median), float(p90), min(times), len(times))


def compare_latency(
    a: Callable[[], object],
    b: Callable[[], object],
    *,
    warmup: int = 3,
    seconds: float = 5.0,
    min_runs: int = 10,
    max_runs: int = 10_000,
) -> Comparison:
    """Times both calls in turn until `seconds` have passed, so that both meet the same state of the machine.

    The order changes every round: what one call leaves in the caches and in the clock's boost meets each of them
    equally often.

    Args:
        a: The base.
        b: What is compared with it.
        warmup: Untimed runs of each.
        seconds: Time for all timed runs together.
        min_runs: Timed runs of each, however long they take.
        max_runs: Timed runs of each at most.
    """
    for _ in range(warmup):
        a()
        b()
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while len(times[0]) < max_runs and (len(times[0]) < min_runs or time.perf_counter() < end):
        first = len(times[0]) % 2
        for which in (first, 1 - first):
            times[which].append(_time((a, b)[which]))
    return Comparison(_latency(times[0]), _latency(times[1]))
