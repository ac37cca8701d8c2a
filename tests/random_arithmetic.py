"""Element-wise operators in random graphs."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from random_values import LARGE, Values, Var

# Those that ONNX Runtime has no float64 kernels for, at some opset.
_FLOAT32_ALONE = frozenset(
    ("Erf", "HardSwish", "Gelu", "Celu", "Selu", "Elu", "HardSigmoid", "LeakyRelu", "Softsign", "Softplus")
)


class Arithmetic(Values):
    """Steps that add element-wise operators, in the domain where they are smooth."""

    def unary(self, x: Var) -> Var:
        if x.bound > LARGE:
            return self.add("Tanh", [x], x.shape, 1.0)
        exact_ops = ["Abs", "Neg", "Relu", "Identity"]
        smooth = ["Sigmoid", "Tanh", "Erf", "Exp", "Sqrt", "Log", "LeakyRelu", "Elu", "Softplus", "Clip", "PowTwo"]
        smooth += ["Reciprocal", "HardSigmoid", "Scale", "Softsign", "Selu", "Celu", "Rsqrt", "Gelu", "HardSwish"]
        jumps = ["Floor", "Ceil", "Sign", "Round"]
        op = str(self.rng.choice(exact_ops + smooth + smooth + (jumps if x.exact else [])))
        if x.type == TensorProto.DOUBLE and op in _FLOAT32_ALONE:
            op = "Tanh"
        if (op == "Celu" and (self.opset < 12 or x.type == TensorProto.FLOAT16)) or (op == "Round" and self.opset < 11):
            op = "Abs"
        if op in ("Gelu", "HardSwish") and self.opset < 20:
            op = "Sigmoid"
        if op in ("Sqrt", "Log", "Reciprocal", "Rsqrt"):
            positive = self.add("Add", [self.add("Abs", [x], x.shape, x.bound), self.scalar(0.5, x.type)], x.shape, 0)
            positive = Var(positive.name, x.type, self.broadcast_scalar(x.shape), x.bound + 0.5)
            self.values[-1] = positive
            if op == "Rsqrt":
                root = self.add("Sqrt", [positive], positive.shape, x.bound + 1)
                return self.add("Reciprocal", [root], root.shape, 2.0)
            return self.add(op, [positive], positive.shape, max(x.bound, 2.0))
        if op == "Exp":
            small = x if x.bound <= 4 else self.add("Tanh", [x], x.shape, 1.0)
            return self.add("Exp", [small], small.shape, 60.0)
        if op == "PowTwo":
            exponent = float(self.rng.choice([2, 2, 3, 1]))
            return self.scaled("Pow", x, exponent, max(x.bound, 1) ** exponent)
        if op == "Scale":
            factor = float(self.rng.choice([0.5, 2, -1, 0.125, 1.702, 3]))
            return self.scaled(str(self.rng.choice(["Mul", "Div", "Add", "Sub"])), x, factor, x.bound * 8 + 3)
        if op == "Clip":
            if self.opset < 11:
                return self.add("Clip", [x], x.shape, x.bound, min=-1.0, max=2.0)
            bounds = [self.constant(np.array(b, helper.tensor_dtype_to_np_dtype(x.type))) for b in (-1, 2)]
            return self.add("Clip", [x, *bounds], x.shape, x.bound, exact=x.exact)
        growth = 2.0 if op in ("Selu", "Softplus") else 1.0
        exact = op in exact_ops + jumps and x.exact
        return self.add(op, [x], x.shape, max(1.0, x.bound * growth), exact=exact)

    def binary(self) -> Var:
        x = self.some()
        y = self.partner(x)
        shape = np.broadcast_shapes(x.shape, y.shape)
        op = str(self.rng.choice(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "PRelu"]))
        pair = [x, y] if self.rng.random() < 0.5 else [y, x]
        if op == "PRelu":
            if x.type == TensorProto.DOUBLE or shape != x.shape or (x.type == TensorProto.FLOAT16 and self.opset < 16):
                op = "Sub"
            else:
                pair = [x, y]
        if op == "Div":
            bottom = self.add("Add", [self.add("Mul", [y, y], y.shape, y.bound**2), self.scalar(0.5, y.type)], (), 0)
            bottom = Var(bottom.name, y.type, self.broadcast_scalar(y.shape), y.bound**2 + 0.5)
            self.values[-1] = bottom
            shape = np.broadcast_shapes(x.shape, bottom.shape)
            return self.add("Div", [x, bottom], shape, x.bound * 2)
        if op in ("Max", "Min") and x.type == TensorProto.FLOAT16 and self.opset < 12:
            op = "Add"
        bound = x.bound * y.bound if op in ("Mul", "PRelu") else x.bound + y.bound
        return self.add(op, pair, shape, bound, exact=op in ("Max", "Min") and x.exact and y.exact)

    def variadic(self) -> Var:
        x = self.some()
        others = [self.partner(x) for _ in range(int(self.rng.integers(0, 3)))]
        shapes = [x.shape, *(o.shape for o in others)]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            others, shape = others[:1], np.broadcast_shapes(*shapes[:2])
        op = str(self.rng.choice(["Sum", "Max", "Min", "Mean"]))
        if x.type == TensorProto.FLOAT16 and self.opset < 13:
            op = "Sum"
        if x.type != TensorProto.FLOAT and op == "Mean":
            op = "Sum"
        return self.add(op, [x, *others], shape, sum(v.bound for v in (x, *others)))

    def conversion(self) -> Var | None:
        x = self.pick(lambda v: v.bound < 2000)
        if x is None:
            return None
        targets = [t for t in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE) if t != x.type]
        if x.exact:
            targets += [TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL]
        target = int(self.rng.choice(targets))
        narrows = (x.floating and target == TensorProto.FLOAT16) or x.type == TensorProto.DOUBLE
        return self.add("Cast", [x], x.shape, x.bound, target, x.exact and not narrows, to=target)

    def choice(self) -> Var:
        """A comparison of exact values, perhaps some logic, and Where."""
        x = self.pick(lambda v: v.floating and v.exact and v.type != TensorProto.FLOAT16) or self.fresh(
            (3,), TensorProto.FLOAT
        )
        y = self.partner(x, exact=True)
        op = str(self.rng.choice(["Less", "Greater"] + (["Equal"] if self.opset >= 11 else [])))
        shape = np.broadcast_shapes(x.shape, y.shape)
        condition = self.add(op, [x, y], shape, 1.0, TensorProto.BOOL, True)
        if self.rng.random() < 0.4:
            condition = self.add("Not", [condition], shape, 1.0, exact=True)
        other = self.pick(lambda v: v.type == TensorProto.BOOL and v.shape == condition.shape)
        if other is not None and self.rng.random() < 0.5:
            condition = self.add(str(self.rng.choice(["And", "Or", "Xor"])), [condition, other], shape, 1.0, exact=True)
        a = self.pick(lambda v: v.type == x.type and v.shape == condition.shape) or x
        b = self.partner(a)
        try:
            result = np.broadcast_shapes(shape, a.shape, b.shape)
        except ValueError:
            b, result = a, np.broadcast_shapes(shape, a.shape)
        return self.add("Where", [condition, a, b], result, max(a.bound, b.bound), a.type, a.exact and b.exact)

    def integers(self) -> Var:
        x = self.pick(lambda v: v.type in (TensorProto.INT32, TensorProto.INT64) and v.bound < 1e4) or self.fresh(
            self.shape(2), int(self.rng.choice([TensorProto.INT32, TensorProto.INT64])), external=True
        )
        op = str(self.rng.choice(["Add", "Sub", "Mul", "Abs", "Neg", "DivTwo", "Cast", "ReduceSum"]))
        if op in ("Abs", "Neg"):
            return self.add(op, [x], x.shape, x.bound, exact=True)
        if op == "DivTwo":
            return self.scaled_integer(x)
        if op == "Cast":
            return self.add("Cast", [x], x.shape, x.bound, TensorProto.FLOAT, True, to=TensorProto.FLOAT)
        if op == "ReduceSum" and x.shape:
            return self.reduce(op, x, self.axes_of(len(x.shape)), 1, x.bound * 1000, True)
        y = self.partner(x)
        op = op if op != "ReduceSum" else "Add"
        bound = x.bound * y.bound if op == "Mul" else x.bound + y.bound
        return self.add(op, [x, y], np.broadcast_shapes(x.shape, y.shape), bound, exact=True)

    def scaled_integer(self, x: Var) -> Var:
        divisor = self.constant(np.array(int(self.rng.choice([2, 3, -2])), helper.tensor_dtype_to_np_dtype(x.type)))
        return self.add("Div", [x, divisor], x.shape, x.bound, exact=True)
