"""How single operators carry shapes from inputs to outputs, with symbolic dimensions as expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from onnxfuse.rewrites.dims import Dim, Shape, Symbols

__all__ = ["RULES", "Site", "TensorType"]


@dataclass(frozen=True)
class TensorType:
    """Element type (of the program language, or "" for any other) and shape (None: unknown rank) of a value."""

    type: str
    shape: Shape | None


Shapes: TypeAlias = list[Shape | None] | None


@dataclass(frozen=True)
class Site:
    """A node, the types of its inputs, and what is known of constant inputs."""

    node: onnx.NodeProto
    inputs: list[TensorType]
    constants: dict[str, np.ndarray]
    symbols: Symbols

    def attribute(self, name: str, default: object = None) -> object:
        """The value of an attribute, or `default`."""
        for a in self.node.attribute:
            if a.name == name:
                return onnx.helper.get_attribute_value(a)
        return default

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        """An attribute that is a list of integers."""
        value = self.attribute(name)
        return [int(v) for v in value] if isinstance(value, (list, tuple)) else list(default)

    def constant(self, i: int) -> np.ndarray | None:
        """The value of input `i`, where it is a small constant."""
        return self.constants.get(self.node.input[i]) if i < len(self.node.input) else None

    def axes(self) -> list[int] | None:
        """The axes, from input 1 or the attribute; None where they are not constant."""
        if len(self.node.input) > 1 and self.node.input[1]:
            value = self.constant(1)
            return None if value is None else [int(v) for v in value.reshape(-1)]
        return self.ints("axes", [])


def _broadcast(at: Site) -> Shapes:
    shapes = [i.shape for i in at.inputs]
    if any(s is None for s in shapes):
        return None
    return [at.symbols.broadcast(s for s in shapes if s is not None)]


def _same(at: Site) -> Shapes:
    return [at.inputs[0].shape] if at.inputs else None


def _transpose(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    perm = at.ints("perm", range(len(shape))[::-1])
    return [tuple(shape[p] for p in perm)]


def _window(at: Site) -> Shapes:
    """Convolutions and pools: a spatial extent that is symbolic becomes an expression of the one it comes from."""
    shape = at.inputs[0].shape
    if shape is None or len(shape) < 3:
        return None
    weight = at.inputs[1].shape if at.node.op_type == "Conv" and len(at.inputs) > 1 else None
    spatial = len(shape) - 2
    kernel = at.ints("kernel_shape", [w if isinstance(w, int) else 0 for w in weight[2:]] if weight is not None else [])
    if len(kernel) != spatial:
        return None
    strides, dilations = at.ints("strides", [1] * spatial), at.ints("dilations", [1] * spatial)
    pads = at.ints("pads", [0] * 2 * spatial)
    auto_pad = at.attribute("auto_pad", b"NOTSET")
    ceil = bool(at.attribute("ceil_mode", 0))
    result: list[Dim] = [shape[0], weight[0] if weight is not None else shape[1]]
    for k in range(spatial):
        extent, reach = shape[2 + k], dilations[k] * (kernel[k] - 1)
        padding = pads[k] + pads[spatial + k]
        if auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
            result.append(
                extent
                if strides[k] == 1
                else f"({extent}+{strides[k] - 1})/{strides[k]}"
                if isinstance(extent, str)
                else -(-extent // strides[k])
            )
        elif isinstance(extent, int):
            rounding = strides[k] - 1 if ceil else 0
            result.append((extent + padding - reach - 1 + rounding) // strides[k] + 1)
        elif strides[k] == 1 and padding == reach:
            result.append(extent)
        else:
            result.append(f"{'ceil' if ceil else ''}({extent}{padding - reach - 1:+d})/{strides[k]}+1")
    return [tuple(result)]


def _matmul(at: Site) -> Shapes:
    a, b = at.inputs[0].shape, at.inputs[1].shape
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    return [(*at.symbols.broadcast((a[:-2], b[:-2])), a[-2], b[-1])]


def _gemm(at: Site) -> Shapes:
    a, b = at.inputs[0].shape, at.inputs[1].shape
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    return [(a[1] if at.attribute("transA", 0) else a[0], b[0] if at.attribute("transB", 0) else b[1])]


def _concat(at: Site) -> Shapes:
    shapes = [i.shape for i in at.inputs]
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return None
    axis = int(str(at.attribute("axis", 0))) % max(len(first), 1)
    result: list[Dim] = []
    for k in range(len(first)):
        column = [s[k] for s in shapes if s is not None]
        if k == axis:
            result.append(
                sum(int(c) for c in column)
                if all(isinstance(c, int) for c in column)
                else "+".join(str(c) for c in column)
            )
        else:
            result.append(next((c for c in column if isinstance(c, int)), column[0]))
    return [tuple(result)]


def _reduce(at: Site) -> Shapes:
    shape, axes = at.inputs[0].shape, at.axes()
    if shape is None or (axes is None and not at.attribute("keepdims", 1)):
        return None
    if axes is None:
        return [tuple(1 if d == 1 else at.symbols.fresh() for d in shape)]
    reduced = {a % len(shape) for a in axes} if axes and shape else set(range(len(shape)))
    if at.attribute("keepdims", 1):
        return [tuple(1 if k in reduced else d for k, d in enumerate(shape))]
    return [tuple(d for k, d in enumerate(shape) if k not in reduced)]


def _unsqueeze(at: Site) -> Shapes:
    shape, axes = at.inputs[0].shape, at.axes()
    if shape is None or not axes:
        return None
    rank = len(shape) + len(axes)
    new, rest = {a % rank for a in axes}, iter(shape)
    return [tuple(1 if k in new else next(rest) for k in range(rank))]


def _squeeze(at: Site) -> Shapes:
    shape, axes = at.inputs[0].shape, at.axes()
    if shape is None or not axes:
        return None
    gone = {a % len(shape) for a in axes}
    return [tuple(d for k, d in enumerate(shape) if k not in gone)]


def _reshape(at: Site) -> Shapes:
    shape, target = at.inputs[0].shape, at.constant(1)
    if shape is None or target is None:
        return None
    wanted = [int(t) for t in target.reshape(-1)]
    zero_is_zero = bool(at.attribute("allowzero", 0))
    result: list[Dim] = []
    for k, t in enumerate(wanted):
        result.append(shape[k] if t == 0 and not zero_is_zero and k < len(shape) else t)
    if -1 in wanted:
        k = wanted.index(-1)
        have, rest = list(shape), [d for j, d in enumerate(result) if j != k]
        for d in list(rest):
            if d in have:
                have.remove(d)
                rest.remove(d)
        static = all(isinstance(d, int) for d in have) and all(isinstance(d, int) for d in rest)
        if static:
            below = int(np.prod([int(d) for d in rest], dtype=np.int64))
            result[k] = int(np.prod([int(d) for d in have], dtype=np.int64)) // below if below else at.symbols.fresh()
        elif not rest and len(have) == 1:
            result[k] = have[0]
        else:
            result[k] = f"{'*'.join(map(str, have)) or 1}/({'*'.join(map(str, rest)) or 1})"
    return [tuple(result)]


def _layer_norm(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    axis = int(str(at.attribute("axis", -1)))
    axis += len(shape) if axis < 0 else 0
    row = tuple(d if k < axis else 1 for k, d in enumerate(shape))
    return [shape, row, row]


_BROADCASTING = """Add Sub Mul Div Pow Mod Min Max Sum Mean And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual Where
BitShift BitwiseAnd BitwiseOr BitwiseXor"""
_SAME_SHAPE = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Not Reciprocal Relu Round Sigmoid Sign
Sin Sinh Softplus Softsign Sqrt Tan Tanh Elu Selu Celu HardSigmoid HardSwish LeakyRelu ThresholdedRelu Shrink Gelu Mish Swish
PRelu Clip Cast CastLike Identity IsInf IsNaN BitwiseNot Softmax LogSoftmax Hardmax LpNormalization MeanVarianceNormalization
InstanceNormalization GroupNormalization RMSNormalization BatchNormalization Dropout CumSum LRN QuantizeLinear DequantizeLinear"""
_REDUCTIONS = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"
)
RULES: dict[str, Callable[[Site], Shapes]] = {
    **dict.fromkeys(_BROADCASTING.split(), _broadcast),
    **dict.fromkeys(_SAME_SHAPE.split(), _same),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool"), _window),
    "LayerNormalization": _layer_norm,
    "Transpose": _transpose,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
}
