"""Which floats a model's input should hold: numbers for which the functions that it feeds are defined.

Of random numbers of both signs, half would turn to NaN in a Log or Sqrt, and two models that agree on NaN have shown
little. So a float input is followed to the functions that have a domain, through what keeps its numbers or its sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from onnxfuse.validate.ranges import MOVES, Scope, all_nodes

__all__ = ["draw_floats", "is_mask"]

_POSITIVE = {"Log", "Sqrt"}
_WITHIN_ONE = {"Asin", "Acos", "Atanh"}
_ABOVE_ONE = {"Acosh"}
_SIGN_KEEPING = {"Mul", "Div", "Clip", "Relu", "Sqrt", "Abs"}
_LARGE = 1e3  # a factor that turns a mask into what a softmax ignores


def _number(scope: Scope, name: str) -> float | None:
    """The value of a constant with one element."""
    array = scope.array(name)
    return float(array.ravel()[0]) if array is not None and array.size == 1 else None


def _domains(scope: Scope, name: str) -> set[str]:
    """The functions with a domain that the value reaches."""
    found: set[str] = set()
    seen, work = {name}, [name]
    while work:
        value = work.pop()
        for node, position in scope.consumers.get(value, ()):
            kind = node.op_type
            if kind in _POSITIVE | _WITHIN_ONE | _ABOVE_ONE:
                found.add(kind)
            elif kind == "Pow" and position == 0:
                exponent = _number(scope, node.input[1])
                if exponent is not None and exponent != round(exponent):
                    found.add("Sqrt")
            if _passes_on(scope, node, position):
                fresh = [output for output in node.output if output and output not in seen]
                seen.update(fresh)
                work += fresh
    return found


def _passes_on(scope: Scope, node: onnx.NodeProto, position: int) -> bool:
    """Whether the node's result holds the numbers of this input, or at least their signs."""
    if node.op_type in MOVES:
        return position == 0 or node.op_type == "Concat"
    if node.op_type in ("Mul", "Div"):
        other = _number(scope, node.input[1 - position])
        return other is not None and other > 0
    if node.op_type == "Add":
        other = _number(scope, node.input[1 - position])
        return other is not None and 0 <= other < 1
    return node.op_type in _SIGN_KEEPING and position == 0


def is_mask(model: onnx.ModelProto, name: str) -> bool:
    """Whether the input is a mask of 0 and 1: by its name, or as it becomes a boolean or what a softmax ignores.

    The latter is (1 - mask) times a large negative number.
    """
    if "mask" in name.lower():
        return True
    scope = Scope(all_nodes(model.graph), model.graph)
    seen, work = {name}, [name]
    while work:
        value = work.pop()
        for node, position in scope.consumers.get(value, ()):
            if node.op_type == "Cast" and any(a.name == "to" and a.i == onnx.TensorProto.BOOL for a in node.attribute):
                return True
            if node.op_type == "Sub" and position == 1 and _number(scope, node.input[0]) == 1:
                return _becomes_large(scope, node.output[0])
            if node.op_type in MOVES and position == 0:
                fresh = [output for output in node.output if output and output not in seen]
                seen.update(fresh)
                work += fresh
    return False


def _becomes_large(scope: Scope, name: str) -> bool:
    for node, position in scope.consumers.get(name, ()):
        if node.op_type == "Mul":
            factor = _number(scope, node.input[1 - position])
            if factor is not None and factor <= -_LARGE:
                return True
        if node.op_type == "Cast" and any(a.name == "to" and a.i == onnx.TensorProto.BOOL for a in node.attribute):
            return True
    return False


def draw_floats(model: onnx.ModelProto, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Float64 numbers for the input: normally distributed, unless what it feeds is not defined for all of them."""
    if is_mask(model, name):
        return rng.integers(0, 2, shape).astype(np.float64)
    domains = _domains(Scope(all_nodes(model.graph), model.graph), name)
    if domains & _WITHIN_ONE:
        return rng.uniform(0.01 if domains & _POSITIVE else -0.99, 0.99, shape)
    if domains & _ABOVE_ONE:
        return 1 + np.exp(rng.normal(size=shape))
    if domains & _POSITIVE:
        return np.exp(rng.normal(size=shape))
    return rng.normal(size=shape)
