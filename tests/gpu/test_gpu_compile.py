"""Kernels made ahead of time run on the GPU without NVRTC, in a fresh process and on every alignment of its inputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from graphs import parse

import onnxfuse

GRAPH = """
agraph (float16[batch, tokens, 96] x, float16[96] scale) => (float16[batch, tokens, 96] y, float16[batch, tokens] m)
{
   a = ReduceMean<axes=[-1], keepdims=1>(x)
   b = Sub(x, a)
   c = Mul(b, b)
   d = ReduceMean<axes=[-1], keepdims=1>(c)
   l = Constant<value = float {0.001}>()
   e = Cast<to = 10>(l)
   f = Add(d, e)
   g = Sqrt(f)
   h = Div(b, g)
   i = Mul(h, scale)
   j = Softmax<axis=1>(i)
   k = Sigmoid(j)
   y = Mul(k, x)
   m = ReduceMax<axes=[-1], keepdims=0>(y)
}
"""
# Runs a model on the CUDA provider, on tensors at addresses that 2 divides and 4 does not where asked to.
SCRIPT = """
import sys
import numpy as np, onnxruntime as ort, torch
import onnxfuse
model, data, result, shift = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
if hasattr(ort, "preload_dlls"):
    ort.preload_dlls()
options = ort.SessionOptions()
options.log_severity_level = 3
if len(sys.argv) > 5:
    options.add_session_config_entry("onnxfuse.kernels", sys.argv[5])
options.register_custom_ops_library(str(onnxfuse.library_path()))
session = ort.InferenceSession(model, options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
feeds = np.load(data)
binding = session.io_binding()
kept = []
for name in feeds.files:
    flat = torch.zeros(feeds[name].size + shift, dtype=torch.float16, device="cuda")
    flat[shift:] = torch.from_numpy(feeds[name]).flatten().cuda()
    kept.append(flat)
    binding.bind_input(name, "cuda", 0, np.float16, feeds[name].shape, flat.data_ptr() + 2 * shift)
for output in session.get_outputs():
    binding.bind_output(output.name, "cuda")
torch.cuda.synchronize()
session.run_with_iobinding(binding)
np.savez(result, *binding.copy_outputs_to_cpu())
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "fused.onnx"
    optimized = onnxfuse.optimize(parse(GRAPH, opset=17), target="cuda").model
    assert any(n.domain == "onnxfuse" for n in optimized.graph.node)
    onnx.save(optimized, file)
    return file


@pytest.fixture(scope="module")
def kernels(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels") / "made"
    major, minor = torch.cuda.get_device_capability()
    made = onnxfuse.compile_kernels(model, folder, [f"sm_{major}{minor}"], {"batch": [1, 4], "tokens": [7, 512]})
    assert made.ok
    return folder


def run(model: Path, folder: Path, batch: int, tokens: int, shift: int = 0, **variables: str) -> list[np.ndarray] | str:
    """The outputs, or what went to standard error."""
    rng = np.random.default_rng(batch)
    feeds = {"x": rng.normal(size=(batch, tokens, 96)), "scale": rng.normal(size=96)}
    np.savez(folder / "in.npz", **{k: v.astype(np.float16) for k, v in feeds.items()})
    result = folder / "out.npz"
    result.unlink(missing_ok=True)
    arguments = [str(model), str(folder / "in.npz"), str(result), str(shift)]
    environment = os.environ | {
        "ONNXFUSE_NVRTC": "none",
        "ONNXFUSE_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    config = [variables.pop("config")] if "config" in variables else []
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments, *config],
        env=environment | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not result.exists():
        return done.stderr
    assert "will not run on the GPU" not in done.stderr
    with np.load(result) as file:
        outputs = [file[name] for name in file.files]
    reference = onnxfuse.runtime.make_session(model, library=False)
    for found, expected in zip(outputs, reference.run(None, dict(np.load(folder / "in.npz"))), strict=True):
        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=2e-2, atol=1e-2)
    return outputs


@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 7), (4, 512)])
def test_without_nvrtc(model: Path, kernels: Path, tmp_path: Path, batch: int, tokens: int, shift: int) -> None:
    assert not isinstance(run(model, tmp_path, batch, tokens, shift, ONNXFUSE_KERNELS=str(kernels)), str)
    assert not (tmp_path / "cache").exists()


def test_from_the_session_config(model: Path, kernels: Path, tmp_path: Path) -> None:
    assert not isinstance(run(model, tmp_path, 4, 7, config=str(kernels)), str)


def test_a_missing_kernel_is_said(model: Path, kernels: Path, tmp_path: Path) -> None:
    said = run(model, tmp_path, 1, 100000, ONNXFUSE_KERNELS=str(kernels))
    assert isinstance(said, str)
    assert "onnxfuse compile MODEL --arch" in said
    assert 'pip install "onnxfuse[cuda]"' in said


def test_without_kernels_nodes_run_on_the_cpu(model: Path) -> None:
    """What no kernel is registered for runs on the CPU, in the same session."""
    code = f"import onnxfuse, onnxfuse.runtime as r; r.make_session({str(model)!r}, provider='cuda')"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ONNXFUSE_NVRTC": "none", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    assert "fused nodes will not run on the GPU" in said
    assert "switched off" in said
