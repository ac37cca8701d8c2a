"""How single operators carry shapes from inputs to outputs, with symbolic dimensions as expressions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxfuse.rewrites.dims import Dim
from onnxfuse.rewrites.products import resized, scaled
from onnxfuse.rewrites.shape_movement import MOVEMENT
from onnxfuse.rewrites.shape_site import Shapes, Site

__all__ = ["RULES"]


def _broadcast(at: Site) -> Shapes:
    shapes = [i.shape for i in at.inputs]
    if any(s is None for s in shapes):
        return None
    return [at.symbols.broadcast(s for s in shapes if s is not None)]


def _same(at: Site) -> Shapes:
    return [at.inputs[0].shape] if at.inputs else None


def _window(at: Site) -> Shapes:
    """Convolutions and pools: a spatial extent that is symbolic becomes an expression of the one it comes from."""
    shape = at.inputs[0].shape
    if shape is None or len(shape) < 3:
        return None
    weight = at.inputs[1].shape if at.node.op_type == "Conv" and len(at.inputs) > 1 else None
    spatial = len(shape) - 2
    kernel: list[Dim] = list(at.ints("kernel_shape", [])) or list(weight[2:] if weight is not None else ())
    if len(kernel) != spatial:
        return None
    strides, dilations = at.ints("strides", [1] * spatial), at.ints("dilations", [1] * spatial)
    pads = at.ints("pads", [0] * 2 * spatial)
    auto_pad = at.attribute("auto_pad", b"NOTSET")
    ceil = bool(at.attribute("ceil_mode", 0))
    result: list[Dim] = [shape[0], weight[0] if weight is not None else shape[1]]
    for k in range(spatial):
        extent, taps, padding = shape[2 + k], kernel[k], pads[k] + pads[spatial + k]
        if auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
            result.append(
                extent
                if strides[k] == 1
                else f"({extent}+{strides[k] - 1})/{strides[k]}"
                if isinstance(extent, str)
                else -(-extent // strides[k])
            )
            continue
        if isinstance(taps, str):
            result.append(at.symbols.fresh())
            continue
        reach = dilations[k] * (taps - 1)
        if isinstance(extent, int):
            turns, rest = divmod(extent + padding - reach - 1, strides[k])
            # Whether a last window that begins in the padding counts depends on the version of the operator.
            result.append(at.symbols.fresh() if ceil and rest else turns + 1)
        elif strides[k] == 1 and padding == reach:
            result.append(extent)
        else:
            rounding = f"ceil[{pads[k]},{pads[spatial + k]}]" if ceil else ""
            result.append(f"{rounding}({extent}{padding - reach - 1:+d})/{strides[k]}+1")
    return [tuple(result)]


def _transposed_window(at: Site) -> Shapes:
    """ConvTranspose, of which ONNX's inference says nothing where an extent is symbolic."""
    shape, weight = at.inputs[0].shape, at.inputs[1].shape if len(at.inputs) > 1 else None
    if shape is None or weight is None or len(shape) < 3 or len(shape) != len(weight):
        return None
    spatial = len(shape) - 2
    strides, dilations = at.ints("strides", [1] * spatial), at.ints("dilations", [1] * spatial)
    more, pads = at.ints("output_padding", [0] * spatial), at.ints("pads", [0] * 2 * spatial)
    plain = at.attribute("auto_pad", b"NOTSET") == b"NOTSET" and at.attribute("output_shape") is None
    result: list[Dim] = [shape[0], scaled(weight[1], int(str(at.attribute("group", 1))))]
    for k, (extent, taps) in enumerate(zip(shape[2:], weight[2:], strict=True)):
        if not plain or isinstance(taps, str):
            result.append(at.symbols.fresh())
            continue
        rest = dilations[k] * (taps - 1) + 1 - strides[k] + more[k] - pads[k] - pads[spatial + k]
        made = scaled(extent, strides[k])
        result.append(made + rest if isinstance(made, int) else f"{made}{rest:+d}" if rest else made)
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


def _einsum(at: Site) -> Shapes:
    """Letters stand for extents; with an output that is spelled out, and no dots for what is left over."""
    given = at.attribute("equation")
    equation = given.decode().replace(" ", "") if isinstance(given, bytes) else ""
    terms, arrow, result = equation.partition("->")
    if not arrow or "." in equation:
        return None
    extents: dict[str, list[Dim]] = {}
    for term, value in zip(terms.split(","), at.inputs, strict=False):
        if value.shape is None or len(value.shape) != len(term):
            return None
        for letter, extent in zip(term, value.shape, strict=True):
            extents.setdefault(letter, []).append(extent)
    if any(letter not in extents for letter in result):
        return None

    def of(letter: str) -> Dim:
        if len({d for d in extents[letter] if isinstance(d, int)}) > 1:  # one is 1: ONNX Runtime may infer that
            return at.symbols.fresh()
        return at.symbols.broadcast((d,) for d in extents[letter])[0]

    return [tuple(of(letter) for letter in result)]


def _reduce(at: Site) -> Shapes:
    shape, axes, keepdims = at.inputs[0].shape, at.axes(), bool(at.attribute("keepdims", 1))
    if shape is None:
        return None
    if axes is None:
        count = at.inputs[1].shape[0] if at.inputs[1].shape is not None and len(at.inputs[1].shape) == 1 else None
        if keepdims:
            noop = bool(at.attribute("noop_with_empty_axes", 0)) and isinstance(count, str)
            return [tuple(at.symbols.left_by(at.node.input[1], len(shape), noop, k, d) for k, d in enumerate(shape))]
        if isinstance(count, int) and count <= len(shape):
            return [tuple(at.symbols.fresh() for _ in shape[count:])]  # which ones go is unknown
        return None
    if not axes and at.attribute("noop_with_empty_axes", 0):
        return [shape]
    reduced = {a % len(shape) for a in axes} if axes and shape else set(range(len(shape)))
    if keepdims:
        return [tuple(1 if k in reduced else d for k, d in enumerate(shape))]
    return [tuple(d for k, d in enumerate(shape) if k not in reduced)]


def _global_pool(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    return None if shape is None else [(*shape[:2], *(1 for _ in shape[2:]))]


def _pad(at: Site) -> Shapes:
    """Constant pads; a symbolic dimension that is padded becomes an expression."""
    shape = at.inputs[0].shape
    pads: list[Dim] | None = list(at.ints("pads", [])) if len(at.node.input) < 2 else at.dims(1)
    axes = at.dims(3) if len(at.node.input) > 3 and at.node.input[3] else None
    if shape is None or pads is None or (axes is None and len(at.node.input) > 3 and at.node.input[3]):
        return None
    if not all(isinstance(n, int) for n in (*pads, *(axes or ()))):
        return None
    chosen = [int(a) % len(shape) for a in axes] if axes is not None else list(range(len(shape)))
    if len(pads) != 2 * len(chosen):
        return None
    result = list(shape)
    for k, a in enumerate(chosen):
        extent, more = result[a], int(pads[k]) + int(pads[k + len(chosen)])
        if more:
            result[a] = extent + more if isinstance(extent, int) else f"({extent}){more:+d}"
    return [tuple(result)]


def _resize(at: Site) -> Shapes:
    """Resize and Upsample: dimensions with scale 1 stay, the others become expressions."""
    shape = at.inputs[0].shape
    scales = at.constant(1 if at.node.op_type == "Upsample" else 2)
    crops = at.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
    some = at.attribute("axes") is not None
    keeps_aspect = at.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    if shape is None or crops or some or keeps_aspect:
        return None
    if scales is not None and scales.size == len(shape):
        extents = [resized(d, np.float32(f)) for d, f in zip(shape, scales.reshape(-1), strict=True)]
        return [tuple(at.symbols.fresh() if e is None else e for e in extents)]
    sizes = at.dims(3)
    return [tuple(sizes)] if sizes is not None and len(sizes) == len(shape) else None


def _argument(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    axis = int(str(at.attribute("axis", 0))) % max(len(shape), 1)
    kept = bool(at.attribute("keepdims", 1))
    return [tuple(1 if k == axis else d for k, d in enumerate(shape) if kept or k != axis)]


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
CumProd LRN QuantizeLinear DequantizeLinear Trilu Scatter ScatterElements ScatterND ReverseSequence Bernoulli
RandomNormalLike RandomUniformLike RotaryEmbedding
"""
_REDUCTIONS = """
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare
"""
RULES: dict[str, Callable[[Site], Shapes]] = {
    **dict.fromkeys(_BROADCASTING.split(), _broadcast),
    **dict.fromkeys(_SAME_SHAPE.split(), _same),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool"), _window),
    "ConvTranspose": _transposed_window,
    **MOVEMENT,
    **dict.fromkeys(("ArgMax", "ArgMin"), _argument),
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    "Pad": _pad,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
}
