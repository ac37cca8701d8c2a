"""The tool onnxfuse-nvcompile and the libraries that play CUDA, for tests without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from onnxfuse.custom_ops.library import find_nvrtc

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tool onnxfuse-nvcompile, built once; ONNXFUSE_NVCOMPILE names one that is built already."""
    if "ONNXFUSE_NVCOMPILE" in os.environ:
        return Path(os.environ["ONNXFUSE_NVCOMPILE"])
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake to build onnxfuse-nvcompile")
    # One of several test processes builds it, in the folder that they share.
    own = tmp_path_factory.getbasetemp()
    build = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "nvcompile"
    build.mkdir(exist_ok=True)
    import fcntl

    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"],
            ["cmake", "--build", str(build), "--target", "onnxfuse-nvcompile", "--parallel", "2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return build / "onnxfuse-nvcompile"


@pytest.fixture(scope="session")
def nvrtc() -> str:
    found = os.environ.get("ONNXFUSE_NVRTC") or find_nvrtc()
    if not found:
        pytest.skip('needs NVRTC: pip install "onnxfuse[cuda]" or nvidia-cuda-nvrtc')
    return str(found)


@dataclass(frozen=True)
class FakeCuda:
    """A folder with a driver and a compiler that only play ones, and the tool to run the engine on them."""

    tool: Path
    folder: Path
    nvrtc: Path
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self, **variables: object) -> dict[str, str]:
        """None in place of a value takes the variable away."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ONNXFUSE_", "FAKE_", "XDG_"))}
        kept |= {"LD_LIBRARY_PATH": str(self.folder), "ONNXFUSE_NVRTC": str(self.nvrtc)} | self.variables
        kept |= {k: str(v) for k, v in variables.items() if v is not None}
        return {k: v for k, v in kept.items() if variables.get(k, v) is not None}

    def start(self, request: str, *steps: str, **variables: object) -> subprocess.Popen[str]:
        """Runs each case of the request on its own, or plays a session of all of them (cuda/tools/session.h)."""
        process = subprocess.Popen(
            [str(self.tool), *(("--session", *steps) if steps else ("--run",))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment(**variables),
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, request: str, *steps: str, **variables: object) -> tuple[str, str]:
        """Standard output and standard error of the tool, which must not crash."""
        with self.start(request, *steps, **variables) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode in (0, 1), f"exit code {process.returncode}: {err}"
        return out, err


@pytest.fixture(scope="session")
def fake_cuda(compiler: Path, tmp_path_factory: pytest.TempPathFactory) -> FakeCuda:
    """A driver for a GPU of architecture 90 and an NVRTC, as tests/fakes has them."""
    gxx = shutil.which(os.environ.get("CXX", "g++"))
    if gxx is None:
        pytest.skip("needs a C++ compiler")
    folder = tmp_path_factory.mktemp("fake-cuda")
    for name, file in (("libcuda", "libcuda.so.1"), ("libnvrtc", "libfakenvrtc.so")):
        source = ROOT / "tests" / "fakes" / f"{name}.cc"
        command = [gxx, "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-o", str(folder / file), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return FakeCuda(compiler, folder, folder / "libfakenvrtc.so")
