"""One model ready to run again and again on the same inputs, as a server would run it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from onnxfuse.capture import shapes_follow_data
from onnxfuse.errors import ModelError
from onnxfuse.files import load_model
from onnxfuse.runtime import PROVIDERS, make_session, run, runtime

__all__ = ["NO_GRAPH", "DeviceRunner", "HostRunner", "Runner", "make_runner", "plain_outputs"]

NO_GRAPH = -1  # the gpu_graph_id of runs that are not captured


class HostRunner:
    """Runs on the CPU: arrays in, arrays out, as most programs call ONNX Runtime."""

    def __init__(self, session: Any, feeds: Mapping[str, np.ndarray]) -> None:
        self.session = session
        self.feed(feeds)

    def feed(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Takes new data of the same shapes."""
        self.feeds = dict(feeds)
        kinds = [v.type for v in (*self.session.get_inputs(), *self.session.get_outputs())]
        self._plain = "tensor(bfloat16)" not in kinds

    def __call__(self) -> None:
        """One run."""
        if self._plain:
            self.session.run(None, self.feeds)
        else:
            run(self.session, self.feeds)

    def burst(self, runs: int) -> None:
        """Several runs back to back."""
        for _ in range(runs):
            self()

    def outputs(self) -> list[Any]:
        """The outputs of one run."""
        return run(self.session, self.feeds)


class DeviceRunner:
    """Runs on a GPU with inputs and outputs bound to its memory, so that no copy is timed.

    Inputs and outputs that ONNX Runtime keeps on the CPU are bound there. Outputs go into buffers of the types and
    shapes of the arrays in `like`; where None stands instead, ONNX Runtime allocates the output in each run. With a
    `graph` of 0 or more, runs are captured into the CUDA graph of that number and replayed; the session must have been
    made with enable_cuda_graph.
    """

    def __init__(self, session: Any, feeds: Mapping[str, np.ndarray], like: list[Any], graph: int = NO_GRAPH) -> None:
        self.session = session
        self._binding = session.io_binding()
        self._values: dict[str, Any] = {}
        homes = _homes(session)
        for value in session.get_inputs():
            if value.name in feeds:
                self._values[value.name] = _ort_value(feeds[value.name], homes[value.name])
                self._binding.bind_ortvalue_input(value.name, self._values[value.name])
        self._buffers = []
        self._allocated: list[tuple[str, str]] = []  # outputs that ONNX Runtime allocates, and where
        for value, array in zip(session.get_outputs(), like, strict=True):
            if array is None:
                self._allocated.append((value.name, homes[value.name]))
                continue
            self._buffers.append(_ort_value(np.zeros(array.shape, array.dtype), homes[value.name]))
            self._binding.bind_ortvalue_output(value.name, self._buffers[-1])
        # Without a number ONNX Runtime throws and catches an exception in every run: 40 to 100 microseconds.
        self._options = _run_options(gpu_graph_id=graph)
        self._queued = _run_options(gpu_graph_id=graph, disable_synchronize_execution_providers=1)

    def feed(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Puts new data of the same shapes into the bound buffers."""
        for name, value in self._values.items():
            value.update_inplace(_source(feeds[name]))

    def __call__(self) -> None:
        """One run; it is done when the call returns."""
        self._let_allocate()
        self.session.run_with_iobinding(self._binding, self._options)

    def queue(self) -> None:
        """One run that may still be under way when the call returns."""
        self._let_allocate()
        self.session.run_with_iobinding(self._binding, self._queued)

    def _let_allocate(self) -> None:
        """Binds these outputs anew: what the last run allocated would otherwise be the buffer of this one."""
        for name, home in self._allocated:
            self._binding.bind_output(name, home)

    def burst(self, runs: int) -> None:
        """Several runs back to back, of which only the last is waited for."""
        for _ in range(runs - 1):
            self.queue()
        self()

    def outputs(self) -> list[Any]:
        """The outputs of one run."""
        self()
        return [_to_numpy(value) for value in (self._binding.get_outputs() if self._allocated else self._buffers)]


Runner = HostRunner | DeviceRunner


def make_runner(
    session: Any, feeds: Mapping[str, np.ndarray], provider: str, outputs: list[Any], graph: int = NO_GRAPH
) -> Runner:
    """A runner for the provider; `outputs` as `plain_outputs` gives them for these feeds."""
    if provider == PROVIDERS["cuda"]:
        return DeviceRunner(session, feeds, outputs, graph)
    return HostRunner(session, feeds)


def plain_outputs(
    model: Any, feeds: Mapping[str, np.ndarray], provider: str, options: Mapping[str, str] | None = None
) -> list[Any]:
    """The model's outputs on arrays, by a session that is thrown away; None for all where their shapes follow data.

    Raises:
        ModelError: it does not run, or one of its outputs is no tensor and cannot be bound.
    """
    session = make_session(model, provider=provider, provider_options=options)
    values = run(session, feeds)
    wrong = [o.name for o, v in zip(session.get_outputs(), values, strict=True) if not isinstance(v, np.ndarray)]
    if wrong and provider == PROVIDERS["cuda"]:
        raise ModelError(f"output {wrong[0]!r} is no tensor, so that it cannot be bound to a GPU's memory")
    if provider == PROVIDERS["cuda"]:
        proto = model if isinstance(model, onnx.ModelProto) else load_model(model).proto
        if shapes_follow_data(proto):
            return [None] * len(values)
    return values


def _run_options(**entries: int) -> Any:
    options = runtime().RunOptions()
    for key, value in entries.items():
        options.add_run_config_entry(key, str(value))
    return options


def _homes(session: Any) -> dict[str, str]:
    """Where ONNX Runtime wants each input and output: "cuda" or "cpu"."""
    homes = {value.name: "cuda" for value in (*session.get_inputs(), *session.get_outputs())}
    for values, infos in (
        (session.get_inputs(), getattr(session, "get_input_memory_infos", None)),
        (session.get_outputs(), getattr(session, "get_output_memory_infos", None)),
    ):
        if infos is not None:  # since ONNX Runtime 1.23
            for value, info in zip(values, infos(), strict=True):
                homes[value.name] = "cuda" if info.name.lower() == "cuda" else "cpu"  # also CudaPinned
    for value in (*session.get_inputs(), *session.get_outputs()):
        if value.type == "tensor(string)":
            homes[value.name] = "cpu"
    return homes


def _source(array: np.ndarray) -> Any:
    """What an OrtValue takes its new data from; numpy has no bfloat16, so that it goes through another OrtValue."""
    if array.dtype.name != "bfloat16":
        return np.ascontiguousarray(array)
    bits = np.ascontiguousarray(array).view(np.uint16)
    return runtime().OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)


def _ort_value(array: np.ndarray, device: str) -> Any:
    make = runtime().OrtValue
    if array.dtype.name != "bfloat16":
        return make.ortvalue_from_numpy(np.ascontiguousarray(array), device, 0)
    value = make.ortvalue_from_shape_and_type(list(array.shape), onnx.TensorProto.BFLOAT16, device, 0)
    value.update_inplace(_source(array))
    return value


def _to_numpy(value: Any) -> np.ndarray:
    if value.element_type() != onnx.TensorProto.BFLOAT16:
        array: np.ndarray = value.numpy()
        return array
    shape = value.shape()
    host = _source(np.zeros(shape, ml_dtypes.bfloat16))
    host.update_inplace(value)
    data = ctypes.string_at(host.data_ptr(), 2 * math.prod(shape)) if math.prod(shape) else b""
    return np.frombuffer(data, ml_dtypes.bfloat16).reshape(shape)
