"""The programs of a model's fused nodes: that each is valid, and that its local function says the same."""

from __future__ import annotations

import onnx

from onnxfuse.errors import ProgramError
from onnxfuse.runtime import fused_nodes

__all__ = ["check_programs", "node_label"]


def node_label(node: onnx.NodeProto) -> str:
    """How messages name a node: by its name, else by its first output."""
    return f"{node.op_type} node {node.name!r}" if node.name else f"{node.op_type} node of output {node.output[0]!r}"


def check_programs(model: onnx.ModelProto) -> None:
    """Parses and verifies the program of every fused node, also in subgraphs and local functions.

    Raises:
        ProgramError: one is missing, or does not parse or verify; the message names the node and the line.
    """
    from onnxfuse.custom_ops.program import Program

    for node in fused_nodes(model):
        text = next((a.s for a in node.attribute if a.name == "program"), None)
        if text is None:
            raise ProgramError(f"{node_label(node)}: it has no program")
        try:
            program = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = text[: error.start].count(b"\n") + 1
            raise ProgramError(f"{node_label(node)}: line {line}: its program is not UTF-8 text") from error
        try:
            Program.parse(program)
        except ProgramError as error:
            raise ProgramError(f"{node_label(node)}: {error}") from error
