"""The command `explain`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.capture import Obstacle, capture_obstacles, placement_obstacles
from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug, Drop, Only, Skip, Target
from onnxfuse.cli.progress import progress
from onnxfuse.errors import OnnxfuseError
from onnxfuse.optimizer import Result
from onnxfuse.runtime import PROVIDERS, runtime

__all__ = ["explain"]


@reports_errors
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model to explain.", show_default=False)],
    target: Annotated[Target, typer.Option(help="Where the optimized model is to run fast.")] = Target.cuda,
    min_nodes: Annotated[int, typer.Option(min=1, help="The least number of operators to fuse into one.")] = 2,
    skip: Skip = None,
    only: Only = None,
    drop: Drop = None,
    programs: Annotated[bool, typer.Option("--programs", help="Print the program of each fused node.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Say region by region what optimize would fuse, and for every operator left over the reason.

    For the target cuda also what keeps the optimized model from being captured into a CUDA graph: what is known of the
    operators, and where a GPU is at hand what ONNX Runtime says.

    \b
    Examples:
      onnxfuse explain model.onnx --target cpu --programs
      onnxfuse explain model.onnx --skip softmax --json
    """
    import onnxfuse
    from onnxfuse.cli.explain import show_capture, show_explanation

    with progress() as tell:
        tell("optimizing", 0.0)
        result = onnxfuse.optimize(
            model,
            target=target.value,
            min_nodes=min_nodes,
            skip=tuple(skip or ()),
            only=tuple(only or ()),
            drop=tuple(drop or ()),
            fallback=False,
        )
        tell("asking ONNX Runtime", 0.5)
        placed = _placement(result) if target is Target.cuda else None
    obstacles = capture_obstacles(result.model) if target is Target.cuda else []
    if as_json:
        asked = None if placed is None else list(map(asdict, placed))
        capture = {"obstacles": list(map(asdict, obstacles)), "placed": asked} if target is Target.cuda else None
        print(json.dumps(result.report.to_dict() | {"capture": capture}, indent=2))
        return
    show_explanation(result.report, programs)
    if target is Target.cuda:
        show_capture(obstacles, placed)


def _placement(result: Result) -> list[Obstacle] | None:
    """What ONNX Runtime says of the optimized model, where a GPU is at hand."""
    try:
        if PROVIDERS["cuda"] not in runtime().get_available_providers():
            return None
        return placement_obstacles(result.with_weights())
    except OnnxfuseError:
        return None
