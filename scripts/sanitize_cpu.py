#!/usr/bin/env python3
"""The CPU suite under the address and undefined-behaviour sanitizers, the engine's check under the thread sanitizer.

    sanitize_cpu.py [--build build/sanitize] [TEST ...]

Builds the library with -DONNXFUSE_SANITIZE=address,undefined beside a copy of the package, runs the tests (those of the
CPU engine and of bad programs, where none are named) with the sanitizers' runtime preloaded, then builds and runs
onnxfuse-cpucheck with -DONNXFUSE_SANITIZE=thread. The exit code is 0 where all passed and nothing was found. Takes some
minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = [
    f"tests/test_{name}.py"
    for name in (
        "cpu_engine",
        "cpu_bytes",
        "cpu_columns",
        "cpu_moments",
        "cpu_softmax",
        "cpu_primitives",
        "cpu_scans",
        "program_errors",
    )
]


def build(folder: Path, sanitizers: str, target: str, output: Path) -> None:
    options = [f"-DONNXFUSE_SANITIZE={sanitizers}", "-DONNXFUSE_CUDA=OFF", f"-DONNXFUSE_OUTPUT={output}"]
    subprocess.run(["cmake", "-S", str(ROOT), "-B", str(folder), *options], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--parallel", "2", "--target", target], check=True)


def runtime(name: str) -> str:
    """The compiler's shared library of this name."""
    done = subprocess.run(["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run_tests(folder: Path, tests: list[str]) -> int:
    tree = folder / "tree"
    shutil.copytree(ROOT / "onnxfuse", tree / "onnxfuse", ignore=shutil.ignore_patterns("*.so"), dirs_exist_ok=True)
    env = dict(
        os.environ,
        PYTHONPATH=str(tree),
        LD_PRELOAD=f"{runtime('libasan.so')} {runtime('libubsan.so')} {runtime('libstdc++.so')}",
        ASAN_OPTIONS="detect_leaks=0:handle_segv=1",  # Python itself never frees everything
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
    )
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sanitize")
    parser.add_argument("tests", nargs="*", default=TESTS)
    arguments = parser.parse_args()
    folder = arguments.build.resolve()
    build(folder / "address", "address,undefined", "onnxfuse", folder / "address" / "tree" / "onnxfuse" / "custom_ops")
    status = run_tests(folder / "address", arguments.tests)
    build(folder / "thread", "thread", "onnxfuse-cpucheck", folder / "thread")
    return status or subprocess.run([str(folder / "thread" / "onnxfuse-cpucheck")], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
