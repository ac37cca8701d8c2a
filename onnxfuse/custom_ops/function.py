"""A program in standard ONNX operators: the one lowering behind local functions, `restore` and the tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import FunctionProto, NodeProto, helper

from onnxfuse.custom_ops import DOMAIN
from onnxfuse.custom_ops.emit import Emitter, NoFunctionError
from onnxfuse.custom_ops.layout import Source, Space, Value
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply, Const, Input, Kernel, Program
from onnxfuse.custom_ops.quantizers import Quantizer, find_quantizer
from onnxfuse.custom_ops.reads import read
from onnxfuse.custom_ops.scans import argument, scan
from onnxfuse.custom_ops.spell import compute_type, narrowed, spell
from onnxfuse.custom_ops.spell_axes import reduce_over, scan_over
from onnxfuse.custom_ops.stores import Part, store
from onnxfuse.custom_ops.types import to_numpy

__all__ = ["NoFunctionError", "to_function", "to_nodes"]


def to_nodes(
    program: Program, inputs: Sequence[str], outputs: Sequence[str], opset: int, prefix: str
) -> list[NodeProto]:
    """The nodes that compute a verified program's outputs from its inputs, in order.

    Args:
        program: a verified program.
        inputs: the names of its input tensors, by number.
        outputs: the names of its output tensors, by number.
        opset: the version of the standard operators, 7 or later.
        prefix: what the names of all other values and of the nodes start with.

    Raises:
        NoFunctionError: the operators of that opset cannot say the program.
    """
    emitter = Emitter(opset, prefix)
    if "bf16" in {type_ for type_, _ in (*program.inputs, *program.outputs)}:
        emitter.require("bfloat16", 13)
    parts: dict[int, list[Part]] = {}
    for kernel in program.kernels:
        space = Space(emitter, kernel, inputs)
        values = _values(space, kernel)
        for output in kernel.outputs:
            parts.setdefault(output.tensor, []).append((output, space, values[output.value]))
    results = [store(emitter, parts[tensor]) for tensor in sorted(parts)]
    return emitter.finish(results, outputs, inputs)


def to_function(program: Program, op_type: str, opset: int) -> FunctionProto:
    """The local function for the nodes of this op type that carry the program: `overload` is the program's digest.

    Raises:
        NoFunctionError: the operators of that opset cannot say the program.
    """
    inputs = [f"x{number}" for number in range(len(program.inputs))]
    outputs = [f"y{number}" for number in range(len(program.outputs))]
    nodes = to_nodes(program, inputs, outputs, opset, "v")
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function(
        DOMAIN, op_type, inputs, outputs, nodes, opsets, attributes=["program"], overload=program.digest()
    )


def _values(space: Space, kernel: Kernel) -> dict[int, Value]:
    """The values that the kernel's outputs need, by statement."""
    needed = {output.value for output in kernel.outputs}
    quantizers: dict[int, Quantizer] = {}
    for number in reversed(range(len(kernel.statements))):
        statement = kernel.statements[number]
        if number not in needed or not isinstance(statement, Apply):
            continue
        if quantizer := find_quantizer(kernel, number, space.emitter.opset):
            quantizers[number] = quantizer
            needed.add(quantizer.operand)
        else:
            needed.update(statement.operands)
    values: dict[int, Value] = {}
    for number in sorted(needed):
        statement = kernel.statements[number]
        if isinstance(statement, Input):
            values[number] = read(space, statement)
        elif isinstance(statement, Const):
            constant = space.emitter.constant(np.array(statement.value, to_numpy(statement.type)))
            values[number] = Value(constant, statement.type)
        elif number in quantizers:
            x = values[quantizers[number].operand]
            values[number] = Value(quantizers[number].emit(space.emitter, x.name), statement.type, x.rank, x.sources)
        else:
            values[number] = _apply(space, statement, [values[operand] for operand in statement.operands])
    return values


def _apply(space: Space, apply: Apply, operands: Sequence[Value]) -> Value:
    if apply.op == "cast":
        (x,) = operands
        return Value(space.emitter.cast(x.name, x.type, apply.type), apply.type, x.rank, x.sources)
    kind, axes = PRIMITIVES[apply.op].kind, space.kernel.axes
    if axes is not None and kind in ("reduction", "scan"):
        return {"reduction": reduce_over, "scan": scan_over}[kind](space, axes, apply, operands[0])
    collective = {"reduction": _reduce, "argument": argument, "scan": scan}.get(kind)
    if collective:
        return collective(space, apply, operands[0])
    sources: dict[int, frozenset[Source]] = {}
    for operand in operands:
        for k, own in operand.sources.items():
            sources[k] = sources.get(k, frozenset()) | own
    name = spell(space.emitter, apply.op, operands[-1].type, [operand.name for operand in operands])
    return Value(name, apply.type, max(operand.rank for operand in operands), sources)


def _reduce(space: Space, apply: Apply, x: Value) -> Value:
    e = space.emitter
    reduced = space.kernel.reduced_dims
    if apply.op in ("reduce_sum", "reduce_prod"):  # where each point counts, also those that broadcasting adds
        x = space.spread(x, sorted(reduced))
    primitive = PRIMITIVES[apply.op]
    wide = compute_type(primitive, x.type, e.opset)
    if wide is None or primitive.onnx is None:
        raise NoFunctionError(f"{primitive.onnx} of {x.type} does not exist in opset {e.opset}")
    axes = [place for place, k in enumerate(space.axes(x.rank)) if k in reduced]
    name = e.reduce(primitive.onnx, e.cast(x.name, x.type, wide), axes)
    may_be_empty = not all(space.kernel.extents[k] for k in reduced)  # 0 or unknown
    name = narrowed(e, apply.op, name, wide, x.type, may_be_empty=may_be_empty)
    return Value(name, x.type, x.rank, {k: own for k, own in x.sources.items() if k not in reduced})
