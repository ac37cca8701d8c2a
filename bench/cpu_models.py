#!/usr/bin/env python3
"""Whole models on the CPU: ONNX Runtime with all its optimizations against the same with onnxfuse's fusions.

    cpu_models.py [--threads 1,2] [--only TEXT,...] [--seconds 6] [--write docs/results.md]

The models are the published ones of models/catalogue.toml, each with all of its sets of inputs (`onnxfuse bench` takes
others). Three sessions run in turn, round after round: the model as it is, once
more (their ratio is the noise), and the optimized one. A figure is the median over the rounds of the first one's time
over the other's: above 1, onnxfuse is faster. The mean is that over the models in which anything was fused, each with
the mean of its inputs and thread counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from sections import table, write_section

import onnxfuse
from onnxfuse.measure import in_turn, paired_ratio
from onnxfuse.runtime import make_session

sys.path.append(str(Path(__file__).resolve().parent.parent))
from models.fetch import catalogue, feeds, fetch

Feeds = dict[str, np.ndarray[Any, Any]]
QUIET = {"session.intra_op.allow_spinning": "0"}  # idle threads must not slow the other sessions


@dataclass
class Line:
    """A model with one set of inputs: by number of threads, the milliseconds as it is, and the ratios."""

    model: str
    inputs: str
    fused: int
    times: dict[int, float] = field(default_factory=dict)
    noise: dict[int, float] = field(default_factory=dict)
    ratios: dict[int, float] = field(default_factory=dict)


def machine() -> str:
    """The processor and ONNX Runtime's version."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = names[0].split(":")[1].strip() if names else platform.machine()
    return f"{name}, {os.cpu_count()} threads, onnxruntime {ort.__version__}"


def extents(given: Feeds) -> str:
    """The shapes of the inputs that are more than a number or a state."""
    return ", ".join("x".join(map(str, x.shape)) for x in given.values() if x.ndim > 1)


def measure(name: str, path: Path, inputs: list[Feeds], threads: list[int], seconds: float) -> Iterator[Line]:
    """The lines of a model, shown as they come."""
    result = onnxfuse.optimize(path, target="cpu")
    lines = [Line(name, extents(given), len(result.report.fusions)) for given in inputs]
    for count in threads:
        sessions = [make_session(m, threads=count, config=QUIET) for m in (str(path), str(path), result.model)]
        for line, given in zip(lines, inputs, strict=True):
            runs = [lambda s=s, g=given: s.run(None, g) for s in sessions]  # type: ignore[misc]
            a, again, ours = in_turn(runs, seconds=seconds, min_runs=7)
            line.times[count] = float(np.median(a))
            line.noise[count] = paired_ratio(a, again).value
            line.ratios[count] = paired_ratio(a, ours).value
    for line in lines:
        figures = "  ".join(
            f"{t}: {line.times[t]:9.3f} ms {line.ratios[t]:5.2f} (equal sessions {line.noise[t]:4.2f})" for t in threads
        )
        print(f"{line.model:32s} {line.inputs:24s} {line.fused:3d} fused  {figures}", flush=True)
        yield line


def mean(lines: list[Line]) -> float:
    """The geometric mean over the models in which anything was fused; 1 where there is none."""
    by_model: dict[str, list[float]] = {}
    for line in lines:
        if line.fused:
            by_model.setdefault(line.model, []).extend(np.log(list(line.ratios.values())))
    return float(np.exp(np.mean([np.mean(logs) for logs in by_model.values()]))) if by_model else 1.0


def document(lines: list[Line], threads: list[int]) -> str:
    """The section: where it was measured, the table and the mean."""
    header = ["model, inputs", "fused nodes"]
    for t in threads:
        header += [f"{t} thread{'s' if t > 1 else ''}, ms", "times as fast", "equal sessions"]
    rows = [
        [f"{line.model}, {line.inputs}", str(line.fused)]
        + [text for t in threads for text in (f"{line.times[t]:.3f}", f"{line.ratios[t]:.2f}", f"{line.noise[t]:.2f}")]
        for line in lines
    ]
    return (
        f"{machine()}. Written by `bench/cpu_models.py --write docs/results.md`.\n\n{table(header, rows)}\n\n"
        f"Geometric mean over the models in which anything is fused: {mean(lines):.2f}."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}", help="numbers of threads, separated by commas")
    parser.add_argument("--only", default="", help="models whose name contains one of these, separated by commas")
    parser.add_argument("--seconds", type=float, default=6, help="for a set of inputs and a number of threads")
    parser.add_argument("--write", type=Path, help="Markdown file whose section `cpu_models` takes the table")
    arguments = parser.parse_args()
    threads = sorted({int(t) for t in arguments.threads.split(",")})
    print(machine(), flush=True)
    lines: list[Line] = []
    for name in catalogue():
        if not arguments.only or any(text in name for text in arguments.only.split(",")):
            lines += measure(name, fetch(name), feeds(name), threads, arguments.seconds)
    print(f"geometric mean over the models in which anything is fused: {mean(lines):.2f}")
    if arguments.write:
        write_section(arguments.write, "cpu_models", document(lines, threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
