"""Checks what build_wheel.py made: what is in it, what the library needs, and that it works where nothing else is.

    check_wheel.py [--no-install]

Installs the wheel into a fresh environment (which downloads its dependencies and ONNX Runtime) and there optimizes,
validates and runs a model, outside of this tree.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
from check_exports import EXPECTED, exported

DIST = Path(__file__).resolve().parent.parent / "dist"
# What every Linux has: glibc in its parts.
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
IN_WHEEL = re.compile(
    r"onnxfuse/[\w/]+\.(py|toml|css|js)|onnxfuse/py\.typed|onnxfuse/cuda_kernels\.txt|onnxfuse/custom_ops/libonnxfuse\.so"
    r"|onnxfuse-[\w.]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|licenses/LICENSE)"
)
# Part of what a user needs to build and test.
IN_SDIST = ("pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "tests/conftest.py", "cuda_ops/register.cc")
NOT_IN_SDIST = re.compile(r"\.so$|\.pyc$|__pycache__|/\.|/models/cache|/build/|/dist/|/demo/|\.onnx$")
LARGEST = 12_000_000

USE = """
import numpy as np, onnx, onnxruntime, onnxfuse
from onnx import parser
onnx.save(parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
  g (float[n, 64] x) => (float[n, 64] y) { a = Tanh(x)  b = Mul(a, x)  y = Softmax(b) }'''), "in.onnx")
result = onnxfuse.optimize("in.onnx", target="cpu")
assert result.report.fusions, result.report
result.save("out.onnx")
assert onnxfuse.validate("in.onnx", "out.onnx", dims={"n": 5}).ok
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(str(onnxfuse.library_path()))
x = np.linspace(-3, 3, 192, dtype=np.float32).reshape(3, 64)
y = onnxruntime.InferenceSession("out.onnx", options).run(None, {"x": x})[0]
e = np.exp(np.tanh(x) * x)
np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
print(onnxfuse.library_path())
"""


def problems_of_wheel(wheel: Path) -> list[str]:
    found = []
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        found += [f"{wheel.name} holds {n}" for n in names if not n.endswith("/") and not IN_WHEEL.fullmatch(n)]
        found += [f"{wheel.name} lacks a licence" for _ in [0] if not any(n.endswith("/LICENSE") for n in names)]
        library = archive.extract("onnxfuse/custom_ops/libonnxfuse.so", folder)
        needed = _output("readelf", "--dynamic", library)
        found += [f"the library needs {n}" for n in re.findall(r"NEEDED.*\[(.*)\]", needed) if n not in GLIBC]
        found += ["the library has a run path"] if "RUNPATH" in needed or "RPATH" in needed else []
        versions = re.findall(r"GLIBC_2\.(\d+)", _output("readelf", "--version-info", "--wide", library))
        newest = max(map(int, versions))
        allowed = int(re.search(r"manylinux_2_(\d+)", wheel.name)[1])  # type: ignore[index]
        found += [f"the library needs glibc 2.{newest}"] if newest > allowed else []
        found += [f"the library shows {n}" for n in exported(library) ^ EXPECTED]
        if str(DIST.parent).encode() in Path(library).read_bytes():
            found.append("the library names a folder of the machine that built it")
    if wheel.stat().st_size > LARGEST:
        found.append(f"{wheel.name} has {wheel.stat().st_size} bytes")
    return found


def problems_of_sdist(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        names = [m.name.split("/", 1)[1] for m in archive.getmembers() if "/" in m.name]
    found = [f"{sdist.name} holds {n}" for n in names if NOT_IN_SDIST.search("/" + n)]
    return found + [f"{sdist.name} lacks {n}" for n in IN_SDIST if n not in names]


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def install_and_use(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "ONNXFUSE_LIBRARY")}
        venv.create(Path(folder) / "env", with_pip=True)
        python = Path(folder) / "env" / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        subprocess.run([*pip, f"{wheel}[cpu]"], check=True, env=env)
        subprocess.run([python, "-c", USE], check=True, env=env, cwd=folder)
        command = python.parent / "onnxfuse"
        for arguments in (
            ("--version",),
            ("optimize", "in.onnx", "again.onnx", "--target", "cpu", "--report", "page.html"),
            ("validate", "in.onnx", "again.onnx", "--dim", "n=7"),
            ("restore", "again.onnx", "plain.onnx"),
            ("validate", "in.onnx", "plain.onnx"),
        ):
            subprocess.run([command, *arguments], check=True, env=env, cwd=folder)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--no-install", action="store_true", help="only look at what is in the files")
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    if found := problems_of_wheel(wheel) + problems_of_sdist(sdist):
        print("\n".join(found), file=sys.stderr)
        return 1
    if not arguments.parse_args().no_install:
        install_and_use(wheel)
    print(f"{wheel.name} and {sdist.name} are fit to publish")
    return 0


if __name__ == "__main__":
    sys.exit(main())
