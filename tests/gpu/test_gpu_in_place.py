"""Results that ONNX Runtime has written over what they are computed from, on the GPU."""

from __future__ import annotations

import numpy as np
import pytest
from graph_check import check, fused_nodes
from test_in_place import APART, POINTWISE, SEVERAL, memory_in_and_out_of_place, renamed, square
from truth import run

import onnxfuse
from onnxfuse.benchmark.runner import make_runner
from onnxfuse.runtime import make_session

CUDA = "CUDAExecutionProvider"


@pytest.mark.parametrize("name", [*POINTWISE, "several"])
def test_what_may_be_in_place(name: str) -> None:
    model, feeds = square(POINTWISE.get(name, SEVERAL))
    optimized, _ = check(model, feeds, target="cuda", provider="cuda")
    assert "FusedElementwise" in fused_nodes(optimized)


@pytest.mark.parametrize("name", APART)
def test_what_must_not_reads_a_copy(name: str) -> None:
    model, feeds = square(APART[name])
    optimized = onnxfuse.optimize(model, target="cuda", min_nodes=1).model
    expected = run(optimized, feeds, library=True, provider="cuda")
    for _ in range(3):
        found = run(renamed(optimized), feeds, library=True, provider="cuda")
        np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("name", APART)
def test_copies_under_capture(name: str) -> None:
    """Captured in the first runs, and replayed."""
    model, feeds = square(APART[name])
    optimized = onnxfuse.optimize(model, target="cuda", min_nodes=1).model
    expected = run(optimized, feeds, library=True, provider="cuda")
    graph = {"enable_cuda_graph": "1", "use_tf32": "0"}
    session = make_session(renamed(optimized), provider=CUDA, provider_options=graph)
    runner = make_runner(session, feeds, CUDA, expected, graph=1)
    for _ in range(4):
        np.testing.assert_array_equal(runner.outputs()[0], expected[0])


def test_memory() -> None:
    in_place, out_of_place = memory_in_and_out_of_place(CUDA, "cuda")
    assert in_place < 0.7 * out_of_place
