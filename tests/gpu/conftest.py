"""The GPU suite: skipped, with the reason, where ONNX Runtime has no CUDA provider or there is no GPU."""

from __future__ import annotations

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if REASON is None:
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=REASON))
