"""The rarer operators in random graphs: trigonometry, bits, small integers, normalizations of images."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from random_reductions import Reductions
from random_values import LARGE, Var

_INTEGERS = tuple(
    getattr(TensorProto, name) for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
)
_SINCE = {"Mish": 18, "Swish": 24, "Sinh": 9, "Cosh": 9, "Asinh": 9, "Acosh": 9, "Atanh": 9, "IsNaN": 9, "IsInf": 10}


class Rest(Reductions):
    """Steps with the operators that the other steps leave out."""

    def rare_unary(self) -> Var | None:
        x = self.pick(lambda v: v.type == TensorProto.FLOAT and v.bound <= LARGE)
        if x is None:
            return None
        ops = ["Sin", "Cos", "Atan", "Asinh", "Sinh", "Cosh", "Tan", "Asin", "Acos", "Atanh", "Acosh", "Mish", "Swish"]
        jumps = ["ThresholdedRelu", "Shrink", "IsNaN", "IsInf"]
        op = str(self.rng.choice(ops + (jumps if x.exact else [])))
        if self.opset < _SINCE.get(op, 7) or (op in ("ThresholdedRelu", "Shrink") and self.opset < 10):
            op = "Atan"
        if op in ("Sinh", "Cosh", "Tan", "Asin", "Acos", "Atanh"):
            # Within (-0.76, 0.76), where none of them is steep.
            x = self.scaled("Mul", self.add("Tanh", [x], x.shape, 1.0), 0.75, 0.75)
        elif op == "Acosh":
            x = self.scaled("Add", self.add("Abs", [x], x.shape, x.bound), 1.5, x.bound + 1.5)
        if op in ("IsNaN", "IsInf"):
            return self.add(op, [x], x.shape, 1.0, TensorProto.BOOL, True)
        if op == "Shrink":
            return self.add(op, [x], x.shape, x.bound + 1, lambd=0.5, bias=float(self.rng.choice([0.0, 0.25])))
        if op == "ThresholdedRelu":
            return self.add(op, [x], x.shape, x.bound, alpha=0.3)
        return self.add(op, [x], x.shape, max(x.bound, 3.0))

    def remainder(self) -> Var:
        """Mod, of integers and, by fmod, of exact floats."""
        wanted = (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT)
        x = self.pick(lambda v: v.type in wanted and v.exact and v.bound < 1e4) or self.small_integers()
        divisor = self.constant(np.array(int(self.rng.choice([2, 3, 7])), helper.tensor_dtype_to_np_dtype(x.type)))
        if self.opset < 10:
            return x
        return self.add("Mod", [x, divisor], x.shape, 7.0, exact=True, fmod=int(x.floating or self.rng.random() < 0.3))

    def small_integers(self) -> Var:
        kind = int(self.rng.choice(_INTEGERS))
        x = self.pick(lambda v: v.type == kind) if self.rng.random() < 0.7 else None
        return x or self.fresh(self.shape(int(self.rng.integers(0, 4))), kind, external=True)

    def bits(self) -> Var:
        """Bits of integers of any width, shifts of unsigned ones, and conversions between them."""
        x = self.small_integers()
        unsigned = x.type in (TensorProto.UINT8, TensorProto.UINT32, TensorProto.UINT64)
        op = str(self.rng.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift", "Cast", "Abs"]))
        if op == "BitShift" and unsigned and self.opset >= 11:
            by = self.constant(np.array(int(self.rng.integers(0, 3)), helper.tensor_dtype_to_np_dtype(x.type)))
            way = str(self.rng.choice(["LEFT", "RIGHT"]))
            return self.add(op, [x, by], x.shape, x.bound * 4, exact=True, direction=way)
        if op.startswith("Bitwise") and self.opset >= 18:
            operands = [x] if op == "BitwiseNot" else [x, self.partner(x)]
            return self.add(op, operands, np.broadcast_shapes(*(v.shape for v in operands)), 1e9, exact=True)
        if op == "Abs":
            return self.add(op, [x], x.shape, x.bound, exact=True)
        if x.bound > 100:
            return x
        target = int(self.rng.choice([t for t in (*_INTEGERS, TensorProto.FLOAT) if t != x.type]))
        return self.add("Cast", [x], x.shape, x.bound, target, True, to=target)

    def integer_reduction(self) -> Var | None:
        kinds = (TensorProto.INT32, TensorProto.INT64)
        x = self.pick(lambda v: v.type in kinds and len(v.shape) > 0 and 0 not in v.shape and v.bound <= LARGE)
        if x is None:
            return None
        op = str(self.rng.choice(["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd", "ReduceMean"]))
        axes = None if self.rng.random() < 0.1 else self.axes_of(len(x.shape))
        count = int(np.prod(x.shape if axes is None else [x.shape[a] for a in axes]))
        if op == "ReduceProd" and np.log2(max(x.bound, 1)) * count >= 31:
            op = "ReduceSum"  # what overflows is not defined: ONNX Runtime saturates some
        bound = x.bound if op in ("ReduceMax", "ReduceMin", "ReduceMean") else 1e18
        return self.reduce(op, x, axes, int(self.rng.random() < 0.6), bound, True)

    def rare_reduction(self) -> Var | None:
        x = self.pick(lambda v: v.type == TensorProto.FLOAT and len(v.shape) > 0 and 0 not in v.shape and v.bound <= 4)
        if x is None:
            return None
        positive = self.scaled("Add", self.add("Abs", [x], x.shape, x.bound), 0.5, x.bound + 0.5)
        if len(positive.shape) != len(x.shape):
            return positive
        axes = self.axes_of(len(x.shape))
        op = str(self.rng.choice(["ReduceLogSum", "ReduceProd"]))
        if op == "ReduceProd" and int(np.prod([x.shape[a] for a in axes])) > 12:
            op = "ReduceLogSum"
        return self.reduce(op, positive, axes, int(self.rng.random() < 0.6), 1e8 if op == "ReduceProd" else 20.0)

    def image_norm(self) -> Var | None:
        """Normalizations over a batch of channels, and those without a scale."""
        x = self.pick(
            lambda v: v.type == TensorProto.FLOAT and len(v.shape) in (3, 4) and 0 not in v.shape and v.bound <= LARGE
        )
        if x is None:
            return None
        channels = x.shape[1]
        op = str(
            self.rng.choice(["BatchNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization"])
        )
        if op == "GroupNormalization" and self.opset < 21:
            op = "InstanceNormalization"
        if op == "LpNormalization":
            shifted = self.scaled("Add", self.add("Abs", [x], x.shape, x.bound), 0.5, x.bound + 0.5)
            if len(shifted.shape) != len(x.shape):
                return shifted
            axis = int(self.rng.integers(-len(x.shape), len(x.shape)))
            return self.add(op, [shifted], shifted.shape, 1.0, axis=axis, p=int(self.rng.integers(1, 3)))
        scale, bias = (self.fresh((channels,), x.type, external=False) for _ in range(2))
        if op == "BatchNormalization":
            mean = self.fresh((channels,), x.type, external=False)
            spread = self.constant(np.asarray(1 + self.rng.random(channels), np.float32))
            return self.add(op, [x, scale, bias, mean, spread], x.shape, x.bound * 5 + 20, epsilon=1e-3)
        groups = {"num_groups": int(self.rng.choice([g for g in range(1, channels + 1) if channels % g == 0]))}
        more = groups if op == "GroupNormalization" else {}
        return self.add(op, [x, scale, bias], x.shape, 50.0, epsilon=0.1, **more)

    def rounded(self) -> Var | None:
        """An exact value rounded to 16 bits and back: where nothing was rounded before, both results round alike."""
        x = self.pick(lambda v: v.type == TensorProto.FLOAT and v.exact and v.bound < 1000)
        if x is None or self.opset < 13:
            return None
        kind = int(self.rng.choice([TensorProto.BFLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT16]))
        narrow = self.add("Cast", [x], x.shape, x.bound, kind, to=kind)
        self.values.pop()  # few operators have kernels for bfloat16 on the CPU
        return self.add("Cast", [narrow], x.shape, x.bound, TensorProto.FLOAT, True, to=TensorProto.FLOAT)
