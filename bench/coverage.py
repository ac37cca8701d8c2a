#!/usr/bin/env python3
"""How much of the memory-bound work of models is fused: operators counted, with the reasons for those left over.

    coverage.py [--target cuda|cpu] [--verbose] MODEL.onnx ...

Counted are element-wise, normalization, softmax, reduction and scan operators that read or write floats and touch
another such operator (as its producer or consumer). An operator left to ONNX Runtime for a reason of leave.py (it
runs inside a Conv or Gemm, on constants, on shapes) is an exclusion, counted apart.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import onnx

import onnxfuse
from onnxfuse.rewrites.constants import Constants, find_constants
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.graph import node_label
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.shapes import infer, symbolic_scope

EXCLUDED = ("inside the Conv", "into the Conv", "inside the Gemm", "constant", "computes on shapes", "QuantizeLinear")
SCANS = {"CumSum"}


def counted(graph: onnx.GraphProto, types: dict[str, str]) -> dict[str, str]:
    """The operators counted, by label, with their types."""
    computing = {
        i: node
        for i, node in enumerate(graph.node)
        if ((node.domain, node.op_type) in LOWERINGS and node.op_type not in FREE | COPIES) or node.op_type in SCANS
        if any(types.get(n) in ("f16", "bf16", "f32", "f64") for n in (*node.input, *node.output))
    }
    makers = {o: i for i, node in computing.items() for o in node.output if o}
    touching = {
        j for i, node in computing.items() for n in node.input if (k := makers.get(n)) is not None for j in (i, k)
    }
    return {node_label(computing[i]): computing[i].op_type for i in touching}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    totals: Counter[str] = Counter()
    left: Counter[tuple[str, str]] = Counter()
    for path in args.models:
        model = onnx.load(path, load_external_data=False)
        opset = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        constant = find_constants(model.graph, Constants(), model.ir_version, opset).nodes
        constants = {node_label(model.graph.node[i]) for i in constant}
        scope = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
        wanted = counted(model.graph, {n: t.type for n, t in scope.items()})
        report = onnxfuse.optimize(path, target=args.target).report
        fused = {n for f in report.fusions for n in f.nodes} & set(wanted)
        reasons = {r.node: r.reason for r in report.refusals if r.node in wanted}
        reasons |= {n: "all its inputs are constant" for n in constants if n in wanted}
        excluded = {n for n in wanted if n not in fused and any(e in reasons.get(n, "") for e in EXCLUDED)}
        base = len(wanted) - len(excluded)
        share = f"{len(fused) / base:6.1%}" if base else "     -"
        print(
            f"{path.stem:32s} {report.nodes_before:5d} nodes -> {report.nodes_after:5d}   counted {len(wanted):5d}  "
            f"excluded {len(excluded):4d}  fused {len(fused):5d}  {share}",
            flush=True,
        )
        totals.update(counted=len(wanted), excluded=len(excluded), fused=len(fused))
        for n in wanted:
            if n not in fused:
                reason = "excluded: " if n in excluded else ""
                left[wanted[n], reason + reasons.get(n, "no reason on record")] += 1
    base = totals["counted"] - totals["excluded"]
    print(
        f"all: {totals['fused']} of {base} fused ({totals['fused'] / max(base, 1):.1%}), {totals['excluded']} excluded"
    )
    for (op, reason), n in left.most_common(None if args.verbose else 25):
        print(f"  {n:4d} {op}: {reason}")


if __name__ == "__main__":
    main()
