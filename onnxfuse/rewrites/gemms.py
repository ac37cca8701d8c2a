"""What ONNX Runtime computes inside a Gemm on the CPU, and what it makes a Gemm of.

1. An activation that is the only user of a Gemm goes into it.
2. A MatMul of two matrices and the Add of a bias behind it become a Gemm, which takes in an activation as well.
3. So does, with a Reshape on both sides, a MatMul of a tensor of known shape by a matrix; an activation stays outside.
4. Not so where both matrices are dequantized bytes, the first uint8: a MatMul alone is then computed on bytes, a Gemm
   on floats (400 x 768 x 768 with bias and Sigmoid in 4.5 ms, a fused node behind the MatMul 1.2), but for one with a
   constant bias behind which the result is quantized again (on_bytes.py). Of int8 by int8 just that Gemm takes longer
   (13.4 ms, and 5.0): there a Relu between bias and QuantizeLinear is not left either.

What a fused node can gain there is the pass in which a Gemm writes its bias into the result. Measured on an EPYC, one
and two threads, as multiples of what ONNX Runtime takes for MatMul, Add and one or two operators more:

    result       Relu, Tanh, Sigmoid   Softmax, Erf, Relu and Neg
    1 x 128             1.14                     1.05
    64 x 64             1.06             0.92 to 0.99
    512 x 512   0.99 to 1.06             0.95 to 0.99
    2048 x 4096 0.77 to 0.96             0.65 to 0.84
"""

from __future__ import annotations

from collections.abc import Collection

from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering.quantization import QUANTIZE

__all__ = ["inside_gemms", "is_bias_of_bytes", "is_free_bias"]

_ACTIVATIONS = frozenset(
    ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Softsign", "ThresholdedRelu")
)
# From these sizes of the result on, the pass over it is worth more than what the Gemm takes in.
_WORTH_AN_ACTIVATION = 8 << 20
_WORTH_A_BIAS = 8 << 10


def inside_gemms(view: GraphView) -> dict[int, str]:
    """The activations that go into a Gemm, with the reason."""
    reasons: dict[int, str] = {}
    for i, proto in enumerate(view.protos):
        if proto.op_type not in _ACTIVATIONS or proto.domain or not proto.input or proto.input[0] not in view.producer:
            continue
        before = view.producer[proto.input[0]]
        if not view.only_user(proto.input[0]):
            continue
        if view.protos[before].op_type == "Gemm":
            reasons[i] = "ONNX Runtime computes this activation inside the Gemm before it"
        elif (
            _is_bias(view, before, _not_on_floats(view, i), of_matrices=True)
            and view.bytes_of(proto.input[0]) < _WORTH_AN_ACTIVATION
        ):
            reasons[i] = "ONNX Runtime computes this activation inside the Gemm that it makes of the MatMul before it"
    return reasons


def is_free_bias(view: GraphView, i: int) -> bool:
    """Whether a node adds a bias that ONNX Runtime adds inside a Gemm for nothing, since there are few elements."""
    return _is_bias(view, i, ("u8",), of_matrices=False) and view.bytes_of(view.protos[i].output[0]) < _WORTH_A_BIAS


def is_bias_of_bytes(view: GraphView, i: int) -> bool:
    """Whether a node adds a constant bias to a product of matrices of dequantized bytes, the first of them uint8."""
    proto = view.protos[i]
    ways = (proto.input, tuple(proto.input)[::-1])
    return proto.op_type == "Add" and any(
        bias in view.constants.names
        and _fits_gemm(view, value, bias, of_matrices=True)
        and _multiplies_bytes(view, value) == "u8"
        for value, bias in ways
    )


def _multiplies_bytes(view: GraphView, value: str) -> str:
    """The type of the bytes from which the first operand of a product was dequantized; "" where not both were."""
    a, b = (view.dequantized(n) for n in view.protos[view.producer[value]].input)
    return a if b else ""


def _not_on_floats(view: GraphView, i: int) -> tuple[str, ...]:
    """Of which bytes a product with an activation behind it is not left to a Gemm."""
    users = view.consumers.get(view.protos[i].output[0], ())
    bounded = view.protos[i].op_type == "Relu" and all(view.protos[c].op_type == QUANTIZE for c in users)
    return ("u8", "i8") if bounded else ("u8",)


def _is_bias(view: GraphView, i: int, of_bytes: Collection[str], *, of_matrices: bool) -> bool:
    """Whether ONNX Runtime makes a Gemm of an Add and the MatMul before it; not of dequantized bytes of these types."""
    proto = view.protos[i]
    if proto.op_type != "Add" or proto.domain or view.type_of(proto.output[0]).type not in ("f32", "f16"):
        return False
    ways = (proto.input, tuple(proto.input)[::-1])
    return any(
        _fits_gemm(view, value, bias, of_matrices) and _multiplies_bytes(view, value) not in of_bytes
        for value, bias in ways
    )


def _fits_gemm(view: GraphView, value: str, bias: str, of_matrices: bool) -> bool:
    if value not in view.producer or not view.only_user(value):
        return False
    proto = view.protos[view.producer[value]]
    if proto.op_type != "MatMul" or proto.domain:
        return False
    a, b, result, added = (view.type_of(n).shape for n in (*proto.input, proto.output[0], bias))
    if a is None or b is None or result is None or added is None or len(b) != 2 or not added:
        return False
    if len(a) != 2:
        static = all(isinstance(extent, int) for extent in (*a, *b))
        return not of_matrices and len(a) > 2 and static and added == (b[1],)
    rows, columns = result
    return added in ((columns,), (1, columns), (rows, columns), (rows, 1))
