"""Nodes of several kernels in one launch, and what begins before what came before it is complete."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import cuda_corpus as corpus
import numpy as np
import pytest
from gpu_runner import Check, Tensor, bind, compare, new_session, random

from onnxfuse.custom_ops.parser import parse
from onnxfuse.custom_ops.reference import evaluate

MODES = ("plain", "dependent", "horizontal", "persistent")
COLUMNS = {"space": "d0 | d1{} | d2", "dims": "d0, d1, d2"}


def chain(n: int, length: int = 3) -> Check:
    return Check(corpus.chain("f32", length), [random((n,), "f32", n)])


def softmax(*shape: int, type_: str = "f32") -> Check:
    return Check(corpus.softmax(type_, **(COLUMNS if len(shape) == 3 else {})), [random(shape, type_)], limit=32)


def norm(rows: int, n: int) -> Check:
    arrays = [random((rows, n), "f16"), random((n,), "f16", 1), random((n,), "f16", 2)]
    return Check(corpus.layer_norm("f16"), arrays, floor=2e-3)


def mean(*shape: int) -> Check:
    return Check(corpus.reduction("reduce_mean", "f32"), [random(shape, "f32")], limit=64, floor=1e-6)


# By what they hold: the same kernel of several sizes, some with a tail; kernels that nothing but the launch has in
# common, of blocks with few and many threads; more tiles than blocks fit on the GPU; what cannot share (rows of a
# cluster, a sum in several launches), nothing to compute at all.
GROUPS: dict[str, list[Check]] = {
    "same": [chain(n) for n in (4096, 1024, 4, 40000, 1000, 77777, 1, 8192)],
    "mixed": [
        chain(1000),
        softmax(64, 128),
        norm(128, 768),
        softmax(4, 64, 64),
        mean(300, 1024),
        softmax(9, 128),
        softmax(2, 300, 7),
        softmax(64, 128),
        chain(5003, 12),
    ],
    "uneven": [mean(7, 4096), chain(1 << 20), mean(3, 3), chain(64), softmax(8, 16), chain(1 << 21, 12)],
    "alone": [chain(4096), softmax(5, 131072), mean(2, 1000000), norm(64, 256), chain(0), mean(0, 5), softmax(3, 0)],
}


@dataclass
class Group:
    """The checks of a group in one node, over device memory."""

    checks: Sequence[Check]
    device: int = 0

    def __post_init__(self) -> None:
        self.text = corpus.merge([c.text for c in self.checks])
        tensors = parse(self.text)
        self.arrays = [x for c in self.checks for x in c.arrays]
        shapes = [y.shape for c in self.checks for y in evaluate(parse(c.text), c.arrays)]
        types = [t for t, _ in tensors.inputs]
        self.inputs = [Tensor(x.shape, t, 0, x, self.device) for x, t in zip(self.arrays, types, strict=True)]
        self.outputs = [Tensor(s, t, device=self.device) for s, (t, _) in zip(shapes, tensors.outputs, strict=True)]

    def refill(self, seed: int) -> None:
        """New data in the same buffers."""
        for k, (x, old) in enumerate(zip(self.inputs, self.arrays, strict=True)):
            self.arrays[k] = random(old.shape, x.type, 100 * seed + k)
            x.fill(self.arrays[k])
        for y in self.outputs:
            y.memory[y.offset : y.offset + y.size] = 0xFB

    def verify(self) -> None:
        results, arrays = iter(self.outputs), iter(self.arrays)
        for check in self.checks:
            own = [next(arrays) for _ in check.arrays]
            actual = [next(results).numpy() for _ in parse(check.text).outputs]
            compare(check.text, actual, own, check.limit, check.floor)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GROUPS)
def test_groups(name: str, mode: str) -> None:
    """The values, twice: what a queue leaves behind is where the next run begins."""
    import torch

    group = Group(GROUPS[name])
    node = new_session(group.text, mode)
    for seed in range(1, 3):
        group.refill(seed)
        torch.cuda.synchronize()
        node.run_with_iobinding(bind(node, group.inputs, group.outputs))
        torch.cuda.synchronize()
        group.verify()


@pytest.mark.parametrize("mode", ["horizontal", "persistent"])
def test_repeats_of_a_group_are_bit_identical(mode: str) -> None:
    import torch

    group = Group(GROUPS["mixed"] + GROUPS["uneven"])
    node = new_session(group.text, mode)
    binding = bind(node, group.inputs, group.outputs)
    first: list[torch.Tensor] = []
    for _ in range(200):
        node.run_with_iobinding(binding)
        torch.cuda.synchronize()
        bits = [y.memory.clone() for y in group.outputs]
        first = first or bits
        assert all(torch.equal(a, b) for a, b in zip(first, bits, strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_graphs_of_several_shapes(mode: str) -> None:
    """Captured under an id for each set of shapes, replayed in turns with other data in the same buffers."""
    import onnxruntime as ort
    import torch

    small = Group([chain(1000), softmax(16, 128), norm(5, 768), chain(3)])
    large = Group([chain(300000), softmax(700, 128), norm(300, 768), chain(4096)])
    assert small.text == large.text
    node = new_session(small.text, mode, enable_cuda_graph="1")
    bindings = [bind(node, g.inputs, g.outputs) for g in (small, large)]
    for repeat in range(6):
        for k, group in enumerate((small, large)):
            group.refill(10 * repeat + k)
            options = ort.RunOptions()
            options.add_run_config_entry("gpu_graph_id", str(k + 1))
            torch.cuda.synchronize()
            node.run_with_iobinding(bindings[k], options)
            torch.cuda.synchronize()
            group.verify()


def test_sessions_and_threads() -> None:
    """Two sessions with a queue each, and two threads in each of them, all at a time."""
    import torch

    text = Group([chain(1), mean(1, 1)]).text
    nodes = [new_session(text, mode) for mode in ("persistent", "horizontal")]
    errors: list[str] = []

    def work(number: int) -> None:
        try:
            node = nodes[number % 2]
            for k in range(15):
                group = Group([chain(10000 * (number + k) + 7), mean(50 * number + 3, 1 + 100 * k)])
                torch.cuda.synchronize()
                node.run_with_iobinding(bind(node, group.inputs, group.outputs))
                torch.cuda.synchronize()
                group.verify()
        except BaseException as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


@pytest.mark.parametrize("mode", ["dependent", "persistent"])
def test_order_on_a_stream_of_the_users(mode: str) -> None:
    """What PyTorch does on the stream before and behind a node, without a pause: each sees what was written before."""
    import onnxruntime as ort
    import torch

    stream = torch.cuda.Stream()
    group = Group([chain(1 << 22), mean(64, 4096), chain(1 << 20)])
    node = new_session(group.text, mode, user_compute_stream=str(stream.cuda_stream))
    binding = bind(node, group.inputs, group.outputs)
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    x = group.inputs[0].memory[: group.inputs[0].size].view(torch.float32)
    y = group.outputs[0].memory[: group.outputs[0].size].view(torch.float32)
    expected, totals = [], []
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for k in range(50):
            x.fill_(float(k))
            node.run_with_iobinding(binding, options)
            totals.append(y.double().mean())
            x.fill_(-1000.0)  # after the node has read it
            expected.append(max(k + 0.125, 0) * 0.875)
    stream.synchronize()
    np.testing.assert_allclose([float(t) for t in totals], expected, rtol=1e-6)


@pytest.mark.parametrize("mode", ["plain", "dependent"])
@pytest.mark.parametrize("graph", [False, True], ids=["stream", "graph"])
def test_chain_of_nodes(mode: str, graph: bool) -> None:
    """Each node reads what the one before wrote, in buffers that are used again and again."""
    import onnx
    import onnxruntime as ort
    import torch
    from onnx import helper

    from onnxfuse.custom_ops.library import find_nvrtc, library_path

    text, count, n = corpus.chain("f32", 3), 60, 1 << 18
    nodes = [
        helper.make_node("FusedElementwise", [f"v{k}" if k else "x0"], [f"v{k + 1}"], domain="onnxfuse", program=text)
        for k in range(count)
    ]
    nodes.append(helper.make_node("Neg", [f"v{count}"], ["y0"]))
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None]) for name in ("x0", "y0")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("onnxfuse", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:]), opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("onnxfuse.launches", mode)
    if nvrtc := find_nvrtc():
        options.add_session_config_entry("onnxfuse.nvrtc_path", str(nvrtc))
    options.register_custom_ops_library(str(library_path()))
    providers = [("CUDAExecutionProvider", {"enable_cuda_graph": "1"} if graph else {})]
    node = ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    source, target = Tensor((n,), "f32"), Tensor((n,), "f32")
    binding = bind(node, [source], [target])
    for seed in range(5):
        x = np.abs(random((n,), "f32", seed))
        expected = x
        for _ in range(count):
            expected = np.maximum(expected + np.float32(0.125), 0) * np.float32(0.875)
        source.fill(x)
        torch.cuda.synchronize()
        node.run_with_iobinding(binding)
        torch.cuda.synchronize()
        np.testing.assert_allclose(target.numpy(), -expected, rtol=1e-4)


def test_second_device() -> None:
    """A node runs where its session's provider is, whatever device the thread uses."""
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for device in (1, 0):
        group = Group(GROUPS["mixed"], device)
        for mode in MODES:
            node = new_session(group.text, mode, device_id=str(device))
            with torch.cuda.device(1 - device):
                group.refill(device)
                for each in range(2):
                    torch.cuda.synchronize(each)
                node.run_with_iobinding(bind(node, group.inputs, group.outputs, device))
                for each in range(2):
                    torch.cuda.synchronize(each)
            group.verify()


def test_launches_are_checked() -> None:
    with pytest.raises(Exception, match=r"onnxfuse\.launches is 'sideways'"):
        new_session(corpus.chain("f32", 3), "sideways")
