"""Emits standard ONNX nodes for one opset, each expression once, and hides how operators changed between opsets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from onnxfuse.custom_ops.types import from_numpy, is_float, is_narrow, to_numpy, to_onnx
from onnxfuse.errors import OnnxfuseError

__all__ = ["Emitter", "NoFunctionError", "schema_types"]

_INT64_MIN = -(2**63)


class NoFunctionError(OnnxfuseError):
    """The program cannot be said in the standard operators of that opset; the message says what is missing."""


class Emitter:
    """A growing list of nodes. All methods return the name of the value that they emit.

    Equal expressions are emitted once. Axes are never negative, and sequences of axes, starts and the like have equal
    lengths.
    """

    def __init__(self, opset: int, prefix: str) -> None:
        if opset < 7:
            raise NoFunctionError(f"opset {opset} has no broadcasting; opset 7 is the first that has")
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self._prefix = prefix
        self._known: dict[bytes, str] = {}
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self._widened: dict[str, tuple[str, str]] = {}  # float32 values: the narrow type and name that they had

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """One node with one output."""
        return self._add(helper.make_node(op, inputs, [], **attributes))

    def _add(self, node: NodeProto) -> str:
        key = node.SerializeToString(deterministic=True)
        if key not in self._known:
            name = f"{self._prefix}{len(self.nodes)}"
            node.name = name
            node.output.append(name)
            self.nodes.append(node)
            self._known[key] = name
        return self._known[key]

    def require(self, op: str, since: int) -> None:
        """Refuses an operator that the opset does not have yet."""
        if self.opset < since:
            raise NoFunctionError(f"{op} came with opset {since}, the model has {self.opset}")

    def constant(self, array: npt.NDArray[Any]) -> str:
        """A Constant node."""
        type_ = from_numpy(array.dtype)
        assert type_
        stored = array
        if self.opset < 9 and not is_float(type_):  # Constant gives floats only
            stored = array.astype(np.float64)
            if not np.array_equal(stored.astype(array.dtype), array):
                self.require("Constant of large integers", 9)
        value = numpy_helper.from_array(np.ascontiguousarray(stored).reshape(array.shape))
        name = self.cast(self.node("Constant", [], value=value), from_numpy(stored.dtype) or type_, type_)
        self._constants[name] = array
        return name

    def scalar(self, value: float, type_: str) -> str:
        """A Constant of rank 0."""
        with np.errstate(over="ignore"):
            return self.constant(np.array(value, to_numpy(type_)))

    def ints(self, values: Sequence[int]) -> str:
        """A Constant of rank 1 and type int64."""
        return self.constant(np.array(values, np.int64))

    def constant_value(self, name: str) -> npt.NDArray[Any] | None:
        """The array behind a name that `constant` gave."""
        return self._constants.get(name)

    def cast(self, x: str, source: str, target: str) -> str:
        """x as another type; nothing where it has it."""
        if source == target:
            return x
        if "bf16" in (source, target):
            self.require("Cast to and from bfloat16", 13)
        if self._widened.get(x, ("", ""))[0] == target:
            return self._widened[x][1]  # it was of this type before: ONNX Runtime stumbles over a needless rounding
        value = self.node("Cast", [x], to=to_onnx(target))
        if is_narrow(source) and target == "f32":
            self._widened[value] = (source, x)
        return value

    def squeeze(self, x: str, axes: Sequence[int]) -> str:
        """x without the axes."""
        return self._with_axes("Squeeze", x, axes)

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        """x with axes of extent 1, numbered as in the result."""
        return self._with_axes("Unsqueeze", x, axes)

    def _with_axes(self, op: str, x: str, axes: Sequence[int]) -> str:
        if not axes:
            return x
        if self.opset >= 13:
            return self.node(op, [x, self.ints(axes)])
        return self.node(op, [x], axes=list(axes))

    def reduce(self, op: str, x: str, axes: Sequence[int], keepdims: bool = True) -> str:
        """A reduction over the axes, which stay with extent 1."""
        if self.opset >= (13 if op == "ReduceSum" else 18):
            return self.node(op, [x, self.ints(axes)], keepdims=int(keepdims))
        return self.node(op, [x], axes=list(axes), keepdims=int(keepdims))

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """x with its axes in another order; nothing where the order is the same."""
        return x if list(perm) == sorted(perm) else self.node("Transpose", [x], perm=list(perm))

    def slice(
        self, x: str, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int | None], steps: Sequence[int]
    ) -> str:
        """x[start:end:step] along the axes; an end of None is before the first element (of a negative step)."""
        if not axes:
            return x
        closed = [_INT64_MIN if end is None else end for end in ends]
        if self.opset >= 10:
            inputs = [self.ints(starts), self.ints(closed), self.ints(axes)]
            return self.node("Slice", [x, *inputs, *([self.ints(steps)] if set(steps) != {1} else [])])
        if set(steps) != {1}:
            self.require("Slice with steps", 10)
        return self.node("Slice", [x], axes=list(axes), starts=list(starts), ends=closed)

    def roll(self, x: str, axis: int, shift: int, points: int) -> str:
        """Element (i + shift) % points of x at i along the axis."""
        parts = [self.slice(x, [axis], [start], [end], [1]) for start, end in ((shift, points), (0, shift))]
        return self.concat(parts, axis)

    def gather(self, x: str, indices: str, axis: int) -> str:
        """x[..., indices, ...] along the axis."""
        return self.node("Gather", [x, indices], axis=axis)

    def reshape(self, x: str, shape: str, zeros: bool = False) -> str:
        """x in another shape, a vector of int64. `zeros`: a 0 in it is an extent, where the opset can say that."""
        return self.node("Reshape", [x, shape], **({"allowzero": 1} if zeros and self.opset >= 14 else {}))

    def flat(self, x: str) -> str:
        """x as a vector."""
        return self.reshape(x, self.ints([-1]))

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """The parts one after another along the axis."""
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=axis)

    def extent(self, x: str, axis: int) -> str:
        """The extent of x along the axis, a vector of one int64."""
        if self.opset >= 15:
            return self.node("Shape", [x], start=axis, end=axis + 1)
        return self.gather(self.node("Shape", [x]), self.ints([axis]), 0)

    def count(self, extent: str) -> str:
        """The vector 0, 1, ... of int64, of the extent (a vector of one int64)."""
        if self.opset >= 11:
            limits = [self.constant(np.array(0)), self.squeeze(extent, [0]), self.constant(np.array(1))]
            return self.node("Range", limits)
        self.require("ConstantOfShape", 9)
        value = numpy_helper.from_array(np.ones(1, np.int64))
        return self.flat(self.node("NonZero", [self.node("ConstantOfShape", [extent], value=value)]))

    def expand(self, x: str, shape: str) -> str:
        """x broadcast with a shape, a vector of int64."""
        self.require("Expand", 8)
        return self.node("Expand", [x, shape])

    def body_prefix(self) -> str:
        """What the names in the body of the next `scan` start with, so that they are its own."""
        return f"{self._prefix}{len(self.nodes)}_"

    def scan(self, body: GraphProto, first: str, x: str, axis: int, reverse: bool) -> str:
        """The operator Scan: the second results of the body, put together along the axis.

        The body takes its own first result of the step before (at first the value `first`) and a slice of x.
        """
        self.require("Scan along any axis", 9)
        direction = [int(reverse)]
        along: dict[str, Any] = {} if axis == 0 else {"scan_input_axes": [axis], "scan_output_axes": [axis]}
        if reverse:
            along |= {"scan_input_directions": direction, "scan_output_directions": direction}
        name = self.node("Scan", [first, x], body=body, num_scan_inputs=1, **along)
        node = next(node for node in reversed(self.nodes) if node.output[0] == name)
        if len(node.output) == 1:
            node.output.append(f"{name}_all")
        return str(node.output[1])

    def finish(self, results: Sequence[str], outputs: Sequence[str], inputs: Sequence[str]) -> list[NodeProto]:
        """All nodes, with results[i] named outputs[i]."""
        renamed: dict[str, str] = {}
        copies: list[tuple[str, str]] = []
        for result, output in zip(results, outputs, strict=True):
            if result in renamed or result in inputs:
                copies.append((result, output))
            else:
                renamed[result] = output
        for node in self.nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        for result, output in copies:
            name = f"{self._prefix}{len(self.nodes)}"
            self.nodes.append(helper.make_node("Identity", [renamed.get(result, result)], [output], name=name))
        return self.nodes


@cache
def schema_types(op: str, opset: int, operand: int) -> tuple[int, ...]:
    """The tensor types that an operator takes as that operand in an opset; none where it does not exist."""
    try:
        schema = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return ()
    name = schema.inputs[min(operand, len(schema.inputs) - 1)].type_str
    allowed: set[str] = {name}
    for constraint in schema.type_constraints:
        if constraint.type_param_str == name:
            allowed = set(constraint.allowed_type_strs)
    return tuple(number for text, number in _TENSOR_TYPES.items() if text in allowed)


_TENSOR_TYPES = {f"tensor({name.lower()})": number for name, number in TensorProto.DataType.items()}
