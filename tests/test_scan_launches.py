"""What a long scan asks of the driver: memory set to 0 only where its kernel does not do that itself."""

from __future__ import annotations

from pathlib import Path

import scan_corpus as corpus
from cuda_corpus import Case
from cuda_tools import FakeCuda


def calls(fake_cuda: FakeCuda, folder: Path, case: Case, **variables: object) -> list[str]:
    file = folder / "calls"
    out, err = fake_cuda.run(case.request((90,)), FAKE_CUDA_CALLS=file, **variables)
    assert (out, err) == (f"{case.name} ran\n", "")
    return file.read_text().splitlines()


ROW = Case("row", corpus.scan("f32"), ((1, 1 << 20),))
COLUMNS = Case("columns", corpus.scan("f32", layout=corpus.COLUMNS), ((1, 1 << 16, 16),))


def test_a_row_on_a_stream(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    assert calls(fake_cuda, tmp_path, ROW) == ["dependent launch"]


def test_a_row_in_a_graph(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    """It may be launched on any stream."""
    assert calls(fake_cuda, tmp_path, ROW, FAKE_CUDA_CAPTURE=1) == ["zeros", "launch"]


def test_columns(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    """Their kernels clear nothing themselves."""
    assert calls(fake_cuda, tmp_path, COLUMNS) == ["zeros", "launch"]


def test_many_rows(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    """More tiles than one block clears nodes for while others copy theirs."""
    case = Case("rows", corpus.scan("u8"), ((40000, 20000),))
    assert calls(fake_cuda, tmp_path, case) == ["zeros", "launch"]
