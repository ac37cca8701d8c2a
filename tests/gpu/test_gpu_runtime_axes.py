"""Axes that arrive with a run, on the GPU: read on the host, right for all that may come, one run after the other."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import axes_corpus
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from gpu_runner import Tensor, bind, compare, new_session
from graphs import parse

import onnxfuse
from onnxfuse.custom_ops.parser import parse as parse_program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.runtime import make_session

SHAPES = {
    "softmax": [(40, 33, 260)],
    "squeezed 1": [(64, 3, 1000)],
    "squeezed 2": [(64, 3, 1000)],
    "squeezed 3": [(64, 3, 1000)],
    "transposed": [(16, 33, 70), (33,)],
    "noop": [(300, 1000)],
    "scan": [(20, 30, 400)],
    "integers": [(4, 5)],
}


def run(node: ort.InferenceSession, text: str, inputs: list[np.ndarray], offset: int = 0) -> list[np.ndarray]:
    """The outputs; the axes stay in host memory."""
    import torch

    program = parse_program(text)
    data = [Tensor(x.shape, t, offset, x) for x, (t, _) in zip(inputs[1:], program.inputs[1:], strict=True)]
    shapes = [y.shape for y in evaluate(program, inputs)]
    outputs = [Tensor(shape, t, offset) for shape, (t, _) in zip(shapes, program.outputs, strict=True)]
    torch.cuda.synchronize()
    node.run_with_iobinding(bind(node, [inputs[0], *data], outputs))
    torch.cuda.synchronize()
    return [y.numpy() for y in outputs]


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_set_of_axes(name: str, offset: int) -> None:
    """One session; nothing in it may run on the CPU."""
    text, _, counts = axes_corpus.CASES[name]
    shapes, program = SHAPES[name], parse_program(text)
    node = new_session(text)
    for count in counts:
        for axes in itertools.combinations(range(len(shapes[0])), count):
            signed = [a - len(shapes[0]) if k % 2 else a for k, a in enumerate(axes)]
            inputs = axes_corpus.feeds(program, signed, shapes)
            actual = run(node, text, inputs, offset)
            compare(text, actual, inputs, limit=64, floor=2e-3 if "f16" in text else 1e-5)


def test_axes_that_do_not_fit() -> None:
    """An error, and the session goes on."""
    text = axes_corpus.SOFTMAX
    node = new_session(text)
    x = np.ones((4, 5, 6), np.float32)
    with pytest.raises(Exception, match="input 0 names axis 3 of a tensor of rank 3"):
        node.run(None, {"x0": np.array([3], np.int64), "x1": x})
    node.run(None, {"x0": np.array([2], np.int64), "x1": x})


def test_a_cuda_graph_keeps_the_axes_that_it_was_captured_with() -> None:
    """As `onnxfuse explain` says: a replay reads other data, and no other axes."""
    import torch

    text = axes_corpus.SOFTMAX
    node = new_session(text, enable_cuda_graph="1")
    rng = np.random.default_rng(0)
    x = Tensor((8, 9, 10), "f32", 0, rng.normal(size=(8, 9, 10)).astype(np.float32))
    axes = np.array([1], np.int64)
    outputs = [Tensor((8, 9, 10), "f32"), Tensor((8, 1, 10), "f32")]
    binding = bind(node, [axes, x], outputs)
    for _ in range(4):
        fresh = rng.normal(size=(8, 9, 10)).astype(np.float32)
        x.fill(fresh)
        torch.cuda.synchronize()
        node.run_with_iobinding(binding)
        torch.cuda.synchronize()
        compare(text, [y.numpy() for y in outputs], [np.array([1], np.int64), fresh], limit=64, floor=1e-5)


GRAPH = """g (TYPE[A, 3, B] x, int64[COUNT] given, int64[COUNT] zero) => (TYPE[A, 3, B] y, TYPE[k, l, m] s) {
    AXES
    h = ReduceMax (x, axes) d = Sub (x, h) e = Exp (d) s = ReduceSum (e, axes) y = Div (e, s)
}"""


@pytest.mark.parametrize("type_", ["float", "float16"])
@pytest.mark.parametrize("where", ["axes = Identity (given)", "axes = Sub (given, zero)"], ids=["input", "computed"])
@pytest.mark.parametrize("count", [1, 2])
def test_models(type_: str, where: str, count: int) -> None:
    """Axes of the model's input, and such as the GPU computes: ONNX Runtime copies these to the host."""
    graph = GRAPH.replace("TYPE", type_).replace("COUNT", str(count)).replace("AXES", where)
    model = onnxfuse.optimize(parse(graph, 18), target="cuda").model
    assert "FusedRuntimeAxes" in [n.op_type for n in model.graph.node]
    node, reference = make_session(model, provider="cuda"), make_session(model, library=False)
    dtype = np.float16 if type_ == "float16" else np.float32
    x = np.random.default_rng(1).normal(size=(17, 3, 129)).astype(dtype)
    for axes in itertools.combinations(range(3), count):
        feeds = {"x": x, "given": np.array(axes, np.int64), "zero": np.zeros(count, np.int64)}
        for got, want in zip(node.run(None, feeds), reference.run(None, feeds), strict=True):
            assert got.shape == want.shape
            tolerance = 4e-3 if dtype == np.float16 else 2e-5
            np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), tolerance, tolerance)


SCRIPT = """
import sys
import numpy as np, onnxruntime as ort
import onnxfuse.runtime as runtime
session = runtime.make_session(sys.argv[1], provider="cuda")
x = np.random.default_rng(2).normal(size=(16, 3, 128)).astype(np.float32)
for axis in range(-3, 3):
    axes = np.array([axis], np.int64)
    y, s = session.run(None, {"x": x, "given": axes, "zero": 0 * axes})
    e = np.exp(x - x.max(axis, keepdims=True))
    assert s.shape == e.sum(axis, keepdims=True).shape
    np.testing.assert_allclose(y, e / e.sum(axis, keepdims=True), 2e-5, 1e-6)
print("all axes ran")
"""


def test_kernels_made_ahead_serve_every_axis(tmp_path: Path) -> None:
    import torch

    graph = GRAPH.replace("TYPE", "float").replace("COUNT", "1").replace("AXES", "axes = Identity (given)")
    onnx.save(onnxfuse.optimize(parse(graph, 18), target="cuda").model, tmp_path / "model.onnx")
    major, minor = torch.cuda.get_device_capability()
    made = onnxfuse.compile_kernels(
        tmp_path / "model.onnx", tmp_path / "kernels", [f"sm_{major}{minor}"], {"A": [16], "B": [128]}
    )
    assert made.ok
    environment = {"ONNXFUSE_NVRTC": "none", "ONNXFUSE_KERNELS": str(tmp_path / "kernels")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "model.onnx")],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "all axes ran" in done.stdout, done.stderr
    assert "will not run on the GPU" not in done.stderr
