#!/usr/bin/env python3
"""NVIDIA's compute-sanitizer over one run of each schedule of the CUDA engine. Needs a GPU and the CUDA toolkit.

    sanitize_gpu.py [--tool memcheck,racecheck,initcheck,synccheck]

Runs tests/gpu/test_gpu_every_schedule.py under each tool, which looks at the fused kernels alone, and prints a line for
each. The exit code is 0 where all tests passed and no tool found anything.

racecheck leaves out the scans whose blocks take tiles in turns: it follows a bar.arrive that other warps wait for by
bar.sync once, but reports hazards where that happens in turns, in the smallest such kernel as well (docs/facts.md).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests" / "gpu"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: .*", re.MULTILINE)
OUTCOME = re.compile(r"^\d+ (?:passed|failed|skipped).*", re.MULTILINE)


def sanitize(tool: str, files: list[str]) -> bool:
    """Runs the tests under the tool; True where it found nothing."""
    command = ["compute-sanitizer", "--tool", tool, "--kernel-name", "kns=onnxfuse", "--error-exitcode", "9"]
    if tool == "initcheck":  # the fills and copies around the fused kernels are not watched, so they look uninitialized
        command += ["--check-api-memory-access", "no"]
    command += [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    if tool == "racecheck":
        command += ["-k", "not scans_in_turns"]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    outcome = (OUTCOME.findall(text) or ["no test ran"])[-1]
    summary = (SUMMARY.findall(text) or ["no summary"])[-1].lstrip("= ")
    clean = done.returncode == 0 and "passed" in outcome and "skipped" not in outcome
    print(f"{tool:10} {outcome}; {summary}; {time.monotonic() - begin:.0f} s", flush=True)
    if not clean:
        found = "\n".join(
            line for line in text.splitlines() if line.startswith("=")
        )  # what the tool says, from its start
        print(f"{found[:6000]}\n{text[-2000:]}", flush=True)
    return clean


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=",".join(TOOLS), help="tools, separated by commas")
    arguments = parser.parse_args()
    files = [str(TESTS / "test_gpu_every_schedule.py")]
    results = [sanitize(tool, files) for tool in arguments.tool.split(",")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
