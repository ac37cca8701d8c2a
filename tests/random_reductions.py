"""Reductions, normalizations and softmaxes in random graphs."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from random_arithmetic import Arithmetic
from random_movement import Movement
from random_values import LARGE, Var


class Reductions(Arithmetic, Movement):
    """Steps that reduce: operators, and what is spelled out."""

    def axes_of(self, rank: int) -> list[int]:
        count = int(self.rng.integers(1, rank + 1))
        if self.rng.random() < 0.6:  # a block at the end, as in normalizations
            axes = list(range(rank - count, rank))
        else:
            axes = sorted(self.rng.choice(rank, count, replace=False).tolist())
        return [a - rank if self.rng.random() < 0.5 else a for a in axes]

    def reduce(self, op: str, x: Var, axes: list[int] | None, keepdims: int, bound: float, exact: bool = False) -> Var:
        rank = len(x.shape)
        if axes is not None and 0 in x.shape:
            axes = [a % rank for a in axes]  # ONNX Runtime gives another shape for negative ones
        normal = set(range(rank)) if axes is None else {a % rank for a in axes}
        shape = [1 if k in normal else d for k, d in enumerate(x.shape) if keepdims or k not in normal]
        inputs: list[Var | str] = [x]
        attributes: dict[str, object] = {"keepdims": keepdims}
        if axes is None and self.opset >= 18 and self.rng.random() < 0.5:
            inputs.append(self.axes_input(np.zeros(0, np.int64)))
        if axes is not None:
            if self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13):
                inputs.append(self.axes_input(np.array(axes, np.int64)))
                if self.rng.random() < 0.1:
                    attributes["noop_with_empty_axes"] = 1  # these are not empty
            else:
                attributes["axes"] = axes
        return self.add(op, inputs, shape, bound, exact=exact, **attributes)

    def reduction(self) -> Var | None:
        x = self.pick(lambda v: v.floating and len(v.shape) > 0 and v.bound <= LARGE)
        if x is None:
            return None
        ops = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1"]
        op = str(self.rng.choice([*ops, "ReduceLogSumExp"] if x.bound < 5 else ops))
        if 0 in x.shape or x.type == TensorProto.FLOAT16:
            op = "ReduceSum"  # others are not defined for nothing; not all have kernels for float16
        count = float(np.prod(x.shape))
        axes = None if self.rng.random() < 0.1 else self.axes_of(len(x.shape))
        bound = x.bound if op in ("ReduceMean", "ReduceMax", "ReduceMin") else max(x.bound, 1) ** 2 * max(count, 1)
        return self.reduce(
            op, x, axes, int(self.rng.random() < 0.6), bound, x.exact and op in ("ReduceMax", "ReduceMin")
        )

    def scan(self) -> Var | None:
        """A CumSum, exclusive or from behind now and then."""
        x = self.pick(lambda v: v.floating and len(v.shape) > 0 and v.bound <= LARGE)
        if x is None or self.opset < (14 if x.type == TensorProto.FLOAT16 else 11):
            return None
        axis = int(self.rng.integers(-len(x.shape), len(x.shape)))
        form = np.full([(), (1,)][int(self.rng.random() < 0.1)], axis, [np.int32, np.int64][int(self.rng.integers(2))])
        flags = {flag: 1 for flag in ("exclusive", "reverse") if self.rng.random() < 0.3}
        return self.add("CumSum", [x, self.axes_input(form)], x.shape, x.bound * max(x.shape[axis], 1), **flags)

    def argument(self) -> Var | None:
        """The index of an extreme element, of values that no rounding touched, as a float."""
        x = self.pick(lambda v: v.floating and v.exact and len(v.shape) > 0 and 0 not in v.shape)
        if x is None:
            return None
        axis, keepdims = int(self.rng.integers(len(x.shape))), int(self.rng.random() < 0.6)
        shape = [1 if k == axis else d for k, d in enumerate(x.shape) if keepdims or k != axis]
        flags = {"select_last_index": 1} if self.opset >= 12 and self.rng.random() < 0.3 else {}
        op, signed = str(self.rng.choice(["ArgMax", "ArgMin"])), axis if self.opset < 11 else axis - len(x.shape)
        index = self.add(
            op, [x], shape, x.shape[axis], TensorProto.INT64, True, axis=signed, keepdims=keepdims, **flags
        )
        return self.add("Cast", [index], shape, x.shape[axis], x.type, True, to=x.type)

    def softmax(self) -> Var | None:
        x = self.pick(lambda v: v.floating and len(v.shape) > 0 and 0 not in v.shape and v.bound <= 1000)
        if x is None:
            return None
        op = str(self.rng.choice(["Softmax", "Softmax", "LogSoftmax"]))
        return self.add(
            op, [x], x.shape, 1.0 if op == "Softmax" else x.bound + 5, axis=int(self.rng.integers(len(x.shape)))
        )

    def windows(self) -> Var | None:
        """Parts of images that lie in the batch's dimension, taken apart for a mask and put together, as in Swin."""
        symbol, count = str(self.rng.choice(list("ABCD"))), int(self.rng.integers(2, 5))
        rest = [int(d) for d in self.rng.integers(1, 5, int(self.rng.integers(1, 4)))]
        batch = self.extents[symbol]
        if self.depth or batch == 0 or batch * count * int(np.prod(rest)) > self.most_elements:
            return None
        x = Var(self.name(), TensorProto.FLOAT, (batch, count, *rest), 5.0, exact=True)
        self.inputs.append(helper.make_tensor_value_info(x.name, x.type, [symbol, count, *rest]))
        self.feeds[x.name] = self.data(x.shape, x.type)
        self.values.append(x)

        def shaped(y: Var, *before: int) -> Var:
            shape = (batch * count, *rest) if len(before) == 1 else x.shape
            return self.add("Reshape", [y, self.constant(np.array([*before, *rest], np.int64))], shape, y.bound)

        y = shaped(x, -1)
        if self.rng.random() < 0.7:  # what no region takes in
            weight = self.fresh((rest[-1], rest[-1]), x.type, external=False)
            y = self.add("MatMul", [y, weight], y.shape, 5 * rest[-1] * x.bound)
        if self.rng.random() < 0.6:
            y = self.add("Add", [y, self.fresh(tuple(rest), x.type, external=False)], y.shape, y.bound + 5)
        mask = self.fresh((count, *(1 if self.rng.random() < 0.5 else d for d in rest)), x.type)
        masked = self.add("Add", [shaped(y, -1, count), mask], x.shape, y.bound + 5)
        return self.unary(shaped(masked, -1) if self.rng.random() < 0.8 else masked)

    def normalizable(self) -> Var | None:
        return self.pick(
            lambda v: (
                v.type in (TensorProto.FLOAT, TensorProto.DOUBLE)
                and len(v.shape) > 0
                and 0 not in v.shape
                and v.bound <= LARGE
            )
        )

    def spelled_softmax(self) -> Var | None:
        x = self.normalizable()
        if x is None:
            return None
        axes = self.axes_of(len(x.shape))
        highest = self.reduce("ReduceMax", x, axes, 1, x.bound)
        powers = self.add("Exp", [self.add("Sub", [x, highest], x.shape, x.bound)], x.shape, 1.0)
        total = self.reduce("ReduceSum", powers, axes, 1, float(np.prod(x.shape)))
        if self.rng.random() < 0.5:
            return self.add("Div", [powers, total], x.shape, 1.0)
        return self.add("Mul", [powers, self.add("Reciprocal", [total], total.shape, 1.0)], x.shape, 1.0)

    def spelled_norm(self) -> Var | None:
        x = self.normalizable()
        if x is None:
            return None
        axes, keepdims = self.axes_of(len(x.shape)), int(self.rng.random() < 0.7)

        def mean(v: Var) -> Var:
            m = self.reduce("ReduceMean", v, axes, keepdims, v.bound)
            return m if keepdims else self.unsqueeze(m, sorted(a % len(x.shape) for a in axes), len(x.shape))

        centred = x if self.rng.random() < 0.4 else self.add("Sub", [x, mean(x)], x.shape, x.bound * 2)
        if self.rng.random() < 0.5:
            square = self.add("Mul", [centred, centred], x.shape, centred.bound**2)
        else:
            square = self.scaled("Pow", centred, 2.0, centred.bound**2)
            if square.shape != x.shape:
                return square
        variance = mean(square)
        shifted = self.scaled("Add", variance, 0.1, variance.bound + 1)
        if self.rng.random() < 0.7:
            root = self.add("Sqrt", [shifted], shifted.shape, 10.0)
        else:
            root = self.scaled("Pow", shifted, 0.5, 10.0)
        shape = np.broadcast_shapes(x.shape, root.shape)
        if self.rng.random() < 0.5:
            y = self.add("Div", [centred, root], shape, 10.0)
        else:
            y = self.add("Mul", [self.add("Reciprocal", [root], root.shape, 4.0), centred], shape, 10.0)
        for op in ("Mul", "Add"):
            if self.rng.random() < 0.5:
                other = self.fresh(tuple(shape[len(shape) - 1 :]), x.type, external=False)
                y = self.add(op, [y, other], shape, y.bound * 5)
        return y

    def norm_operator(self) -> Var | None:
        x = self.pick(
            lambda v: v.type == TensorProto.FLOAT and len(v.shape) > 1 and 0 not in v.shape and v.bound <= LARGE
        )
        if x is None or self.opset < 17:
            return None
        axis = int(self.rng.integers(1, len(x.shape)))
        op = "RMSNormalization" if self.opset >= 23 and self.rng.random() < 0.5 else "LayerNormalization"
        scale = self.fresh(x.shape[axis:], x.type, external=False)
        signed = axis - len(x.shape) if self.rng.random() < 0.5 else axis
        return self.add(op, [x, scale], x.shape, 15.0, axis=signed, epsilon=1e-2)
