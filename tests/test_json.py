"""What `--json` prints is what docs/guide/json.md says, field by field."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import onnx
import pytest
from test_cli import folder, gate, invoke  # noqa: F401 (a fixture)
from test_validate_parting import broken

from onnxfuse.benchmark.driver import KernelLaunch
from onnxfuse.benchmark.launch_cost import LaunchCost
from onnxfuse.benchmark.result import GraphCheck
from onnxfuse.capture import Obstacle
from onnxfuse.kernels import Compiled
from onnxfuse.report import Grouping

# Objects whose keys are the user's, and those of which the page says that they have the fields of another.
OPEN = ("session_ms", "cases[].dims")
ALIKE = (r"parting\.outputs\[\]", r"cases\[\]\.optimized", r"separate\[\]", r"capture\.placed\[\]")


def paths(value, at=""):
    if isinstance(value, dict) and at not in OPEN:
        for key, inner in value.items():
            here = f"{at}.{key}" if at else key
            yield here
            yield from paths(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{at}[]")


def fields(kind, at):
    return {f"{at}.{f.name}" for f in dataclasses.fields(kind)}


def printed(*arguments):
    """The fields that a command prints, but for those that are like others."""
    result = invoke(*arguments, "--json")
    assert result.exit_code in (0, 1), result.output
    found = set(paths(json.loads(result.stdout)))
    return {p for p in found if not any(re.match(rf"{a}(\.|$)", p + ".") and not re.fullmatch(a, p) for a in ALIKE)}


def documented(root, command):
    text = (root / "docs" / "guide" / "json.md").read_text("utf-8")
    section = text.split(f"\n## {command}\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def gate_and_more():
    """With an operator that is left."""
    model = gate()
    model.graph.node.add(op_type="Softmax", input=["y"], output=["z"], name="alone")
    model.graph.output[0].name = "z"
    return model


@pytest.fixture
def models(folder):  # noqa: F811
    onnx.save(broken(gate(), 0, b"mul", b"add"), "broken.onnx")
    onnx.save(gate_and_more(), "more.onnx")


def test_validate(root, models):
    assert printed("validate", "model.onnx", "broken.onnx") == documented(root, "validate")


def test_bench(root, models):
    found = printed("bench", "model.onnx", "--seconds", "0.1")
    kernels = "cases[].original.account.fused_kernels[][]"
    on_a_gpu = fields(LaunchCost, "launch_cost") | fields(KernelLaunch, kernels)
    on_a_gpu |= fields(GraphCheck, "cases[].graphs[]")
    assert (found | on_a_gpu) - {"cases[].optimized"} == documented(root, "bench")


def test_compile(root):
    made = Compiled(Path("kernels"), ("sm_90",), 1, 2, 3, 4, "12.8", (("node", "why"),))
    assert set(paths(made.to_dict())) == documented(root, "compile")


def test_explain(root, models):
    found = printed("explain", "more.onnx", "--min-nodes", "2")
    grouped = fields(Grouping, "groups[]") | {"groups[].launches_saved"}
    assert found | grouped | fields(Obstacle, "capture.obstacles[]") == documented(root, "explain")
