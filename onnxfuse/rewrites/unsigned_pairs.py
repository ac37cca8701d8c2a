"""Has values that are quantized to int8 and dequantized again be of uint8 in between, for the CPU.

On x86 ONNX Runtime does so itself, since its kernels multiply uint8 by int8 and no int8 by int8, but only where it
finds the two operators: where a fused node stores the bytes, or reads them, it would compute the product beside it on
floats. The zero points move by 128 with the bytes, so that each value stands for the same number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxfuse.bodies import bodies, graphs, own_names, read_names
from onnxfuse.rewrites.lowering.quantization import DEQUANTIZE, QUANTIZE

__all__ = ["with_unsigned_pairs"]

_Constants = Mapping[str, TensorProto]


def with_unsigned_pairs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """The model with uint8 in place of int8, and for how many values; the model itself where there are none."""
    if model.training_info or not any(n.op_type == QUANTIZE for g in graphs(model.graph) for n in g.node):
        return model, 0
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    pairs = _Pairs(copy)
    pairs.convert(copy.graph, {})
    return (copy, pairs.count) if pairs.count else (model, 0)


class _Pairs:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.names = {name for g in graphs(model.graph) for name in own_names(g)}
        self.ir_version = model.ir_version
        self.count = 0

    def convert(self, graph: onnx.GraphProto, outer: _Constants) -> None:
        """Converts the pairs of a graph and of those in it; `outer` has constants around it."""
        own = own_names(graph)
        constants = {name: t for name, t in outer.items() if name not in own} | _constants(graph, self.ir_version)
        users: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in read_names(node):
                users.setdefault(name, []).append(node)
        kept = {o.name for o in graph.output}
        made: list[onnx.NodeProto] = []
        for node in graph.node:
            readers = users.get(node.output[0], []) if node.op_type == QUANTIZE and node.output else []
            if not readers or node.output[0] in kept or not all(_only_dequantizes(r, node.output[0]) for r in readers):
                continue
            quantizers = [node, *readers]
            zeros = [zero for q in quantizers if (zero := _moved_zero(q, constants)) is not None]
            if len(zeros) < len(quantizers):
                continue
            for quantizer, zero in zip(quantizers, zeros, strict=True):
                name = self.fresh(f"{node.output[0]}_zero_point")
                made.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(zero, name)))
                quantizer.input[:] = [*quantizer.input[:2], name]
            for value in graph.value_info:
                if value.name == node.output[0]:
                    value.type.tensor_type.elem_type = TensorProto.UINT8
            self.count += 1
        for node in graph.node:
            for _, body in bodies(node):
                self.convert(body, constants)
        if made:
            nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in (*made, *graph.node)]
            del graph.node[:]
            graph.node.extend(nodes)

    def fresh(self, base: str) -> str:
        name, k = base, 0
        while name in self.names:
            k += 1
            name = f"{base}_{k}"
        self.names.add(name)
        return name


def _only_dequantizes(node: onnx.NodeProto, name: str) -> bool:
    """Whether that is all that the node does with the value."""
    return node.op_type == DEQUANTIZE and node.input[0] == name and list(node.input).count(name) == 1


def _moved_zero(node: onnx.NodeProto, constants: _Constants) -> np.ndarray | None:
    """The zero point of a quantizer of int8 as that of uint8; None where it is of another type, or not known."""
    if len(node.input) > 2 and node.input[2]:
        tensor = constants.get(node.input[2])
        if tensor is None or tensor.data_type != TensorProto.INT8:
            return None
        return (numpy_helper.to_array(tensor).astype(np.int16) + 128).astype(np.uint8)
    scale = constants.get(node.input[1])  # along which a zero point of 0 may be left out in front of what reads int8
    return None if scale is None or node.op_type == QUANTIZE else np.full(tuple(scale.dims), 128, np.uint8)


def _constants(graph: onnx.GraphProto, ir_version: int) -> dict[str, TensorProto]:
    """The constants of a graph whose values are at hand."""
    overridable = {i.name for i in graph.input} if ir_version >= 4 else set()
    found = {t.name: t for t in graph.initializer if t.name not in overridable}
    for node in graph.node:
        if node.op_type == "Constant" and node.output:
            found.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return {name: t for name, t in found.items() if t.data_location != TensorProto.EXTERNAL}
