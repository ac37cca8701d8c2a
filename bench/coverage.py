#!/usr/bin/env python3
"""How much of the memory-bound work of models is fused: operators counted, with the reasons for those left over.

    coverage.py [MODEL.onnx ...] [--target cuda|cpu] [--no-parity] [--markdown FILE]

Without models it takes the published ones of models/catalogue.toml, fetches them where they are not there, and runs
each before and after on its sets of inputs on the CPU provider. Counted are element-wise, normalization, softmax,
reduction and scan operators of all graphs that read or write floats and touch another such operator (as its producer or
consumer). An operator left to ONNX Runtime for a reason of leave.py (it runs inside a Conv or Gemm, on constants, on
shapes, between Q and DQ) is an exclusion, counted apart.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import onnxfuse
from onnxfuse.outline import node_label
from onnxfuse.rewrites.constants import Constants, find_constants
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope
from onnxfuse.runtime import make_session

sys.path.append(str(Path(__file__).resolve().parent.parent))
from models.fetch import catalogue, feeds, fetch

EXCLUDED = ("inside the Conv", "into the Conv", "inside the Gemm", "constant", "computes on shapes", "on bytes")
FLOATS = ("f16", "bf16", "f32", "f64")
Place = tuple[str, str]  # the path of a body ("" for the main graph) and a node's label


@dataclass
class Coverage:
    """What became of the operators of one model; `left` counts (operator, reason)."""

    name: str
    nodes: tuple[int, int]
    counted: int
    excluded: int
    fused: int
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Fused operators over those that could be."""
        return self.fused / (self.counted - self.excluded) if self.counted > self.excluded else 1.0


def graphs(
    graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Scope, known: Constants, symbols: Symbols, version: int
) -> Iterator[tuple[str, onnx.GraphProto, Scope, Constants]]:
    """A graph and its bodies, each with its path, the types of what is visible in it, and its constants."""
    scope = {**outer, **symbolic_scope(inferred, outer, symbols, graph)}
    constants = find_constants(graph, known, 8, version)
    yield "", graph, scope, constants
    annotated = iter([n for n in inferred.node if any(a.type == onnx.AttributeProto.GRAPH for a in n.attribute)])
    for node in graph.node:
        if not any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
            continue
        typed = next(annotated)
        for attribute, other in zip(node.attribute, typed.attribute, strict=True):
            if attribute.type == onnx.AttributeProto.GRAPH:
                step = f"{node.name or node.op_type}.{attribute.name}"
                for path, *rest in graphs(attribute.g, other.g, scope, constants, symbols, version):
                    yield f"{step}/{path}" if path else step, *rest


def counted(model: onnx.ModelProto) -> tuple[dict[Place, str], set[Place]]:
    """The operators counted, with their types, and those of them that compute constants."""
    wanted: dict[Place, str] = {}
    constant: set[Place] = set()
    version = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    for path, graph, scope, known in graphs(model.graph, infer(model).graph, {}, Constants(), Symbols(), version):
        computing = {
            i: node
            for i, node in enumerate(graph.node)
            if (node.domain, node.op_type) in LOWERINGS and node.op_type not in FREE | COPIES
            if any(n in scope and scope[n].type in FLOATS for n in (*node.input, *node.output))
        }
        makers = {o: i for i, node in computing.items() for o in node.output if o}
        for i, node in computing.items():
            for k in [makers[n] for n in node.input if n in makers]:
                for j in (i, k):
                    wanted[path, node_label(computing[j])] = computing[j].op_type
                    if j in known.nodes:
                        constant.add((path, node_label(computing[j])))
    return wanted, constant


def cover(name: str, path: Path, target: str, inputs: Sequence[dict[str, np.ndarray]]) -> Coverage:
    """The coverage of one model, and how far its results move on some inputs."""
    model = onnx.load(path, load_external_data=False)
    wanted, constant = counted(model)
    result = onnxfuse.optimize(path, target=target)
    report = result.report
    fused = {(f.graph, n) for f in report.fusions for n in f.nodes} & set(wanted)
    reasons = {(r.graph, r.node): r.reason for r in report.refusals}
    reasons |= dict.fromkeys(constant, "all its inputs are constant")
    excluded = {p for p in wanted if p not in fused and any(e in reasons.get(p, "") for e in EXCLUDED)}
    found = Coverage(name, (report.nodes_before, report.nodes_after), len(wanted), len(excluded), len(fused))
    for place, operator in wanted.items():
        if place not in fused:
            reason = "excluded: " if place in excluded else ""
            found.left[operator, reason + reasons.get(place, "no reason on record")] += 1
    if inputs:
        before, after = make_session(path), make_session(result.with_weights())
        found.errors = [_error(before.run(None, one), after.run(None, one)) for one in inputs]
    return found


def _error(reference: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> str:
    """The largest difference as a share of the largest value of its tensor; or that shapes differ."""
    worst = 0.0
    for x, y in zip(reference, found, strict=True):
        if x.shape != y.shape:
            return f"{x.shape} became {y.shape}"
        a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if a.size:
            worst = max(worst, float(np.abs(a - b).max() / max(float(np.abs(a).max()), 1e-30)))
    return f"{worst:.0e}"


def table(found: Sequence[Coverage], target: str) -> Iterator[str]:
    """The coverage of models as Markdown, the reasons for what is left after it."""
    yield f"`python bench/coverage.py --target {target}`, ONNX Runtime on the CPU for the errors (one a set of inputs):"
    yield ""
    yield "| model | nodes | counted | excluded | fused | share | error |"
    yield "|---|---|---|---|---|---|---|"
    for c in found:
        errors = ", ".join(c.errors) or "-"
        nodes = f"{c.nodes[0]} → {c.nodes[1]}"
        yield f"| {c.name} | {nodes} | {c.counted} | {c.excluded} | {c.fused} | {c.share:.1%} | {errors} |"
    fused, base = sum(c.fused for c in found), sum(c.counted - c.excluded for c in found)
    excluded = sum(c.excluded for c in found)
    share = fused / base if base else 1.0
    yield f"| all | | {base + excluded} | {excluded} | {fused} | {share:.1%} | |"
    yield ""
    yield "| left | operator | reason | models |"
    yield "|---|---|---|---|"
    total: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], list[str]] = {}
    for c in found:
        total.update(c.left)
        for key in c.left:
            where.setdefault(key, []).append(c.name)
    for (operator, reason), n in total.most_common():
        names = where[operator, reason]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield f"| {n} | {operator} | {reason} | {shown} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--no-parity", action="store_true", help="do not run the models")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    args = parser.parse_args()
    given = {p.stem: p for p in args.models}
    found = []
    for name in given or catalogue():
        inputs = [] if args.no_parity or given else feeds(name)
        found.append(cover(name, given.get(name) or fetch(name), args.target, inputs))
        print(
            f"{name}: {found[-1].fused} of {found[-1].counted - found[-1].excluded} fused", file=sys.stderr, flush=True
        )
    text = "\n".join(table(found, args.target))
    print(text)
    if args.markdown:
        args.markdown.write_text(f"# How much of published models is fused\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
