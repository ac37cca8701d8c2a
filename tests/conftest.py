"""What all tests share: which package is under test, and the repository's other folders on sys.path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cuda_tools import compiler, fake_cuda, nvrtc  # noqa: F401  fixtures

import onnxfuse

ROOT = Path(__file__).resolve().parent.parent

# `models` and `bench` are no part of the package. At the end of the path: the tree's onnxfuse must not hide the
# installed one, which has the library.
sys.path.append(str(ROOT))


def pytest_report_header() -> str:
    return f"onnxfuse: {Path(onnxfuse.__file__).parent}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Stops where the package under test has no library, instead of failing in each test that needs it."""
    package = Path(onnxfuse.__file__).parent
    if not list((package / "custom_ops").glob("*onnxfuse*.so")):
        pytest.exit(
            f"{package} has no built library: run `make test`, or `make build` and then `PYTHONPATH=$PWD pytest`",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT
