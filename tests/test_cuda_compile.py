"""The generated CUDA kernels compile with NVRTC, for every architecture and without spilling; no GPU is needed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axes_corpus
import cuda_corpus
import pytest
import roll_corpus
import scan_corpus

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
# Bytes that may go to local memory around the calls of double-precision division.
SPILL_LIMIT = 16


def compile_all(
    compiler: Path, nvrtc: str, cases: list[cuda_corpus.Case], architectures: tuple[int, ...], *options: str
) -> None:
    requests = "".join(case.request(architectures) for case in cases)
    done = subprocess.run(
        [str(compiler), *options],
        input=requests,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ONNXFUSE_NVRTC": nvrtc},
    )
    assert done.returncode == 0, done.stderr[:5000]
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {(row[0], int(row[1])) for row in rows} == {(c.name, a) for c in cases for a in architectures}
    spills = [row for row in rows if int(row[5]) > SPILL_LIMIT]
    largest = max(rows, key=lambda row: int(row[3]))
    print(f"{len(rows)} kernels, at most {largest[3]} registers ({largest[0]} on sm_{largest[1]})")
    assert not spills, f"spilling kernels (name, architecture, function, registers, stack, spills): {spills}"


def batches(cases: Iterator[cuda_corpus.Case], size: int) -> list[list[cuda_corpus.Case]]:
    listed = list(cases)
    return [listed[k : k + size] for k in range(0, len(listed), size)]


def first_and_last(batch: list[cuda_corpus.Case]) -> str:
    return f"{batch[0].name}..{batch[-1].name}"


@pytest.mark.parametrize("batch", batches(cuda_corpus.primitives(), 60), ids=first_and_last)
def test_primitives(compiler: Path, nvrtc: str, batch: list[cuda_corpus.Case]) -> None:
    compile_all(compiler, nvrtc, batch, (90,))


@pytest.mark.parametrize("batch", batches(cuda_corpus.reductions(), 60), ids=first_and_last)
def test_reductions(compiler: Path, nvrtc: str, batch: list[cuda_corpus.Case]) -> None:
    compile_all(compiler, nvrtc, batch, (90,))


@pytest.mark.parametrize("batch", batches(cuda_corpus.schedules(), 40), ids=first_and_last)
def test_schedules(compiler: Path, nvrtc: str, batch: list[cuda_corpus.Case]) -> None:
    compile_all(compiler, nvrtc, batch, (90,))


@pytest.mark.parametrize("batch", batches(scan_corpus.operations(), 60), ids=first_and_last)
def test_scans_and_arguments(compiler: Path, nvrtc: str, batch: list[cuda_corpus.Case]) -> None:
    compile_all(compiler, nvrtc, batch, (90,))


def test_rolls(compiler: Path, nvrtc: str) -> None:
    compile_all(compiler, nvrtc, [*roll_corpus.cases("f32"), *roll_corpus.cases("f16")], (75, 90, 120))


def test_every_set_of_axes(compiler: Path, nvrtc: str) -> None:
    """All that a run's axes can make of a program."""
    cases = []
    for name, (text, shapes, counts) in axes_corpus.CASES.items():
        scalar = cuda_corpus.parse(text).inputs[0][1] == 0
        for count in counts:
            axes = () if scalar else (count,)
            cases.append(cuda_corpus.Case(f"{name}-{count}".replace(" ", "-"), text, (axes, *shapes)))
    compile_all(compiler, nvrtc, cases, (90,))


@pytest.mark.parametrize("batch", batches(scan_corpus.schedules(), 40), ids=first_and_last)
def test_scan_schedules(compiler: Path, nvrtc: str, batch: list[cuda_corpus.Case]) -> None:
    compile_all(compiler, nvrtc, batch, (90,))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures(compiler: Path, nvrtc: str, architecture: int) -> None:
    compile_all(compiler, nvrtc, [*cuda_corpus.small(), *scan_corpus.small()], (architecture,))


@pytest.mark.parametrize("option", [(), ("--persistent",)], ids=["horizontal", "persistent"])
def test_groups(compiler: Path, nvrtc: str, option: tuple[str, ...]) -> None:
    """Several kernels in one launch."""
    compile_all(compiler, nvrtc, list(cuda_corpus.groups()), (75, 90, 120), *option)


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_nothing_to_reduce_along_several_dimensions(compiler: Path, shape: tuple[int, ...]) -> None:
    """Coordinates along the reduced dimensions would be quotients by 0."""
    text = cuda_corpus.reduction("reduce_mean", "f32", "d0 | d1 d2 |", "d0, d1, d2")
    case = cuda_corpus.Case("nothing", text, (shape,))
    done = subprocess.run(
        [str(compiler), "--source"], input=case.request((90,)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert " / 0" not in done.stdout


@pytest.mark.parametrize("shape", [(1, 1 << 47), (1 << 47, 1)])
@pytest.mark.parametrize("text", [scan_corpus.both_ways("f32"), scan_corpus.scan("i64"), cuda_corpus.softmax("f16")])
def test_more_elements_than_a_launch_has_blocks_for(compiler: Path, text: str, shape: tuple[int, int]) -> None:
    """The number of pieces of a row wrapped around to 0, and with it the process ended: a quotient by 0."""
    case = cuda_corpus.Case("absurd", text, (shape, shape[1:])[: len(cuda_corpus.parse(text).inputs)])
    done = subprocess.run(
        [str(compiler), "--source"], input=case.request((90,)), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.returncode
    assert done.returncode == 0 or "more elements than the grid of a CUDA kernel" in done.stderr


@pytest.mark.parametrize(
    ("shape", "architecture", "in_turns"),
    [
        ((512, 131072), 90, True),
        ((512, 131072), 120, True),
        ((512, 131072), 80, False),  # no clusters
        ((512, 4096), 90, False),  # a block holds a row
        ((4, 131072), 90, False),  # a cluster for each
        ((512, 1 << 20), 90, False),  # too long for a cluster to hold
    ],
)
def test_long_rows_in_turns(compiler: Path, shape: tuple[int, int], architecture: int, in_turns: bool) -> None:
    """Clusters take many long rows one after the other, and exchange by messages."""
    case = cuda_corpus.Case("softmax", cuda_corpus.softmax("f16"), (shape,))
    done = subprocess.run(
        [str(compiler), "--source"], input=case.request((architecture,)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kernel = done.stdout[done.stdout.index('extern "C" __global__') :]
    assert ("wait_for_arrivals(" in kernel) == in_turns


@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (cuda_corpus.skip_rms_norm, ((512, 131072), (512, 131072), (131072,))),
        (cuda_corpus.masked_softmax, ((4, 8, 16, 131072), (4, 1, 1, 131072))),
    ],
)
def test_long_rows_of_two_inputs_in_turns(compiler: Path, text: Any, shapes: tuple[Any, ...], type_: str) -> None:
    request = cuda_corpus.Case("two", text(type_), shapes).request((90,))
    done = subprocess.run([str(compiler), "--source"], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    in_turns = type_ == "f32" or text is cuda_corpus.skip_rms_norm
    assert ("wait_for_arrivals(" in done.stdout[done.stdout.index('extern "C" __global__') :]) == in_turns


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ((64, 256, 3136), "scan_columns<"),  # whole columns in registers
        ((1, 16384, 4096), "look_back_column<"),
        ((1, 1 << 20, 6), "look_back_column<"),
        ((2, 300, 12), "scan_columns<"),  # too little for tiles
    ],
)
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_ways_through_columns(compiler: Path, shape: tuple[int, ...], what: str, type_: str) -> None:
    request = cuda_corpus.Case("columns", scan_corpus.scan(type_, layout=scan_corpus.COLUMNS), (shape,)).request((90,))
    done = subprocess.run([str(compiler), "--source"], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert what in done.stdout[done.stdout.index('extern "C" __global__') :]


TURNED = cuda_corpus.program(
    "d0 | d1 |",
    "%0 = input 0 f16 [d0, d1]",
    "%1 = input 1 f16 [d1, d0]",
    "%2 = scan_sum f32 %0",
    "%3 = add f32 %2 %1",
    "output 0 f16 [d0, d1] %3",
)
ADDED = cuda_corpus.program(
    "d0 | d1 |",
    "%0 = input 0 f16 [d0, d1]",
    "%1 = input 1 f16 [d1]",
    "%2 = add f32 %0 %1",
    "%3 = scan_sum f32 %2",
    "output 0 f16 [d0, d1] %3",
)


@pytest.mark.parametrize(
    ("text", "shapes", "masked"),
    [
        (scan_corpus.scan("f16"), ((3, 1 << 20),), True),
        (scan_corpus.scan("f32"), ((3, 1 << 20),), False),  # slower
        (scan_corpus.scan("f16"), ((3, (1 << 20) + 1),), False),  # elements one by one
        (
            ADDED,
            ((3, 1 << 20), (1 << 20,)),
            False,
        ),  # what all rows share is not copied ahead: its vectors have to exist
        (ADDED, ((1, 1 << 20), (1 << 20,)), True),
        (TURNED, ((3, 1 << 20), (1 << 20, 3)), False),  # its elements come one by one, from beyond its end
    ],
)
def test_vectors_beyond_the_end(compiler: Path, text: str, shapes: tuple[Any, ...], masked: bool) -> None:
    request = cuda_corpus.Case("row", text, shapes).request((90,))
    done = subprocess.run([str(compiler), "--source"], input=request, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kernel = done.stdout[done.stdout.index('extern "C" __global__') :]
    assert "look_back<" in kernel
    assert ("if (!valid) part" in kernel) == masked
