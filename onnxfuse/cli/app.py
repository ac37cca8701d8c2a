"""The application: its commands and its entry point."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Annotated

import typer

from onnxfuse.cli.commands.bench import bench
from onnxfuse.cli.commands.compile import compile_
from onnxfuse.cli.commands.explain import explain
from onnxfuse.cli.commands.library import library
from onnxfuse.cli.commands.optimize import optimize
from onnxfuse.cli.commands.report import report
from onnxfuse.cli.commands.restore import restore
from onnxfuse.cli.commands.validate import validate

__all__ = ["app", "main"]

app = typer.Typer(
    name="onnxfuse",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"onnxfuse {importlib.metadata.version('onnxfuse')}")
        except importlib.metadata.PackageNotFoundError:  # run from the source tree
            print("onnxfuse (not installed)")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Fuses the memory-bound parts of ONNX models into single nodes that ONNX Runtime runs as one kernel each.

    \b
    Typical use:
      onnxfuse optimize model.onnx fused.onnx --target cpu
      onnxfuse validate model.onnx fused.onnx --dim batch=4
    """


for command in (optimize, explain, validate, bench, report, restore, library):
    app.command()(command)
app.command("compile")(compile_)


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a model's names need not fit the terminal's encoding
    app(prog_name="onnxfuse")  # also as `python -m onnxfuse`: the shell asks for completions by this name
