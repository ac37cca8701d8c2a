"""The CUDA engine in ONNX Runtime sessions: graphs, threads, repeats, large tensors, the kernel cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import cuda_corpus as corpus
import numpy as np
import pytest
from gpu_runner import Tensor, bind, compare, new_session, random, run

from onnxfuse.custom_ops.parser import parse

PROGRAMS = {
    "elementwise": (corpus.chain("f32", 12), ((1000003,),)),
    "row": (corpus.layer_norm("f16"), ((1000, 768), (768,), (768,))),
    "block": (corpus.softmax("f32"), ((100, 16384),)),
    "long": (corpus.softmax("f32"), ((100, 50001),)),
    "split": (corpus.mean_variance("f32"), ((2, 1000000),)),
    "column": (corpus.softmax("f32", "", "d0 | d1{} | d2", "d0, d1, d2"), ((8, 256, 196),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_repeats_are_bit_identical(name: str) -> None:
    import torch

    text, shapes = PROGRAMS[name]
    tensors = parse(text)
    inputs = [
        Tensor(s, t, 0, random(s, t, k)) for k, (s, (t, _)) in enumerate(zip(shapes, tensors.inputs, strict=True))
    ]
    out_shape = {"split": (2, 1)}.get(name, shapes[0])
    outputs = [Tensor(out_shape, t) for t, _ in tensors.outputs]
    node = new_session(text)
    binding = bind(node, inputs, outputs)
    first = None
    for _ in range(200):
        node.run_with_iobinding(binding)
        torch.cuda.synchronize()
        bits = [y.memory.clone() for y in outputs]
        first = first or bits
        assert all(torch.equal(a, b) for a, b in zip(first, bits, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_cuda_graph(name: str) -> None:
    """Captured in the first runs, replayed with other data afterwards."""
    import torch

    text, shapes = PROGRAMS[name]
    tensors = parse(text)
    arrays = [random(s, t, k) for k, (s, (t, _)) in enumerate(zip(shapes, tensors.inputs, strict=True))]
    inputs = [Tensor(x.shape, t, 0, x) for x, (t, _) in zip(arrays, tensors.inputs, strict=True)]
    out_shape = {"split": (2, 1)}.get(name, shapes[0])
    outputs = [Tensor(out_shape, t) for t, _ in tensors.outputs]
    node = new_session(text, enable_cuda_graph="1")
    binding = bind(node, inputs, outputs)
    for repeat in range(4):
        fresh = [
            random(s, t, 10 * repeat + k) for k, (s, (t, _)) in enumerate(zip(shapes, tensors.inputs, strict=True))
        ]
        for x, array in zip(inputs, fresh, strict=True):
            x.memory[: x.size] = torch.from_numpy(array.reshape(-1).view(np.uint8)).cuda()
        torch.cuda.synchronize()
        node.run_with_iobinding(binding)
        torch.cuda.synchronize()
        compare(text, [y.numpy() for y in outputs], fresh, limit=64, floor=2e-3)


def test_two_threads_on_one_session() -> None:
    """Each with shapes of its own, so that both compile and launch at a time."""
    import torch

    text = corpus.softmax("f32")
    node = new_session(text)
    errors: list[str] = []

    def work(seed: int) -> None:
        try:
            for k in range(30):
                n = 100 + 37 * ((seed + k) % 10) + 500 * seed
                x = random((7, n), "f32", seed)
                source, target = Tensor(x.shape, "f32", 0, x), Tensor(x.shape, "f32")
                torch.cuda.synchronize()
                node.run_with_iobinding(bind(node, [source], [target]))
                torch.cuda.synchronize()
                compare(text, [target.numpy()], [x], limit=24, floor=0)
        except BaseException as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_user_stream() -> None:
    import torch

    text = corpus.chain("f32", 3)
    stream = torch.cuda.Stream()
    node = new_session(text, user_compute_stream=str(stream.cuda_stream))
    x = random((1 << 20,), "f32")
    source, target = Tensor(x.shape, "f32", 0, x), Tensor(x.shape, "f32")
    torch.cuda.synchronize()
    node.run_with_iobinding(bind(node, [source], [target]))
    stream.synchronize()
    compare(text, [target.numpy()], [x], limit=4, floor=0)


def test_more_than_2_to_the_31_elements() -> None:
    import torch

    count = (1 << 31) + 1003
    text = corpus.chain("f16", 3)
    x = torch.empty(count, dtype=torch.float16, device="cuda")
    y = torch.full_like(x, float("nan"))
    for k in range(0, count, 1 << 28):
        x[k : k + (1 << 28)].normal_()
    node = new_session(text)
    binding = node.io_binding()
    binding.bind_input("x0", "cuda", 0, np.float16, [count], x.data_ptr())
    binding.bind_output("y0", "cuda", 0, np.float16, [count], y.data_ptr())
    torch.cuda.synchronize()
    node.run_with_iobinding(binding)
    torch.cuda.synchronize()
    for k in range(0, count, 1 << 28):
        part = x[k : k + (1 << 28)].float()
        expected = torch.relu(part + 0.125).mul_(0.875).half()
        assert torch.equal(expected, y[k : k + (1 << 28)]), f"differs from element {k} on"


@pytest.mark.parametrize("axis", ["row", "column", "bias"])
def test_reductions_and_broadcasts_beyond_2_to_the_31_elements(axis: str) -> None:
    import torch

    shape = {"row": (1100001, 2048), "column": (3, 1100001, 704), "bias": (1100001, 2048)}[axis]
    x = torch.empty(shape, dtype=torch.float16, device="cuda")
    for part in x.view(-1).split(1 << 28):
        part.normal_()
    text = {
        "row": corpus.reduction("reduce_max", "f16"),
        "column": corpus.reduction("reduce_max", "f16", "d0 | d1 | d2", "d0, d1, d2", "d0, d2"),
        "bias": corpus.program(
            "d0 d1",
            "%0 = input 0 f16 [d0, d1]",
            "%1 = input 1 f16 [d0, 0]",
            "%2 = add f32 %0 %1",
            "output 0 f16 [d0, d1] %2",
        ),
    }[axis]
    node = new_session(text)
    binding = node.io_binding()
    binding.bind_input("x0", "cuda", 0, np.float16, list(shape), x.data_ptr())
    bias = torch.randn((shape[0], 1), device="cuda").half()
    if axis == "bias":
        binding.bind_input("x1", "cuda", 0, np.float16, list(bias.shape), bias.data_ptr())
    out_shape = {"row": shape[:1], "column": (shape[0], shape[-1]), "bias": shape}[axis]
    y = torch.full(out_shape, float("nan"), dtype=torch.float16, device="cuda")
    binding.bind_output("y0", "cuda", 0, np.float16, list(y.shape), y.data_ptr())
    torch.cuda.synchronize()
    node.run_with_iobinding(binding)
    torch.cuda.synchronize()
    if axis == "bias":
        for a, b, c in zip(x.split(1 << 17), bias.split(1 << 17), y.split(1 << 17), strict=True):
            assert torch.equal(a + b, c)
    else:
        assert torch.equal(x.amax(1), y)


def test_float32_in_place_of_float16() -> None:
    """A wider tensor than the program declares: the result is rounded through the declared type."""
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

    text = corpus.chain("f16", 3)
    x = random((1000,), "f16")
    (half,) = run(text, x)
    try:
        wide = new_session(text.replace("input 0 f16", "input 0 f32").replace("output 0 f16", "output 0 f32"))
    except (Fail, InvalidArgument) as error:
        pytest.fail(str(error))
    source, target = Tensor(x.shape, "f32", 0, x.astype(np.float32)), Tensor(x.shape, "f32")
    wide.run_with_iobinding(bind(wide, [source], [target]))
    np.testing.assert_array_equal(target.numpy().astype(np.float16), half)


def cached_run(folder: Path) -> str:
    """Compiles and runs a program in a process of its own; prints a checksum of the result."""
    script = (
        "import cuda_corpus as c\nfrom gpu_runner import run, random\n"
        "print(run(c.softmax('f32'), random((7, 300), 'f32'))[0].tobytes().hex()[:400])\n"
    )
    here = Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here), str(here.parent), str(here.parent.parent)])
    environment = os.environ | {
        "ONNXFUSE_CACHE_DIR": str(folder),
        "PYTHONPATH": paths + os.pathsep + os.environ.get("PYTHONPATH", ""),
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.split()
    assert lines, done.stderr[-2000:]  # ONNX Runtime may abort at exit
    return lines[-1]


def test_kernel_cache(tmp_path: Path) -> None:
    """Cold, warm, and with every file spoilt in one way or another: always the same result."""
    folder = tmp_path / "cache" / "kernels"
    cold = cached_run(folder)
    files = sorted(folder.iterdir())
    assert files
    assert folder.stat().st_mode & 0o077 == 0
    times = [f.stat().st_mtime_ns for f in files]
    assert cached_run(folder) == cold
    assert [f.stat().st_mtime_ns for f in files] == times, "the second run compiled again"
    whole = files[0].read_bytes()
    for spoilt in (b"", whole[:50], whole[:-1], whole[:200] + b"?" + whole[201:], whole + b"?"):
        files[0].write_bytes(spoilt)
        assert cached_run(folder) == cold
        assert files[0].read_bytes() == whole
    folder.chmod(0o777)  # somebody else's file could run on the GPU
    files[0].write_bytes(b"")
    assert cached_run(folder) == cold
    assert files[0].read_bytes() == b""
