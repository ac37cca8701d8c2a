"""Random legal graphs of the operators that fuse, and inputs for them.

A graph is built forward from values whose extents at run time are known; what the model declares of them (static,
symbolic, unknown) is drawn apart, so that symbols are 1 at run time and different symbols are equal now and then.
Magnitudes are bounded, and operators that jump (Floor, comparisons, conversions to integers) see only values that no
rounding touched: then a difference between two results is a mistake and no noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSETS = (9, 11, 12, 13, 14, 17, 18, 20, 21, 23, 24)
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
_LARGE = 50.0


@dataclass(frozen=True)
class Var:
    """A value: `shape` at run time, the bound of its magnitude, and whether no rounding touched it."""

    name: str
    type: int
    shape: tuple[int, ...]
    bound: float
    exact: bool = False

    @property
    def floating(self) -> bool:
        return self.type in FLOATS


@dataclass
class RandomGraph:
    """Grows one graph; `build` gives the model and inputs for it."""

    rng: np.random.Generator
    opset: int = 17
    extents: dict[str, int] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    values: list[Var] = field(default_factory=list)
    counter: int = 0

    def build(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        rng = self.rng
        self.opset = int(rng.choice(OPSETS))
        sizes = [1, 2, 3, 4, 6, 8, 5] + ([0] if rng.random() < 0.08 else [])
        self.extents = {s: int(rng.choice(sizes)) for s in "ABCD"}
        for _ in range(int(rng.integers(1, 4))):
            self.fresh(self.shape(int(rng.integers(0, 5))), int(rng.choice(FLOATS)), external=True)
        for _ in range(int(rng.integers(2, 26))):
            self.step()
        made = [v for v in self.values if any(v.name in n.output for n in self.nodes)]
        if not made:
            made = [self.unary(self.values[0])]
        used = {n for node in self.nodes for n in node.input} | set(self.captured)
        outputs = [v for v in made if v.name not in used or rng.random() < 0.12] or made[-1:]
        graph = helper.make_graph(
            self.nodes, "random", self.inputs, [self.declare(v) for v in outputs[:12]], self.initializers
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        if rng.random() < 0.1:
            order = rng.permutation(len(self.nodes))
            del model.graph.node[:]
            model.graph.node.extend(self.nodes[i] for i in order)
        return model, self.feeds

    @property
    def captured(self) -> list[str]:
        bodies = [a.g for n in self.nodes for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
        return [n for g in bodies for node in g.node for n in node.input] + [o.name for g in bodies for o in g.output]

    # Values

    def name(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(
            1 if self.rng.random() < 0.15 else self.extents[str(self.rng.choice(list("ABCD")))] for _ in range(rank)
        )

    def pick(self, wanted: Callable[[Var], bool] = lambda v: v.floating) -> Var | None:
        """A value, recent ones more often."""
        found = [v for v in self.values if wanted(v)]
        if not found:
            return None
        return found[max(int(self.rng.integers(len(found))), int(self.rng.integers(len(found))))]

    def data(self, shape: Sequence[int], type_: int) -> np.ndarray:
        dtype = helper.tensor_dtype_to_np_dtype(type_)
        if dtype.kind == "f":
            return np.asarray(np.clip(self.rng.normal(size=shape), -3, 3), dtype)
        return np.asarray(self.rng.integers(0, 2 if dtype.kind == "b" else 5, shape), dtype)

    def fresh(self, shape: tuple[int, ...], type_: int, external: bool | None = None) -> Var:
        """A new input or initializer."""
        value = Var(self.name(), type_, shape, 5.0, exact=True)
        data = self.data(shape, type_)
        if external if external is not None else self.rng.random() < 0.4:
            self.inputs.append(self.declare(value))
            self.feeds[value.name] = data
        elif self.rng.random() < 0.3:
            self.nodes.append(
                helper.make_node("Constant", [], [value.name], value=numpy_helper.from_array(data, value.name))
            )
        else:
            self.initializers.append(numpy_helper.from_array(data, value.name))
        self.values.append(value)
        return value

    def declare(self, value: Var) -> onnx.ValueInfoProto:
        """Static, symbolic or unknown dimensions; a symbol means one extent throughout the model."""
        dims: list[int | str | None] = []
        for d in value.shape:
            named = [s for s, extent in self.extents.items() if extent == d]
            kind = self.rng.random()
            dims.append(str(self.rng.choice(named)) if named and kind < 0.35 else None if kind < 0.42 else d)
        return helper.make_tensor_value_info(value.name, value.type, dims)

    def constant(self, data: np.ndarray) -> str:
        name = self.name()
        if self.rng.random() < 0.5:
            self.initializers.append(numpy_helper.from_array(data, name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(data, name)))
        return name

    def scalar(self, number: float, type_: int) -> str:
        shape = [(), (), (1,), (1, 1)][int(self.rng.integers(4))]
        return self.constant(np.full(shape, number, helper.tensor_dtype_to_np_dtype(type_)))

    def add(
        self,
        op: str,
        inputs: Sequence[Var | str],
        shape: Sequence[int],
        bound: float,
        type_: int | None = None,
        exact: bool = False,
        **attributes: object,
    ) -> Var:
        first = next((i for i in inputs if isinstance(i, Var)), None)
        kind = type_ if type_ is not None else first.type if first is not None else TensorProto.FLOAT
        value = Var(self.name(), kind, tuple(shape), bound, exact)
        names = [i if isinstance(i, str) else i.name for i in inputs]
        self.nodes.append(helper.make_node(op, names, [value.name], **attributes))
        self.values.append(value)
        return value

    def partner(self, x: Var, exact: bool = False) -> Var:
        """A value that broadcasts with `x`: an old one, or a new one with dimensions left out or 1."""

        def fits(v: Var) -> bool:
            if v.type != x.type or (exact and not v.exact):
                return False
            try:
                return int(np.prod(np.broadcast_shapes(v.shape, x.shape))) <= 4096 and max(len(v.shape), 1) <= 5
            except ValueError:
                return False

        old = self.pick(fits) if self.rng.random() < 0.6 else None
        if old is not None:
            return old
        keep = int(self.rng.integers(0, len(x.shape) + 1))
        shape = tuple(1 if self.rng.random() < 0.3 else d for d in x.shape[len(x.shape) - keep :])
        return self.fresh(shape, x.type)

    # Steps

    def step(self) -> None:
        kinds: list[tuple[float, Callable[[], object]]] = [
            (5, lambda: self.unary(self.some())),
            (6, self.binary),
            (3, self.reduction),
            (3, self.movement),
            (1, self.softmax),
            (1, self.spelled_softmax),
            (1.5, self.spelled_norm),
            (1, self.norm_operator),
            (1, self.conversion),
            (1, self.choice),
            (0.7, self.integers),
            (0.7, self.barrier),
            (0.4, self.branches),
            (0.5, self.variadic),
        ]
        weights = np.array([w for w, _ in kinds])
        kinds[int(self.rng.choice(len(kinds), p=weights / weights.sum()))][1]()

    def some(self) -> Var:
        return self.pick() or self.fresh((2, 3), TensorProto.FLOAT, external=True)

    def unary(self, x: Var) -> Var:
        if x.bound > _LARGE:
            return self.add("Tanh", [x], x.shape, 1.0)
        exact_ops = ["Abs", "Neg", "Relu", "Identity"]
        smooth = ["Sigmoid", "Tanh", "Erf", "Exp", "Sqrt", "Log", "LeakyRelu", "Elu", "Softplus", "Clip", "PowTwo"]
        smooth += ["Reciprocal", "HardSigmoid", "Scale", "Softsign", "Selu", "Celu", "Rsqrt", "Gelu", "HardSwish"]
        jumps = ["Floor", "Ceil", "Sign", "Round"]
        op = str(self.rng.choice(exact_ops + smooth + smooth + (jumps if x.exact else [])))
        if x.type == TensorProto.DOUBLE and op in ("Erf", "HardSwish", "Gelu", "Celu"):
            op = "Tanh"  # ONNX Runtime has no kernels for these
        if (op == "Celu" and self.opset < 12) or (op == "Round" and self.opset < 11):
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

    def broadcast_scalar(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after an operation with the constant made last, which may have a rank above that of `shape`."""
        node = self.nodes[-1]
        made = {t.name: tuple(t.dims) for t in self.initializers}
        made |= {n.output[0]: tuple(n.attribute[0].t.dims) for n in self.nodes if n.op_type == "Constant"}
        return tuple(np.broadcast_shapes(shape, *(made[n] for n in node.input if n in made)))

    def scaled(self, op: str, x: Var, number: float, bound: float) -> Var:
        constant = self.scalar(number, x.type)
        operands = [x, constant] if op in ("Div", "Pow") or self.rng.random() < 0.6 else [constant, x]
        value = self.add(op, operands, x.shape, bound)
        self.values[-1] = Var(value.name, value.type, self.broadcast_scalar(x.shape), bound)
        return self.values[-1]

    def binary(self) -> Var:
        x = self.some()
        y = self.partner(x)
        shape = np.broadcast_shapes(x.shape, y.shape)
        op = str(self.rng.choice(["Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "PRelu"]))
        pair = [x, y] if self.rng.random() < 0.5 else [y, x]
        if op == "PRelu":
            if shape != x.shape or x.type == TensorProto.FLOAT16 and self.opset < 16:
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
        if axes is not None:
            if self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13):
                inputs.append(self.constant(np.array(axes, np.int64)))
            else:
                attributes["axes"] = axes
        return self.add(op, inputs, shape, bound, exact=exact, **attributes)

    def reduction(self) -> Var | None:
        x = self.pick(lambda v: v.floating and 0 < len(v.shape) and v.bound <= _LARGE)
        if x is None:
            return None
        ops = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1"]
        op = str(self.rng.choice([*ops, "ReduceLogSumExp"] if x.bound < 5 else ops))
        if 0 in x.shape or x.type == TensorProto.FLOAT16:
            op = "ReduceSum"  # others are not defined for nothing; not all have kernels for float16
        count = float(np.prod(x.shape))
        axes = None if self.rng.random() < 0.1 else self.axes_of(len(x.shape))
        bound = x.bound if op in ("ReduceMean", "ReduceMax", "ReduceMin") else max(x.bound, 1) ** 2 * max(count, 1)
        return self.reduce(op, x, axes, int(self.rng.random() < 0.6), bound, x.exact and op in ("ReduceMax", "ReduceMin"))

    def softmax(self) -> Var | None:
        x = self.pick(lambda v: v.floating and len(v.shape) > 0 and 0 not in v.shape and v.bound <= 1000)
        if x is None:
            return None
        op = str(self.rng.choice(["Softmax", "Softmax", "LogSoftmax"]))
        return self.add(op, [x], x.shape, 1.0 if op == "Softmax" else x.bound + 5, axis=int(self.rng.integers(len(x.shape))))

    def normalizable(self) -> Var | None:
        return self.pick(
            lambda v: v.type in (TensorProto.FLOAT, TensorProto.DOUBLE)
            and len(v.shape) > 0
            and 0 not in v.shape
            and v.bound <= _LARGE
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
        x = self.pick(lambda v: v.type == TensorProto.FLOAT and len(v.shape) > 1 and 0 not in v.shape and v.bound <= _LARGE)
        if x is None or self.opset < 17:
            return None
        axis = int(self.rng.integers(1, len(x.shape)))
        op = "RMSNormalization" if self.opset >= 23 and self.rng.random() < 0.5 else "LayerNormalization"
        scale = self.fresh(x.shape[axis:], x.type, external=False)
        signed = axis - len(x.shape) if self.rng.random() < 0.5 else axis
        return self.add(op, [x, scale], x.shape, 15.0, axis=signed, epsilon=1e-2)

    def conversion(self) -> Var | None:
        x = self.pick(lambda v: v.bound < 2000)
        if x is None:
            return None
        targets = [t for t in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE) if t != x.type]
        if x.exact:
            targets += [TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL]
        target = int(self.rng.choice(targets))
        narrows = x.floating and target == TensorProto.FLOAT16 or x.type == TensorProto.DOUBLE
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

    # Data movement

    def unsqueeze(self, x: Var, axes: list[int], rank: int) -> Var:
        rest = iter(x.shape)
        shape = [1 if k in axes else next(rest) for k in range(rank)]
        if self.opset >= 13:
            return self.add("Unsqueeze", [x, self.constant(np.array(axes, np.int64))], shape, x.bound, exact=x.exact)
        return self.add("Unsqueeze", [x], shape, x.bound, exact=x.exact, axes=axes)

    def movement(self) -> Var | None:
        x = self.pick(lambda v: v.type != TensorProto.BOOL)
        if x is None:
            return None
        kinds = [self.transpose, self.reshape, self.reshape, self.squeeze, self.expand, self.slice, self.split]
        return kinds[int(self.rng.integers(len(kinds)))](x)

    def transpose(self, x: Var) -> Var:
        perm = self.rng.permutation(len(x.shape)).tolist()
        shape = [x.shape[p] for p in perm]
        if not perm:
            return self.add("Transpose", [x], (), x.bound, exact=x.exact)
        return self.add("Transpose", [x], shape, x.bound, exact=x.exact, perm=perm)

    def reshape(self, x: Var) -> Var:
        dims = list(x.shape)
        for _ in range(int(self.rng.integers(1, 3))):
            k = int(self.rng.integers(len(dims) + 1))
            kind = self.rng.random()
            if kind < 0.4 and k + 1 < len(dims):
                dims[k : k + 2] = [dims[k] * dims[k + 1]]
            elif kind < 0.8 and k < len(dims) and dims[k] > 1 and len(dims) < 5:
                part = int(self.rng.choice([p for p in range(1, dims[k] + 1) if dims[k] % p == 0]))
                dims[k : k + 1] = [part, dims[k] // part]
            elif len(dims) < 5:
                dims.insert(k, 1)
        if self.rng.random() < 0.15 and len(x.shape) > 0:
            axis = int(self.rng.integers(0, len(x.shape) + 1))
            flat = [int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))]
            return self.add("Flatten", [x], flat, x.bound, exact=x.exact, axis=axis)
        target = list(dims)
        if 0 not in dims and target and self.rng.random() < 0.4:
            target[int(self.rng.integers(len(target)))] = -1
        elif 0 not in dims and self.rng.random() < 0.3:
            target = [0 if k < len(x.shape) and x.shape[k] == d else d for k, d in enumerate(dims)]
        if 0 in x.shape and any(d == 0 and (k >= len(x.shape) or x.shape[k] != 0) for k, d in enumerate(dims)):
            return x
        return self.add("Reshape", [x, self.constant(np.array(target, np.int64))], dims, x.bound, exact=x.exact)

    def squeeze(self, x: Var) -> Var:
        gone = [k for k, d in enumerate(x.shape) if d == 1 and self.rng.random() < 0.7]
        if not gone or self.rng.random() < 0.4:
            if len(x.shape) > 3:
                return x
            rank = len(x.shape) + int(self.rng.integers(1, 3))
            axes = sorted(self.rng.choice(rank, rank - len(x.shape), replace=False).tolist())
            return self.unsqueeze(x, axes, rank)
        shape = [d for k, d in enumerate(x.shape) if k not in gone]
        if self.opset >= 13:
            return self.add("Squeeze", [x, self.constant(np.array(gone, np.int64))], shape, x.bound, exact=x.exact)
        return self.add("Squeeze", [x], shape, x.bound, exact=x.exact, axes=gone)

    def expand(self, x: Var) -> Var:
        shape = [int(self.rng.integers(1, 4)) if d == 1 else d for d in x.shape]
        if len(shape) < 4 and self.rng.random() < 0.4:
            shape.insert(0, 2)
        given = [1 if self.rng.random() < 0.3 and d == e else e for d, e in zip(x.shape, shape[-len(x.shape) :], strict=True)] if x.shape else []
        target = shape[: len(shape) - len(x.shape)] + given
        return self.add("Expand", [x, self.constant(np.array(target, np.int64))], shape, x.bound, exact=x.exact)

    def slice(self, x: Var) -> Var:
        axes = [k for k, d in enumerate(x.shape) if d > 1]
        if not axes:
            return x
        axis = int(self.rng.choice(axes))
        extent = x.shape[axis]
        start = int(self.rng.integers(0, extent - 1))
        end = int(self.rng.integers(start + 1, extent + 1))
        step = int(self.rng.choice([1, 1, 2])) if self.opset >= 10 else 1
        bounds = (start, 2**31 if end == extent and self.rng.random() < 0.5 else end)
        if self.opset >= 10 and self.rng.random() < 0.2:
            bounds, step = (extent - 1, -extent - 1), -int(self.rng.choice([1, 2]))
        count = len(range(*slice(*bounds, step).indices(extent)))
        shape = [count if k == axis else d for k, d in enumerate(x.shape)]
        signed = axis - len(x.shape) if self.rng.random() < 0.5 and self.opset >= 10 else axis
        if self.opset < 10:
            return self.add("Slice", [x], shape, x.bound, exact=x.exact, starts=[bounds[0]], ends=[bounds[1]], axes=[axis])
        numbers = [self.constant(np.array([n], np.int64)) for n in (*bounds, signed, step)]
        return self.add("Slice", [x, *numbers], shape, x.bound, exact=x.exact)

    def split(self, x: Var) -> Var:
        axes = [k for k, d in enumerate(x.shape) if d > 1]
        if not axes:
            return x
        axis = int(self.rng.choice(axes))
        first = int(self.rng.integers(1, x.shape[axis]))
        sizes = [first, x.shape[axis] - first]
        outputs = []
        for size in sizes:
            shape = tuple(size if k == axis else d for k, d in enumerate(x.shape))
            outputs.append(Var(self.name(), x.type, shape, x.bound, x.exact))
        names = [v.name for v in outputs]
        if self.opset >= 13:
            given = self.constant(np.array(sizes, np.int64))
            self.nodes.append(helper.make_node("Split", [x.name, given], names, axis=axis))
        else:
            self.nodes.append(helper.make_node("Split", [x.name], names, axis=axis, split=sizes))
        self.values += outputs
        return outputs[0]

    # What does not fuse

    def barrier(self) -> Var | None:
        x = self.pick(lambda v: v.type == TensorProto.FLOAT and len(v.shape) >= 2 and v.bound <= _LARGE)
        if x is None:
            return None
        if self.rng.random() < 0.5:
            weight = self.fresh((x.shape[-1], int(self.rng.integers(1, 6))), x.type, external=False)
            return self.add("MatMul", [x, weight], (*x.shape[:-1], weight.shape[-1]), x.bound * 5 * max(x.shape[-1], 1))
        axis = int(self.rng.integers(len(x.shape)))
        shape = [d * 2 if k == axis else d for k, d in enumerate(x.shape)]
        y = self.pick(lambda v: v.type == x.type and v.shape == x.shape) or x
        return self.add("Concat", [x, y], shape, max(x.bound, y.bound), exact=x.exact and y.exact, axis=axis)

    def branches(self) -> Var | None:
        """An If whose branches capture values of this graph."""
        x = self.some()
        condition = self.fresh((), TensorProto.BOOL, external=True)
        bodies = []
        for _ in range(2):
            body = RandomGraph(self.rng, self.opset, self.extents, counter=self.counter)
            value = x
            body.values = [v for v in self.values if v.type == x.type and v.shape == x.shape]
            for _ in range(int(self.rng.integers(1, 4))):
                y = body.pick() or x
                op = str(self.rng.choice(["Add", "Mul", "Tanh", "Sigmoid", "Sub"]))
                operands = [value, y] if op in ("Add", "Mul", "Sub") else [value]
                value = body.add(op, operands, x.shape, 1.0)
            self.counter = body.counter
            info = helper.make_tensor_value_info(value.name, x.type, [None] * len(x.shape))
            bodies.append(helper.make_graph(body.nodes, f"body{self.counter}", [], [info]))
        return self.add("If", [condition], x.shape, 1e6, x.type, then_branch=bodies[0], else_branch=bodies[1])


def random_model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model that belongs to a seed, and its inputs."""
    return RandomGraph(np.random.default_rng(seed)).build()
