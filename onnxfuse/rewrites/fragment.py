"""What one ONNX node computes, in primitives: the fragments that regions are made of.

A lowering (package `lowering`) opens a node into values: reads of tensors, constants and steps. A region later lays the
values of its fragments out in one iteration space (layout.py) and becomes a program (emit.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.types import is_float, to_numpy, value_type
from onnxfuse.rewrites import views
from onnxfuse.rewrites.dims import Shape, Symbols
from onnxfuse.rewrites.views import View

__all__ = ["Axes", "Builder", "Fragment", "GivenAxes", "RefusalError", "Value"]


class RefusalError(Exception):
    """Why something cannot be fused, in words for the user."""

    @property
    def reason(self) -> str:
        """The words."""
        return str(self.args[0])


NO_VIEW = View((), (), (), {})


@dataclass(frozen=True)
class GivenAxes:
    """Axes that a tensor holds when the model runs: `count` of them (None: the run shows it), of `type`.

    A `scalar` has no dimension. Where there are none, nothing is reduced with `noop`, else everything is.
    """

    tensor: str
    type: str
    count: int | None
    scalar: bool = False
    noop: bool = False


@dataclass(eq=False, slots=True)
class Value:
    """A value of a fragment; two are the same value only if they are the same object.

    `op` is "tensor" (a read of the ONNX tensor `tensor`), "const" (`const`, every dimension 1), "view" (the
    operand's elements rearranged by `view`), "squeeze" (without the dimensions that `given` axes name), "cast", or a
    primitive. `type` is a
    value type of the program language, `storage` the element type of a tensor. Reductions have `axes` and `keepdims`,
    scans one of `axes`; both may have `given` axes instead; scans and arguments have `flags`.
    """

    op: str
    type: str
    shape: Shape
    operands: tuple[Value, ...] = ()
    tensor: str = ""
    storage: str = ""
    const: float | int | bool = 0
    view: View = NO_VIEW
    axes: tuple[int, ...] = ()
    keepdims: bool = True
    flags: tuple[str, ...] = ()
    given: GivenAxes | None = None

    @property
    def reduces(self) -> bool:
        """Whether this is a reduction (an argument is one)."""
        return self.op in PRIMITIVES and PRIMITIVES[self.op].reduces

    @property
    def scans(self) -> bool:
        """Whether this is a scan."""
        return self.op in PRIMITIVES and PRIMITIVES[self.op].scans


@dataclass
class Fragment:
    """A node's steps in order, the value of each output, and constants that the graph lacks (by tensor name).

    `inlined` are the nodes before it whose work the steps contain (inlining.py), `repeated` the values among them that
    each user of such a node computes for itself (dequantizing.py).
    """

    steps: list[Value] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    inlined: frozenset[int] = frozenset()
    repeated: frozenset[Value] = frozenset()

    def tensors(self) -> set[str]:
        """The names of the ONNX tensors that it reads."""
        values = (v for step in self.steps for v in step.operands)
        return {v.tensor for v in (*values, *self.outputs.values()) if v.op == "tensor"}


# Of a reduction: known ones, or those that arrive with a run.
Axes: TypeAlias = Sequence[int] | GivenAxes


class Builder:
    """Makes the values of one fragment, with types and shapes checked; what a lowering is given."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.fragment = Fragment()

    def tensor(self, name: str, storage: str, shape: Shape) -> Value:
        """A read of an ONNX tensor with elements of `storage`."""
        return Value("tensor", value_type(storage), shape, tensor=name, storage=storage)

    def const(self, value: float | bool | np.generic, type_: str, rank: int = 0) -> Value:
        """A constant of a value type, as a tensor of `rank` dimensions of extent 1."""
        plain = value.item() if isinstance(value, np.generic) else value
        return Value("const", type_, (1,) * rank, const=float(plain) if is_float(type_) else plain)

    def is_part(self, i: int, count: int) -> Value:
        """A vector of `count` booleans of which element `i` is true: a constant tensor of its own."""
        name = f"onnxfuse.part.{i}.of.{count}"
        self.fragment.constants[name] = np.arange(count) == i
        return self.tensor(name, "bool", (count,))

    def __call__(self, op: str, *operands: Value | float | bool) -> Value:
        """An element-wise primitive; Python numbers become constants of the type of the last value given."""
        types = [o.type for o in operands if isinstance(o, Value)]
        values = [o if isinstance(o, Value) else self.const(o, types[-1]) for o in operands]
        primitive = PRIMITIVES[op]
        kinds = {v.type for v in (values[1:] if op == "where" else values)}
        if len(kinds) != 1:
            raise RefusalError(f"its operands have different types ({', '.join(sorted(kinds))})")
        (type_,) = kinds
        if type_ not in primitive.types:
            raise RefusalError(f"{op} is not defined for elements of type {type_}")
        shape = self.symbols.broadcast(v.shape for v in values)
        return self._add(Value(op, "bool" if primitive.result == "bool" else type_, shape, tuple(values)))

    def cast(self, value: Value, storage: str) -> Value:
        """A conversion to an element type; to f16 and bf16 it rounds."""
        target = value_type(storage)
        if value.op == "const" and storage == target:
            return self.const(np.asarray(value.const).astype(to_numpy(target)).item(), target, len(value.shape))
        if value.type != target:
            value = self._add(Value("cast", target, value.shape, (value,)))
        if storage != target and not (value.op == "tensor" and value.storage == storage):
            value = self(f"round_{storage}", value)
        return value

    def reduce(self, op: str, value: Value, axes: Axes, keepdims: bool = True, flags: tuple[str, ...] = ()) -> Value:
        """A reduction or an argument (`op` without its "reduce_") over `axes` of `value`."""
        name = f"reduce_{op}"
        if isinstance(axes, GivenAxes):
            return self._reduce_given(name, value, axes, keepdims)
        normal = self._axes(name, value, axes)
        shape = tuple(1 if k in normal else d for k, d in enumerate(value.shape) if keepdims or k not in normal)
        type_ = PRIMITIVES[name].result_type(value.type)
        return self._add(Value(name, type_, shape, (value,), axes=normal, keepdims=keepdims, flags=flags))

    def _reduce_given(self, name: str, value: Value, axes: GivenAxes, keepdims: bool) -> Value:
        self._check_type(name, value)
        rank, noop = len(value.shape), axes.noop and axes.count is None
        shape = tuple(self.symbols.left_by(axes.tensor, rank, noop, k, d) for k, d in enumerate(value.shape))
        reduced = self._add(Value(name, value.type, shape, (value,), given=axes))
        return reduced if keepdims else self.squeeze(reduced, axes)

    def squeeze(self, value: Value, axes: GivenAxes) -> Value:
        """A reduction over given axes, or what is computed from one, without the dimensions that they name."""
        if axes.count is None:
            raise RefusalError("the rank of its result is unknown: how many axes it has shows only when it runs")
        shape = tuple(self.symbols.fresh() for _ in value.shape[axes.count :])
        return self._add(Value("squeeze", value.type, shape, (value,), given=axes))

    def scan(self, op: str, value: Value, axis: int | GivenAxes, flags: tuple[str, ...] = ()) -> Value:
        """A scan (`op` without its "scan_") along an axis of `value`."""
        if isinstance(axis, GivenAxes):
            self._check_type(f"scan_{op}", value)
            return self._add(Value(f"scan_{op}", value.type, value.shape, (value,), flags=flags, given=axis))
        axes = self._axes(f"scan_{op}", value, [axis])
        return self._add(Value(f"scan_{op}", value.type, value.shape, (value,), axes=axes, flags=flags))

    def _axes(self, name: str, value: Value, axes: Sequence[int]) -> tuple[int, ...]:
        """The axes without signs, in order."""
        rank = len(value.shape)
        normal = tuple(sorted({a + rank if a < 0 else a for a in axes}))
        if not normal or normal[0] < 0 or normal[-1] >= rank:
            raise RefusalError("its axes do not fit its input")
        self._check_type(name, value)
        return normal

    def _check_type(self, name: str, value: Value) -> None:
        if value.type not in PRIMITIVES[name].types:
            raise RefusalError(f"{name} is not defined for elements of type {value.type}")

    def view(self, value: Value, entries: Sequence[int | None]) -> Value:
        """The same elements with dimensions of extent 1 added (None) or left out, or in another order."""
        return self.through(value, views.insertion(value.shape, entries))

    def through(self, value: Value, view: View, shape: Shape | None = None) -> Value:
        """A view of a value; `shape` is that of the view, where the view's pieces do not give it."""
        shape = view.shape() if shape is None else shape
        if view.trivial and shape == value.shape:  # an expansion of a symbolic dimension is not trivial
            return value
        if value.op == "const":
            if any(d != 1 for d in shape):
                raise RefusalError("it expands a constant")
            return self.const(value.const, value.type, len(shape))
        return self._add(Value("view", value.type, shape, (value,), view=view))

    def reshape(self, value: Value, shape: Shape) -> Value:
        """The same elements in another shape."""
        view = views.reshape(value.shape, shape)
        if view is None:
            raise RefusalError("it reshapes in a way that no index map can follow")
        return self.through(value, view, shape)

    def copy(self, step: Value, operands: tuple[Value, ...], shape: Shape | None = None) -> Value:
        """A step on other operands of the same types, of the step's shape where none is given."""
        shape = step.shape if shape is None else shape
        return self._add(replace(step, operands=operands, shape=shape))

    def along(self, value: Value, axis: int, rank: int) -> Value:
        """A vector as a tensor of `rank` dimensions that extends along `axis` only (a per-channel operand)."""
        if len(value.shape) != 1:
            raise RefusalError("its per-channel operands are not vectors")
        return self.view(value, [0 if k == axis else None for k in range(rank)])

    def _add(self, value: Value) -> Value:
        self.fragment.steps.append(value)
        return value
