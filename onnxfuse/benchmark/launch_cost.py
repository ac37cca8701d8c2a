"""What a launch costs on this GPU: an empty kernel, on its own and in a CUDA graph."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass

from onnxfuse.benchmark.driver import Driver, driver

__all__ = ["LaunchCost", "measure_launch_cost"]

_EMPTY = b".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n"
_KERNELS = 100  # launches of a burst, and kernels of the graph
_REPEATS = 50


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

    def launch() -> None:
        gpu("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, stream, None, None)

    def burst() -> None:
        for _ in range(_KERNELS):
            launch()

    one, hundred = (_instantiate(gpu, stream, work) for work in (launch, burst))

    def replay() -> None:
        gpu("cuGraphLaunch", one, stream)

    def replay_hundred() -> None:
        gpu("cuGraphLaunch", hundred, stream)

    try:
        return LaunchCost(
            host=_host(gpu, launch),
            device=_device(gpu, stream, burst),
            graph_host=_host(gpu, replay),
            graph_device=_device(gpu, stream, replay_hundred),
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


def _host(gpu: Driver, call: Callable[[], object]) -> float:
    """Microseconds of the calling thread for one call, queued in bursts; what Python's own calls take is in it."""
    best = float("inf")
    for _ in range(_REPEATS):
        gpu.synchronize()
        start = time.perf_counter()
        for _ in range(_KERNELS):
            call()
        best = min(best, time.perf_counter() - start)
    return best * 1e6 / _KERNELS


def _device(gpu: Driver, stream: ctypes.c_void_p, hundred: Callable[[], object]) -> float:
    """Microseconds of the device from one kernel to the next."""
    hundred()
    return min(gpu.elapsed(stream, hundred) for _ in range(_REPEATS)) * 1e3 / _KERNELS
