#!/usr/bin/env python3
"""Memory-bound operators on one GPU: ONNX Runtime, PyTorch eager, torch.compile and onnxfuse in one run.

    gpu_operators.py [--dtype fp32,fp16] [--only TEXT,...] [--no-compile] [--jobs N] [--json FILE]
                     [--write docs/results.md]

Each line is a PyTorch function, exported by torch.onnx and optimized by onnxfuse. A figure is the time of a device copy
of the bytes that the function must move at least, over the peer's: 1.00 is the ceiling. Times are medians over CUDA
events around calls queued back to back on one stream, of three rounds the least. Results are compared with PyTorch's in
float64: the error is the norm of the difference over the norm of the result. Of several jobs, one measures while the
others export and compile, for which they may use the GPU: hence the rounds.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from gpu_timing import time_on
from sections import table, write_section

import onnxfuse

Tensor = torch.Tensor
Function = Callable[..., Any]

TYPES = {"fp32": torch.float32, "fp16": torch.float16}
ELEMENTS = {torch.float32: np.float32, torch.float16: np.float16}
WORST = {"fp32": 1e-6, "fp16": 1e-3}  # error of ours, or a little above that of the result itself in this type
ROUNDS = 3
PEERS = ("onnxruntime", "eager", "compile", "onnxfuse")


@dataclass(frozen=True)
class Line:
    """A function of tensors of the given shapes."""

    name: str
    function: Function
    shapes: tuple[tuple[int, ...], ...]
    scan: bool = False  # ONNX Runtime scans a row with one thread: not run over one long row


def chain(x: Tensor, steps: int) -> Tensor:
    for k in range(steps):
        x = torch.relu(x + 0.1 * (k + 1)) * 0.9
    return x


def gelu(x: Tensor, b: Tensor) -> Tensor:
    t = x + b
    return 0.5 * t * (1 + torch.erf(t / 2**0.5))


def layer_norm(x: Tensor, scale: Tensor, bias: Tensor, dim: int = -1) -> Tensor:
    centred = x - x.mean(dim, keepdim=True)
    variance = centred.pow(2).mean(dim, keepdim=True)
    return centred / torch.sqrt(variance + 1e-5) * scale + bias


def softmax(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def skip_rms_norm(x: Tensor, r: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    s = x + r
    return s, s / torch.sqrt(s.pow(2).mean(-1, keepdim=True) + 1e-5) * scale


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean(-1, keepdim=True)
    return mean, (x - mean).pow(2).mean(-1, keepdim=True)


def hardswish(x: Tensor, s: Tensor, b: Tensor) -> Tensor:
    t = x * s + b
    return t * torch.clamp(t + 3, 0, 6) / 6


def lines() -> Iterator[Line]:
    flat, wide, image = (1 << 26,), (16384, 4096), (64, 256, 56, 56)
    channels = (256, 1, 1)
    yield Line("relu, add, mul", lambda x: (torch.relu(x) + 1) * 0.5, (flat,))
    yield Line("chain of 12", lambda x: chain(x, 4), (flat,))
    yield Line(
        "scale, bias, relu, residual", lambda x, s, b, r: torch.relu(x * s + b) + r, (wide, wide[1:], wide[1:], wide)
    )
    yield Line("NCHW scale, bias, hardswish", hardswish, (image, channels, channels))
    yield Line("bias, erf-GELU", gelu, (wide, wide[1:]))
    yield Line("SwiGLU gate", lambda a, b: a * torch.sigmoid(a) * b, ((8192, 8192), (8192, 8192)))
    for rows, length in ((65536, 256), (32768, 1024), (8192, 4096), (4096, 16384), (512, 131072)):
        yield Line(f"LayerNorm, rows of {length}", layer_norm, ((rows, length), (length,), (length,)))
        yield Line(f"softmax, rows of {length}", softmax, ((rows, length),))
    yield Line("residual, RMSNorm, 2 outputs", skip_rms_norm, ((8192, 4096), (8192, 4096), (4096,)))
    scores = (16, 16, 512, 512)
    yield Line("scale, mask, softmax", lambda x, m: softmax(x / 8 + m), (scores, (16, 1, 1, 512)))
    yield Line("channels-first LayerNorm", lambda x, s, b: layer_norm(x, s, b, 1), (image, channels, channels))
    yield Line("mean and variance", moments, ((8192, 8192),))
    for shape in ((16384, 4096), (1, 1 << 26)):
        yield Line(
            f"CumSum, scale, bias, {shape[0]} x {shape[1]}",
            lambda x: torch.cumsum(x, 1) * 0.01 + 0.5,
            (shape,),
            scan=shape[0] == 1,
        )


def exported(function: Function, inputs: Sequence[Tensor]) -> onnx.ModelProto:
    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Any:
            return function(*tensors)

    with io.BytesIO() as file:
        names = [f"x{i}" for i in range(len(inputs))]
        torch.onnx.export(Module(), tuple(inputs), file, dynamo=False, opset_version=17, input_names=names)
        return onnx.load_model_from_string(file.getvalue())


def bound_run(
    model: onnx.ModelProto, library: bool, inputs: Sequence[Tensor], outputs: Sequence[Tensor], stream: int
) -> Callable[[], Any]:
    """A function that runs the model once on the stream, without waiting for it."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if library:
        options.register_custom_ops_library(str(onnxfuse.library_path()))
    providers = [("CUDAExecutionProvider", {"user_compute_stream": str(stream)}), "CPUExecutionProvider"]
    session = ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    binding = session.io_binding()
    for value, t in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_input(value.name, "cuda", 0, ELEMENTS[t.dtype], list(t.shape), t.data_ptr())
    for value, t in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_output(value.name, "cuda", 0, ELEMENTS[t.dtype], list(t.shape), t.data_ptr())
    run = ort.RunOptions()
    run.add_run_config_entry("disable_synchronize_execution_providers", "1")
    run.add_run_config_entry("gpu_graph_id", "-1")  # else every run throws and catches an exception, for tens of µs
    return lambda: session.run_with_iobinding(binding, run)


def error_of(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    return max(float((a.double() - e).norm() / e.norm()) for a, e in zip(actual, expected, strict=True))


def allowed_error(line: Line, dtype: str, expected: Sequence[Tensor]) -> float:
    """Small values, as softmax has in long rows, are coarse in fp16: there the least error is that of rounding."""
    worst = WORST[dtype] * (10 if dtype == "fp32" and line.scan else 1)
    return max(worst, 1.1 * error_of([e.to(TYPES[dtype]) for e in expected], expected))


def measure(line: Line, dtype: str, peers: Sequence[str], one_at_a_time: Any) -> dict[str, Any]:
    """Seconds by peer and of the copy, and our error."""
    torch.manual_seed(0)
    stream = torch.cuda.Stream()
    inputs = [torch.randn(shape, device="cuda").to(TYPES[dtype]) for shape in line.shapes]
    result = line.function(*[x.double() for x in inputs])
    expected = result if isinstance(result, tuple) else (result,)
    outputs = [torch.full_like(e, float("nan"), dtype=TYPES[dtype]) for e in expected]
    size = sum(t.numel() * t.element_size() for t in (*inputs, *outputs))
    source = torch.empty(size // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    model = exported(line.function, inputs)
    fused = onnxfuse.optimize(model).model
    row: dict[str, Any] = {"line": line.name, "dtype": dtype, "bytes": size, "nodes": len(fused.graph.node)}
    runs: dict[str, Callable[[], Any]] = {"copy": lambda: target.copy_(source)}
    with torch.no_grad():
        if "eager" in peers:
            runs["eager"] = lambda: line.function(*inputs)
        if "compile" in peers:
            torch._dynamo.reset()
            compiled = torch.compile(line.function, dynamic=False)
            runs["compile"] = lambda: compiled(*inputs)
        if "onnxruntime" in peers and not line.scan:
            runs["onnxruntime"] = bound_run(model, False, inputs, outputs, stream.cuda_stream)
        runs["onnxfuse"] = bound_run(fused, True, inputs, outputs, stream.cuda_stream)
        with torch.cuda.stream(stream):
            for run in runs.values():
                run()
        torch.cuda.synchronize()
        with one_at_a_time:
            for peer, run in list(runs.items()) * ROUNDS:
                if peer == "onnxfuse":
                    for y in outputs:
                        y.fill_(float("nan"))
                    torch.cuda.synchronize()
                row[peer] = min(time_on(stream, run, repeats=7), row.get(peer, math.inf))
            torch.cuda.synchronize()
    row |= {"error": error_of(outputs, expected), "allowed": allowed_error(line, dtype, expected)}
    return row


_SHARED: dict[str, Any] = {}  # by all jobs


def _start_job(lock: Any) -> None:
    _SHARED["lock"] = lock
    warnings.filterwarnings("ignore")


def _job(task: tuple[int, str, Sequence[str]]) -> dict[str, Any]:
    number, dtype, peers = task
    row = measure(list(lines())[number], dtype, peers, _SHARED["lock"])
    torch.cuda.empty_cache()
    return row


def shown(row: dict[str, Any]) -> str:
    ratios = "  ".join(f"{p} {row['copy'] / row[p]:5.2f}" for p in PEERS if p in row)
    speed = row["bytes"] / row["copy"] / 1e12
    return (
        f"{row['dtype']} {row['line']:34s} copy {row['copy'] * 1e6:7.1f} us {speed:4.2f} TB/s  {ratios}"
        f"  ({row['onnxfuse'] * 1e6:.1f} us, {row['nodes']} node{'s' * (row['nodes'] > 1)}, error {row['error']:.0e})"
    )


def driver() -> str:
    """Version of the GPU's driver, where PyTorch's management library can tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:
        return "unknown"


def machine() -> str:
    versions = f"onnxruntime-gpu {ort.__version__}, PyTorch {torch.__version__.split('+')[0]}"
    return f"{torch.cuda.get_device_name()}, driver {driver()}, {versions}"


def document(rows: Sequence[dict[str, Any]]) -> str:
    """The table of all lines: for each element type one column a peer."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    peers = [p for p in PEERS if any(p in row for row in rows)]
    body = []
    for name in dict.fromkeys(row["line"] for row in rows):
        cells = [name]
        for dtype in dtypes:
            row = next((r for r in rows if r["line"] == name and r["dtype"] == dtype), {})
            cells += [f"{row['copy'] / row[p]:.2f}" if p in row else "" for p in peers]
        body.append(cells)
    header = ["copy's time over the peer's", *(f"{dtype} {peer}" for dtype in dtypes for peer in peers)]
    command = "`bench/gpu_operators.py --write docs/results.md`"
    return f"{machine()}. Written by {command}.\n\n{table(header, body)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="fp32,fp16")
    parser.add_argument("--only", default="", help="lines whose name contains one of these, separated by commas")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--jobs", type=int, default=1, help="processes; each takes its own GPU memory")
    parser.add_argument("--json", type=Path, help="file for the figures, in seconds")
    parser.add_argument("--write", type=Path, help="Markdown file whose section `gpu_operators` takes the table")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    peers = [p for p in PEERS if p != "compile" or not arguments.no_compile]
    wanted = arguments.only.split(",")
    tasks = [
        (number, dtype, peers)
        for dtype in arguments.dtype.split(",")
        for number, line in enumerate(lines())
        if any(text in line.name for text in wanted)
    ]
    print(machine(), flush=True)
    rows, wrong = [], False
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.jobs, _start_job, (context.Lock(),)) as pool:
        for row in pool.imap(_job, tasks):
            bad = not row["error"] <= row["allowed"]
            wrong = wrong or bad
            rows.append(row)
            print(shown(row) + ("  WRONG" if bad else ""), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1), encoding="utf-8")
    if arguments.write:
        write_section(arguments.write, "gpu_operators", document(rows))
    return int(wrong)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # ONNX Runtime's CUDA teardown can abort the process at exit
