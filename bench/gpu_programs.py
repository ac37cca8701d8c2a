#!/usr/bin/env python3
"""Hand-written programs against a device copy, on one GPU: what the CUDA engine itself can do.

    gpu_programs.py [--dtype fp32,fp16] [--only TEXT,...]

A figure is the median over CUDA events around calls queued back to back, and the copy's time over it: 1.00 is the
ceiling. The copy moves the bytes that the program must move at least.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]

import cuda_corpus as corpus  # noqa: E402
import onnxruntime as ort  # noqa: E402
import scan_corpus  # noqa: E402
import torch  # noqa: E402
from gpu_runner import new_session  # noqa: E402
from gpu_timing import time_on  # noqa: E402

from onnxfuse.custom_ops.parser import parse  # noqa: E402
from onnxfuse.custom_ops.types import to_onnx  # noqa: E402

Shape = tuple[int, ...]
TORCH = {"f32": torch.float32, "f16": torch.float16}
CF = ("", "d0 | d1{} | d2", "d0, d1, d2")
# Many columns, few ones, and what lies between.
SCANNED_COLUMNS = (
    (64, 256, 3136),
    (64, 1024, 784),
    (16, 4096, 1024),
    (1, 16384, 4096),
    (1, 65536, 1024),
    (8, 32768, 256),
    (1, 1 << 20, 64),
    (1, 1 << 18, 64),
    (1, 1 << 22, 6),
)


def silu_gate(type_: str) -> str:
    return corpus.program(
        "d0 d1",
        f"%0 = input 0 {type_} [d0, d1]",
        "%1 = sigmoid f32 %0",
        "%2 = mul f32 %0 %1",
        f"%3 = input 1 {type_} [d0, d1]",
        "%4 = mul f32 %2 %3",
        f"output 0 {type_} [d0, d1] %4",
    )


def scale_bias(type_: str) -> str:
    return corpus.program(
        "d0 d1",
        f"%0 = input 0 {type_} [d0, d1]",
        f"%1 = input 1 {type_} [d1]",
        "%2 = mul f32 %0 %1",
        f"%3 = input 2 {type_} [d1]",
        "%4 = add f32 %2 %3",
        "%5 = relu f32 %4",
        f"%6 = input 3 {type_} [d0, d1]",
        "%7 = add f32 %5 %6",
        f"output 0 {type_} [d0, d1] %7",
    )


def workloads(t: str) -> Iterator[tuple[str, str, list[Shape], list[Shape]]]:
    """Name, program, shapes of inputs and outputs; sizes as in the benchmark of graphs."""
    n = (1 << 26,)
    yield "chain3", corpus.chain(t, 3), [n], [n]
    yield "chain12", corpus.chain(t, 12), [n], [n]
    big = (16384, 4096)
    yield "scale+bias+relu+residual", scale_bias(t), [big, (4096,), (4096,), big], [big]
    image = (64, 256, 56 * 56)
    yield "nchw hardswish", corpus.hardswish(t), [image, (256, 1), (256, 1)], [image]
    yield "bias+gelu", corpus.bias_gelu(t), [big, (4096,)], [big]
    yield "swiglu", silu_gate(t), [(8192, 8192)] * 2, [(8192, 8192)]
    for rows, c in ((65536, 256), (32768, 1024), (8192, 4096), (4096, 16384), (512, 131072)):
        yield f"layernorm {c}", corpus.layer_norm(t, f"={c}"), [(rows, c), (c,), (c,)], [(rows, c)]
        yield f"softmax {c}", corpus.softmax(t, f"={c}"), [(rows, c)], [(rows, c)]
    yield "layernorm 4096 dynamic", corpus.layer_norm(t), [(8192, 4096), (4096,), (4096,)], [(8192, 4096)]
    yield "skip+rmsnorm", corpus.skip_rms_norm(t), [(8192, 4096), (8192, 4096), (4096,)], [(8192, 4096)] * 2
    scores = (16, 16, 512, 512)
    yield "scale+mask+softmax", corpus.masked_softmax(t), [scores, (16, 1, 1, 512)], [scores]
    yield "channels-first layernorm", corpus.layer_norm(t, *CF, "d1, 0"), [image, (256, 1), (256, 1)], [image]
    yield "mean+variance", corpus.mean_variance(t, "=8192"), [(8192, 8192)], [(8192, 1)] * 2
    yield "sum of one row of 64 Mi", corpus.reduction("reduce_sum", t), [(1, 1 << 26)], [(1,)]
    column = corpus.reduction("reduce_sum", t, "d0 | d1 | d2", "d0, d1, d2", "d0, d2")
    yield "column sum 16384 x 4096", column, [(1, 16384, 4096)], [(1, 4096)]
    yield "softmax one row of 4 Mi", corpus.softmax(t), [(1, 1 << 22)], [(1, 1 << 22)]
    for rows, c in ((16384, 4096), (1200, 1 << 16), (512, 131072), (1, 1 << 22), (1, 1 << 26)):
        yield f"scan rows {rows} x {c}", scan_corpus.scan_scale_bias(t), [(rows, c)], [(rows, c)]
    columns = scan_corpus.scan_scale_bias(t, "", scan_corpus.COLUMNS)
    for shape in SCANNED_COLUMNS:
        yield "scan columns {} x {} x {}".format(*shape), columns, [shape], [shape]


def bound_run(
    text: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor], stream: torch.cuda.Stream
) -> Callable[[], Any]:
    program = parse(text)
    node = new_session(text, user_compute_stream=str(stream.cuda_stream))
    binding = node.io_binding()
    for i, (x, (type_, _)) in enumerate(zip(inputs, program.inputs, strict=True)):
        binding.bind_input(f"x{i}", "cuda", 0, to_onnx(type_), list(x.shape), x.data_ptr())
    for i, (y, (type_, _)) in enumerate(zip(outputs, program.outputs, strict=True)):
        binding.bind_output(f"y{i}", "cuda", 0, to_onnx(type_), list(y.shape), y.data_ptr())
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    options.add_run_config_entry("gpu_graph_id", "-1")  # without it, each run throws and catches an exception
    return lambda: node.run_with_iobinding(binding, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="fp32,fp16")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    stream = torch.cuda.Stream()
    print(torch.cuda.get_device_name(), "onnxruntime", ort.__version__, "torch", torch.__version__)
    for dtype in arguments.dtype.split(","):
        type_ = {"fp32": "f32", "fp16": "f16"}[dtype]
        for name, text, in_shapes, out_shapes in workloads(type_):
            if arguments.only and not any(part in name for part in arguments.only.split(",")):
                continue
            torch.manual_seed(0)
            inputs = [torch.randn(s, device="cuda").to(TORCH[type_]) for s in in_shapes]
            outputs = [torch.full(s, float("nan"), device="cuda", dtype=TORCH[type_]) for s in out_shapes]
            size = sum(x.numel() * x.element_size() for x in (*inputs, *outputs))
            source = torch.empty(max(size // 2, 64), dtype=torch.uint8, device="cuda")
            target = torch.empty_like(source)
            copy = time_on(stream, lambda t=target, s=source: t.copy_(s))  # type: ignore[misc]
            try:
                ours = time_on(stream, bound_run(text, inputs, outputs, stream))
                torch.cuda.synchronize()
                missing = sum(int(torch.isnan(y).sum()) for y in outputs)
                note = f"  {missing} NaN in the output" if missing else ""
                print(
                    f"{dtype} {name:28s} copy {copy * 1e6:7.1f} us {size / copy / 1e12:5.2f} TB/s | "
                    f"{ours * 1e6:8.1f} us {copy / ours:5.2f}{note}",
                    flush=True,
                )
            except Exception as error:
                print(f"{dtype} {name:28s} FAILED {str(error)[:300]}", flush=True)
            del inputs, outputs, source, target
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # ONNX Runtime's CUDA teardown can abort the process at exit
