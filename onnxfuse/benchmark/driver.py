"""The part of NVIDIA's driver API that measuring needs, through ctypes: no toolkit, no profiler, no PyTorch."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["CapturedGraph", "Driver", "DriverError", "KernelLaunch", "driver"]

# Values of the enumerations in cuda.h.
_STREAM_NON_BLOCKING = 1
_CAPTURE_RELAXED = 2
_EVENT_DEFAULT = 0
_NODE_KERNEL, _NODE_MEMCPY, _NODE_MEMSET, _NODE_GRAPH = 0, 1, 2, 4
_FUNCTION_SHARED, _FUNCTION_LOCAL, _FUNCTION_REGISTERS = 1, 3, 4
_DEVICE_MULTIPROCESSORS, _DEVICE_THREADS = 16, 39
_DEVICE_MAJOR, _DEVICE_MINOR = 75, 76


class DriverError(Exception):
    """A call of the driver failed, or there is no driver; the message says which call."""


class _KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 (CUDA 12)."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel launch of a captured graph: sizes in threads, blocks, registers a thread and bytes.

    `occupancy` is the share of a multiprocessor's threads that can be resident at once, from 0 to 1; `local` are the
    bytes a thread that its registers did not hold.
    """

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: int
    shared: int
    local: int
    occupancy: float


@dataclass(frozen=True)
class CapturedGraph:
    """What a stream was asked to do: its kernels in some order, and how many copies and fills of memory."""

    kernels: tuple[KernelLaunch, ...]
    copies: int
    fills: int


class Driver:
    """The driver on its first device, with the primary context, which ONNX Runtime uses as well, made current."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError(f"no NVIDIA driver: {error}") from error
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self._device = device
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context
        self.make_current()
        name = ctypes.create_string_buffer(256)
        self("cuDeviceGetName", name, 256, device)
        self.name = name.value.decode(errors="replace")
        version = ctypes.c_int()
        self("cuDriverGetVersion", ctypes.byref(version))
        self.cuda_version = version.value  # 12080 is CUDA 12.8
        self.threads = self.attribute(_DEVICE_THREADS)
        self.multiprocessors = self.attribute(_DEVICE_MULTIPROCESSORS)
        self.capability = (self.attribute(_DEVICE_MAJOR), self.attribute(_DEVICE_MINOR))

    def __call__(self, function: str, *arguments: Any) -> None:
        """Calls a function of the driver; plain integers go as C's int, so handles come as ctypes objects."""
        if not hasattr(self._library, function):
            raise DriverError(f"this driver has no {function}")
        status = getattr(self._library, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise DriverError(f"{function}: {(text.value or b'').decode() or status}")

    def make_current(self) -> None:
        """Makes the primary context current in the calling thread."""
        self("cuCtxSetCurrent", self._context)

    def attribute(self, number: int) -> int:
        """A CU_DEVICE_ATTRIBUTE."""
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def free_memory(self) -> int:
        """Bytes that the device has free."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def new_stream(self) -> ctypes.c_void_p:
        """A stream that does not wait for the default stream."""
        stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(stream), _STREAM_NON_BLOCKING)
        return stream

    def synchronize(self) -> None:
        """Waits for all that the device was asked to do."""
        self("cuCtxSynchronize")

    def raw(self, function: str) -> Callable[..., int]:
        """A function of the driver that gives back its status; for timing, where each Python instruction shows."""
        found: Callable[..., int] = getattr(self._library, function)
        return found

    def elapsed(
        self, stream: ctypes.c_void_p, call: Callable[[], object], before: Callable[[], object] | None = None
    ) -> float:
        """Milliseconds of the device between two events, with `call` queueing work on the stream between them.

        What `before` queues keeps the device busy until all of that is in the queue, so that it never waits for more.
        """
        begin, end, time = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        for event in (begin, end):
            self("cuEventCreate", ctypes.byref(event), _EVENT_DEFAULT)
        if before is not None:
            before()
        self("cuEventRecord", begin, stream)
        call()
        self("cuEventRecord", end, stream)
        self("cuEventSynchronize", end)
        self("cuEventElapsedTime", ctypes.byref(time), begin, end)
        for event in (begin, end):
            self("cuEventDestroy_v2", event)
        return time.value

    def capture(self, stream: ctypes.c_void_p, call: Callable[[], object]) -> ctypes.c_void_p:
        """The graph of what `call` queues on the stream, which does not run; to be given to `destroy`.

        Raises:
            DriverError: the work cannot be captured.
        """
        graph = ctypes.c_void_p()
        self("cuStreamBeginCapture_v2", stream, _CAPTURE_RELAXED)
        try:
            call()
        finally:
            status = self._library.cuStreamEndCapture(stream, ctypes.byref(graph))
        if status or not graph.value:
            raise DriverError("the stream's work cannot be captured")
        return graph

    def destroy(self, graph: ctypes.c_void_p) -> None:
        """Gives a graph back."""
        self("cuGraphDestroy", graph)

    def describe(self, graph: ctypes.c_void_p) -> CapturedGraph:
        """What is in a graph, child graphs included."""
        count = ctypes.c_size_t()
        self("cuGraphGetNodes", graph, None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * count.value)()
        self("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
        kernels: list[KernelLaunch] = []
        copies = fills = 0
        for value in nodes:
            node, kind = ctypes.c_void_p(value), ctypes.c_int()
            self("cuGraphNodeGetType", node, ctypes.byref(kind))
            if kind.value == _NODE_KERNEL:
                kernels.append(self._kernel(node))
            elif kind.value == _NODE_GRAPH:
                child = ctypes.c_void_p()
                self("cuGraphChildGraphNodeGetGraph", node, ctypes.byref(child))
                inner = self.describe(child)
                kernels += inner.kernels
                copies, fills = copies + inner.copies, fills + inner.fills
            copies += kind.value == _NODE_MEMCPY
            fills += kind.value == _NODE_MEMSET
        return CapturedGraph(tuple(kernels), copies, fills)

    def _kernel(self, node: ctypes.c_void_p) -> KernelLaunch:
        params = _KernelNodeParams()
        self("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
        function = ctypes.c_void_p(params.func)
        if not function.value:
            self("cuKernelGetFunction", ctypes.byref(function), ctypes.c_void_p(params.kern))
        name, blocks = ctypes.c_char_p(), ctypes.c_int()
        try:
            self("cuFuncGetName", ctypes.byref(name), function)  # since CUDA 12.3
        except DriverError:
            name.value = b"?"
        block = tuple(params.block)
        threads = block[0] * block[1] * block[2]
        self(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            *(ctypes.byref(blocks), function, threads, ctypes.c_size_t(params.shared)),
        )
        return KernelLaunch(
            name=(name.value or b"?").decode(errors="replace"),
            grid=tuple(params.grid),
            block=block,
            registers=self._function_attribute(function, _FUNCTION_REGISTERS),
            shared=self._function_attribute(function, _FUNCTION_SHARED) + params.shared,
            local=self._function_attribute(function, _FUNCTION_LOCAL),
            occupancy=min(1.0, blocks.value * threads / self.threads),
        )

    def _function_attribute(self, function: ctypes.c_void_p, number: int) -> int:
        value = ctypes.c_int()
        self("cuFuncGetAttribute", ctypes.byref(value), number, function)
        return value.value


@functools.cache
def driver() -> Driver:
    """The one driver of this process. Raises DriverError where there is none."""
    return Driver()
