"""The command `bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug, Provider, parse_dims, parse_pairs
from onnxfuse.cli.progress import progress

__all__ = ["bench"]


@reports_errors
def bench(
    original: Annotated[Path, typer.Argument(metavar="A", help="The original model.", show_default=False)],
    optimized: Annotated[
        Path | None,
        typer.Argument(
            metavar="B", help="The optimized model; by default what optimize makes of A.", show_default=False
        ),
    ] = None,
    provider: Annotated[Provider, typer.Option(help="Where to run both models.")] = Provider.cpu,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N[,M]",
            help="Set a free dimension, by name or as INPUT.AXIS (repeatable); 2 where not set. Several extents are "
            "measured one after the other.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An .npz of inputs by name; others are made up.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads inside an operator; ONNX Runtime's choice by default.")
    ] = None,
    cuda_graph: Annotated[
        bool, typer.Option("--cuda-graph", help="Capture both models into CUDA graphs and replay them.")
    ] = False,
    provider_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Set an option of the execution provider (repeatable)."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure each set of shapes.")] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    no_noise_check: Annotated[
        bool, typer.Option("--no-noise-check", help="Do not measure a second session of the original.")
    ] = False,
    no_accounts: Annotated[
        bool, typer.Option("--no-accounts", help="Do not count nodes, bytes, memory and launches.")
    ] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List the generated kernels with registers, shared memory and occupancy.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Run both models in turn and say whether the optimized one is faster here, by how much, and beyond noise or not.

    \b
    Examples:
      onnxfuse bench model.onnx fused.onnx --dim batch=1,8 --threads 4
      onnxfuse bench model.onnx --provider cuda --cuda-graph
      onnxfuse bench model.onnx fused.onnx --json
    """
    from onnxfuse.benchmark import bench as run_bench
    from onnxfuse.cli.bench import show_bench

    with progress() as tell:
        result = run_bench(
            original,
            optimized,
            provider=provider.value,
            dims=parse_dims(dim or []),
            inputs=inputs,
            threads=threads,
            cuda_graph=cuda_graph,
            provider_options=parse_pairs(provider_option or [], "--provider-option"),
            seconds=seconds,
            seed=seed,
            noise=not no_noise_check,
            accounts=not no_accounts,
            progress=tell,
        )
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        show_bench(result, kernels)
