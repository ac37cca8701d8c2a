"""The GPU suite: skipped, with the reason, where ONNX Runtime has no CUDA provider or there is no GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def reason_to_skip() -> str | None:
    try:
        import onnxruntime
        import torch
    except ImportError as error:
        return f"needs {error.name}"
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return "this ONNX Runtime has no CUDA provider"
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    return None


REASON = reason_to_skip()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """ONNXFUSE_TEST_PART=K/N runs every N-th test of this folder from the K-th on: N processes share the suite."""
    if part := os.environ.get("ONNXFUSE_TEST_PART"):
        first, step = map(int, part.split("/"))
        own = [item for item in items if HERE in item.path.parents]
        others = {id(item) for item in own} - {id(item) for item in own[first::step]}
        config.hook.pytest_deselected(items=[item for item in items if id(item) in others])
        items[:] = [item for item in items if id(item) not in others]
    if REASON is None:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=REASON))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tells of a failure at once: a run that is cut short would lose it."""
    if report.failed and HERE.name + "/" in report.nodeid and not hasattr(report, "node"):  # node: a worker of xdist
        text = str(report.longrepr)
        errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        sys.__stderr__.write(
            f"\nFAILED {report.nodeid}: {(errors or text.splitlines())[-1 if not errors else 0][:600]}\n"
        )
        sys.__stderr__.flush()
