#!/usr/bin/env python3
"""What fusion can reach in a model on the CPU: where ONNX Runtime's time goes, by operator.

    cpu_ceiling.py MODEL [--inputs 0] [--threads 1] [--seconds 3]

MODEL is one of models/catalogue.toml. Shows ONNX Runtime's profile of the model as it is and of the optimized one: how
many nodes of each operator run, and their milliseconds. Last, the bound: the time of what no fusion touches (products,
convolutions, recurrent networks, windows), the rest set to nothing.

What the profiler adds to each node is measured with a chain of nodes that do nothing, and taken off. What it writes
pushes small tensors out of the caches as well, so a node of less than 100 us counts with the least of its times, any
other with the median.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxfuse
from onnxfuse.measure import in_turn
from onnxfuse.runtime import make_session

sys.path.append(str(Path(__file__).resolve().parent.parent))
from models.fetch import catalogue, feeds, fetch

# What ONNX Runtime computes and no fused node does, under the names that its own fusions give.
PRODUCTS = frozenset(
    (
        "Attention", "AveragePool", "Conv", "ConvInteger", "ConvTranspose", "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "GRU", "Gemm", "LSTM", "MatMul",
        "MatMulInteger", "MatMulIntegerToFloat", "MaxPool", "MultiHeadAttention", "QAttention", "QGemm",
        "QLinearConv", "QLinearMatMul", "RNN", "Resize",
    )
)  # fmt: skip
Feeds = dict[str, np.ndarray[Any, Any]]
CONTAINERS = frozenset(("If", "Loop", "Scan"))  # their time is that of what runs in them
SHORT = 100.0  # us
QUIET = {"session.intra_op.allow_spinning": "0"}  # idle threads must not slow other sessions


@dataclass(frozen=True)
class Profile:
    """Of one run, by operator: how many nodes of it ran, and their milliseconds."""

    counts: dict[str, float]
    times: dict[str, float]

    @property
    def products(self) -> float:
        """The milliseconds of what no fusion touches."""
        return sum(t for op, t in self.times.items() if op in PRODUCTS)

    @property
    def least(self) -> float:
        """The milliseconds that a run takes at least, however much is fused."""
        return self.products + run_cost()


@cache
def profiler_cost() -> float:
    """The microseconds that the profiler adds to a node: the least that one on a single number takes in it."""
    names = [f"t{k}" for k in range(101)]
    nodes = [onnx.helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    return float(
        min(min(durations) for durations in _nodes(_model(nodes, names[0], names[-1]), _ONE, 1, 0.5)[0].values())
    )


@cache
def run_cost() -> float:
    """The milliseconds of a run from Python that computes nothing."""
    session = make_session(_model([onnx.helper.make_node("Neg", ["x"], ["y"])], "x", "y"), threads=1, config=QUIET)
    return float(np.median(in_turn([lambda: session.run(None, {"x": _ONE["t0"]})], seconds=0.2)[0]))


_ONE = {"t0": np.ones(1, np.float32)}


def _model(nodes: list[onnx.NodeProto], first: str, last: str) -> onnx.ModelProto:
    """A model from one number to another."""
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in (first, last)]
    graph = onnx.helper.make_graph(nodes, "numbers", ends[:1], ends[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def profile(model: str | onnx.ModelProto, given: Feeds, threads: int, seconds: float) -> Profile:
    """ONNX Runtime's profile of a model on one set of inputs."""
    nodes, runs = _nodes(model, given, threads, seconds)
    cost = profiler_cost()
    counts: dict[str, float] = defaultdict(float)
    times: dict[str, float] = defaultdict(float)
    for (_, op, _), durations in nodes.items():
        if op not in CONTAINERS:
            often = len(durations) / runs  # in a run: a branch may not be taken, a body many times
            middle = float(np.median(durations))
            counts[op] += often
            times[op] += often * max(0.0, (min(durations) if middle < SHORT else middle) - cost) / 1e3
    return Profile(dict(counts), dict(times))


def _nodes(
    model: str | onnx.ModelProto, given: Feeds, threads: int, seconds: float
) -> tuple[dict[tuple[str, str, str], list[float]], int]:
    """The microseconds that each node took in each run, by name, operator and number; and how many runs there were."""
    with tempfile.TemporaryDirectory() as folder:
        session = make_session(model, threads=threads, config=QUIET, profile=f"{folder}/profile")
        session.run(None, given)
        begin, runs = time.perf_counter(), 1
        while runs < 8 or (runs < 500 and time.perf_counter() - begin < seconds):
            session.run(None, given)
            runs += 1
        events = json.loads(Path(session.end_profiling()).read_text())
    nodes = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            nodes[event["name"], event["args"]["op_name"], event["args"]["node_index"]].append(event["dur"])
    return nodes, runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(catalogue()))
    parser.add_argument("--inputs", type=int, default=0, help="which of the model's sets of inputs")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3, help="for each of the two models")
    arguments = parser.parse_args()
    path, given = fetch(arguments.model), feeds(arguments.model)[arguments.inputs]
    models = (str(path), onnxfuse.optimize(path, target="cpu").model)
    before, after = (profile(m, given, arguments.threads, arguments.seconds) for m in models)
    print(f"{'':28s} {'as it is':>16s} {'optimized':>16s}")
    for op in sorted(
        {*before.times, *after.times}, key=lambda op: -max(before.times.get(op, 0), after.times.get(op, 0))
    ):
        columns = [f"{p.counts.get(op, 0):6.0f} {p.times.get(op, 0):9.3f}" for p in (before, after)]
        print(f"{op + (' *' if op in PRODUCTS else ''):28s} {'  '.join(columns)}")
    for name, p in (("as it is", before), ("optimized", after)):
        total = sum(p.times.values())
        print(f"{name}: {total:.3f} ms in operators, {p.products:.3f} of it in what no fusion touches (*)")
    session = make_session(models[0], threads=arguments.threads, config=QUIET)
    (times,) = in_turn([lambda: session.run(None, given)], seconds=arguments.seconds)
    print(f"a run takes {np.median(times):.3f} ms; at most {np.median(times) / before.least:.2f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
