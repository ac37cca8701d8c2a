"""Equal input gives equal bytes: twice in a process, and in processes whose strings hash differently."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from random_graphs import random_model

import onnxfuse

SEEDS = range(3000, 3012)
SCRIPT = """
import hashlib, sys
import onnx, onnxfuse
for name in sys.argv[1:]:
    optimized = onnxfuse.optimize(name, target="cuda", min_nodes=1)
    optimized.save(name + ".out")
    onnxfuse.restore(name + ".out").save(name + ".plain")
    for file in (name + ".out", name + ".plain"):
        print(hashlib.sha256(open(file, "rb").read()).hexdigest())
    print([(f.op_type, f.name, f.inputs, f.outputs, f.program) for f in optimized.report.fusions])
    print([(r.node, r.reason) for r in optimized.report.refusals])
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    for seed in SEEDS:
        onnx.save(random_model(seed)[0], folder / f"{seed}.onnx")
    return sorted(folder.iterdir())


def written(files: list[Path], seed: str) -> str:
    variables = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, *map(str, files)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_across_processes_and_hash_seeds(files: list[Path]) -> None:
    first = written(files, "0")
    assert "Fused" in first
    assert [written(files, seed) for seed in ("1", "4242", "random")] == [first] * 3


def test_twice_in_one_process(files: list[Path]) -> None:
    def digest(model: onnx.ModelProto) -> str:
        return hashlib.sha256(model.SerializeToString()).hexdigest()

    for file in files:
        for target in ("cpu", "cuda"):
            first, second = (onnxfuse.optimize(file, target=target).model for _ in range(2))
            assert digest(first) == digest(second)
            assert digest(onnxfuse.restore(first).model) == digest(onnxfuse.restore(second).model)
