"""The command `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfuse.cli.console import line
from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug, check_output, is_input
from onnxfuse.cli.show import count_of

if TYPE_CHECKING:
    from onnxfuse.restore import Restored

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
    in_place = is_input(output, model)
    restored = onnxfuse.restore(model)
    restored.save(output)
    if restored.nodes:
        line(f"{count_of(restored.nodes, 'fused node')} -> standard operators; the model has {_size(restored)}")
    else:
        line("the model has no fused nodes: it stays as it is", "yellow")
    line(f"wrote {output}" + (" in place of the model that it was made from" if in_place else ""))


def _size(restored: Restored) -> str:
    from onnxfuse.outline import source_nodes

    return count_of(len(source_nodes(restored.model.graph)), "node")
