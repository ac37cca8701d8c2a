"""The command `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxfuse.cli.console import line
from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug, check_output

__all__ = ["restore"]


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

    check_output(output)
    onnxfuse.restore(model).save(output)
    line(f"wrote {output}")
