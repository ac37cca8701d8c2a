#!/usr/bin/env python3
"""How many of the ONNX project's own node tests have something fused, and why the others have not.

    node_tests.py [--target cpu|cuda] [--write FILE]

Taken are the tests of one operator that fuses (alone: min_nodes=1), and of composite operators spelled out
(`_expanded`) in which such operators occur. Of a test in which nothing fuses, the reason counts that says most: those
that follow from the others, that an operator has no neighbour or only moves data, count where there is none else.
`--write` puts the table into a section of a Markdown file.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from sections import write_section

import onnxfuse
from onnxfuse.report import Refusal, by_reason
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE

# Where an operator stays for one of these, another operator's reason says why nothing fuses.
_CONSEQUENCES = (
    "no neighbour",
    "it only rearranges",
    "it computes on shapes",
    "all its inputs are constant",
    "the rank of",
)


def tests() -> Iterator[tuple[str, onnx.ModelProto, int]]:
    """Name, model and min_nodes."""
    computing = {op for domain, op in LOWERINGS if domain == "" and op not in FREE | COPIES}
    for test in collect_testcases(None):
        graph = test.model.graph
        alone = len(graph.node) == 1 and graph.node[0].op_type in computing
        spelled = "_expanded" in test.name and any(n.op_type in computing for n in graph.node)
        if (alone or spelled) and all(isinstance(x, np.ndarray) for x in test.data_sets[0][0]):
            yield test.name, test.model, 1 if alone else 2


def main_reason(refusals: list[Refusal]) -> Refusal:
    """The reason that says most of why nothing in a model fuses."""
    if not refusals:
        return Refusal("", "", "nothing in it computes")
    return next((r for r in refusals if not r.reason.startswith(_CONSEQUENCES)), refusals[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    total = 0
    left: dict[str, list[Refusal]] = defaultdict(list)
    for name, model, least in tests():
        total += 1
        report = onnxfuse.optimize(model, target=args.target, min_nodes=least).report
        if not report.fusions:
            reason = main_reason(report.refusals)
            left[reason.reason].append(Refusal(name, reason.operator, reason.reason))
    refused = [r for group in left.values() for r in group]
    command = f"`python bench/node_tests.py --target {args.target}`, onnx {onnx.__version__}"
    lines = [
        f"{command}: of {total} tests {total - len(refused)} have something fused.",
        "",
        "| left | reason | operators |",
        "|---:|---|---|",
    ]
    for reason, group in by_reason(refused):
        operators = ", ".join(sorted({r.operator for r in group} - {""}))
        lines.append(f"| {len(group)} | {reason} | {operators} |")
    text = "\n".join(lines)
    print(text)
    if args.write:
        write_section(args.write, "node tests", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
