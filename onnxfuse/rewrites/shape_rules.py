"""How single operators carry shapes from inputs to outputs, with symbolic dimensions as expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from onnxfuse.rewrites.dims import Dim, Shape, Symbols, reaches_end
from onnxfuse.rewrites.shape_values import SymbolicValue, quotient, scaled

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
    values: dict[str, SymbolicValue]
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

    def dims(self, i: int) -> list[Dim] | None:
        """Input `i` as a list of dimensions, symbolic or not, where it is known."""
        name = self.node.input[i] if i < len(self.node.input) else ""
        value = self.values.get(name)
        if value is None:
            return None
        return [d if isinstance(d, str) else int(d) for d in value.reshape(-1)]

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
    shape, wanted = at.inputs[0].shape, at.dims(1)
    if shape is None or wanted is None:
        return None if wanted is None or -1 in wanted or 0 in wanted else [tuple(wanted)]
    zero_is_zero = bool(at.attribute("allowzero", 0))
    result = [shape[k] if t == 0 and not zero_is_zero and k < len(shape) else t for k, t in enumerate(wanted)]
    if -1 in wanted:
        # The rest: what remains of the input's dimensions after those that the result names.
        k = wanted.index(-1)
        have, rest = list(shape), [d for j, d in enumerate(result) if j != k]
        for d in list(rest):
            if d in have:
                have.remove(d)
                rest.remove(d)
        result[k] = quotient(_product(at, have), _product(at, rest))
    return [tuple(result)]


def _product(at: Site, dims: Sequence[Dim]) -> Dim:
    product: Dim = 1
    for d in sorted(dims, key=str):
        product = scaled(product, d)
    return product


def _flatten(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    axis = int(str(at.attribute("axis", 1)))
    axis += len(shape) if axis < 0 else 0
    return [(_product(at, shape[:axis]), _product(at, shape[axis:]))]


def _expand(at: Site) -> Shapes:
    shape, wanted = at.inputs[0].shape, at.dims(1)
    return None if shape is None or wanted is None else [at.symbols.broadcast((shape, tuple(wanted)))]


def _constant_of_shape(at: Site) -> Shapes:
    wanted = at.dims(0)
    return None if wanted is None else [tuple(wanted)]


def _global_pool(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    return None if shape is None else [(*shape[:2], *(1 for _ in shape[2:]))]


def _resize(at: Site) -> Shapes:
    """Resize and Upsample: dimensions with scale 1 stay, the others become expressions."""
    shape = at.inputs[0].shape
    scales = at.constant(1 if at.node.op_type == "Upsample" else 2)
    if shape is None:
        return None
    if scales is not None and scales.size == len(shape):
        factors = [float(f) for f in scales.reshape(-1)]
        return [
            tuple(
                d if f == 1 else int(d * f) if isinstance(d, int) else scaled(d, int(f) if f.is_integer() else f)
                for d, f in zip(shape, factors, strict=True)
            )
        ]
    sizes = at.dims(3)
    return [tuple(sizes)] if sizes is not None and len(sizes) == len(shape) else None


def _gather(at: Site) -> Shapes:
    shape, indices = at.inputs[0].shape, at.inputs[1].shape
    if shape is None or indices is None or not shape:
        return None
    axis = int(str(at.attribute("axis", 0))) % len(shape)
    return [(*shape[:axis], *indices, *shape[axis + 1 :])]


def _slice(at: Site) -> Shapes:
    """Only the sliced axes change; their extents are expressions of the bounds."""
    shape = at.inputs[0].shape
    if shape is None or len(at.node.input) < 3:
        return None
    starts, ends = at.dims(1), at.dims(2)
    axes = at.dims(3) if len(at.node.input) > 3 and at.node.input[3] else None
    steps = at.dims(4) if len(at.node.input) > 4 and at.node.input[4] else None
    if starts is None or ends is None or (axes is None and len(at.node.input) > 3 and at.node.input[3]):
        return None
    chosen = axes if axes is not None else list(range(len(starts)))
    result = list(shape)
    for k, axis in enumerate(chosen):
        a, step = int(axis) % len(shape), steps[k] if steps is not None else 1
        extent, start, end = shape[a], starts[k], ends[k]
        if all(isinstance(v, int) for v in (extent, start, end, step)):
            result[a] = len(range(*slice(int(start), int(end), int(step)).indices(int(extent))))
        elif start == 0 and step == 1 and reaches_end(shape, a, end):
            continue
        else:
            result[a] = f"slice({extent},{start},{end},{step})"
    return [tuple(result)]


def _split(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    axis = int(str(at.attribute("axis", 0))) % len(shape)
    sizes = at.dims(1) or at.ints("split", [])
    count = len(at.node.output)
    extent = shape[axis]
    if not sizes:
        if not isinstance(extent, int):
            return None
        part = -(-extent // count)
        sizes = [min(part, extent - k * part) for k in range(count)]
    return [(*shape[:axis], d, *shape[axis + 1 :]) for d in sizes]


def _layer_norm(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    axis = int(str(at.attribute("axis", -1)))
    axis += len(shape) if axis < 0 else 0
    row = tuple(d if k < axis else 1 for k, d in enumerate(shape))
    return [shape, row, row]


_BROADCASTING = """
Add Sub Mul Div Pow Mod Min Max Sum Mean And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual Where BitShift
BitwiseAnd BitwiseOr BitwiseXor
"""
_SAME_SHAPE = """
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Not Reciprocal Relu Round Sigmoid Sign Sin Sinh
Softplus Softsign Sqrt Tan Tanh Elu Selu Celu HardSigmoid HardSwish LeakyRelu ThresholdedRelu Shrink Gelu Mish Swish
PRelu Clip Cast CastLike Identity IsInf IsNaN BitwiseNot Softmax LogSoftmax Hardmax LpNormalization
MeanVarianceNormalization InstanceNormalization GroupNormalization RMSNormalization BatchNormalization Dropout CumSum
LRN QuantizeLinear DequantizeLinear
"""
_REDUCTIONS = """
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare
"""
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
    "Flatten": _flatten,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
}
