#!/usr/bin/env python3
"""The error of every float32 primitive of one operand on the CPU, over all float32 numbers or every so many of them.

    accuracy.py [--step 1009] [--only NAME,...]

Step 1 takes all 2^32 bit patterns (hours: numpy's float64 functions are what takes the time). Prints, for each, the
worst distance from the value in float64 in units in the last place, and where; exits with 1 where one is over 4, or
where a NaN or an infinity is not what float64 has. ONNXFUSE_CPU=avx2 or baseline checks the loops of older machines.
"""

from __future__ import annotations

import argparse
import os
import sys

import numpy as np
from cpu_runner import run_in, session, ulps

from onnxfuse.custom_ops.formulas import FORMULAS
from onnxfuse.custom_ops.primitives import PRIMITIVES

LIMIT = 4.0
BATCH = 1 << 20


def worst(name: str, step: int) -> tuple[float, float]:
    """The largest error of the primitive, and the operand that has it."""
    result = PRIMITIVES[name].result_type("f32")
    text = f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = {name} {result} %0\noutput 0 {result} [d0] %1\n"
    node, found = session(text), (0.0, 0.0)
    for first in range(0, 1 << 32, BATCH * step):
        bits = np.arange(first, min(first + BATCH * step, 1 << 32), step, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        (actual,) = run_in(node, text, [x])
        with np.errstate(all="ignore"):
            expected = np.asarray(FORMULAS[name](x.astype(np.float64)))
        error = ulps(actual, expected) if result == "f32" else np.where(actual != expected, np.inf, 0.0)
        at = int(np.nan_to_num(error).argmax())
        found = max(found, (float(error[at]), float(x[at])))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1009)
    parser.add_argument("--only", default="", help="primitives, separated by commas")
    arguments = parser.parse_args()
    rows = PRIMITIVES.items()
    names = [n for n, row in rows if row.kind == "element" and row.arity == 1 and "f32" in row.types]
    bad = False
    print(f"instructions: {os.environ.get('ONNXFUSE_CPU', 'the best of this machine')}; step {arguments.step}")
    for name in arguments.only.split(",") if arguments.only else names:
        error, at = worst(name, arguments.step)
        bad = bad or error > LIMIT
        print(f"{name:14s} {error:5.2f} ulp at {at!r}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
