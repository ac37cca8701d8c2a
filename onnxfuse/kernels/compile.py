"""`compile_kernels`: makes the CUDA kernels of an optimized model ahead of time, without a GPU.

The library itself makes them, with the generator that it has at run time: a request (cuda_ops/cuda/ahead.h) reaches it
through a session config entry when it is registered with options that no session is made of.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from onnxfuse.custom_ops.library import library_path
from onnxfuse.errors import ModelError, OnnxfuseError
from onnxfuse.external_data import with_small_values
from onnxfuse.files import load_model
from onnxfuse.kernels.shapes import NodeShapes, node_shapes
from onnxfuse.runtime import fused_nodes, runtime
from onnxfuse.validate.programs import check_programs

__all__ = ["Compiled", "compile_kernels"]

_NODES_AT_A_TIME = 16


@dataclass(frozen=True)
class Compiled:
    """What `compile_kernels` made.

    `made` kernels are new in `folder`, `present` ones were there before; `bytes` is the size of the machine code of
    both, `compiler` the version of NVRTC. `incomplete` are the fused nodes that may meet shapes for which there is no
    kernel, with the reason.
    """

    folder: Path
    architectures: tuple[str, ...]
    nodes: int
    made: int
    present: int
    bytes: int
    compiler: str
    incomplete: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        """Whether the model runs from the folder alone, with these shapes."""
        return not self.incomplete

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold."""
        return {"schema": 1, "ok": self.ok, **asdict(self), "folder": os.fspath(self.folder)}


def compile_kernels(
    model: str | os.PathLike[str] | onnx.ModelProto,
    folder: str | os.PathLike[str],
    architectures: Iterable[str],
    dims: Mapping[str, Sequence[int]] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Compiled:
    """Makes the kernels that a model's fused nodes need on GPUs of the given architectures.

    The library finds them where the session config entry `onnxfuse.kernels` or the environment variable
    ONNXFUSE_KERNELS names the folder. Kernels for sm_80 serve every later GPU of the same major version. They are made
    for all numbers of multiprocessors, and for aligned and unaligned tensors.

    Args:
        model: A path or a model in memory, optimized by onnxfuse.
        folder: Where the kernels go; made if it is missing. Kernels of several models can share one.
        architectures: Names such as "sm_90".
        dims: The extents of each free dimension that runs will have, by name or as `input.axis`.
        progress: Called with the number of fused nodes that are done, and of all.

    Raises:
        ModelError: The model cannot be read or has no fused nodes, or the library could not make the kernels: NVRTC is
            not installed or does not know an architecture, or the folder cannot be written.
        ProgramError: A fused node's program is not valid.
        MissingRuntimeError: ONNX Runtime is not installed.
        OnnxfuseError: The dims or architectures do not fit.
    """
    names = [_architecture(a) for a in architectures]
    if not names:
        raise OnnxfuseError("name one architecture or more, such as sm_90")
    if isinstance(model, onnx.ModelProto):
        proto, source_dir = model, None
    else:
        loaded = load_model(model)
        proto, source_dir = loaded.proto, loaded.base_dir
    if next(fused_nodes(proto), None) is None:
        raise ModelError("the model has no fused nodes: give what `onnxfuse optimize` wrote")
    check_programs(proto)
    nodes = node_shapes(with_small_values(proto, source_dir), dims or {})
    target = Path(folder).absolute()
    _check_folder(target)
    lines: dict[str, list[str]] = {}
    incomplete = [(n.name, n.unknown) for n in nodes if n.unknown]
    compiler = ""
    for start in range(0, len(nodes), _NODES_AT_A_TIME):
        for line in _make(target, sorted(set(names)), nodes[start : start + _NODES_AT_A_TIME]):
            kind, *fields = line.split("\t")
            if kind == "kernel":
                lines.setdefault(fields[0], fields)
            elif kind == "failed":
                incomplete.append((fields[0], fields[1]))
            elif kind == "compiler":
                compiler = fields[0]
        if progress is not None:
            progress(min(start + _NODES_AT_A_TIME, len(nodes)), len(nodes))
    made = [fields for fields in lines.values() if fields[3] == "made"]
    return Compiled(
        folder=target,
        architectures=tuple(f"sm_{a}" for a in sorted(set(names))),
        nodes=len(nodes),
        made=len(made),
        present=len(lines) - len(made),
        bytes=sum(int(fields[2]) for fields in lines.values()),
        compiler=compiler,
        incomplete=tuple(incomplete),
    )


def _architecture(name: str) -> int:
    """10 * major + minor of the compute capability that a name such as sm_90 says."""
    match = re.fullmatch(r"(?:sm_)?([1-9][0-9]{1,2})", name.strip())
    if match is None:
        raise OnnxfuseError(f"{name!r} is no architecture: name it as in sm_80 (A100), sm_89 (L4) or sm_90 (H100)")
    return int(match[1])


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OnnxfuseError(f"{folder} is no folder")
    if "\n" in str(folder):
        raise OnnxfuseError("the name of the folder has a line break")
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)


def _make(folder: Path, architectures: Sequence[int], nodes: Sequence[NodeShapes]) -> list[str]:
    """Has the library make the kernels of these nodes; the lines of its report."""
    with tempfile.TemporaryDirectory() as work:
        request, report = Path(work, "request"), Path(work, "report")
        request.write_text(_request(folder, report, architectures, nodes), encoding="utf-8")
        ort = runtime()
        options = ort.SessionOptions()
        options.add_session_config_entry("onnxfuse.compile", str(request))
        try:
            options.register_custom_ops_library(str(library_path()))
        except Exception as error:
            raise ModelError(f"the kernels cannot be made: {error}") from error
        if not report.exists():
            raise ModelError("this build of the library has no CUDA engine: it cannot make kernels")
        return report.read_text(encoding="utf-8").splitlines()


def _request(folder: Path, report: Path, architectures: Sequence[int], nodes: Sequence[NodeShapes]) -> str:
    lines = ["onnxfuse-compile 1", f"folder {folder}", f"report {report}"]
    lines.append(f"architectures {' '.join(map(str, architectures))}")
    for node in nodes:
        lines.append("node " + " ".join(node.name.split()))
        lines += ["shapes " + " ".join(",".join(map(str, s)) or "-" for s in shapes) for shapes in node.shapes]
        lines += [node.program.rstrip("\n"), "end"]
    return "\n".join(lines) + "\n"
