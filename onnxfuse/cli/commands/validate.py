"""The command `validate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.errors import MISMATCH, reports_errors
from onnxfuse.cli.options import Debug, Provider, parse_dims
from onnxfuse.cli.progress import progress

__all__ = ["validate"]


@reports_errors
def validate(
    original: Annotated[Path, typer.Argument(metavar="A", help="The original model.", show_default=False)],
    optimized: Annotated[Path, typer.Argument(metavar="B", help="The optimized model.", show_default=False)],
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N[,M]",
            help="Set a free dimension, by name or as INPUT.AXIS (repeatable); 2 where not set. Of several extents, "
            "each combination is tried.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An .npz of inputs by name; others are made up.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many sets of inputs to try, from --seed on.")] = 1,
    provider: Annotated[Provider, typer.Option(help="Where to run both models.")] = Provider.cpu,
    original_provider: Annotated[
        Provider | None, typer.Option(help="Where to run A, if elsewhere.", show_default=False)
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Allowed error as a share of an output's largest value; by default 1e-10 for float64, 1e-4 for "
            "float32, 2e-2 for float16, 1e-1 for bfloat16.",
            show_default=False,
        ),
    ] = None,
    float64: Annotated[
        bool,
        typer.Option("--float64", help="Compare both with A evaluated in float64, too; takes long for large models."),
    ] = False,
    nodes: Annotated[
        bool,
        typer.Option("--nodes", help="Compare what each fused node writes, too, which outputs can hide."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Run both models in ONNX Runtime on the same inputs and compare every output.

    Where they differ, the node is named at which they part, with the nodes of A that it stands for.
    Exit code 0 where all agree, 1 where one does not, 2 where that cannot be found out.

    \b
    Examples:
      onnxfuse validate model.onnx fused.onnx
      onnxfuse validate model.onnx fused.onnx --dim batch=1,2,7 --dim tokens=128 --seeds 3
      onnxfuse validate model.onnx fused.onnx --inputs sample.npz --provider cuda --original-provider cpu --json
    """
    from onnxfuse.cli.validation import show_validation
    from onnxfuse.validate.validation import validate as run_validation

    with progress() as tell:
        result = run_validation(
            original,
            optimized,
            dims=parse_dims(dim or []),
            inputs=inputs,
            seed=seed,
            seeds=seeds,
            provider=provider.value,
            original_provider=original_provider.value if original_provider else None,
            tolerance=tolerance,
            float64=float64,
            nodes=nodes,
            progress=tell,
        )
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        show_validation(result)
    if not result.ok:
        raise typer.Exit(MISMATCH)
