"""Scans whose blocks take tiles in turns: what they stage of their inputs fits into a block's shared memory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cuda_corpus import Case, program
from scan_corpus import COLUMNS, ROWS

# Bytes that a block may have, by the programming guide's table of compute capabilities.
LIMITS = {75: 64 << 10, 80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}


def scan_of(count: int, type_: str, layout: tuple[str, str], shape: tuple[int, ...]) -> Case:
    """A running sum of what is computed of so many tensors."""
    space, dims = layout
    lines, last, number = [f"%0 = input 0 {type_} [{dims}]"], 0, 1
    for k in range(1, count):
        lines += [f"%{number} = input {k} {type_} [{dims}]", f"%{number + 1} = mul f32 %{last} %{number}"]
        last, number = number + 1, number + 2
    lines.append(f"%{number} = scan_sum f32 %{last}")
    return Case("scan", program(space, *lines, f"output 0 {type_} [{dims}] %{number}"), (shape,) * count)


@pytest.mark.parametrize("architecture", LIMITS)
@pytest.mark.parametrize("type_", ["f32", "f16"])
@pytest.mark.parametrize(
    ("layout", "shape"),
    [(COLUMNS, (1, 16384, 4096)), (ROWS, (64, 1000000)), (ROWS, (1, 1 << 22))],
    ids=["columns", "rows", "a row"],
)
def test_staged_inputs_fit(
    compiler: Path, layout: tuple[str, str], shape: tuple[int, ...], type_: str, architecture: int
) -> None:
    found = []
    for count in range(1, 9):
        request = scan_of(count, type_, layout, shape).request((architecture,))
        done = subprocess.run([str(compiler), "--source"], input=request, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(max(int(n) for n in re.findall(r"(\d+) bytes of shared memory", done.stdout)))
    assert all(size <= LIMITS[architecture] for size in found), found
    assert found[0] > 0  # one input goes in tiles everywhere
