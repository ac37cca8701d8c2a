"""The programs of a model's fused nodes: that each is valid, and that its local function says the same."""

from __future__ import annotations

import onnx

from onnxfuse.custom_ops.function import NoFunctionError, to_function
from onnxfuse.custom_ops.program import Program
from onnxfuse.errors import ProgramError
from onnxfuse.runtime import fused_nodes

__all__ = ["check_programs", "node_label", "wrong_functions"]


def node_label(node: onnx.NodeProto) -> str:
    """How messages name a node: by its name, else by its first output."""
    return f"{node.op_type} node {node.name!r}" if node.name else f"{node.op_type} node of output {node.output[0]!r}"


def check_programs(model: onnx.ModelProto) -> None:
    """Parses and verifies the program of every fused node, also in subgraphs and local functions.

    Raises:
        ProgramError: one is missing, or does not parse or verify; the message names the node and the line.
    """
    for node in fused_nodes(model):
        _program(node)


def _program(node: onnx.NodeProto) -> Program:
    text = next((a.s for a in node.attribute if a.name == "program"), None)
    if text is None:
        raise ProgramError(f"{node_label(node)}: it has no program")
    try:
        return Program.parse(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ProgramError(f"{node_label(node)}: line {line}: its program is not UTF-8 text") from error
    except ProgramError as error:
        raise ProgramError(f"{node_label(node)}: {error}") from error


def wrong_functions(model: onnx.ModelProto) -> list[str]:
    """The fused nodes that would compute something else where the library is absent, each with what is wrong.

    A node computes there what the local function of its overload says. That function is compared with the one that
    the program calls for; a node without a function is no fault, since the model then does not load there.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    functions = {(f.name, f.overload): f for f in model.functions if f.domain == "onnxfuse"}
    expected: dict[tuple[str, str], onnx.FunctionProto] = {}
    found = []
    for node in fused_nodes(model):
        function = functions.get((node.op_type, node.overload))
        if function is None:
            continue
        program = _program(node)
        key = (node.op_type, program.digest())
        if key not in expected:
            try:
                expected[key] = to_function(program, node.op_type, opset)
            except NoFunctionError:
                continue
        if node.overload != key[1]:
            found.append(f"{node_label(node)}: its local function (overload {node.overload!r}) is another program's")
        elif not _same(function, expected[key]):
            found.append(f"{node_label(node)}: its local function computes something else than its program")
    return found


def _same(a: onnx.FunctionProto, b: onnx.FunctionProto) -> bool:
    """Whether two functions have the same body; doc strings and metadata aside."""
    return list(a.input) == list(b.input) and list(a.output) == list(b.output) and list(a.node) == list(b.node)
