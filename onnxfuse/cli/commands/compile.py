"""The command `compile`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.console import human_bytes, line
from onnxfuse.cli.errors import MISMATCH, reports_errors
from onnxfuse.cli.options import Debug
from onnxfuse.cli.progress import progress
from onnxfuse.cli.show import count_of
from onnxfuse.errors import OnnxfuseError

__all__ = ["compile_"]

_MOST_EXTENTS = 65536


@reports_errors
def compile_(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The optimized model.", show_default=False)],
    arch: Annotated[
        list[str],
        typer.Option(
            metavar="SM[,SM...]",
            help="The GPUs' architectures, such as sm_80,sm_90 (repeatable). Kernels for sm_80 serve sm_86 and sm_89 "
            "too.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the kernels go.", show_default=False)
    ],
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N[,N...]",
            help="Extents that a free dimension will have, by name or as INPUT.AXIS: 1,8 or 1..64 (repeatable).",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Make the CUDA kernels of an optimized model ahead of time; no GPU is needed, but NVRTC and ONNX Runtime.

    The library takes the folder from the session config entry onnxfuse.kernels or the environment variable
    ONNXFUSE_KERNELS, and then needs no NVRTC. A kernel that is not in it is compiled, where NVRTC is there.

    Exit code 0 where all kernels are in the folder, 1 where some node may meet shapes without one.

    \b
    Examples:
      onnxfuse compile fused.onnx --arch sm_90 --output kernels/
      onnxfuse compile fused.onnx --arch sm_80,sm_90 --output kernels/ --dim batch=1,8 --dim tokens=1..128
    """
    from onnxfuse.kernels import compile_kernels

    dims = _extents(dim or [])
    architectures = [name for names in arch for name in names.split(",") if name]
    with progress() as tell:
        tell("making kernels", 0.0)
        result = compile_kernels(
            model, output, architectures, dims, lambda done, nodes: tell("making kernels", done / nodes)
        )
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        kernels = result.made + result.present
        line(
            f"{count_of(result.nodes, 'fused node')}: {count_of(kernels, 'kernel')} for "
            f"{', '.join(result.architectures)} "
            f"({human_bytes(result.bytes)}; NVRTC {result.compiler}): {result.made} made, {result.present} were there"
        )
        for node, reason in result.incomplete:
            line(f"incomplete: {node}: {reason}", "red")
        line(f"wrote {output}")
    if not result.ok:
        raise typer.Exit(MISMATCH)


def _extents(pairs: list[str]) -> dict[str, list[int]]:
    """The extents that --dim names: NAME=1,8,16..32."""
    dims: dict[str, list[int]] = {}
    for pair in pairs:
        name, equals, given = pair.rpartition("=")
        if not equals or not name:
            raise OnnxfuseError(f"--dim takes NAME=N[,N...], such as batch=1,8 or tokens=1..128, not {pair!r}")
        for part in given.split(","):
            match = re.fullmatch(r"([0-9]{1,15})(?:\.\.([0-9]{1,15}))?", part)
            if match is None:
                raise OnnxfuseError(f"--dim takes whole numbers N and ranges N..N, not {part!r} (in {pair!r})")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first or last - first >= _MOST_EXTENTS:
                raise OnnxfuseError(
                    f"--dim takes ranges from small to large of up to {_MOST_EXTENTS} numbers, not {part}"
                )
            dims.setdefault(name, []).extend(range(first, last + 1))
    return {name: sorted(set(extents)) for name, extents in dims.items()}
