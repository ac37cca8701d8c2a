"""What the library says where the driver, NVRTC or the GPU is not what it needs; libraries that play them stand in."""

from __future__ import annotations

from pathlib import Path

import cuda_corpus
import pytest
from cuda_tools import FakeCuda

CASE = next(cuda_corpus.schedules())
REQUEST = CASE.request((90,))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_all_is_well(fake_cuda: FakeCuda) -> None:
    assert fake_cuda.run(REQUEST) == (f"{CASE.name} ran\n", "")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"LD_LIBRARY_PATH": "/nowhere"}, ("libcuda.so.1", "not installed", "--gpus")),
        ({"FAKE_CUDA_VERSION": 11080}, ("supports CUDA 11.8", "12.0 or later", "525")),
        ({"FAKE_CUDA_DEVICES": 0}, ("finds no GPU", "CUDA_VISIBLE_DEVICES")),
        ({"FAKE_CUDA_INIT": 100}, ("finds no GPU", "CUDA_VISIBLE_DEVICES")),
        ({"FAKE_CUDA_INIT": 803}, ("finds no GPU", "different versions", "restart")),
        ({"ONNXFUSE_NVRTC": "/nowhere/libnvrtc.so"}, ("NVRTC", "/nowhere/libnvrtc.so", 'pip install "onnxfuse[cuda]"')),
        ({"ONNXFUSE_NVRTC": "none"}, ("switched off",)),
        ({"FAKE_NVRTC_MAJOR": 14}, ("of CUDA 14.0, newer than the driver, which supports CUDA 13",)),
    ],
    ids=lambda v: "-".join(f"{k}={x}" for k, x in v.items()).replace("/", "_") if isinstance(v, dict) else "",
)
def test_no_kernels_are_registered(fake_cuda: FakeCuda, variables: dict[str, object], words: tuple[str, ...]) -> None:
    """`cuda_available` says no and why; registration then leaves the nodes to the CPU."""
    out, err = fake_cuda.run(REQUEST, **variables)
    assert out == ""
    assert "no CUDA kernels" in err
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"FAKE_CUDA_LAUNCH": 2}, ("cuLaunchKernel", "out of memory", "gpu_mem_limit")),
        ({"FAKE_CUDA_LOAD": 2}, ("cuLibraryLoadData", "out of memory", "gpu_mem_limit")),
        ({"FAKE_CUDA_LOAD": 209}, ("cuLibraryLoadData", "another GPU", "onnxfuse compile --arch")),
        ({"FAKE_CUDA_LOAD": 222}, ("cuLibraryLoadData", "newer than the driver", "nvidia-smi")),
    ],
    ids=str,
)
def test_errors_of_the_gpu_say_what_to_do(
    fake_cuda: FakeCuda, variables: dict[str, object], words: tuple[str, ...]
) -> None:
    out, err = fake_cuda.run(REQUEST, **variables)
    assert out == ""
    for word in words:
        assert word in err


def test_a_gpu_newer_than_the_compiler_gets_ptx(fake_cuda: FakeCuda) -> None:
    """And one older than all that it knows a message."""
    assert fake_cuda.run(REQUEST, FAKE_CUDA_ARCH=120)[0] == f"{CASE.name} ran\n"
    _, err = fake_cuda.run(REQUEST, FAKE_CUDA_ARCH=75)
    assert "compiles for no architecture up to sm_75" in err


def test_the_compiler_may_be_older_than_the_driver(fake_cuda: FakeCuda) -> None:
    assert fake_cuda.run(REQUEST, FAKE_NVRTC_MAJOR=12)[0] == f"{CASE.name} ran\n"


def test_a_library_that_is_no_nvrtc(fake_cuda: FakeCuda) -> None:
    _, err = fake_cuda.run(REQUEST, ONNXFUSE_NVRTC=fake_cuda.folder / "libcuda.so.1")
    assert "is older than CUDA 11.2" in err
