"""A short run of random graphs; the long one is tests/fuzz.py."""

from __future__ import annotations

import collections
import time

import pytest
from fuzz import failure
from graph_check import NotRunError
from random_graphs import random_model

SECONDS = 25.0  # for each of the targets; graphs that a slow machine does not reach are left out
SEEDS = {"cpu": range(400), "cuda": range(400, 800)}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_random_graphs(target: str) -> None:
    """Both targets run on the CPU here: they differ in what is fused."""
    counts: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for seed in SEEDS[target]:
        model, feeds = random_model(seed)
        try:
            wrong, fused = failure(model, feeds, target=target, min_nodes=1 + seed % 2, beside=seed % 5 == 0)
        except NotRunError:
            continue
        assert not wrong, f"seed {seed}: {wrong}"
        counts["graphs"] += 1
        counts["fused"] += bool(fused)
        counts.update(fused)
        if time.monotonic() - start > SECONDS:
            break
    assert counts["fused"] > 0.6 * counts["graphs"] > 10
    kinds = {"FusedElementwise", "FusedReduction", "FusedSoftmax", "FusedLayerNorm", "FusedRMSNorm"}
    assert counts["graphs"] < 100 or kinds <= set(counts)


def test_the_same_seed_gives_the_same_model() -> None:
    first, second = random_model(7)[0], random_model(7)[0]
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
