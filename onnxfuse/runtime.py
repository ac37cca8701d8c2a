"""ONNX Runtime sessions: the fused ops' library registered where a model needs it, and errors a user can act on."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxfuse.custom_ops import DOMAIN
from onnxfuse.errors import MissingRuntimeError, ModelError
from onnxfuse.files import load_model

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["PROVIDERS", "fused_nodes", "make_session", "provider_name", "run", "runtime"]

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

_PROTOBUF_LIMIT = 2**31 - 1
_SEVERITY_FATAL = 4


def runtime() -> Any:
    """The module onnxruntime.

    Warns where both of its packages are installed, since one then overwrites files of the other.

    Raises:
        MissingRuntimeError: it is not installed; the message names the extras that bring it.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingRuntimeError(
            'this needs ONNX Runtime, which is not installed: pip install "onnxfuse[cpu]", or "onnxfuse[cuda]" for '
            f"NVIDIA GPUs ({error})"
        ) from error
    if not hasattr(onnxruntime, "InferenceSession"):
        raise MissingRuntimeError(
            "the installed ONNX Runtime is incomplete (it has no InferenceSession): uninstall onnxruntime and "
            'onnxruntime-gpu, then pip install "onnxfuse[cpu]" or "onnxfuse[cuda]"'
        )
    clash = _installed_runtimes()
    if len(clash) > 1:
        _warn_of(" and ".join(clash))
    return onnxruntime


@functools.cache
def _warn_of(clash: str) -> None:
    """Warns once a process, and not once for each place that asks for the runtime."""
    warnings.warn(
        f"{clash} are both installed and overwrite each other's files: uninstall them, then install one of them again",
        stacklevel=3,
    )


def _installed_runtimes() -> list[str]:
    found = []
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def provider_name(provider: str) -> str:
    """The full name of an execution provider given as such, or as "cpu" or "cuda".

    Raises:
        ModelError: the installed ONNX Runtime does not have it.
    """
    name = PROVIDERS.get(provider.lower(), provider)
    available = runtime().get_available_providers()
    if name not in available:
        hint = ' (pip install "onnxfuse[cuda]" brings it)' if name == PROVIDERS["cuda"] else ""
        raise ModelError(f"the installed ONNX Runtime has no {name}{hint}; it has {', '.join(available)}")
    return name


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all graphs in its nodes' attributes."""
    yield graph
    for node in graph.node:
        yield from _node_graphs(node)


def _node_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from _graphs(attribute.g)
        for graph in attribute.graphs:
            yield from _graphs(graph)


def fused_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes of the domain onnxfuse: in the graph, its subgraphs, and the model's local functions."""
    for graph in _graphs(model.graph):
        yield from (node for node in graph.node if node.domain == DOMAIN)
    for function in model.functions:
        for node in function.node:
            if node.domain == DOMAIN:
                yield node
            for graph in _node_graphs(node):
                yield from (inner for inner in graph.node if inner.domain == DOMAIN)


def make_session(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    provider: str = "CPUExecutionProvider",
    threads: int | None = None,
    optimize: bool = True,
    library: bool | None = None,
    provider_options: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
    profile: str | os.PathLike[str] | None = None,
) -> onnxruntime.InferenceSession:
    """A session for the model, with the fused ops' library registered.

    Args:
        model: A file, or a model in memory (of any size).
        provider: An execution provider, or "cpu" or "cuda"; the CPU provider always stands behind it.
        threads: Threads inside an operator; None leaves the number to ONNX Runtime.
        optimize: ONNX Runtime's own graph optimizations, at their default level, or none.
        library: True registers the library, False does not; None does where the model has fused nodes.
        provider_options: Options of the execution provider.
        config: Entries of the session's configuration.
        profile: Where ONNX Runtime's profile of the session is to go: the start of the file's path.

    Raises:
        MissingRuntimeError: ONNX Runtime is not installed.
        ModelError: The provider is not there, or ONNX Runtime cannot load the model; the message has its reason.
    """
    ort = runtime()
    name = provider_name(provider)
    path = None if isinstance(model, onnx.ModelProto) else Path(model)
    if library is None:
        proto = model if isinstance(model, onnx.ModelProto) else load_model(model).proto
        library = next(fused_nodes(proto), None) is not None
    options = ort.SessionOptions()
    options.log_severity_level = _SEVERITY_FATAL
    if threads is not None:
        options.intra_op_num_threads = threads
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in (config or {}).items():
        options.add_session_config_entry(key, value)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = os.fspath(profile)
    if library:
        _register(options)
    if name == PROVIDERS["cuda"] and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    wanted: Any = (name, dict(provider_options)) if provider_options else name
    providers = [wanted] if name == PROVIDERS["cpu"] else [wanted, PROVIDERS["cpu"]]
    try:
        if path is not None:
            session = ort.InferenceSession(os.fspath(path), options, providers=providers)
        else:
            session = _from_memory(ort, model, options, providers)
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot load {path or 'the model'}: {_reason(error)}") from error
    if session.get_providers()[0] != name:
        raise ModelError(f"{name} could not be started: are its driver and libraries installed?")
    return session


def _register(options: Any) -> None:
    from onnxfuse.custom_ops.library import library_path

    library = library_path()
    try:
        options.register_custom_ops_library(str(library))
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot load the library {library}: {_reason(error)}") from error


def _from_memory(ort: Any, model: Any, options: Any, providers: list[Any]) -> Any:
    if model.ByteSize() <= _PROTOBUF_LIMIT:
        return ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    with tempfile.TemporaryDirectory() as folder:  # a message over 2 GiB cannot be serialized: its weights go beside it
        file = str(Path(folder) / "model.onnx")
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save(copy, file, save_as_external_data=True, location="weights")
        return ort.InferenceSession(file, options, providers=providers)


def _reason(error: Exception) -> str:
    """ONNX Runtime's message without its code prefix, on one line."""
    text = " ".join(str(error).split())
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text or type(error).__name__


def run(session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The session's outputs, in its order; tensors as arrays (bfloat16 ones with ml_dtypes' type).

    Raises:
        ModelError: ONNX Runtime cannot run the model on these inputs; the message has its reason.
    """
    kinds = [v.type for v in (*session.get_inputs(), *session.get_outputs())]
    try:
        if "tensor(bfloat16)" in kinds:
            return _run_bfloat16(session, feeds)
        return list(session.run(None, dict(feeds)))
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot run the model on these inputs: {_reason(error)}") from error


def _run_bfloat16(session: Any, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The same for models with bfloat16 inputs or outputs, which numpy has no type for."""
    import ml_dtypes

    make = runtime().OrtValue
    if not hasattr(make, "ortvalue_from_numpy_with_onnx_type"):
        raise ModelError("bfloat16 inputs and outputs need a newer ONNX Runtime (1.20 or later)")
    values = {}
    for name, array in feeds.items():
        if array.dtype == ml_dtypes.bfloat16:
            bits = np.ascontiguousarray(array).view(np.uint16)
            values[name] = make.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
        else:
            values[name] = make.ortvalue_from_numpy(array)
    results = []
    for value in session.run_with_ort_values(None, values):
        if value.is_tensor() and value.element_type() == onnx.TensorProto.BFLOAT16:
            size = 2 * math.prod(value.shape())
            data = ctypes.string_at(value.data_ptr(), size) if size else b""
            results.append(np.frombuffer(data, ml_dtypes.bfloat16).reshape(value.shape()))
        else:
            results.append(value.numpy())
    return results
