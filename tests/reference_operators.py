"""Operators as ONNX defines them and ONNX Runtime computes them, where onnx.reference (1.23) cannot follow.

A single one that it does not take would leave a whole model without a truth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_cum_sum import CumSum as PlainCumSum

__all__ = ["OPERATORS"]

Array = np.ndarray[Any, Any]


class CumSum(PlainCumSum):
    """Its axis may be a vector of one, too."""

    def _run(self, x: Array, axis: Array, **attributes: Any) -> tuple[Array, ...]:
        return tuple(super()._run(x, np.reshape(axis, ()), **attributes))


class Softsign(OpRun):
    """Of numbers without dimensions, too."""

    def _run(self, x: Array) -> tuple[Array, ...]:
        return (np.asarray(x / (1 + np.abs(x))),)


class Mean(OpRun):
    """Whichever of its operands is the largest."""

    def _run(self, *operands: Array) -> tuple[Array, ...]:
        return (np.asarray(sum(operands[1:], operands[0]) / len(operands), operands[0].dtype),)


class Flatten(OpRun):
    """Of empty tensors, too."""

    def _run(self, x: Array, axis: int = 1) -> tuple[Array, ...]:
        axis += x.ndim if axis < 0 else 0
        return (x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])),)


class Pad(OpRun):
    """With constants; pads below 0 cut off."""

    def _run(
        self,
        x: Array,
        pads: Sequence[int] | Array,
        constant: Array | None = None,
        axes: Array | None = None,
        mode: str = "constant",
        value: float | None = None,
    ) -> tuple[Array, ...]:
        if mode != "constant":
            raise NotImplementedError(mode)
        widths = [(0, 0)] * x.ndim
        over = range(x.ndim) if axes is None else [int(axis) for axis in axes]
        for k, axis in enumerate(over):
            widths[axis] = int(pads[k]), int(pads[k + len(over)])
        kept = tuple(slice(max(-a, 0), d - max(-b, 0)) for d, (a, b) in zip(x.shape, widths, strict=True))
        added = [(max(a, 0), max(b, 0)) for a, b in widths]
        fill = (value or 0) if constant is None else np.reshape(constant, ())
        return (np.pad(x[kept], added, constant_values=fill).astype(x.dtype),)


class ConvTranspose(OpRun):
    """In groups, too; with given pads."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        *,
        auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> tuple[Array, ...]:
        if auto_pad != "NOTSET" or output_shape:
            raise NotImplementedError("pads that follow from the shape")
        n, taps = x.ndim - 2, w.shape[2:]
        strides, dilations = strides or [1] * n, dilations or [1] * n
        pads, more = pads or [0] * 2 * n, output_padding or [0] * n
        covered = [
            (d - 1) * s + (t - 1) * k + 1 for d, s, t, k in zip(x.shape[2:], strides, taps, dilations, strict=True)
        ]
        whole = np.zeros((len(x), group, w.shape[1], *(c + m for c, m in zip(covered, more, strict=True))), x.dtype)
        inputs = x.reshape(len(x), group, -1, *x.shape[2:])
        weights = w.reshape(group, -1, *w.shape[1:])
        for tap in itertools.product(*map(range, taps)):
            places = tuple(
                slice(t * k, t * k + (d - 1) * s + 1, s)
                for t, k, d, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
            whole[(..., *places)] += np.einsum("ngc...,gcm->ngm...", inputs, weights[(..., *tap)])
        cut = tuple(slice(a, d - b) for a, b, d in zip(pads[:n], pads[n:], whole.shape[3:], strict=True))
        result = whole[(..., *cut)]
        result = result.reshape(len(x), -1, *result.shape[3:])
        return (result if bias is None else result + bias.reshape(-1, *[1] * n),)


def _along(x: Array, values: Array, axis: int) -> Array:
    """A scale or zero point as what broadcasts with x."""
    return (
        values.reshape(())
        if values.size == 1
        else values.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])
    )


class QuantizeLinear(OpRun):
    """Of all opsets; the quotient is float32."""

    def _run(
        self, x: Array, scale: Array, zero: Array | None = None, axis: int = 1, output_dtype: int = 0, **_: Any
    ) -> tuple[Array, ...]:
        dtype = zero.dtype if zero is not None else helper.tensor_dtype_to_np_dtype(output_dtype or TensorProto.UINT8)
        shift = 0 if zero is None else _along(x, zero, axis).astype(np.float32)
        limits = np.iinfo(dtype)
        quotient = x.astype(np.float32) / _along(x, scale, axis).astype(np.float32)
        return (np.clip(np.rint(quotient) + shift, limits.min, limits.max).astype(dtype),)


class DequantizeLinear(OpRun):
    """Of all opsets."""

    def _run(
        self, x: Array, scale: Array, zero: Array | None = None, axis: int = 1, output_dtype: int = 0, **_: Any
    ) -> tuple[Array, ...]:
        shift = 0 if zero is None else _along(x, zero, axis).astype(np.int64)
        return (((x.astype(np.int64) - shift) * _along(x, scale, axis)).astype(scale.dtype),)


OPERATORS: list[type[OpRun]] = [
    *(CumSum, Softsign, Mean, Flatten, Pad, ConvTranspose),
    *(QuantizeLinear, DequantizeLinear),
]
