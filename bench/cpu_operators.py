#!/usr/bin/env python3
"""Memory-bound operators on the CPU: ONNX Runtime, numexpr, PyTorch eager, torch.compile and onnxfuse in one run.

    cpu_operators.py [--scale 32 | 1 | 1/2 ...] [--threads N] [--only TEXT,...] [--no-compile] [--json FILE]
                     [--write docs/results.md]

Each line is a PyTorch function (those of gpu_operators.py, a `scale` of their size; 1/2 is twice as large), exported by
torch.onnx and optimized by onnxfuse. All peers and one ideal pass run in turn, round after round; a figure is the least
time of all rounds, which other work on the machine disturbs least. The ideal pass is PyTorch's copy of the bytes that
the function must read and write at least, on as many threads; of a function of one tensor to another of its size, from
the same input; and a run of a session that has as many single numbers for tensors, which any session takes besides.
PyTorch and numexpr allocate their results, the sessions write into bound ones. numexpr runs what it has
functions for: chains without erf. Results are compared with PyTorch's in float64: the error is the norm of the
difference over the norm of the result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numexpr
import numpy as np
import onnx
import onnxruntime as ort
import torch
from gpu_operators import Line, error_of, exported, lines
from sections import table, write_section

import onnxfuse

Tensor = torch.Tensor
Run = Callable[[], Any]

PEERS = ("onnxruntime", "numexpr", "eager", "compile", "onnxfuse")
WORST = 1e-5  # error of ours
ROUNDS, SECONDS = 12, 3.0  # at least

CHAIN = "x0"
for _step in range(4):
    _sum = f"({CHAIN} + {0.1 * (_step + 1):.1f})"
    CHAIN = f"where({_sum} > 0, {_sum}, 0) * 0.9"
EXPRESSIONS = {
    "relu, add, mul": "(where(x0 > 0, x0, 0) + 1) * 0.5",
    "chain of 12": CHAIN,
    "scale, bias, relu, residual": "where(x0 * x1 + x2 > 0, x0 * x1 + x2, 0) + x3",
    "NCHW scale, bias, hardswish": (
        "(x0 * x1 + x2) * where(x0 * x1 + x2 < -3, 0, where(x0 * x1 + x2 > 3, 6, x0 * x1 + x2 + 3)) / 6"
    ),
    "SwiGLU gate": "x0 / (1 + exp(-x0)) * x1",
}


def scale_of(text: str) -> Fraction:
    try:
        scale = Fraction(text)
    except (ValueError, ZeroDivisionError):
        scale = Fraction(0)
    if scale <= 0:
        raise argparse.ArgumentTypeError(f"{text} is no positive number such as 32 or 1/2")
    return scale


def scaled(line: Line, scale: Fraction) -> list[tuple[int, ...]]:
    """The line's shapes with the leading dimension that the large tensors share divided by the scale."""
    largest = max(line.shapes, key=np.prod)
    axis = next(k for k, n in enumerate(largest) if n > 1)

    def smaller(shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != len(largest) or shape[axis] != largest[axis]:
            return shape
        return (*shape[:axis], max(int(shape[axis] / scale), 1), *shape[axis + 1 :])

    return [smaller(shape) for shape in line.shapes]


def bound_run(model: onnx.ModelProto, library: bool, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Run:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads must not slow other peers
    if library:
        options.register_custom_ops_library(str(onnxfuse.library_path()))
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for value, t in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_input(value.name, "cpu", 0, np.float32, list(t.shape), t.data_ptr())
    for value, t in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_output(value.name, "cpu", 0, np.float32, list(t.shape), t.data_ptr())
    bound = (*inputs, *outputs)  # the binding has their addresses alone

    def run() -> tuple[Tensor, ...]:
        session.run_with_iobinding(binding)
        return bound

    return run


def empty_run(inputs: int, outputs: int) -> Run:
    """A run of one number for each input and output."""
    one = [onnx.helper.make_tensor_value_info(f"x{i}", onnx.TensorProto.FLOAT, [1]) for i in range(inputs)]
    results = [onnx.helper.make_tensor_value_info(f"y{i}", onnx.TensorProto.FLOAT, [1]) for i in range(outputs)]
    nodes = [onnx.helper.make_node("Neg", ["x0"], [f"y{i}"]) for i in range(outputs)]
    graph = onnx.helper.make_graph(nodes, "g", one, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    return bound_run(model, False, [torch.zeros(1) for _ in range(inputs)], [torch.zeros(1) for _ in range(outputs)])


def compiled_run(line: Line, inputs: Sequence[Tensor]) -> Run:
    torch._dynamo.reset()
    compiled = torch.compile(line.function, dynamic=False)
    return lambda: compiled(*inputs)


def times(runs: dict[str, Run]) -> dict[str, float]:
    """Seconds: the least of each, over rounds of all in turn that begin with another one each."""
    names = list(runs)
    least = dict.fromkeys(names, np.inf)
    rounds, end = 0, time.perf_counter() + SECONDS
    while rounds < ROUNDS or time.perf_counter() < end:
        for k in range(len(names)):
            name = names[(k + rounds) % len(names)]
            begin = time.perf_counter()
            runs[name]()
            least[name] = min(least[name], time.perf_counter() - begin)
        rounds += 1
    return least


def measure(line: Line, scale: Fraction, peers: Sequence[str]) -> dict[str, Any]:
    """Seconds by peer and of the ideal pass, and our error."""
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in scaled(line, scale)]
    result = line.function(*[x.double() for x in inputs])
    expected = result if isinstance(result, tuple) else (result,)
    outputs = [torch.full_like(e, float("nan"), dtype=torch.float32) for e in expected]
    theirs = [torch.empty_like(y) for y in outputs]
    size = sum(4 * t.numel() for t in (*inputs, *outputs))
    if len(inputs) == len(theirs) == 1 and inputs[0].shape == theirs[0].shape:
        source, target = inputs[0], torch.zeros_like(inputs[0])
    else:
        source, target = torch.zeros(size // 2, dtype=torch.uint8), torch.zeros(size // 2, dtype=torch.uint8)
    model = exported(line.function, inputs)
    fused = onnxfuse.optimize(model, target="cpu").model
    runs: dict[str, Run] = {"copy": lambda: target.copy_(source), "empty": empty_run(len(inputs), len(outputs))}
    if "onnxruntime" in peers:
        runs["onnxruntime"] = bound_run(model, False, inputs, theirs)
    if "numexpr" in peers and line.name in EXPRESSIONS:
        arrays = {f"x{i}": x.numpy() for i, x in enumerate(inputs)}
        runs["numexpr"] = lambda: numexpr.evaluate(EXPRESSIONS[line.name], arrays)
    if "eager" in peers:
        runs["eager"] = lambda: line.function(*inputs)
    if "compile" in peers:
        runs["compile"] = compiled_run(line, inputs)
    runs["onnxfuse"] = bound_run(fused, True, inputs, outputs)
    with torch.no_grad():
        for run in runs.values():
            run()
        row = times(runs)
    row["ideal"] = row.pop("copy") + row.pop("empty")
    return {"line": line.name, "bytes": size, "error": error_of(outputs, expected), **row}


def shown(row: dict[str, Any]) -> str:
    peers = "  ".join(f"{p} {row[p] / row['onnxfuse']:6.2f}" for p in PEERS if p in row and p != "onnxfuse")
    share = row["ideal"] / row["onnxfuse"]
    times = f"{row['onnxfuse'] * 1e3:8.3f} ms (ideal pass {row['ideal'] * 1e3:.3f} ms: {share:4.2f})"
    return f"{row['line']:34s} {times}  {peers}  error {row['error']:.0e}"


def machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = names[0].split(":")[1].strip() if names else platform.machine()
    versions = (
        f"onnxruntime {ort.__version__}, PyTorch {torch.__version__.split('+')[0]}, numexpr {numexpr.__version__}"
    )
    return f"{name}, {torch.get_num_threads()} of {os.cpu_count()} threads, {versions}"


def document(rows: Sequence[dict[str, Any]], scale: Fraction) -> str:
    """The table of all lines."""
    peers = [p for p in PEERS if p != "onnxfuse" and any(p in row for row in rows)]
    body = []
    for row in rows:
        cells = [f"{row[p] / row['onnxfuse']:.2f}" if p in row else "" for p in peers]
        times = [f"{row[name] * 1e3:.3f}" for name in ("onnxfuse", "ideal")]
        body.append([row["line"], *times, f"{row['ideal'] / row['onnxfuse']:.2f}", *cells])
    header = ["float32; one ideal pass and peers as multiples of our time"]
    header += ["onnxfuse, ms", "ideal pass, ms", "ideal pass", *peers]
    command = f"`bench/cpu_operators.py --scale {scale} --write docs/results.md`"
    return f"{machine()}. Written by {command}.\n\n{table(header, body)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=scale_of, default=Fraction(32), help="what sizes are divided by, as 32 or 1/2")
    parser.add_argument("--threads", type=int, default=0, help="of every peer; 0: all")
    parser.add_argument("--only", default="", help="lines whose name contains one of these, separated by commas")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", type=Path, help="file for the figures, in seconds")
    parser.add_argument("--write", type=Path, help="Markdown file whose section `cpu_operators` takes the table")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads or os.cpu_count() or 1)
    numexpr.set_num_threads(torch.get_num_threads())
    peers = [p for p in PEERS if p != "compile" or not arguments.no_compile]
    print(machine(), flush=True)
    print("ms of onnxfuse; times of the others as multiples of it", flush=True)
    rows = []
    for line in lines():
        if arguments.only and not any(text in line.name for text in arguments.only.split(",")):
            continue
        rows.append(measure(line, arguments.scale, peers))
        print(shown(rows[-1]) + ("  WRONG" if not rows[-1]["error"] <= WORST else ""), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1), encoding="utf-8")
    if arguments.write:
        write_section(arguments.write, "cpu_operators", document(rows, arguments.scale))
    return int(any(not row["error"] <= WORST for row in rows))


if __name__ == "__main__":
    sys.exit(main())
