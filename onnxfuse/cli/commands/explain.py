"""The command `explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug, Target

__all__ = ["explain"]


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
