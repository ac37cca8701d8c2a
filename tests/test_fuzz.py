"""A short run of random graphs; the long one is tests/fuzz.py."""

from __future__ import annotations

import collections
import time

import numpy as np
import pytest
from fuzz import failure
from graph_check import NotRunError
from onnx import TensorProto, helper, numpy_helper
from random_graphs import random_model
from truth import in_wider_types

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


def test_the_truth_of_float16_that_onnx_reference_cannot_follow() -> None:
    """It (1.23) reshapes the weights of a ConvTranspose in groups wrongly; float16 alone would tell little."""
    value, groups = helper.make_tensor_value_info, 3
    weight = numpy_helper.from_array(np.full((groups, 2, 1, 1), 0.1, np.float16), "w")
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["c"], group=groups), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT16, [1, groups, 2, 2])],
        [value("y", TensorProto.FLOAT16, [1, 2 * groups, 2, 2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = np.linspace(0, 1, 4 * groups).astype(np.float16).reshape(1, groups, 2, 2)
    truth = in_wider_types(model, {"x": x})
    assert truth is not None
    expected = np.repeat(x.astype(np.float64) * float(np.float16(0.1)), 2, axis=1)
    np.testing.assert_allclose(truth[0], expected, rtol=1e-6)
    moved = in_wider_types(model, {"x": x}, np.random.default_rng(0))
    assert moved is not None
    assert 1e-4 < np.abs(moved[0] / np.where(expected == 0, 1, expected) - (expected != 0)).max() < 2e-3
