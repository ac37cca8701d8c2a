"""The command `optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.console import line
from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug, Drop, Only, Skip, Target, Verbose, check_output, is_input, parse_dims
from onnxfuse.cli.progress import progress
from onnxfuse.errors import OnnxfuseError

__all__ = ["optimize"]


@reports_errors
def optimize(
    model: Annotated[Path, typer.Argument(metavar="IN", help="The model to optimize.", show_default=False)],
    output: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="Where to write it (not with --dry-run).", show_default=False)
    ] = None,
    target: Annotated[Target, typer.Option(help="Where it is to run: what pays differs.")] = Target.cuda,
    skip: Skip = None,
    only: Only = None,
    min_nodes: Annotated[int, typer.Option(min=1, help="Fuse no fewer operators than this into a node.")] = 2,
    no_fallback: Annotated[
        bool, typer.Option("--no-fallback", help="Leave out the local functions that run without the library.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be fused; write nothing.")] = False,
    drop: Drop = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Measure on this machine which fusions pay, and drop those that do not.")
    ] = False,
    tune_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="For how long to measure, about (by default 60); slow models take longer.", show_default=False
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N[,M]",
            help="Measure with this extent of a free dimension, by name or as INPUT.AXIS (repeatable); 2 where not "
            "set.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measure with an .npz of inputs by name; others are made up.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Measure with this number of threads.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page (HTML) that shows what was done.", show_default=False),
    ] = None,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Fuse what pays on the target, write the model, and show what was fused and what was not and why.

    The kinds of fusion that --skip and --only take: elementwise, layer_norm, rms_norm, softmax, reduction, scan,
    runtime_axes.
    Run onnxfuse as the last tool: many others lose the local functions of fused nodes.
    OUT may be IN: it is replaced when the result is complete, and weights beside it stay as they are.

    \b
    Examples:
      onnxfuse optimize model.onnx fused.onnx
      onnxfuse optimize model.onnx fused.onnx --target cpu --skip softmax
      onnxfuse optimize model.onnx fused.onnx --report fused.html
      onnxfuse optimize model.onnx fused.onnx --tune --dim batch=1,8 --tune-seconds 120
      onnxfuse optimize model.onnx --dry-run --verbose
    """
    import onnxfuse
    from onnxfuse.cli.show import show_report
    from onnxfuse.cli.tuning import show_tuning
    from onnxfuse.report_page import Measurements

    if not dry_run:
        check_output(output)
    if report is not None:
        check_output(report)
        for taken in filter(None, (model, None if dry_run else output)):
            if report.absolute() == taken.absolute() or (report.exists() and taken.exists() and report.samefile(taken)):
                raise OnnxfuseError(f"--report {report} would overwrite the model")
    if not tune and (dim or inputs or threads or tune_seconds):
        raise OnnxfuseError("--dim, --inputs, --threads and --tune-seconds say how --tune measures: give that as well")
    with progress() as tell:
        tell("optimizing", 0.0)
        how = (parse_dims(dim or []), inputs, threads, tune_seconds or 60.0)
        plan = onnxfuse.Tune(*how, progress=tell) if tune else None
        result = onnxfuse.optimize(
            model,
            target=target.value,
            min_nodes=min_nodes,
            skip=tuple(skip or ()),
            only=tuple(only or ()),
            fallback=not no_fallback,
            drop=tuple(drop or ()),
            tune=plan,
        )
    replaced = is_input(output, model)
    if output is not None and not dry_run:
        result.save(output)
    if report is not None:
        tuning = result.tuning.to_dict() if result.tuning is not None else None
        result.report.save_html(report, Measurements(tuning=tuning))
    show_report(result.report, verbose)
    if result.tuning is not None:
        show_tuning(result.tuning, verbose)
    for written in filter(None, (None if dry_run else output, report)):
        of_input = " in place of the model that it was made from" if replaced and written == output else ""
        line(f"wrote {written}{of_input}")
