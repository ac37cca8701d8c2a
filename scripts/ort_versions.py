"""Runs the CPU library's tests on several versions of ONNX Runtime: python scripts/ort_versions.py.

Each version gets a virtual environment of its own in --folder, made once. What is tested is the package of this tree
with the library built in it (`make build`): one build serves them all. Prints a line for each version; exits 1 where a
test failed on one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The oldest whose ABI the library uses, some of each year since, and the newest.
VERSIONS = ("1.18.1", "1.20.1", "1.22.1", "1.27.0", "1.32.0")
# The first that takes numpy 2.
NUMPY_2 = (1, 19)
PACKAGES = ("onnx>=1.17,<2", "onnx-graphsurgeon>=0.6.1,<0.7", "ml_dtypes", "typer", "rich", "pytest", "hypothesis")
TESTS = (
    "test_library.py", "test_cpu_engine.py", "test_cpu_bytes.py", "test_cpu_primitives.py", "test_cpu_scans.py",
    "test_cpu_concurrency.py", "test_in_place.py", "test_in_place_programs.py", "test_overloads.py", "test_retype.py",
    "test_bodies.py", "test_runtime_axes.py", "test_counted_extents.py",
)  # fmt: skip


def environment(version: str, folder: Path) -> Path:
    """The Python of the version's environment."""
    home = folder / version
    python = home / "bin" / "python"
    if not (home / ".complete").exists():
        venv.create(home, with_pip=True, clear=True)
        major, minor = map(int, version.split(".")[:2])
        numpy = "numpy>=1.26" if (major, minor) >= NUMPY_2 else "numpy>=1.26,<2"
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"onnxruntime=={version}"]
        subprocess.run([*command, numpy, *PACKAGES], check=True)
        (home / ".complete").touch()
    return python


def run(python: Path, tests: list[str]) -> tuple[bool, str]:
    """Whether the tests passed, and pytest's last line or the failures."""
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [str(python), "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    failed = [line for line in lines if re.match(r"(FAILED|ERROR) ", line)]
    return done.returncode == 0, "\n".join([*failed, *lines[-1:], *done.stderr.splitlines()[-5:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "ort-versions")
    args = parser.parse_args()
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    passed = True
    for version in args.versions:
        good, text = run(environment(version, args.folder), tests)
        passed &= good
        print(f"onnxruntime {version}: {text}", flush=True)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
