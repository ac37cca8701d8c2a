"""Long scans on several streams and in graphs: what their blocks count together is as each launch needs it."""

from __future__ import annotations

import numpy as np
import pytest
import scan_corpus as corpus
from gpu_runner import Array, Check, Tensor, bind, new_session, random
from test_gpu_launches import MODES, Group

N = 1 << 20
SHAPES = ((1, N), (3, 100_003), (1, 70_000), (300, 20_000))


def integers(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Small ones, whose running sums have no rounding error."""
    return np.asarray(np.round(random(shape, "f32", seed) * 4), np.float32)


def scan(shape: tuple[int, ...]) -> Check:
    return Check(corpus.scan("f32"), [integers(shape)], floor=1e-5 * shape[1] ** 0.5)


def test_streams_at_a_time() -> None:
    """The same kernels on two streams, one launch behind the other on each, without a pause."""
    import onnxruntime as ort
    import torch

    text = corpus.scan("f32")
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    streams = [torch.cuda.Stream() for _ in range(2)]
    nodes = [new_session(text, user_compute_stream=str(s.cuda_stream)) for s in streams]
    pairs = [[(Tensor(s, "f32", 0, integers(s, k)), Tensor(s, "f32")) for s in SHAPES] for k in range(2)]
    bindings = [[bind(node, [x], [y]) for x, y in own] for node, own in zip(nodes, pairs, strict=True)]
    torch.cuda.synchronize()
    for repeat in range(40):
        for node, own in zip(nodes, bindings, strict=True):
            node.run_with_iobinding(own[repeat % len(own)], options)
    torch.cuda.synchronize()
    for k, own in enumerate(pairs):
        for s, (_, y) in zip(SHAPES, own, strict=True):
            np.testing.assert_array_equal(y.numpy(), np.cumsum(integers(s, k).astype(np.float64), 1))


def test_more_streams_than_the_kernel_counts_for() -> None:
    """Each session has a stream of its own."""
    import torch

    x = integers((1, 300_000))
    expected = np.cumsum(x.astype(np.float64), 1)
    given = Tensor(x.shape, "f32", 0, x)
    nodes = []
    for _ in range(66):
        nodes.append(new_session(corpus.scan("f32")))
        y = Tensor(x.shape, "f32")
        torch.cuda.synchronize()
        for _ in range(2):
            nodes[-1].run_with_iobinding(bind(nodes[-1], [given], [y]))
        torch.cuda.synchronize()
        np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize("mode", MODES)
def test_graphs(mode: str) -> None:
    """Captured for two sets of shapes, replayed in turns with other data in the same buffers."""
    import onnxruntime as ort
    import torch

    groups = [Group([scan(s) for s in shapes]) for shapes in (SHAPES, SHAPES[::-1])]
    node = new_session(groups[0].text, mode, enable_cuda_graph="1")
    bindings = [bind(node, g.inputs, g.outputs) for g in groups]
    for repeat in range(5):
        for k, group in enumerate(groups):
            group.refill(10 * repeat + k)
            options = ort.RunOptions()
            options.add_run_config_entry("gpu_graph_id", str(k + 1))
            torch.cuda.synchronize()
            node.run_with_iobinding(bindings[k], options)
            torch.cuda.synchronize()
            group.verify()
