"""The commands."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.console import line
from onnxfuse.cli.errors import MISMATCH, reports_errors
from onnxfuse.errors import OnnxfuseError

__all__ = ["app", "main"]

app = typer.Typer(
    name="onnxfuse",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Target(StrEnum):
    """Where the optimized model is to run."""

    cuda = "cuda"
    cpu = "cpu"


class Provider(StrEnum):
    """ONNX Runtime's execution providers that the library serves."""

    cpu = "cpu"
    cuda = "cuda"


Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="List every fusion and every node left alone.")]


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


@app.command()
@reports_errors
def optimize(
    model: Annotated[Path, typer.Argument(metavar="IN", help="The model to optimize.", show_default=False)],
    output: Annotated[
        Path | None, typer.Argument(metavar="[OUT]", help="Where to write it (not with --dry-run).", show_default=False)
    ] = None,
    target: Annotated[Target, typer.Option(help="Where it is to run: what pays differs.")] = Target.cuda,
    skip: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Do not make this kind of fusion (repeatable).")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Make only this kind of fusion (repeatable).")
    ] = None,
    min_nodes: Annotated[int, typer.Option(min=1, help="Fuse no fewer operators than this into a node.")] = 2,
    no_fallback: Annotated[
        bool, typer.Option("--no-fallback", help="Leave out the local functions that run without the library.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be fused; write nothing.")] = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Fuse what pays on the target, write the model, and show what was fused and what was not and why.

    The kinds of fusion that --skip and --only take: elementwise, layer_norm, rms_norm, softmax, reduction, scan.
    Run onnxfuse as the last tool: many others lose the local functions of fused nodes.

    \b
    Examples:
      onnxfuse optimize model.onnx fused.onnx
      onnxfuse optimize model.onnx fused.onnx --target cpu --skip softmax
      onnxfuse optimize model.onnx --dry-run --verbose
    """
    import onnxfuse
    from onnxfuse.cli.show import show_report

    if not dry_run:
        _check_output(output)
    result = onnxfuse.optimize(
        model,
        target=target.value,
        min_nodes=min_nodes,
        skip=tuple(skip or ()),
        only=tuple(only or ()),
        fallback=not no_fallback,
    )
    if output is not None and not dry_run:
        result.save(output)
    show_report(result.report, verbose)
    if output is not None and not dry_run:
        line(f"wrote {output}")


@app.command()
@reports_errors
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model to explain.", show_default=False)],
    target: Annotated[Target, typer.Option(help="Where the optimized model is to run fast.")] = Target.cuda,
    min_nodes: Annotated[int, typer.Option(min=1, help="The least number of operators to fuse into one.")] = 2,
    programs: Annotated[bool, typer.Option("--programs", help="Print the program of each fused node.")] = False,
    debug: Debug = False,
) -> None:
    """Say region by region what optimize would fuse, and for every operator left over the reason.

    \b
    Example:
      onnxfuse explain model.onnx --target cpu --programs
    """
    import onnxfuse
    from onnxfuse.cli.explain import show_explanation

    show_explanation(
        onnxfuse.optimize(model, target=target.value, min_nodes=min_nodes, fallback=False).report, programs
    )


@app.command()
@reports_errors
def validate(
    original: Annotated[Path, typer.Argument(metavar="A", help="The original model.", show_default=False)],
    optimized: Annotated[Path, typer.Argument(metavar="B", help="The optimized model.", show_default=False)],
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N", help="Set a free dimension, by name or as INPUT.AXIS (repeatable); 2 where not set."
        ),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An .npz of inputs by name; others are made up.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many sets of inputs to try, from --seed on.")] = 1,
    provider: Annotated[Provider, typer.Option(help="Where to run both models.")] = Provider.cpu,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Allowed error as a share of an output's largest value; by default 1e-10 for float64, 1e-4 for "
            "float32, 2e-2 for float16, 1e-1 for bfloat16.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Run both models in ONNX Runtime on the same inputs and compare every output.

    Exit code 0 where all agree, 1 where one does not, 2 where that cannot be found out.

    \b
    Examples:
      onnxfuse validate model.onnx fused.onnx
      onnxfuse validate model.onnx fused.onnx --dim batch=4 --dim tokens=128 --seeds 3
      onnxfuse validate model.onnx fused.onnx --inputs sample.npz --provider cuda --json
    """
    from onnxfuse.cli.show import show_validation
    from onnxfuse.validate.validation import validate as run_validation

    dims = _dims(dim or [])
    result = run_validation(
        original,
        optimized,
        dims=dims,
        inputs=inputs,
        seed=seed,
        seeds=seeds,
        provider=provider.value,
        tolerance=tolerance,
    )
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        show_validation(result)
    if not result.ok:
        raise typer.Exit(MISMATCH)


@app.command()
@reports_errors
def restore(
    model: Annotated[Path, typer.Argument(metavar="IN", help="A model with fused nodes.", show_default=False)],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write it.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Turn every fused node back into standard operators.

    \b
    Example:
      onnxfuse restore fused.onnx plain.onnx
    """
    import onnxfuse

    _check_output(output)
    onnxfuse.restore(model).save(output)
    line(f"wrote {output}")


@app.command()
@reports_errors
def library(debug: Debug = False) -> None:
    """Print the path of the library to register with ONNX Runtime.

    \b
    In Python:
      options = onnxruntime.SessionOptions()
      options.register_custom_ops_library(str(onnxfuse.library_path()))
    """
    import onnxfuse

    print(onnxfuse.library_path())


def _dims(pairs: list[str]) -> dict[str, int]:
    dims: dict[str, int] = {}
    for pair in pairs:
        name, equals, size = pair.rpartition("=")
        if not equals or not name or not (size.isascii() and size.isdecimal()):
            raise OnnxfuseError(f"--dim takes NAME=N with N a whole number, such as batch=4, not {pair!r}")
        dims[name] = int(size)
    return dims


def _check_output(path: Path | None) -> None:
    """Before minutes of work, that its result can be written."""
    if path is None:
        raise OnnxfuseError("say where to write the optimized model (OUT), or use --dry-run")
    if path.is_dir():
        raise OnnxfuseError(f"{path} is a folder, not a file to write")
    if path.exists() and not path.is_file():
        raise OnnxfuseError(f"{path} is no regular file: the model is written to a file that then replaces it")
    if not path.parent.is_dir():
        raise OnnxfuseError(f"the folder {path.parent} does not exist")


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a model's names need not fit the terminal's encoding
    app()
