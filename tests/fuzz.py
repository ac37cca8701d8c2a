"""Optimizes random graphs and compares results, for as long as asked: python tests/fuzz.py --count 1000 --seed 0.

Prints a line for each failure with its seed, and in the end how many graphs were run and fused; exits 1 where anything
failed. Every 1000 graphs, the counts so far go to stderr. `--save FOLDER` keeps the models that failed. `--reduce`
makes them smaller first.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxfuse
from onnxfuse.kernels import compile_kernels

sys.path.insert(0, str(Path(__file__).parent))
from graph_check import NotRunError, WrongError, check, fused_nodes
from random_graphs import random_model
from truth import Feeds, run


def failure(model: onnx.ModelProto, feeds: Feeds, **options: object) -> tuple[str, list[str]]:
    """What is wrong with the optimized model ("" for nothing), and its fused nodes."""
    try:
        return "", fused_nodes(check(model, feeds, **options)[0])  # type: ignore[arg-type]
    except WrongError as error:
        return str(error), []
    except NotRunError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}", []


def compile_failure(model: onnx.ModelProto, feeds: Feeds, **options: Any) -> str:
    """Why NVRTC does not take a kernel of the optimized model, or ""."""
    static = onnx.ModelProto()
    static.CopyFrom(model)
    for value in static.graph.input:
        for dim, extent in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True):
            dim.dim_value = extent
    optimized = onnxfuse.optimize(static, **options).model
    if not any(node.domain == "onnxfuse" for node in optimized.graph.node):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        incomplete = compile_kernels(optimized, folder, ["sm_90"]).incomplete
    return "; ".join(f"{name}: {reason}" for name, reason in incomplete if "NVRTC" in reason)


def reduced(model: onnx.ModelProto, feeds: Feeds, **options: object) -> onnx.ModelProto:
    """A smaller model that fails alike: outputs and nodes are taken away while it does."""

    def kind(candidate: onnx.ModelProto) -> str:
        given = {i.name: feeds[i.name] for i in candidate.graph.input}
        run(candidate, given, library=False)
        return failure(candidate, given, **options)[0].partition(":")[0]

    whole = kind(model)

    def fails(candidate: onnx.ModelProto) -> bool:
        try:
            return kind(candidate) == whole
        except Exception:
            return False

    best = model
    again = True
    while again:
        again = False
        made = [(n.output[0], n) for n in best.graph.node if n.op_type != "Constant"]
        trials = [("output", o.name) for o in best.graph.output] + [("only", name) for name, _ in made]
        for what, name in trials:
            candidate = _without_output(best, name) if what == "output" else _only(best, name)
            if candidate is not None and fails(candidate):
                best, again = candidate, True
                break
    return best


def _without_output(model: onnx.ModelProto, name: str) -> onnx.ModelProto | None:
    if len(model.graph.output) < 2:
        return None
    return _pruned(model, [o for o in model.graph.output if o.name != name])


def _only(model: onnx.ModelProto, name: str) -> onnx.ModelProto | None:
    """The model up to one of its values."""
    if [o.name for o in model.graph.output] == [name]:
        return None
    known = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    return _pruned(model, [known[name]]) if name in known else None


def _pruned(model: onnx.ModelProto, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    made = {o: n for n in model.graph.node for o in n.output}
    needed, pending = set(), [o.name for o in outputs]
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in made:
            pending += made[name].input
            bodies = [a.g for a in made[name].attribute if a.type == onnx.AttributeProto.GRAPH]
            pending += [n for g in bodies for node in g.node for n in node.input] + [
                o.name for g in bodies for o in g.output
            ]
    small = onnx.ModelProto()
    small.CopyFrom(model)
    for kept, everything in (
        ([n for n in small.graph.node if set(n.output) & needed], small.graph.node),
        ([t for t in small.graph.initializer if t.name in needed], small.graph.initializer),
        ([i for i in small.graph.input if i.name in needed], small.graph.input),
        (outputs, small.graph.output),
    ):
        copies = [type(k).FromString(k.SerializeToString()) for k in kept]  # type: ignore[attr-defined]
        del everything[:]
        everything.extend(copies)  # type: ignore[arg-type]
    return small


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; the next has the next")
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--provider", default="cpu", choices=("cpu", "cuda"), help="that runs the optimized model with the library"
    )
    parser.add_argument("--compile", action="store_true", help="the CUDA kernels too, for sm_90; needs NVRTC, no GPU")
    parser.add_argument(
        "--large", action="store_true", help="tensors of up to 65536 elements; long float32 sums may be called failures"
    )
    parser.add_argument("--save", type=Path)
    parser.add_argument("--reduce", action="store_true")
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(args.seed, args.seed + args.count):
        if counts["graphs"] % 1000 == 0 and counts["graphs"]:
            print(f"before seed {seed}: {dict(counts)}", file=sys.stderr, flush=True)
        model, feeds = random_model(seed, args.large)
        counts["graphs"] += 1
        options = {"target": args.target, "min_nodes": 1 + seed % 2, "provider": args.provider, "beside": seed % 5 == 0}
        try:
            wrong, fused = failure(model, feeds, **options)
            if args.compile and fused:
                wrong = wrong or compile_failure(model, feeds, target=args.target, min_nodes=options["min_nodes"])
        except NotRunError:
            counts["not run by ONNX Runtime"] += 1
            continue
        counts["with fused nodes"] += bool(fused)
        counts.update(fused)
        if wrong:
            counts["failed"] += 1
            print(f"seed {seed}: {wrong}"[:600], flush=True)
            if args.reduce:
                model = reduced(model, feeds, **options)
                print(onnx.printer.to_text(model), flush=True)
            if args.save:
                args.save.mkdir(parents=True, exist_ok=True)
                onnx.save(model, args.save / f"{seed}.onnx")
                np.savez(args.save / f"{seed}.npz", **dict(feeds))
    print(dict(counts))
    sys.exit(counts["failed"] > 0)


if __name__ == "__main__":
    main()
