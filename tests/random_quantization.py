"""QuantizeLinear and DequantizeLinear in random graphs, alone and around products.

Scales are powers of two, and only values that no rounding touched are quantized: then no two ways of computing them
part at a tie.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from random_products import Products
from random_values import LARGE, Var

_BYTES = (TensorProto.UINT8, TensorProto.UINT8, TensorProto.INT8)
_WORDS = (TensorProto.UINT16, TensorProto.INT16)


class Quantization(Products):
    """Steps that leave floats and come back to them."""

    def quantizer_types(self) -> tuple[int, ...]:
        return _BYTES if self.opset < 21 or self.rng.random() < 0.8 else _WORDS

    def scale_types(self) -> tuple[int, ...]:
        return (TensorProto.FLOAT,) if self.opset < 19 else (TensorProto.FLOAT, TensorProto.FLOAT16)

    def parameters(self, x: Var, scale_type: int, type_: int, zero: bool) -> tuple[list[str], float, dict[str, int]]:
        """Names of a scale and perhaps a zero point, the largest scale, and attributes."""
        rng, limits = self.rng, np.iinfo(helper.tensor_dtype_to_np_dtype(type_))
        axes = [k for k, d in enumerate(x.shape) if d > 0] if self.opset >= 13 and rng.random() < 0.3 else []
        axis = int(rng.choice(axes)) if axes else None
        shape = [(), (), (1,)][int(rng.integers(3))] if axis is None else (x.shape[axis],)
        scale = 2.0 ** rng.integers(-6, 1, shape)
        names = [self.constant(np.asarray(scale, helper.tensor_dtype_to_np_dtype(scale_type)))]
        if zero:
            low, high = (0, 1) if rng.random() < 0.3 else (max(int(limits.min), -140), min(int(limits.max), 140))
            if rng.random() < 0.2:
                low, high = int(limits.min), int(limits.min) + 1
            names.append(self.constant(np.asarray(rng.integers(low, high, shape), limits.dtype)))
        attributes = {} if axis is None else {"axis": axis - len(x.shape) if rng.random() < 0.4 else axis}
        return names, float(np.max(scale)), attributes

    def quantize(self, x: Var | None = None) -> Var | None:
        """What has no zero point becomes uint8."""
        if self.opset < 10:
            return None
        x = x or self.pick(lambda v: v.type in self.scale_types() and v.exact and v.bound <= LARGE)
        if x is None:
            return None
        zero = self.rng.random() < 0.8
        type_ = int(self.rng.choice(self.quantizer_types())) if zero else TensorProto.UINT8
        names, _, attributes = self.parameters(x, x.type, type_, zero)
        bound = float(np.iinfo(helper.tensor_dtype_to_np_dtype(type_)).max)
        return self.add("QuantizeLinear", [x, *names], x.shape, bound, type_, True, **attributes)

    def dequantize(self, x: Var | None = None) -> Var | None:
        if self.opset < 10:
            return None
        types = self.quantizer_types()
        x = x or self.pick(lambda v: v.type in types) or self.fresh_bytes(self.shape(int(self.rng.integers(0, 4))))
        scales = self.scale_types() if x.type in _BYTES else (TensorProto.FLOAT,)  # float16 does not hold all words
        scale_type = int(self.rng.choice(scales))
        names, largest, attributes = self.parameters(x, scale_type, x.type, self.rng.random() < 0.8)
        bound = largest * 2 * (128 if x.type in _BYTES else 32768) + largest * 140
        return self.add("DequantizeLinear", [x, *names], x.shape, bound, scale_type, True, **attributes)

    def fresh_bytes(self, shape: tuple[int, ...], external: bool | None = None) -> Var:
        return self.fresh(shape, int(self.rng.choice(_BYTES)), external=external)

    def quantized(self) -> Var | None:
        """Some steps from floats to integers and back, between other operators."""
        kind = self.rng.random()
        y = self.dequantize() if kind < 0.4 else self.quantized_product() if kind < 0.6 else self.made_and_quantized()
        if y is None or kind > 0.85:
            return y
        y = y if y.floating else self.dequantize(y)
        if y is not None and self.rng.random() < 0.5:
            y = self.movement_of(y)
        return y if y is None or self.rng.random() < 0.2 else self.unary(y)

    def made_and_quantized(self) -> Var | None:
        x = self.pick(lambda v: v.type in self.scale_types() and v.exact and v.bound <= LARGE)
        if x is None or self.rng.random() < 0.2:
            return self.quantize(x)
        for op in self.rng.choice(["Neg", "Abs", "Relu"], int(self.rng.integers(1, 3))):
            x = self.add(str(op), [x], x.shape, x.bound, exact=True)
        moved = self.movement_of(x) if self.rng.random() < 0.3 else x
        return self.quantize(moved if moved.exact else x)

    def quantized_product(self) -> Var | None:
        """A MatMul between DequantizeLinear and QuantizeLinear, with a Relu behind it now and then."""
        x = self.pick(lambda v: v.type in _BYTES and 2 <= len(v.shape) <= 4 and 0 < v.shape[-1] <= 16)
        if x is None or self.opset < 13:
            return None
        columns = int(self.rng.integers(1, 7))
        if int(np.prod(x.shape[:-1])) * columns > self.most_elements:
            return None
        a = self.dequantized(x)
        b = self.dequantized(self.fresh_bytes((x.shape[-1], columns), external=False))
        y = self.add("MatMul", [a, b], (*x.shape[:-1], columns), a.bound * b.bound * x.shape[-1], exact=True)
        if self.rng.random() < 0.4:
            y = self.add("Relu", [y], y.shape, y.bound, exact=True)
        return self.quantize(y)

    def dequantized(self, x: Var) -> Var:
        """By one scale of float32, as kernels on bytes want it."""
        zero = np.array(self.rng.integers(0, 20), helper.tensor_dtype_to_np_dtype(x.type))
        names = [self.constant(np.array(2.0**-4, np.float32)), self.constant(zero)]
        return self.add("DequantizeLinear", [x, *names], x.shape, 20.0, TensorProto.FLOAT, True)
