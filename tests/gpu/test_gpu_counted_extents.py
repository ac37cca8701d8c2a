"""Extents that only a collapsed dimension shows, on the GPU."""

from __future__ import annotations

import pytest
from gpu_runner import check
from test_counted_extents import WINDOWS, arrays


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "unaligned"])
@pytest.mark.parametrize(("batch", "length"), [(1, 5), (7, 49), (300, 49), (3, 4096)])
def test_windows(batch: int, length: int, offset: int) -> None:
    check(WINDOWS, *arrays(batch, length), floor=1e-6, offset=offset)
