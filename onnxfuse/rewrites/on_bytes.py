"""What ONNX Runtime computes on bytes on the CPU, between DequantizeLinear and QuantizeLinear.

1. Add, Mul, Sigmoid and LeakyRelu, all of whose operands are dequantized bytes and whose result only one QuantizeLinear
   reads, are one operator on bytes. ReduceMax and ReduceMin are where both have the same scale and zero point.
2. A constant bias behind a MatMul of matrices of dequantized bytes, the first of uint8, is part of one Gemm on bytes
   where one QuantizeLinear reads the sum (400 x 768 x 768 in 1.13 ms, with the bias in a fused node 1.16; of int8 by
   int8 in 13.5 and 4.9).
3. A Relu or Clip that bounds nothing which QuantizeLinear would not bound itself goes away, so that what is before it
   becomes one operator on bytes: one of these, or a product of dequantized bytes.

Whatever else stands there is computed on floats, or in less time by a fused node that reads and stores bytes. On one
thread of an EPYC, 400 x 1536 bytes take in ONNX Runtime and in a fused node, in microseconds (ReduceMax: 400 x 768):

    Add 92 and 186, Mul 137 to 198 and 188, Sigmoid 155 and 293, LeakyRelu 155 and 222, ReduceMax 11 and 38
    Where 4266 and 202, Softmax 1535 and 252, Add and Relu with a bound of its own 332 and 196, Tanh 298 and 282

ONNX Runtime's CUDA provider computes none on bytes.
"""

from __future__ import annotations

import numpy as np
import onnx

from onnxfuse.rewrites.gemms import is_bias_of_bytes
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.quantization import DEQUANTIZE, QUANTIZE

__all__ = ["on_bytes"]

_OPERATORS = frozenset(("Add", "Mul", "Sigmoid", "LeakyRelu"))
_OF_EQUAL_SCALES = frozenset(("ReduceMax", "ReduceMin"))
_BOUNDS = frozenset(("Relu", "Clip"))
_BYTES = ("u8", "i8")


def on_bytes(view: GraphView) -> set[int]:
    """The nodes that ONNX Runtime computes on bytes, or leaves out, on the CPU."""
    return {i for i, proto in enumerate(view.protos) if proto.input and proto.output and _is_on_bytes(view, i)}


def _is_on_bytes(view: GraphView, i: int) -> bool:
    proto = view.protos[i]
    if proto.domain not in ("", "ai.onnx"):
        return False
    if proto.op_type in _BOUNDS:
        quantizer, before = _quantizer(view, proto.output[0]), view.producer.get(proto.input[0])
        if quantizer is None or before is None or _bounds_anything(view, proto, quantizer):
            return False
        maker = view.protos[before]
        if maker.op_type == DEQUANTIZE:
            return _have_same_scale(view, maker, quantizer)
        if not view.only_user(proto.input[0]):
            return False
        if (maker.domain, maker.op_type) not in LOWERINGS:
            return bool(maker.input) and bool(view.dequantized(maker.input[0]))
        return _computes_on_bytes(view, maker, quantizer)
    if proto.op_type not in _OPERATORS | _OF_EQUAL_SCALES:  # a bias is an Add
        return False
    quantizer = _behind_bounds(view, proto.output[0])
    return quantizer is not None and _computes_on_bytes(view, proto, quantizer)


def _computes_on_bytes(view: GraphView, proto: onnx.NodeProto, quantizer: onnx.NodeProto) -> bool:
    """Whether a node whose result goes to a QuantizeLinear is an operator on bytes with it and with what it reads."""
    if proto.op_type in _OF_EQUAL_SCALES:
        name = proto.input[0]
        return bool(view.dequantized(name)) and _have_same_scale(view, view.protos[view.producer[name]], quantizer)
    if proto.op_type in _OPERATORS and all(map(view.dequantized, proto.input)):
        return True
    return is_bias_of_bytes(view, view.producer[proto.output[0]])


def _behind_bounds(view: GraphView, name: str) -> onnx.NodeProto | None:
    """The QuantizeLinear that alone reads a value, perhaps behind bounds that are its own as well; or None."""
    if not view.only_user(name):
        return None
    (user,) = view.consumers[name]
    proto = view.protos[user]
    if proto.op_type not in _BOUNDS or proto.input[0] != name:
        return _quantizer(view, name)
    quantizer = _quantizer(view, proto.output[0])
    return None if quantizer is None or _bounds_anything(view, proto, quantizer) else quantizer


def _quantizer(view: GraphView, name: str) -> onnx.NodeProto | None:
    """The QuantizeLinear to bytes that alone reads a value, or None."""
    if not view.only_user(name):
        return None
    proto = view.protos[view.consumers[name][0]]
    quantizes = proto.op_type == QUANTIZE and proto.input[0] == name
    return proto if quantizes and view.type_of(proto.output[0]).type in _BYTES else None


def _bounds_anything(view: GraphView, proto: onnx.NodeProto, quantizer: onnx.NodeProto) -> bool:
    """Whether a Relu or Clip keeps something from the QuantizeLinear behind it that lies within its range."""
    scale, zero = (_constant(view, quantizer, k) for k in (1, 2))
    if scale is None or zero is None:
        return True
    limits = np.iinfo(np.int8 if view.type_of(quantizer.output[0]).type == "i8" else np.uint8)
    low, high = ((limit - zero) * scale for limit in (int(limits.min), int(limits.max)))
    if proto.op_type == "Relu":
        return low < 0
    given = {a.name: a.f for a in proto.attribute}  # before opset 11
    least, most = (
        given.get(name) if name in given else _constant(view, proto, k) if _has(proto, k) else end
        for k, name, end in ((1, "min", -np.inf), (2, "max", np.inf))
    )
    return least is None or most is None or least > low or most < high


def _has(proto: onnx.NodeProto, k: int) -> bool:
    return k < len(proto.input) and bool(proto.input[k])


def _constant(view: GraphView, proto: onnx.NodeProto, k: int) -> float | None:
    """Input `k` where it is one known number; 0 where it is left out."""
    if not _has(proto, k):
        return 0.0
    found = view.constants.values.get(proto.input[k])
    return float(found.reshape(())) if found is not None and found.size == 1 else None


def _have_same_scale(view: GraphView, a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
    """Whether two quantizers have equal scales and zero points."""
    for k in (1, 2):
        names = [p.input[k] if _has(p, k) else "" for p in (a, b)]
        x, y = (view.constants.values.get(n) for n in names)
        if names[0] != names[1] and (x is None or y is None or x.dtype != y.dtype or not np.array_equal(x, y)):
            return False
    return True
