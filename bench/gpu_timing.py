"""Time on a GPU, by CUDA events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def time_on(stream: torch.cuda.Stream, f: Callable[[], Any], repeats: int = 15, queue: float = 0.02) -> float:
    """Median seconds of f() on the stream, by events around several calls queued back to back.

    Args:
        repeats: pairs of events.
        queue: seconds of calls between two events, at most 40 calls, so that the host's part is hidden.
    """

    def events(calls: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(stream)
        for _ in range(calls):
            f()
        end.record(stream)
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / calls

    with torch.cuda.stream(stream):
        for _ in range(4):
            f()
        calls = max(1, min(40, int(queue / max(events(1), 1e-6))))
        return float(np.median([events(calls) for _ in range(repeats)]))
