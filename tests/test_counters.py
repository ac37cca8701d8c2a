"""bench/gpu_counters.py where there is no GPU: the table that it makes of what ncu printed elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STALLS = ("long_scoreboard", "short_scoreboard", "barrier")
NAMES = ["ID", "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"]
NAMES += ["dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm__warps_active.avg.pct_of_peak_sustained_active"]
NAMES += [
    "launch__registers_per_thread",
    *(f"smsp__average_warps_issue_stalled_{s}_per_issue_active.ratio" for s in STALLS),
]


def printed(values: list[list[str]], marks: list[str]) -> str:
    """As ncu prints a table, its line of units included, between what the program itself prints."""
    rows = [NAMES, ["", *["unit"] * (len(NAMES) - 1)], *values]
    table = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return "\n".join(["==PROF== Connected", *(f"LINE {mark}" for mark in marks), *table]) + "\n"


def counters(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "bench/gpu_counters.py", "--from", str(file)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parent.parent)


def test_table(tmp_path: Path) -> None:
    first = ["0", "9,000", "9,000,000", "9,000,000", "9.0", "9.0", "9", "9.0", "9.0", "9.0"]
    second = ["1", "64,224", "134,244,608", "112,696,064", "79.9", "38.1", "66", "15.91", "3.17", "0.66"]
    file = tmp_path / "ncu.csv"
    file.write_text(printed([first, second], ["fp32 a line"]), encoding="utf-8")
    done = counters(file)
    assert done.returncode == 0, done.stderr
    assert "| fp32 a line | 64.2 | 134 | 113 | 80 % | 38 % | 66 | 15.9 | 3.2 | 0.7 |" in done.stdout


@pytest.mark.parametrize("marks", [["one", "two"], []])
def test_kernels_that_belong_to_no_line(tmp_path: Path, marks: list[str]) -> None:
    file = tmp_path / "ncu.csv"
    file.write_text(printed([["0", *["1"] * (len(NAMES) - 1)]], marks), encoding="utf-8")
    done = counters(file)
    assert done.returncode != 0
    assert "do not belong" in done.stderr
