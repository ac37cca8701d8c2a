#!/usr/bin/env python3
"""Exported networks before and after: nodes, launches, parity, and on a GPU the time that their kernels take.

    networks.py MODEL.onnx ... [--dim batch=2,3] [--markdown FILE]
    networks.py --measure MODEL.onnx ... [--dim batch=8] [--top N] [--markdown FILE]

The first form optimizes each model for cuda and compares it on the CPU provider with the model itself at each of the
sizes. Launches are those to expect of ONNX Runtime's CUDA provider where it fuses nothing: nodes that compute, without
reshapes, constants and the arithmetic of shapes, and the biases of convolutions. The second runs both on a GPU, needs
torch, and prints what torch.profiler counts: kernels launched, the time that they take, and the most expensive ones.
MODEL may be a model without its weights (models/seeded.py). models/exports.py makes the models.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxfuse
from onnxfuse.rewrites.constants import Constants, find_constants
from onnxfuse.rewrites.convolutions import CONVOLUTIONS
from onnxfuse.rewrites.lowering.data_movement import FREE
from onnxfuse.runtime import runtime

sys.path.append(str(Path(__file__).resolve().parent.parent))
from models.seeded import fill

RUNS = 5  # that a profile is averaged over


@dataclass
class Profile:
    """What one run on the GPU takes: kernels launched, milliseconds in them, and those by name."""

    launches: float
    milliseconds: float
    kernels: list[tuple[float, float, str]]  # (milliseconds, launches, name), the most expensive first


def expected_launches(model: onnx.ModelProto) -> int:
    """The nodes of the main graph that the CUDA provider runs a kernel for, and the biases that take another."""
    opset = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    constant = find_constants(model.graph, Constants(), model.ir_version, opset).nodes
    on_shapes: set[str] = set()
    count = 0
    for i, node in enumerate(model.graph.node):
        inputs = [n for n in node.input if n]
        shapes = node.op_type in ("Shape", "Size") or (bool(inputs) and all(n in on_shapes for n in inputs))
        if shapes or i in constant:
            on_shapes.update(node.output)
        elif node.op_type not in FREE:
            count += 1 + (node.op_type in CONVOLUTIONS and len(inputs) == 3)
    return count


def feeds_for(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Normal numbers, and for integers ones below 1000; a size not in `dims` is 2."""
    rng = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or dims.get(d.dim_param, 2) for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        numbers = rng.integers(0, 1000, shape) if dtype.kind == "i" else rng.normal(size=shape)
        feeds[value.name] = np.asarray(numbers, dtype)
    return feeds


def session(model: onnx.ModelProto, provider: str, *, library: bool, options: Mapping[str, Any] | None = None) -> Any:
    """A session with all of ONNX Runtime's optimizations."""
    ort = runtime()
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    if library:
        settings.register_custom_ops_library(str(onnxfuse.library_path()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        return ort.InferenceSession(str(path), settings, providers=[(provider, dict(options or {}))])


def error(reference: list[np.ndarray], found: list[np.ndarray]) -> float:
    """The largest difference as a share of the largest value."""
    worst = 0.0
    for x, y in zip(reference, found, strict=True):
        a, b = x.astype(np.float64), y.astype(np.float64)
        worst = max(worst, float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)))
    return worst


def compare(path: Path, model: onnx.ModelProto, sizes: list[dict[str, int]]) -> str:
    """A row: nodes and launches before and after, and the error at each of the sizes, on the CPU."""
    result = onnxfuse.optimize(model, target="cuda")
    optimized = result.with_weights()
    try:
        before = session(model, "CPUExecutionProvider", library=False)
    except Exception as problem:
        reason = str(problem).rpartition("Error ")[2]
        return f"| {path.stem} | not valid as exported: {reason} | | | |"
    after = session(optimized, "CPUExecutionProvider", library=True)
    errors = []
    for dims in sizes:
        feeds = feeds_for(model, dims)
        errors.append(error(before.run(None, feeds), after.run(None, feeds)))
    report = result.report
    launches = expected_launches(model), expected_launches(optimized)
    shown = ", ".join(f"{e:.0e}" for e in errors)
    return (
        f"| {path.stem} | {report.nodes_before} / {report.nodes_after} | {launches[0]} / {launches[1]} | "
        f"{len(report.fusions)} | {shown} |"
    )


def profile_of(run: Callable[[], object]) -> Profile:
    """What torch.profiler sees of some runs, for one."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in trace.events():
        if "cuda" in str(event.device_type).lower() and not event.name.lower().startswith("mem"):
            times[event.name] += event.device_time * 1e-3 / RUNS
            counts[event.name] += 1
    kernels = [(t, counts[name] / RUNS, name) for name, t in times.most_common()]
    return Profile(sum(counts.values()) / RUNS, sum(times.values()), kernels)


def measured(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], *, library: bool) -> tuple[Profile, list[Any]]:
    """A model's profile and results on the GPU, with inputs and outputs that stay there."""
    search = {"cudnn_conv_algo_search": "HEURISTIC"}  # trying all takes each session seconds
    made = session(model, "CUDAExecutionProvider", library=library, options=search)
    binding = made.io_binding()
    ort = runtime()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value, "cuda", 0))
    for output in made.get_outputs():
        binding.bind_output(output.name, "cuda", 0)
    profile = profile_of(lambda: made.run_with_iobinding(binding))
    return profile, binding.copy_outputs_to_cpu()


def measure(path: Path, model: onnx.ModelProto, dims: dict[str, int], top: int) -> tuple[str, float]:
    """A row, and the time after over that before."""
    optimized = onnxfuse.optimize(model, target="cuda").with_weights()
    feeds = feeds_for(model, dims)
    before, reference = measured(model, feeds, library=False)
    after, found = measured(optimized, feeds, library=True)
    for title, profile in (("before", before), ("after", after)):
        print(f"{path.stem} {title}: {profile.launches:.0f} launches, {profile.milliseconds:.3f} ms", flush=True)
        for milliseconds, launches, name in profile.kernels[:top]:
            print(f"    {milliseconds:8.3f} ms x{launches:5.0f}  {name[:100]}")
    ratio = after.milliseconds / before.milliseconds
    row = (
        f"| {path.stem} | {before.launches:.0f} / {after.launches:.0f} | "
        f"{before.milliseconds:.3f} / {after.milliseconds:.3f} | {ratio:.2f} | {error(reference, found):.0e} |"
    )
    return row, ratio


def sizes_in(text: list[str]) -> list[dict[str, int]]:
    """The sizes of `--dim NAME=N,N`, one after the other."""
    given = {name: [int(n) for n in numbers.split(",")] for name, _, numbers in (t.partition("=") for t in text)}
    count = max((len(n) for n in given.values()), default=1)
    return [{name: numbers[min(k, len(numbers) - 1)] for name, numbers in given.items()} for k in range(count)]


def rows(args: argparse.Namespace) -> Iterator[str]:
    sizes, ratios = sizes_in(args.dim), []
    if args.measure:
        yield "| network | launches | time on the GPU, ms | after / before | error |"
        yield "|---|---|---|---|---|"
    else:
        yield "| network | nodes | launches expected | fused nodes | error |"
        yield "|---|---|---|---|---|"
    for path in args.models:
        try:
            model = fill(onnx.load(path))
            if args.measure:
                row, ratio = measure(path, model, sizes[0], args.top)
                ratios.append(ratio)
                yield row
            else:
                yield compare(path, model, sizes)
        except Exception as problem:  # the others still count
            traceback.print_exc()
            yield f"| {path.stem} | failed: {str(problem).splitlines()[0][:100]} |"
    if ratios:
        yield f"| geometric mean | | | {np.exp(np.mean(np.log(ratios))):.3f} | |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--measure", action="store_true", help="on a GPU")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N,N", help="sizes of a dynamic dimension")
    parser.add_argument("--top", type=int, default=6, help="kernels to show")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
    args = parser.parse_args()
    table = []
    for row in rows(args):
        print(row, flush=True)
        table.append(row)
    if args.markdown:
        args.markdown.write_text("\n".join(table) + "\n")
    return any("failed" in row for row in table)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # ONNX Runtime's CUDA teardown can abort the process at exit
