"""What a launch costs on this GPU: an empty kernel, on its own and in a CUDA graph."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from onnxfuse.benchmark.driver import Driver, driver

__all__ = ["LaunchCost", "measure_launch_cost"]

_EMPTY = b".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n"
_KERNELS = 100  # launches of a burst, and kernels of the graph
_REPEATS = 50
_BACKLOG = 40  # replays of the graph that keep the device busy while a burst is queued behind them: 2 ms or more


@dataclass(frozen=True)
class LaunchCost:
    """Microseconds for an empty kernel of one block, the least of many bursts.

    `host` is what a launch takes of the calling thread, `device` from one kernel's start to the next one's in a queue
    that is kept full. `graph_host` is what a replay of a graph of one kernel takes of the calling thread,
    `graph_device` from one kernel to the next inside of a graph of a hundred, one after the other.
    """

    host: float
    device: float
    graph_host: float
    graph_device: float


def measure_launch_cost() -> LaunchCost:
    """Measures it on the first GPU. Raises DriverError where there is none."""
    gpu = driver()
    gpu.make_current()
    stream, module, function = gpu.new_stream(), ctypes.c_void_p(), ctypes.c_void_p()
    gpu("cuModuleLoadData", ctypes.byref(module), _EMPTY)
    gpu("cuModuleGetFunction", ctypes.byref(function), module, b"empty")
    sizes = [ctypes.c_uint(n) for n in (1, 1, 1, 32, 1, 1, 0)]
    launch = (function, *sizes, stream, None, None)

    def burst() -> None:
        for _ in range(_KERNELS):
            gpu("cuLaunchKernel", *launch)

    one, hundred = (_instantiate(gpu, stream, work) for work in (partial(gpu, "cuLaunchKernel", *launch), burst))

    def replay_hundred() -> None:
        gpu("cuGraphLaunch", hundred, stream)

    def backlog() -> None:
        for _ in range(_BACKLOG):
            replay_hundred()

    try:
        return LaunchCost(
            host=_host(gpu, "cuLaunchKernel", *launch),
            device=_device(gpu, stream, backlog, burst),
            graph_host=_host(gpu, "cuGraphLaunch", one, stream),
            graph_device=_device(gpu, stream, backlog, replay_hundred),
        )
    finally:
        for graph in (one, hundred):
            gpu("cuGraphExecDestroy", graph)
        gpu("cuModuleUnload", module)
        gpu("cuStreamDestroy_v2", stream)


def _instantiate(gpu: Driver, stream: ctypes.c_void_p, work: Callable[[], object]) -> ctypes.c_void_p:
    graph, executable = gpu.capture(stream, work), ctypes.c_void_p()
    gpu("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    gpu.destroy(graph)
    return executable


def _host(gpu: Driver, function: str, *arguments: Any) -> float:
    """Microseconds of the calling thread in one call of the driver, queued in bursts.

    What Python takes to call a C function with these arguments is measured on one that does nothing, and left out.
    """
    gpu(function, *arguments)  # errors show here, since the bursts do not look
    nothing = ctypes.CDLL(None).getpagesize  # takes no arguments, and in C it does no harm to give some
    calls = partial(gpu.raw(function), *arguments), partial(nothing, *arguments)
    best = [float("inf")] * 2
    for _ in range(_REPEATS):
        for i, call in enumerate(calls):
            gpu.synchronize()
            start = time.perf_counter()
            for _ in range(_KERNELS):
                call()
            best[i] = min(best[i], time.perf_counter() - start)
    return (best[0] - best[1]) * 1e6 / _KERNELS


def _device(
    gpu: Driver, stream: ctypes.c_void_p, backlog: Callable[[], object], hundred: Callable[[], object]
) -> float:
    """Microseconds of the device from one kernel to the next, of kernels queued while it was busy with the backlog."""
    best = float("inf")
    for _ in range(_REPEATS):
        gpu.synchronize()
        best = min(best, gpu.elapsed(stream, hundred, before=backlog))
    return best * 1e3 / _KERNELS
