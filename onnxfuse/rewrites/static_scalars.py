"""Gives element-wise operators the numbers that exporters have a model compute from shapes that are known.

TorchScript's exporter has each attention compute its scale from the extent of a head: Shape, Slice, Cast, Sqrt, Div.
Where that extent is static, the scale is a constant, and what computed it goes. As it stands, the scale follows from a
result of the region that it belongs to, which therefore could not take the multiplication in.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxfuse.editing import ModelEditor
from onnxfuse.external_data import with_small_values
from onnxfuse.report import Refusal
from onnxfuse.rewrites.constants import FOLDED, Constants, find_constants, fold
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.shapes import infer, symbolic_scope

__all__ = ["fix_static_scalars"]

_REASON = "it computes on shapes that are known: a constant stands in its place"


def fix_static_scalars(editor: ModelEditor, opset: int, base_dir: Path | None = None) -> list[Refusal] | None:
    """Rewrites a model's main graph; says of the operators that went why, or None where nothing changed.

    External data is in `base_dir`.
    """
    if not any(node.op in ("Shape", "Size") for node in editor.graph.nodes):
        return None
    model = with_small_values(editor.to_model(), base_dir)
    derived: dict[str, np.ndarray] = {}
    symbolic_scope(infer(model, distinct=True).graph, {}, Symbols(), model.graph, derived)
    numbers = _follow(model, derived, opset)
    constants: dict[str, gs.Constant] = {}
    replaced: list[gs.Tensor] = []
    for node in editor.graph.nodes:
        if not _computes(node):
            continue
        if all(t.name in numbers or isinstance(t, gs.Constant) for t in node.inputs):
            continue  # itself part of what goes
        for place, tensor in enumerate(node.inputs):
            if tensor.name not in numbers:
                continue
            if tensor.name not in constants:
                name = editor.unique_name(f"{tensor.name}_static")
                constants[tensor.name] = gs.Constant(name, numbers[tensor.name])
                replaced.append(tensor)
            node.inputs[place] = constants[tensor.name]
    gone = _unused(replaced, editor.required())
    reasons = [Refusal(n.name or f"{n.op}({n.outputs[0].name})", n.op, _REASON) for n in gone if _computes(n)]
    editor.remove_nodes(gone)
    return reasons if constants else None


def _computes(node: gs.Node) -> bool:
    return (node.domain or "", node.op) in LOWERINGS and node.op not in FREE | COPIES


def _follow(model: onnx.ModelProto, derived: dict[str, np.ndarray], opset: int) -> dict[str, np.ndarray]:
    """The floats of one element that follow from integers that follow from static shapes."""
    constant = find_constants(model.graph, Constants(), model.ir_version, opset)
    known = Constants(constant.names | derived.keys(), {**constant.values, **derived})
    for node in model.graph.node:
        names = [n for n in node.input if n]
        if node.op_type in FOLDED and node.domain in ("", "ai.onnx") and names and node.output[0] not in known.values:
            fold(known, node, opset)
    return {
        name: value
        for name, value in known.values.items()
        if name not in constant.names and value.size == 1 and value.dtype.kind == "f"
    }


def _unused(tensors: list[gs.Tensor], kept: Container[int]) -> list[gs.Node]:
    """What made the tensors, and what made its inputs, where nothing uses it any more."""
    gone: dict[int, gs.Node] = {}
    pending = list(tensors)
    while pending:
        for maker in pending.pop().inputs:
            users = [user for t in maker.outputs for user in t.outputs]
            if id(maker) in gone or any(id(t) in kept for t in maker.outputs) or any(id(u) not in gone for u in users):
                continue
            gone[id(maker)] = maker
            pending += [t for t in maker.inputs if isinstance(t, gs.Variable)]
    return list(gone.values())
