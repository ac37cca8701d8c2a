"""A GPU without memory, for real: what the error says, and that the process and its sessions go on afterwards.

The memory of the whole GPU is taken for a few seconds, so these tests run only where no other test does: not in a
worker of pytest-xdist. `pytest tests/gpu/test_gpu_memory.py` runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_corpus as corpus
import numpy as np
import pytest
from gpu_runner import Tensor, bind, compare, new_session, random

from onnxfuse.custom_ops.parser import parse

pytestmark = pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="takes the memory from other tests")
HERE = Path(__file__).resolve().parent

LARGE = (1 << 28,)  # elements of 4 bytes: more than is left in any arena
PROGRAMS = {
    **{f"chain-{n}": (corpus.chain("f32", n), ((100003,),)) for n in range(3, 15)},
    "softmax": (corpus.softmax("f32"), ((100, 16384),)),
    "layer_norm": (corpus.layer_norm("f16"), ((1000, 768), (768,), (768,))),
    "split": (corpus.mean_variance("f32"), ((2, 1000000),)),  # takes scratch memory
}


def take_all() -> list[Any]:
    """Tensors that leave less than a page of the GPU's memory."""
    import torch

    taken: list[Any] = []
    for size in (1 << 32, 1 << 28, 1 << 24, 1 << 21):
        while True:
            try:
                taken.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except RuntimeError:  # OutOfMemoryError, or without a cache AcceleratorError
                break
    return taken


def without_memory() -> None:
    """The process of the test: prints the errors met, as JSON, in its last line."""
    import torch

    errors: dict[str, str] = {}

    def attempt(name: str, run: Any) -> None:
        try:
            run()
            torch.cuda.synchronize()
        except Exception as error:
            errors[name] = str(error)

    text, _ = PROGRAMS["chain-3"]
    small = random((1000,), "f32", 0)
    node = new_session(text)
    expected = node.run(None, {"x0": small})
    kept: list[Tensor] = []  # a binding keeps addresses alone
    ready = []  # sessions that have not run: their kernels are loaded when there is no memory
    for text_of, shapes in PROGRAMS.values():
        tensors = parse(text_of)
        arrays = [random(s, t, k) for k, (s, (t, _)) in enumerate(zip(shapes, tensors.inputs, strict=True))]
        inputs = [Tensor(x.shape, t, 0, x) for x, (t, _) in zip(arrays, tensors.inputs, strict=True)]
        out = (2, 1) if len(tensors.outputs) > 1 else shapes[0]
        outputs = [Tensor(out, t) for t, _ in tensors.outputs]
        session = new_session(text_of)
        ready.append((text_of, arrays, outputs, session, bind(session, inputs, outputs)))
        kept += inputs
    large = np.ones(LARGE, np.float32)
    taken = take_all()
    attempt("large", lambda: node.run(None, {"x0": large}))
    for name, (_, _, _, session, binding) in zip(PROGRAMS, ready, strict=True):
        attempt(name, lambda session=session, binding=binding: session.run_with_iobinding(binding))  # type: ignore[misc]
    attempt("new session", lambda: new_session(PROGRAMS["softmax"][0]).run(None, {"x0": random((4, 100), "f32", 1)}))
    taken.clear()
    for text_of, arrays, outputs, session, binding in ready:
        session.run_with_iobinding(binding)
        torch.cuda.synchronize()
        compare(text_of, [y.numpy() for y in outputs], arrays, limit=64, floor=2e-3)
    assert all(np.array_equal(a, b) for a, b in zip(node.run(None, {"x0": small}), expected, strict=True))
    assert node.run(None, {"x0": large})[0].shape == LARGE
    print(json.dumps(errors), flush=True)


def test_sessions_go_on_when_there_is_memory_again() -> None:
    environment = os.environ | {
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path]),
    }
    script = "import test_gpu_memory; test_gpu_memory.without_memory()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip(), done.stderr[-3000:]  # ONNX Runtime may abort at exit
    errors = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(errors, indent=1))
    assert "large" in errors
    errors.pop("new session", None)  # is ONNX Runtime's own, and its libraries'
    for name, message in errors.items():
        assert "memory" in message.lower() or "alloc" in message.lower(), (name, message)
        if "onnxfuse" in message:
            assert "gpu_mem_limit" in message, (name, message)


def test_an_arena_that_is_too_small_says_what_to_do() -> None:
    text = corpus.chain("f32", 3)
    node = new_session(text, gpu_mem_limit=str(64 << 20), arena_extend_strategy="kSameAsRequested")
    fits = random((1 << 20,), "f32", 0)
    compare(text, node.run(None, {"x0": fits}), [fits], limit=64, floor=2e-3)
    x = Tensor((1 << 26,), "f32", 0, np.ones(1 << 26, np.float32))
    binding = node.io_binding()
    binding.bind_input("x0", "cuda", 0, np.float32, [1 << 26], x.pointer)
    binding.bind_output("y0", "cuda")
    with pytest.raises(Exception, match="gpu_mem_limit") as raised:
        node.run_with_iobinding(binding)
    assert "node" in str(raised.value)
    compare(text, node.run(None, {"x0": fits}), [fits], limit=64, floor=2e-3)


@pytest.mark.parametrize(
    ("variables", "words"),
    [({"CUDA_VISIBLE_DEVICES": "-1"}, "finds no GPU"), ({"ONNXFUSE_NVRTC": "none"}, "switched off")],
    ids=str,
)
def test_without_a_gpu_or_a_compiler_nodes_run_on_the_cpu(variables: dict[str, str], words: str) -> None:
    script = (
        "import numpy as np, onnxruntime as ort, cuda_corpus as corpus; from gpu_runner import model, library_path\n"
        "o = ort.SessionOptions(); o.log_severity_level = 0; o.register_custom_ops_library(str(library_path()))\n"
        "s = ort.InferenceSession(model(corpus.softmax('f32')).SerializeToString(), o, "
        "providers=['CUDAExecutionProvider', 'CPUExecutionProvider'])\n"
        "print('sum', s.run(None, {'x0': np.ones((2, 64), np.float32)})[0].sum())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])} | variables
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "sum 2.0" in done.stdout, done.stderr[-3000:]
    assert words in done.stderr
