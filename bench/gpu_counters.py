#!/usr/bin/env python3
"""What NVIDIA's profiler ncu counts in the fused kernels of bench/gpu_operators.py: traffic, occupancy, stalls.

    gpu_counters.py [--only TEXT;...] [--csv FILE] [--write docs/results.md]
    gpu_counters.py --from FILE --write docs/results.md      the table of figures that --csv kept, here or elsewhere

Needs ncu and the right to read the GPU's counters. Clocks are left as they are. A line's figures are those of its
second run; the time and the traffic of a run's kernels are added up, all else is of the longest. Of the warps of a
scheduler, so many wait for loads from global memory, for shared memory, at a barrier, for each that issues.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sections import table, write_section

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
REGISTERS = "launch__registers_per_thread"
SHARES = ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "sm__warps_active.avg.pct_of_peak_sustained_active")
STALLS = [STALL.format(reason) for reason in ("long_scoreboard", "short_scoreboard", "barrier")]
HEADER = ["", "time, µs", "read, MB", "written, MB", "of the memory's peak", "resident warps", "registers"]
HEADER += ["wait for loads", "for shared memory", "at barriers"]
LINES = (
    "relu, add, mul",
    "LayerNorm, rows of 1024",
    "LayerNorm, rows of 16384",
    "LayerNorm, rows of 131072",
    "softmax, rows of 16384",
    "softmax, rows of 131072",
    "scale, mask, softmax",
    "residual, RMSNorm",
    "1 x 67108864",
)
MARK = "LINE "


def run_lines(wanted: Sequence[str]) -> None:
    """Runs each line twice, after a mark with its name and how many kernels a run has. In a process under ncu."""
    import gpu_operators
    import torch

    import onnxfuse

    stream = torch.cuda.Stream()
    for dtype, element in gpu_operators.TYPES.items():
        for line in gpu_operators.lines():
            if not any(text in line.name for text in wanted):
                continue
            inputs = [torch.randn(shape, device="cuda").to(element) for shape in line.shapes]
            result = line.function(*inputs)
            outputs = [torch.empty_like(y) for y in (result if isinstance(result, tuple) else (result,))]
            model = onnxfuse.optimize(gpu_operators.exported(line.function, inputs)).model
            run = gpu_operators.bound_run(model, True, inputs, outputs, stream.cuda_stream)
            print(f"{MARK}{dtype} {line.name}", flush=True)
            for _ in range(2):
                run()
            torch.cuda.synchronize()
            del run, inputs, outputs, result
            torch.cuda.empty_cache()


def profile(wanted: Sequence[str]) -> str:
    """What ncu prints of the fused kernels: its table of comma-separated values, and the marks.

    Raises:
        SystemExit: there is no ncu, or it fails (often for want of the right to read counters).
    """
    if not (ncu := shutil.which("ncu")):
        raise SystemExit("ncu is not installed: it comes with the CUDA toolkit")
    metrics = ",".join((TIME, READ, WRITTEN, REGISTERS, *SHARES, *STALLS))
    command = [ncu, "--clock-control", "none", "-k", "regex:onnxfuse", "--csv", "--page", "raw", "--metrics", metrics]
    command += [sys.executable, __file__, "--run", "--only", ";".join(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ncu failed: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def rows_of(text: str) -> Iterator[list[str]]:
    """A row of the table for each marked line.

    Raises:
        ValueError: kernels and lines do not match.
    """
    names = [line.removeprefix(MARK) for line in text.splitlines() if line.startswith(MARK)]
    kernels = [k for k in csv.DictReader(line for line in text.splitlines() if line.startswith('"')) if k["ID"]]
    if not names or len(kernels) % (2 * len(names)):
        raise ValueError(f"{len(kernels)} kernels do not belong to two runs of each of {len(names)} lines")
    each = len(kernels) // (2 * len(names))

    def figure(kernel: dict[str, str], name: str) -> float:
        return float(kernel[name].replace(",", ""))

    for k, name in enumerate(names):
        run = kernels[(2 * k + 1) * each : (2 * k + 2) * each]
        longest = max(run, key=lambda kernel: figure(kernel, TIME))
        row = [name, f"{sum(figure(kernel, TIME) for kernel in run) / 1e3:.1f}"]
        row += [f"{sum(figure(kernel, n) for kernel in run) / 1e6:.0f}" for n in (READ, WRITTEN)]
        row += [f"{figure(longest, n):.0f} %" for n in SHARES] + [f"{figure(longest, REGISTERS):.0f}"]
        yield row + [f"{figure(longest, n):.1f}" for n in STALLS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=";".join(LINES), help="parts of lines' names, separated by ;")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="keep what ncu prints there")
    parser.add_argument("--from", dest="given", type=Path, metavar="FILE", help="take what --csv kept")
    parser.add_argument("--write", type=Path, metavar="FILE", help="Markdown file with a section `gpu_counters`")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    wanted = arguments.only.split(";")
    if arguments.run:
        run_lines(wanted)
        sys.stdout.flush()
        os._exit(0)  # ONNX Runtime's CUDA teardown can abort the process at exit
    text = arguments.given.read_text(encoding="utf-8") if arguments.given else profile(wanted)
    if arguments.csv:
        arguments.csv.write_text(text, encoding="utf-8")
    shown = f"Written by `bench/gpu_counters.py --write docs/results.md`.\n\n{table(HEADER, list(rows_of(text)))}"
    print(shown)
    if arguments.write:
        write_section(arguments.write, "gpu_counters", shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
