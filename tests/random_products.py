"""Convolutions and matrix products in random graphs, with biases, and with what exporters put behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper
from random_rest import Rest
from random_values import LARGE, Var

_PRODUCT_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16)
_WIDE = 260  # as many float32 as a file beside the model keeps to itself until they are needed


class Products(Rest):
    """Steps with operators that no region takes, but whose biases some do."""

    def convolution(self) -> Var:
        """A Conv or ConvTranspose of one to three dimensions, perhaps in groups, and what may stand around it."""
        return self.behind(self.bare_convolution(self.with_affine_map(self.feature_map())))

    def feature_map(self) -> Var:
        """A value with at least one spatial dimension."""
        x = self.pick(lambda v: v.type in _PRODUCT_TYPES and 3 <= len(v.shape) <= 5 and self.is_small(v))
        if x is None or self.rng.random() < 0.25:
            rank = int(self.rng.choice([3, 4, 4, 4, 5]))
            shape = tuple(max(d, 1) for d in self.shape(rank))
            x = self.fresh(shape, int(self.rng.choice(_PRODUCT_TYPES)), external=True)
        return x

    def with_affine_map(self, x: Var) -> Var:
        """Perhaps scales and shifts, by one number or one a channel, as may go into weights."""
        for _ in range(int(self.rng.choice([0, 0, 0, 1, 1, 2, 3]))):
            op = str(self.rng.choice(["Mul", "Div", "Add", "Sub", "BatchNormalization"]))
            channels = (x.shape[1], *(1 for _ in x.shape[2:]))
            if op == "BatchNormalization":
                if len(x.shape) not in (3, 4) or x.type != TensorProto.FLOAT or self.opset < 9:
                    continue
                given: list[str | Var] = [x, *(self.factors(channels[:1], x) for _ in range(3))]
                spread = self.constant(np.asarray(1 + self.rng.random(channels[:1]), np.float32))
                x = self.add(op, [*given, spread], x.shape, x.bound * 2 + 6)
                continue
            shape = [(), (1,), channels, (1, *channels)][int(self.rng.integers(4))]
            operands: list[str | Var] = [x, self.factors(shape, x)]
            if op != "Div" and self.rng.random() < 0.3:
                operands.reverse()
            x = self.add(op, operands, x.shape, x.bound * 2 + 2, type_=x.type)
        return x

    def factors(self, shape: tuple[int, ...], x: Var) -> str:
        """A constant of numbers from 0.5 to 2 of either sign."""
        size = 0.5 + 1.5 * self.rng.random(shape)
        return self.constant(np.asarray(size * self.rng.choice([-1, 1], shape), self.dtype(x)))

    def is_small(self, v: Var) -> bool:
        return v.bound <= LARGE and 0 not in v.shape

    def bare_convolution(self, x: Var) -> Var:
        rng, channels = self.rng, x.shape[1]
        transposed = rng.random() < 0.2
        groups = int(rng.choice([g for g in range(1, channels + 1) if channels % g == 0]))
        each = int(rng.integers(1, 4))
        if rng.random() < 0.1 and x.shape[0] * int(np.prod(x.shape[2:])) <= 15:
            each = -(-_WIDE // groups)
        kernel: list[int] = []
        strides: list[int] = []
        dilations: list[int] = []
        pads: tuple[list[int], list[int]] = ([], [])
        spatial: list[int] = []
        for extent in x.shape[2:]:
            before, after = (int(rng.integers(0, 2)) for _ in range(2))
            taps, dilation, stride = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2])), int(rng.choice([1, 1, 2]))
            if rng.random() < 0.4 or extent + before + after < (taps - 1) * dilation + 1:
                taps, dilation, before, after = 1, 1, 0, 0
            covered = (taps - 1) * dilation + 1
            if transposed:
                before, after = min(before, covered - 1), 0
                spatial.append((extent - 1) * stride + covered - before - after)
            else:
                spatial.append((extent + before + after - covered) // stride + 1)
            kernel.append(taps)
            strides.append(stride)
            dilations.append(dilation)
            pads[0].append(before)
            pads[1].append(after)
        made = groups * each
        if made * x.shape[0] * int(np.prod(spatial)) > self.most_elements:
            return x
        weight = (channels, each, *kernel) if transposed else (made, channels // groups, *kernel)
        inputs: list[Var | str] = [x, self.weight(weight, x.type)]
        bias = self.bias((made,), x.type)
        inputs += [bias] if bias is not None else []
        attributes: dict[str, object] = {"kernel_shape": kernel, "pads": [*pads[0], *pads[1]], "strides": strides}
        attributes |= {"dilations": dilations, "group": groups}
        if rng.random() < 0.1 and not transposed:
            attributes |= {"pads": None, "auto_pad": "SAME_UPPER", "dilations": None}
            spatial = [-(-extent // stride) for extent, stride in zip(x.shape[2:], strides, strict=True)]
        if rng.random() < 0.2:
            attributes["kernel_shape"] = None  # the weight says it
        given = {k: v for k, v in attributes.items() if v is not None}
        bound = x.bound * 3 * channels // groups * int(np.prod(kernel)) + 5
        op = "ConvTranspose" if transposed else "Conv"
        return self.add(op, inputs, (x.shape[0], made, *spatial), min(bound, 2 * LARGE), **given)

    def weight(self, shape: tuple[int, ...], type_: int) -> Var:
        """An old one now and then, so that equal products come about."""
        old = self.pick(lambda v: v.type == type_ and v.shape == shape and v.bound <= 5)
        if old is not None and self.rng.random() < 0.4:
            return old
        return self.fresh(shape, type_, external=self.rng.random() < 0.1)

    def bias(self, shape: tuple[int, ...], type_: int) -> Var | None:
        """None, one of another product, a computed one, a new one."""
        if self.rng.random() < 0.2:
            return None
        b = self.weight(shape, type_)
        if self.rng.random() < 0.15:
            return self.add("Neg" if self.rng.random() < 0.5 else "Identity", [b], shape, b.bound)
        return b

    def behind(self, y: Var) -> Var:
        """Some of what networks have behind a product."""
        for _ in range(int(self.rng.integers(0, 4))):
            y = self.one_behind(y)
        return y

    def one_behind(self, y: Var) -> Var:
        kind = int(self.rng.integers(9))
        if kind == 0:
            residual = self.pick(lambda v: v.type == y.type and v.shape == y.shape) or self.fresh(y.shape, y.type)
            return self.add("Add", [y, residual], y.shape, y.bound + residual.bound)
        if kind == 1 and self.opset >= 11:
            bounds = [self.constant(np.array(b, helper.tensor_dtype_to_np_dtype(y.type))) for b in (0, 6)]
            return self.add("Clip", [y, *bounds], y.shape, 6.0)
        if kind == 2:
            shifted = self.add("Add", [y, self.constant(np.array(3, self.dtype(y)))], y.shape, y.bound + 3)
            gate = self.add("Relu", [shifted], y.shape, shifted.bound)
            scaled = self.add("Div", [gate, self.constant(np.array(6, self.dtype(y)))], y.shape, gate.bound)
            return self.add("Mul", [y, scaled], y.shape, min(y.bound**2, 1e4))
        if kind == 3:
            return self.add("Mul", [y, self.add("Sigmoid", [y], y.shape, 1.0)], y.shape, y.bound)
        if kind == 4 and len(y.shape) > 2:
            channels = self.fresh((y.shape[1], *(1 for _ in y.shape[2:])), y.type, external=False)
            return self.add(str(self.rng.choice(["Mul", "Add"])), [y, channels], y.shape, y.bound * 5)
        if kind == 5 and len(y.shape) in (3, 4) and y.type == TensorProto.FLOAT:
            scale, shift, mean = (self.fresh((y.shape[1],), y.type, external=False) for _ in range(3))
            spread = self.constant(np.asarray(1 + self.rng.random(y.shape[1]), np.float32))
            return self.add("BatchNormalization", [y, scale, shift, mean, spread], y.shape, y.bound * 5 + 20)
        if kind == 6 and self.is_small(y):
            return self.movement_of(y)
        if kind == 7 and len(y.shape) > 2 and self.is_small(y) and y.type == TensorProto.FLOAT:
            return self.reduce("ReduceMean", y, list(range(2, len(y.shape))), 1, y.bound)
        return self.add("Relu", [y], y.shape, y.bound)

    def dtype(self, v: Var) -> np.dtype:  # type: ignore[type-arg]
        return helper.tensor_dtype_to_np_dtype(v.type)

    def product(self) -> Var | None:
        """A Gemm, or a MatMul with an Add, of what is or becomes a matrix."""
        x = self.pick(lambda v: v.type in (*_PRODUCT_TYPES, TensorProto.DOUBLE) and v.shape != () and self.is_small(v))
        if x is None:
            return None
        columns = _WIDE if self.rng.random() < 0.1 and x.shape[-1] <= 15 else int(self.rng.integers(1, 7))
        rows = int(np.prod(x.shape[:-1]))
        if rows * columns > self.most_elements:
            return None
        bound = min(x.bound * 5 * x.shape[-1] + 5, 2 * LARGE)
        if self.rng.random() < 0.5:
            y = self.add("MatMul", [x, self.weight((x.shape[-1], columns), x.type)], (*x.shape[:-1], columns), bound)
            bias = self.bias((columns,), x.type)
            if bias is None:
                return self.behind(y)
            operands = [y, bias] if self.rng.random() < 0.7 else [bias, y]
            return self.behind(self.add("Add", operands, (*x.shape[:-1], columns), bound + 5))
        flat = x
        if len(x.shape) != 2:
            flat = self.reshaped(x, (rows, x.shape[-1]))
        y = self.gemm(flat, columns, bound)
        if len(x.shape) > 2 and self.rng.random() < 0.7:
            y = self.reshaped(y, (*x.shape[:-1], columns))
        return self.behind(y)

    def gemm(self, x: Var, columns: int, bound: float) -> Var:
        rng, (rows, depth) = self.rng, x.shape
        attributes: dict[str, object] = {}
        if rng.random() < 0.15:
            x = self.add("Transpose", [x], (depth, rows), x.bound, exact=x.exact, perm=[1, 0])
            attributes["transA"] = 1
        weight = (columns, depth) if rng.random() < 0.5 else (depth, columns)
        if weight == (columns, depth):
            attributes["transB"] = 1
        for factor in ("alpha", "beta"):
            if rng.random() < 0.1:
                attributes[factor] = 0.5
        forms = [(columns,), (columns,), (columns,), (1, columns), (rows, columns), (rows, 1), (1,), (1, 1), ()]
        bias = self.bias(forms[int(rng.integers(len(forms)))], x.type)
        if bias is None and self.opset < 11:
            bias = self.weight((columns,), x.type)
        inputs = [x, self.weight(weight, x.type), *([bias] if bias is not None else [])]
        return self.add("Gemm", inputs, (rows, columns), bound, **attributes)

    def reshaped(self, x: Var, shape: Sequence[int]) -> Var:
        target = list(shape)
        if self.rng.random() < 0.5:
            target[int(self.rng.integers(len(target)))] = -1
        return self.add("Reshape", [x, self.constant(np.array(target, np.int64))], shape, x.bound, exact=x.exact)
