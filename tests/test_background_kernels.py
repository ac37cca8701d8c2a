"""Kernels are compiled in the background for shapes that runs are likely to bring; what that must not do to a process.

A driver and an NVRTC that only play them stand in (tests/fakes); the compiler keeps a log and takes as long as it is
told to.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import cuda_corpus as corpus
import pytest
from cuda_corpus import Case
from cuda_tools import FakeCuda

THREADS = min(os.cpu_count() or 1, 16)
# As the gate of a convolutional network: a scale of each channel.
GATE = corpus.program(
    "d0 d1=48 d2 d3",
    "%0 = input 0 f32 [d0, d1, 0, 0]",
    "%1 = input 1 f32 [d0, d1, d2, d3]",
    "%2 = mul f32 %0 %1",
    "output 0 f32 [d0, d1, d2, d3] %2",
)
ROWS = corpus.program(
    "d0 d1 | d2=768 |",
    "%0 = input 0 f16 [d0, d1, d2]",
    "%1 = reduce_mean f32 %0",
    "%2 = sub f32 %0 %1",
    "%3 = input 1 f16 [d2]",
    "%4 = mul f32 %2 %3",
    "output 0 f16 [d0, d1, d2] %4",
)
ATTENTION = corpus.softmax("f16", "", "d0 d1=8 d2 | d3 |", "d0, d1, d2, d3")
# A window of a longer input, and a transposition.
WINDOW = corpus.program(
    "d0 d1",
    "%0 = input 0 f32 [d1, 2*d0+3]",
    "%1 = input 1 f32 [d0, d1]",
    "%2 = add f32 %0 %1",
    "output 0 f32 [d0, d1] %2",
)


class Machine:
    """Plays sessions on one cache folder."""

    def __init__(self, cuda: FakeCuda, home: Path) -> None:
        self.cuda, self.home = cuda, home

    def play(self, cases: list[Case], *steps: str, good: bool = True, **variables: object) -> dict[str, float]:
        """The milliseconds that each step took."""
        given = {"ONNXFUSE_CACHE_DIR": self.home / "cache", "FAKE_NVRTC_LOG": self.home / "log", "HOME": self.home}
        request = "".join(case.request((90,)) for case in cases)
        out, self.said = self.cuda.run(request, *steps, **(given | variables))
        assert not good or self.said == ""
        self.ran = [line for line in out.splitlines() if line.endswith(" ran")]
        return {line.split("\t")[0]: float(line.split("\t")[1]) for line in out.splitlines() if "\t" in line}

    def compiled(self) -> int:
        """Since it was asked last."""
        log = self.home / "log"
        count = len(log.read_text().split()) if log.exists() else 0
        log.unlink(missing_ok=True)
        return count


@pytest.fixture
def machine(fake_cuda: FakeCuda, tmp_path: Path) -> Machine:
    return Machine(fake_cuda, tmp_path)


def many(count: int) -> list[Case]:
    """That many nodes of equal shapes, each with a kernel of its own."""

    def text(k: int) -> str:
        lines = ("%0 = input 0 f32 [d0]", f"%1 = const f32 {k}.0", "%2 = max f32 %0 %1", "output 0 f32 [d0] %2")
        return corpus.program("d0", *lines)

    return [Case(f"case{k}", text(k), ((1 << 20,),)) for k in range(count)]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (corpus.chain("f16", 3), [((1 << 20,),), ((1000003,),)]),
        (GATE, [((b, 48, 1, 1), (b, 48, h, w)) for b, h, w in ((1, 12, 40), (8, 12, 320), (3, 7, 33), (1, 5, 25))]),
        (ROWS, [((b, n, 768), (768,)) for b, n in ((1, 1), (8, 128), (3, 77))]),
        (ATTENTION, [((b, 8, n, n),) for b, n in ((1, 128), (8, 128), (32, 512))]),
        (WINDOW, [((64, 131), (64, 64)), ((17, 133), (65, 17)), ((1, 133), (65, 1))]),
    ],
    ids=["flat", "gate", "rows", "attention", "window"],
)
def test_runs_find_their_kernels(machine: Machine, text: str, shapes: list[tuple[tuple[int, ...], ...]]) -> None:
    """Although nothing was known of their shapes when the session was made."""
    for k, own in enumerate(shapes):
        cases = [Case(f"case{k}", text, own)]
        machine.play(cases, "wait")
        assert (machine.compiled() > 0) == (k == 0)
        machine.play(cases, "run")
        assert machine.ran == [f"case{k} ran"]
        assert machine.compiled() == 0, own


def test_a_run_waits_for_its_own_kernel_alone(machine: Machine) -> None:
    """Not for those of the other nodes, which were asked for before."""
    slow = 60 * THREADS
    took = machine.play(many(20), "last", "wait", FAKE_NVRTC_MS=slow)
    assert machine.ran == ["case19 ran"]
    assert machine.compiled() >= 20
    assert took["last"] < 2 * slow + 300 < 20 * 60


def test_runs_take_what_is_under_way(machine: Machine) -> None:
    """Nothing is compiled twice, and nothing that a run needs is left out."""
    cases = many(12)
    machine.play(cases, "run", "wait", FAKE_NVRTC_MS=10)
    assert len(machine.ran) == 12
    assert machine.compiled() == len(list((machine.home / "cache").iterdir()))


@pytest.mark.parametrize("end", ["leave", "nothing"])
def test_a_session_that_never_runs_ends_at_once(machine: Machine, end: str) -> None:
    """Destroyed or not: what has begun is completed, and no more."""
    machine.play(many(40), end, FAKE_NVRTC_MS=200)
    assert machine.compiled() <= THREADS


def test_a_child_has_threads_of_its_own(machine: Machine) -> None:
    """What its parent was to compile is compiled anew there."""
    machine.play(many(2), "wait", "fork", "run")
    assert len(machine.ran) == 2
    machine.play([replace(case, alignment=4) for case in many(40)], "pause", "fork", "last", FAKE_NVRTC_MS=100)
    assert machine.ran == ["case39 ran"]


def test_a_kernel_under_way_at_a_fork(machine: Machine) -> None:
    """It cannot be had in the child, which is said."""
    machine.play(many(1), "pause", "fork", "run", good=False, FAKE_NVRTC_MS=300)
    assert "create sessions after the fork" in machine.said


def test_what_failed_once_is_tried_again(machine: Machine) -> None:
    """Memory of the GPU may be free by the next run."""
    machine.play(many(1), "wait")
    failures = machine.compiled() + 1  # all that are loaded before a run asks for one, and its own
    machine.play(
        many(1), "wait", "run", "run", good=False, FAKE_CUDA_LOADS_FAIL=failures, ONNXFUSE_CACHE_DIR=machine.home / "c"
    )
    assert machine.said.count("gpu_mem_limit") == 1
    assert machine.ran == ["case0 ran"]
