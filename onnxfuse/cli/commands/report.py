"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.console import line
from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug, Target, check_output, parse_single_dims

__all__ = ["report"]


@reports_errors
def report(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The original model.", show_default=False)],
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="The HTML file to write.", show_default=False)],
    target: Annotated[Target, typer.Option(help="Where the optimized model is to run fast.")] = Target.cuda,
    min_nodes: Annotated[int, typer.Option(min=1, help="The least number of operators to fuse into one.")] = 2,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="Show shapes and bytes with a free dimension set, by name or as INPUT.AXIS (repeatable); what is "
            "fused does not depend on it.",
        ),
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show what `validate --json` printed.", show_default=False)
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show what `bench --json` printed.", show_default=False)
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a page that shows what optimize does to a model, with measurements where there are some.

    It is one HTML file that loads nothing: what was fused and where, pictures of each region before and after, what it
    saves, what was left and why; and the errors and latencies that other commands measured, here or elsewhere.

    \b
    Examples:
      onnxfuse report model.onnx report.html --dim batch=8
      onnxfuse validate model.onnx fused.onnx --json > errors.json
      onnxfuse bench model.onnx fused.onnx --json > times.json
      onnxfuse report model.onnx report.html --validation errors.json --bench times.json
    """
    import onnxfuse
    from onnxfuse.files import load_model
    from onnxfuse.report_page import read_measurements
    from onnxfuse.report_page.dimensions import with_extents

    check_output(page)
    measurements = read_measurements(validation, bench)
    dims = parse_single_dims(dim or [])
    found = onnxfuse.optimize(model, target=target.value, min_nodes=min_nodes, fallback=False).report
    if dims:
        found = with_extents(found, load_model(model), dims)
    found.save_html(page, measurements)
    line(f"wrote {page}")
