"""Opsets that ONNX Runtime does not load yet.

A model of such an opset can declare the newest one that it loads where every operator that is left means the same
there: what was fused no longer needs the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import TensorProto

from onnxfuse.rewrites.lowering import RUNNABLE_OPSET
from onnxfuse.rewrites.shapes import infer

__all__ = ["declare_runnable"]

# The newest IR version that ONNX Runtime 1.31 and 1.32 load. Version 14 adds two element types.
_RUNNABLE_IR = 13
_NEW_TYPES = frozenset(
    getattr(TensorProto, name) for name in ("FLOAT6E2M3", "FLOAT6E3M2") if hasattr(TensorProto, name)
)
_STANDARD = ("", "ai.onnx")


def declare_runnable(model: onnx.ModelProto) -> str:
    """Lets a model declare the newest opset and IR version that ONNX Runtime loads; else says what is in the way.

    The model is changed where the answer is "" only. An operator means the same in two opsets where its schema is the
    same one, or where the newer one adds nothing but element types, and the node uses none of those.
    """
    owners = [model, *(f for f in model.functions if f.domain != "onnxfuse")]
    for owner in owners:
        opset = _opset(owner)
        if opset > onnx.defs.onnx_opset_version():
            return f"the onnx package installed does not know opset {opset}"
        if opset > RUNNABLE_OPSET and (changed := _changed(owner, opset)):
            return f"{changed} has another meaning, or none, in opset {RUNNABLE_OPSET}"
    if model.ir_version > _RUNNABLE_IR and any(t in _NEW_TYPES for t in _types(model.graph).values()):
        return "it has tensors of 6-bit floats"
    for owner in owners:
        for entry in owner.opset_import:
            if entry.domain in _STANDARD:
                entry.version = min(entry.version, RUNNABLE_OPSET)
    model.ir_version = min(model.ir_version, _RUNNABLE_IR)
    return ""


def _opset(owner: onnx.ModelProto | onnx.FunctionProto) -> int:
    return max((int(o.version) for o in owner.opset_import if o.domain in _STANDARD), default=0)


def _changed(owner: onnx.ModelProto | onnx.FunctionProto, opset: int) -> str:
    """A node whose operator is new or another one since the newest opset that ONNX Runtime loads; or ""."""
    if isinstance(owner, onnx.FunctionProto):
        nodes: Iterator[tuple[onnx.NodeProto, Mapping[str, int]]] = _nodes(owner.node, {})
    else:
        graph = infer(owner).graph
        nodes = _nodes(graph.node, _types(graph))
    for node, types in nodes:
        if node.domain in _STANDARD and not _same_meaning(node, types, opset):
            return f"{node.op_type} ({next((o for o in node.output if o), '')})"
    return ""


def _nodes(
    nodes: Iterator[onnx.NodeProto], types: Mapping[str, int]
) -> Iterator[tuple[onnx.NodeProto, Mapping[str, int]]]:
    for node in nodes:
        yield node, types
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g.node, {**types, **_types(attribute.g)})


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    return types | {t.name: t.data_type for t in graph.initializer}


def _same_meaning(node: onnx.NodeProto, types: Mapping[str, int], opset: int) -> bool:
    try:
        new = onnx.defs.get_schema(node.op_type, opset)
        old = onnx.defs.get_schema(node.op_type, RUNNABLE_OPSET)
    except onnx.defs.SchemaError:
        return False
    if new.since_version == old.since_version:
        return True
    if _contract(new) != _contract(old):
        return False
    allowed = {c.type_param_str: c.allowed_type_strs for c in old.type_constraints}
    for names, formals in ((node.input, old.inputs), (node.output, old.outputs)):
        for k, name in enumerate(names):
            formal = formals[min(k, len(formals) - 1)].type_str
            if name and _type_string(types.get(name, 0)) not in allowed.get(formal, [formal]):
                return False
    return True


def _contract(schema: onnx.defs.OpSchema) -> object:
    """What an operator does, but for the element types that it takes."""
    return (
        schema.doc,
        sorted((a.name, a.description, a.required, str(a.default_value)) for a in schema.attributes.values()),
        [(x.name, x.type_str, x.option) for x in (*schema.inputs, *schema.outputs)],
    )


def _type_string(element: int) -> str:
    names = {number: name for name, number in TensorProto.DataType.items()}
    return f"tensor({names.get(element, '').lower()})"
