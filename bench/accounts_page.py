"""The accounts as text: what `accounts.py` measured, or read back, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sections import table

from onnxfuse.cli.console import human_bytes

__all__ = ["page"]

SHOWN_KERNELS = 8  # of each model, those launched most


def page(data: Mapping[str, Any], command: str) -> str:
    """The whole of it.

    Args:
        data: As `accounts.py --json` writes it: `machine`, `launch` (microseconds), `models`, `broadcast`; pairs are
            before and after, sizes in bytes, latencies in milliseconds. What was not measured may be null.
        command: That makes this text.
    """
    machine = data["machine"]
    parts = [f"{_machine(machine)}. Written by `{command}`; pairs are before / after."]
    if data.get("launch"):
        parts.append(_launch(data["launch"]))
    if data["models"]:
        parts += ["**What a run costs**", table(_MODEL_COLUMNS, [_model_row(m) for m in data["models"]])]
        notes = [f"- {m['title']}: {m['note']}" for m in data["models"] if m.get("note")]
        parts += ["\n".join(notes)] if notes else []
        rows = [row for m in data["models"] for row in _kernel_rows(m)]
        parts += ["**What the fused kernels take**", table(_KERNEL_COLUMNS, rows)] if rows else []
    if data.get("broadcast"):
        parts += ["**Where fusing more does not pay**", _broadcast(data["broadcast"])]
    return "\n\n".join(parts)


def _machine(machine: Mapping[str, Any]) -> str:
    cuda = f", CUDA {machine['cuda']}" if machine.get("cuda") else ""
    gpu = f"One {machine['gpu']} with {machine['multiprocessors']} multiprocessors"
    return f"{gpu}{cuda}, ONNX Runtime {machine['runtime']}"


def _launch(cost: Mapping[str, Any]) -> str:
    queued = f" and {cost['device']:.2f} us of the GPU where many are queued" if cost.get("device") else ""
    return (
        f"An empty kernel takes {cost['host']:.2f} us of the host to launch{queued}. Replaying a CUDA graph of one "
        f"takes {cost['graph_host']:.2f} us of the host, and each kernel of a graph of a hundred "
        f"{cost['graph_device']:.2f} us of the GPU.{' ' + cost['note'] if cost.get('note') else ''}"
    )


_MODEL_COLUMNS = ["model", "nodes run", "kernel launches", "bytes moved", "peak memory", "less", "latency, ms"]


def _model_row(model: Mapping[str, Any]) -> list[str]:
    before, after = model["memory"]
    less = f"{100 * (1 - after / before):.0f} %" if before and after is not None else "-"
    return [
        model["title"],
        _pair(model["nodes"], str),
        _pair(model["launches"], str),
        _pair(model["bytes"], human_bytes),
        _pair(model["memory"], human_bytes),
        less,
        _pair(model["latency"], "{:.3f}".format),
    ]


def _pair(values: Sequence[Any], shown: Any) -> str:
    return " / ".join("-" if v is None else shown(v) for v in values)


_KERNEL_COLUMNS = [
    "model",
    "launches",
    "blocks",
    "threads",
    "registers",
    "shared memory",
    "spilled, bytes",
    "occupancy",
]


def _kernel_rows(model: Mapping[str, Any]) -> Iterator[list[str]]:
    for k in model["kernels"][:SHOWN_KERNELS]:
        sizes = ["x".join(map(str, part)).removesuffix("x1").removesuffix("x1") for part in (k["grid"], k["block"])]
        figures = [str(k["registers"]), human_bytes(k["shared"]), str(k["local"]), f"{100 * k['occupancy']:.0f} %"]
        yield [model["title"], str(k["launches"]), *sizes, *figures]


def _broadcast(case: Mapping[str, Any]) -> str:
    kernels, times = case["kernels"], case["latency"]
    return (
        f"{case['functions']} costly functions of a row of {case['row']}, multiplied into {case['rows']} rows. Fused "
        f"into {kernels[0]} kernel, which computes them for every row, it takes {times[0]:.3f} ms. onnxfuse makes "
        f"{kernels[1]} of it, and it takes {times[1]:.3f} ms: {case['verdict']}, {case['ratio']:.2f} times as fast."
    )
