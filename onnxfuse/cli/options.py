"""What several commands take, and how their arguments are read."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.custom_ops import REWRITES
from onnxfuse.errors import OnnxfuseError

__all__ = [
    "Debug",
    "Drop",
    "Only",
    "Provider",
    "Skip",
    "Target",
    "Verbose",
    "check_output",
    "complete_rewrite",
    "is_input",
    "parse_dims",
    "parse_pairs",
    "parse_single_dims",
]


class Target(StrEnum):
    """Where the optimized model is to run."""

    cuda = "cuda"
    cpu = "cpu"


class Provider(StrEnum):
    """ONNX Runtime's execution providers that the library serves."""

    cpu = "cpu"
    cuda = "cuda"


def complete_rewrite(incomplete: str) -> list[str]:
    """For the shell: the kinds of fusion that begin so."""
    return [name for name in REWRITES if name.startswith(incomplete)]


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")]
Skip = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Do not make this kind of fusion (repeatable).", autocompletion=complete_rewrite),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Make only this kind of fusion (repeatable).", autocompletion=complete_rewrite),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="TENSOR", help="Leave out the fusion that writes this tensor first (repeatable)."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="List every fusion and every node left alone.")]


def parse_dims(pairs: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The extents that the option --dim names, each as NAME=N or NAME=N,M."""
    dims: dict[str, tuple[int, ...]] = {}
    for pair in pairs:
        name, equals, sizes = pair.rpartition("=")
        parts = sizes.split(",")
        if not equals or not name or not all(part.isascii() and part.isdecimal() for part in parts):
            raise OnnxfuseError(f"--dim takes NAME=N with N a whole number or several, such as batch=1,4; not {pair!r}")
        dims[name] = tuple(map(int, parts))
    return dims


def parse_single_dims(pairs: Iterable[str]) -> dict[str, int]:
    """The same for a command that takes one extent for each name."""
    dims = parse_dims(pairs)
    several = [name for name, sizes in dims.items() if len(sizes) > 1]
    if several:
        raise OnnxfuseError(f"--dim takes one extent for {several[0]!r} here")
    return {name: sizes[0] for name, sizes in dims.items()}


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """What an option names, each as KEY=VALUE."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OnnxfuseError(f"{option} takes KEY=VALUE, not {pair!r}")
        found[key] = value
    return found


def is_input(output: Path | None, model: Path) -> bool:
    """Whether the result is to take the place of the model that it is made from."""
    return output is not None and output.exists() and model.exists() and output.samefile(model)


def check_output(path: Path | None) -> None:
    """Before minutes of work, that its result can be written."""
    if path is None:
        raise OnnxfuseError("say where to write the optimized model (OUT), or use --dry-run")
    if path.is_dir():
        raise OnnxfuseError(f"{path} is a folder, not a file to write")
    if path.exists() and not path.is_file():
        raise OnnxfuseError(f"{path} is no regular file: the model is written to a file that then replaces it")
    if not path.parent.is_dir():
        raise OnnxfuseError(f"the folder {path.parent} does not exist")
