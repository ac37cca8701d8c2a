"""Latency of calls, measured so that they can be compared: in turn, and with the spread of what is concluded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["LEAST_NOISE", "Comparison", "Interval", "Latency"]
__all__ += ["compare_latency", "in_turn", "paired_ratio", "summarize"]

LEAST_NOISE = 1.01  # a difference of less than one per cent is none
_RESAMPLES = 1000
_COVERED = (2.5, 97.5)  # percentiles of the resampled ratios: 95 % lie between


@dataclass(frozen=True)
class Latency:
    """Wall times of one call, in milliseconds; `runs` is how many were timed."""

    median: float
    p90: float
    p99: float
    mean: float
    fastest: float
    runs: int


@dataclass(frozen=True)
class Interval:
    """An estimate, and the bounds between which 95 % of its resampled values lie."""

    value: float
    low: float
    high: float


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


def summarize(times: Sequence[float] | np.ndarray[Any, Any]) -> Latency:
    """The figures of wall times in milliseconds."""
    median, p90, p99 = np.percentile(times, (50, 90, 99))
    return Latency(float(median), float(p90), float(p99), float(np.mean(times)), float(np.min(times)), len(times))


def in_turn(
    calls: Sequence[Callable[[], object]],
    *,
    warmup: int = 3,
    seconds: float = 5.0,
    min_runs: int = 10,
    max_runs: int = 10_000,
    tick: Callable[[float], object] | None = None,
) -> list[np.ndarray[Any, Any]]:
    """Times the calls in turn, so that all meet the same state of the machine.

    The order changes every round: what one call leaves in the caches and in the clock's boost meets each of the others
    equally often.

    Args:
        calls: What to time.
        warmup: Untimed runs of each.
        seconds: Time for all timed runs together.
        min_runs: Timed runs of each, however long they take.
        max_runs: Timed runs of each at most.
        tick: Called every round with the share that is done, from 0 to 1.

    Returns:
        For each call its wall times in milliseconds, equally many and in order: one round made those of one index.
    """
    for _ in range(warmup):
        for call in calls:
            call()
    times: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    while True:
        rounds, passed = len(times[0]), time.perf_counter() - start
        if rounds >= max_runs or (rounds >= min_runs and passed >= seconds):
            break
        if tick is not None:
            tick(min(1.0, passed / seconds) if seconds > 0 else rounds / min_runs)
        for i in range(len(calls)):
            which = (rounds + i) % len(calls)
            times[which].append(_time(calls[which]))
    return [np.asarray(t) for t in times]


def paired_ratio(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], seed: int = 0) -> Interval:
    """How many times as fast b is: the median over the rounds of a's time over b's, with its spread.

    Both times of a round meet the same state of the machine, so that what slows a whole spell of rounds cancels. The
    spread is a block bootstrap: rounds are resampled in blocks of neighbours, since single rounds drawn apart from each
    other would make it look smaller than it is where they depend on each other. (H. R. Kuensch, The Jackknife and the
    Bootstrap for General Stationary Observations, Annals of Statistics 17, 1989.)

    Args:
        a: Times of the base, as `in_turn` returns them.
        b: Times of what is compared, of the same rounds.
        seed: Of the resampling; equal seeds give equal intervals.
    """
    ratios = a / b
    rounds = len(ratios)
    block = max(1, round(rounds**0.5))
    starts = np.random.default_rng(seed).integers(0, rounds - block + 1, (_RESAMPLES, -(-rounds // block)))
    medians = [np.median(ratios[(row[:, None] + np.arange(block)).ravel()[:rounds]]) for row in starts]
    low, high = np.percentile(medians, _COVERED)
    return Interval(float(np.median(ratios)), float(low), float(high))


def compare_latency(
    a: Callable[[], object],
    b: Callable[[], object],
    *,
    warmup: int = 3,
    seconds: float = 5.0,
    min_runs: int = 10,
    max_runs: int = 10_000,
) -> Comparison:
    """Times two calls in turn, the base first; the arguments are those of `in_turn`."""
    times = in_turn((a, b), warmup=warmup, seconds=seconds, min_runs=min_runs, max_runs=max_runs)
    return Comparison(summarize(times[0]), summarize(times[1]))
