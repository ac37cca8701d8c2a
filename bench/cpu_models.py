#!/usr/bin/env python3
"""Whole models on the CPU: ONNX Runtime with all its optimizations against the same with onnxfuse's fusions.

    cpu_models.py [--threads 1,2] [--only TEXT,...] [--seconds 6] [--write docs/results.md]

The models are the published ones of models/catalogue.toml, each with all of its sets of inputs (`onnxfuse bench` takes
others). Three sessions run in turn, round after round: the model as it is, once more (their ratio is the noise), and
the optimized one. A figure is the median over the rounds of the first one's time over the other's: above 1, onnxfuse is
faster. Beside it stands what fusion can reach at most, by ONNX Runtime's profile of the model as it is: its time over
that of its products alone (cpu_ceiling.py). The mean is that over the models in which anything was changed, each
with the mean of its inputs and thread counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime as ort
from cpu_ceiling import QUIET, Feeds, profile
from sections import table, write_section

import onnxfuse
from onnxfuse.measure import in_turn, paired_ratio
from onnxfuse.runtime import make_session

sys.path.append(str(Path(__file__).resolve().parent.parent))
from models.fetch import catalogue, feeds, fetch

PROFILED = 1.0  # seconds


@dataclass
class Line:
    """A model with one set of inputs: by number of threads, the milliseconds as it is, and the ratios.

    `changed`: whether anything was fused or spelled otherwise. `bounds` has what fusion can reach at most.
    """

    model: str
    inputs: str
    fused: int
    changed: bool
    times: dict[int, float] = field(default_factory=dict)
    noise: dict[int, float] = field(default_factory=dict)
    ratios: dict[int, float] = field(default_factory=dict)
    bounds: dict[int, float] = field(default_factory=dict)


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
    report = result.report
    changed = bool(report.fusions or report.respelled)
    lines = [Line(name, extents(given), len(report.fusions), changed) for given in inputs]
    for count in threads:
        sessions = [make_session(m, threads=count, config=QUIET) for m in (str(path), str(path), result.model)]
        for line, given in zip(lines, inputs, strict=True):
            runs = [lambda s=s, g=given: s.run(None, g) for s in sessions]  # type: ignore[misc]
            a, again, ours = in_turn(runs, seconds=seconds, min_runs=7)
            line.times[count] = float(np.median(a))
            line.noise[count] = paired_ratio(a, again).value
            line.ratios[count] = paired_ratio(a, ours).value
            line.bounds[count] = line.times[count] / profile(str(path), given, count, PROFILED).least
    for line in lines:
        figures = "  ".join(
            f"{t}: {line.times[t]:9.3f} ms {line.ratios[t]:5.2f} of {line.bounds[t]:4.2f} "
            f"(equal sessions {line.noise[t]:4.2f})"
            for t in threads
        )
        print(f"{line.model:32s} {line.inputs:24s} {line.fused:3d} fused  {figures}", flush=True)
        yield line


def mean(lines: list[Line], figures: Callable[[Line], dict[int, float]]) -> float:
    """The geometric mean of figures over the models in which anything was changed; 1 where there is none."""
    by_model: dict[str, list[float]] = {}
    for line in lines:
        if line.changed:
            by_model.setdefault(line.model, []).extend(np.log(list(figures(line).values())))
    return float(np.exp(np.mean([np.mean(logs) for logs in by_model.values()]))) if by_model else 1.0


def document(lines: list[Line], threads: list[int]) -> str:
    """The section: where it was measured, the table and the mean."""
    header = ["model, inputs", "fused nodes"]
    for t in threads:
        header += [f"{t} thread{'s' if t > 1 else ''}, ms", "times as fast", "at most", "equal sessions"]
    rows = [
        [f"{line.model}, {line.inputs}", str(line.fused)]
        + [
            text
            for t in threads
            for text in (f"{line.times[t]:.3f}", *(f"{d[t]:.2f}" for d in (line.ratios, line.bounds, line.noise)))
        ]
        for line in lines
    ]
    return (
        f"{machine()}. Written by `bench/cpu_models.py --write docs/results.md`.\n\n{table(header, rows)}\n\n"
        f"Geometric mean over the models in which anything is changed: {mean(lines, lambda line: line.ratios):.2f}, of "
        f"{mean(lines, lambda line: line.bounds):.2f} at most."
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
    means = [mean(lines, figures) for figures in (lambda line: line.ratios, lambda line: line.bounds)]
    print("geometric mean over the models in which anything is changed: {:.2f}, of {:.2f} at most".format(*means))
    if arguments.write:
        write_section(arguments.write, "cpu_models", document(lines, threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
