"""The values of random graphs: what is known of them, how they come about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
# Above this a value is no argument of what grows.
LARGE = 50.0


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
class Values:
    """The nodes, inputs and values of a graph that grows."""

    rng: np.random.Generator
    opset: int = 17
    extents: dict[str, int] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    values: list[Var] = field(default_factory=list)
    counter: int = 0
    given: dict[tuple[object, ...], str | None] = field(default_factory=dict)
    depth: int = 0  # of a body in bodies; they have no inputs of their own
    most_elements: ClassVar[int] = 4096

    def name(self) -> str:
        self.counter += 1
        return f"v{self.counter}"

    def shape(self, rank: int) -> tuple[int, ...]:
        dims: list[int] = []
        for _ in range(rank):
            extent = 1 if self.rng.random() < 0.15 else self.extents[str(self.rng.choice(list("ABCD")))]
            dims.append(extent if int(np.prod([*dims, extent])) <= self.most_elements else 1)
        return tuple(dims)

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
        if (external if external is not None else self.rng.random() < 0.4) and not self.depth:
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
        """The name of a constant; now and then of an input that has this value in the run."""
        name = self.name()
        if self.rng.random() < 0.03 and not self.depth:
            kind = helper.np_dtype_to_tensor_dtype(data.dtype)
            self.inputs.append(helper.make_tensor_value_info(name, kind, data.shape))
            self.feeds[name] = data
        elif self.rng.random() < 0.5:
            self.initializers.append(numpy_helper.from_array(data, name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(data, name)))
        return name

    def axes_input(self, axes: np.ndarray) -> str:
        """Axes for an operator: constant, or those that an input of the graph brings; the same for equal ones."""
        key = (axes.dtype.str, axes.shape, *axes.reshape(-1).tolist())
        if key not in self.given:
            self.given[key] = self.name() if not self.depth and self.rng.random() < 0.3 else None
            if (name := self.given[key]) is not None:
                shape = [None if self.rng.random() < 0.3 else d for d in axes.shape]
                type_ = helper.np_dtype_to_tensor_dtype(axes.dtype)
                self.inputs.append(helper.make_tensor_value_info(name, type_, shape))
                self.feeds[name] = axes
        return self.given[key] or self.constant(axes)

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
                return int(np.prod(np.broadcast_shapes(v.shape, x.shape))) <= self.most_elements and len(v.shape) <= 6
            except ValueError:
                return False

        old = self.pick(fits) if self.rng.random() < 0.6 else None
        if old is not None:
            return old
        keep = int(self.rng.integers(0, len(x.shape) + 1))
        shape = tuple(1 if self.rng.random() < 0.3 else d for d in x.shape[len(x.shape) - keep :])
        return self.fresh(shape, x.type)

    def some(self) -> Var:
        return self.pick() or self.fresh((2, 3), TensorProto.FLOAT, external=True)

    def broadcast_scalar(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape after an operation with the constant made last, which may have a rank above that of `shape`."""
        node = self.nodes[-1]
        made = {t.name: tuple(t.dims) for t in self.initializers} | {n: v.shape for n, v in self.feeds.items()}
        made |= {n.output[0]: tuple(n.attribute[0].t.dims) for n in self.nodes if n.op_type == "Constant"}
        return tuple(np.broadcast_shapes(shape, *(made[n] for n in node.input if n in made)))

    def scaled(self, op: str, x: Var, number: float, bound: float) -> Var:
        constant = self.scalar(number, x.type)
        operands = [x, constant] if op in ("Div", "Pow") or self.rng.random() < 0.6 else [constant, x]
        value = self.add(op, operands, x.shape, bound)
        self.values[-1] = Var(value.name, value.type, self.broadcast_scalar(x.shape), bound)
        return self.values[-1]
