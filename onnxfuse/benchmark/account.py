"""What one run of a model costs besides time: nodes run, bytes moved, memory held, kernels launched."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxfuse.benchmark.driver import CapturedGraph, DriverError, KernelLaunch, driver
from onnxfuse.benchmark.runner import DeviceRunner, make_runner
from onnxfuse.custom_ops import OP_TYPES
from onnxfuse.errors import ModelError
from onnxfuse.rewrites.lowering.data_movement import FREE
from onnxfuse.runtime import PROVIDERS, make_session

__all__ = ["Account", "captured_launches", "take_account"]

_KERNEL_NAME = "onnxfuse_kernel"  # how the names of generated kernels begin
_CONTROL_FLOW = frozenset(("If", "Loop", "Scan", "SequenceMap"))  # their bodies' nodes are events of their own
_COPIES = frozenset(("MemcpyToHost", "MemcpyFromHost"))


@dataclass(frozen=True)
class Account:
    """One run of a model, after ONNX Runtime's own optimizations.

    `nodes` ran (what only changes a shape is not counted), `fused` of them were onnxfuse's, `elsewhere` did not run on
    the provider asked for but on the CPU behind it; `host_copies` carried data between the two. `bytes_moved` are the
    sizes of all inputs, weights and outputs of these nodes. `peak_memory` is what nodes had asked of ONNX Runtime's
    arena at once, at most, in bytes, beyond what it held before the run: bound inputs and outputs lie outside of the
    arena (but for outputs whose shapes follow data), and a kernel's own scratch does not show; None where this ONNX
    Runtime's profile does not say. `launches` are the kernels that a run launches and `device_copies` the copies and
    fills of device memory, None where the run cannot be captured (`note` then says why); `fused_kernels` are those of
    onnxfuse among them, each with how often it is launched.
    """

    nodes: int
    fused: int
    elsewhere: int
    host_copies: int
    bytes_moved: int
    peak_memory: int | None
    launches: int | None = None
    device_copies: int | None = None
    fused_kernels: tuple[tuple[int, KernelLaunch], ...] = ()
    note: str = ""


def take_account(
    model: Any,
    feeds: Mapping[str, np.ndarray],
    provider: str,
    outputs: list[Any],
    threads: int | None = None,
    options: Mapping[str, str] | None = None,
) -> Account:
    """The account of one run on these inputs.

    Args:
        model: A path or a model in memory.
        feeds: Arrays by input name.
        provider: By its full name.
        outputs: As `make_runner` takes them.
        threads: Threads inside an operator.
        options: Of the provider.
    """
    account = _read(_profile(model, feeds, provider, outputs, threads, options), provider)
    if provider != PROVIDERS["cuda"]:
        return account
    try:
        graph = captured_launches(model, feeds, outputs, options)
    except (DriverError, ModelError) as error:
        return replace(account, note=f"launches not counted: {error}")
    fused = Counter(k for k in graph.kernels if k.name.startswith(_KERNEL_NAME))
    return replace(
        account,
        launches=len(graph.kernels),
        device_copies=graph.copies + graph.fills,
        fused_kernels=tuple((count, kernel) for kernel, count in fused.most_common()),
    )


def cuda_failure(message: str) -> str:
    """What CUDA said, without the source line, function and machine that ONNX Runtime puts around it."""
    said = re.search(r"CUDA failure \d+: [^;]+", message)
    return " ".join((said[0] if said else message).split())[:200]


def captured_launches(
    model: Any, feeds: Mapping[str, np.ndarray], outputs: list[Any], options: Mapping[str, str] | None = None
) -> CapturedGraph:
    """What one run asks of the GPU, found by capturing the stream that ONNX Runtime is given to work on.

    Raises:
        DriverError: there is no driver, or the run cannot be captured (a copy to the host waits for its result).
        ModelError: ONNX Runtime cannot load or run the model.
    """
    gpu = driver()
    stream = gpu.new_stream()
    own_stream = {**(options or {}), "user_compute_stream": str(stream.value or 0)}
    session = make_session(model, provider=PROVIDERS["cuda"], provider_options=own_stream)
    runner = DeviceRunner(session, feeds, outputs)
    for _ in range(3):  # what is done once: choosing algorithms, compiling, growing the arena
        runner.queue()
    gpu.make_current()
    gpu.synchronize()
    try:
        graph = gpu.capture(stream, runner.queue)
    except Exception as error:
        _forget_error(runner)
        if isinstance(error, DriverError):
            raise
        raise DriverError(f"a run cannot be captured ({cuda_failure(str(error))})") from error
    # ONNX Runtime frees what runs that nobody waits for have pinned; left to the end of the session, it can end the
    # process.
    runner()
    try:
        return gpu.describe(graph)
    finally:
        gpu.destroy(graph)


def _forget_error(runner: DeviceRunner) -> None:
    """Runs until it works: CUDA keeps a thread's last error, and would report it in the next run of any session."""
    for _ in range(3):
        with contextlib.suppress(Exception):
            runner()
            return


def _profile(
    model: Any,
    feeds: Mapping[str, np.ndarray],
    provider: str,
    outputs: list[Any],
    threads: int | None,
    options: Mapping[str, str] | None,
) -> list[list[dict[str, Any]]]:
    """What the profile says of each node that ran, in order, for each of two runs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "profile"
        session = make_session(model, provider=provider, threads=threads, provider_options=options, profile=file)
        runner = make_runner(session, feeds, provider, outputs)
        for _ in range(2):
            runner()
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8", errors="replace"))
    starts = [e["ts"] for e in events if e.get("cat") == "Session" and e.get("name") == "model_run"]
    nodes = [e for e in events if e.get("cat") == "Node" and "op_name" in e.get("args", {})]
    nodes = sorted((e for e in nodes if e["name"].endswith("_kernel_time")), key=lambda e: float(e["ts"]))
    second = starts[-1] if starts else 0
    return [[e["args"] for e in nodes if e["ts"] < second], [e["args"] for e in nodes if e["ts"] >= second]]


def _read(runs: Sequence[Sequence[dict[str, Any]]], provider: str) -> Account:
    work = [a for a in runs[-1] if a["op_name"] not in FREE | _CONTROL_FLOW]
    sizes = ("activation_size", "parameter_size", "output_size")
    own = [[a for a in run if a.get("provider", provider) == provider] for run in runs]
    return Account(
        nodes=len(work),
        fused=sum(a["op_name"] in OP_TYPES for a in work),
        elsewhere=sum(a.get("provider", provider) != provider for a in work),
        host_copies=sum(a["op_name"] in _COPIES for a in work),
        bytes_moved=sum(int(a.get(size) or 0) for a in work for size in sizes),
        peak_memory=_peak(*own),
    )


def _peak(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> int | None:
    """The most that nodes of the second run had asked of the arena, beyond what was there before the first.

    From the second run on, ONNX Runtime takes one block for all tensors whose sizes the first one showed.
    """
    if not first or not second or "mem_bytes_requested_in_use" not in first[0]:  # since ONNX Runtime 1.31
        return None
    before = int(first[0]["mem_bytes_requested_in_use"]) - int(first[0].get("mem_requested_in_use_delta", 0))
    return max(int(a["mem_bytes_requested_in_use"]) for a in second) - before
