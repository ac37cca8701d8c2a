"""What is known of integer tensors that hold shapes: each element an int or a symbolic dimension.

Exporters compute the target of a Reshape from Shape, Gather, Slice, Concat and a little arithmetic; following these
with symbols tells the shape that the Reshape gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx

from onnxfuse.rewrites.dims import Dim
from onnxfuse.rewrites.products import quotient, scaled

__all__ = ["SymbolicValue", "propagate"]

# An object array of rank 0 or 1 whose elements are ints, floats or symbols.
SymbolicValue: TypeAlias = np.ndarray

_LIMIT = 64


def _plus(a: Dim | float, b: Dim | float) -> Any:
    if isinstance(a, str) or isinstance(b, str):
        return a if b == 0 else b if a == 0 else "+".join(sorted(map(str, (a, b))))
    return a + b


def _minus(a: Dim | float, b: Dim | float) -> Any:
    if a == b:
        return 0
    if isinstance(a, str) or isinstance(b, str):
        return a if b == 0 else f"({a})-({b})"
    return a - b


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"Add": _plus, "Sub": _minus, "Mul": scaled, "Div": quotient}


def propagate(
    node: onnx.NodeProto, values: dict[str, SymbolicValue], shape: tuple[Dim, ...] | None, axis: int
) -> SymbolicValue | None:
    """The value of the node's output, where that of its inputs is known.

    `shape` is that of input 0, `axis` the axis attribute (0 where there is none).
    """
    if node.op_type == "Shape":
        if shape is None:
            return None
        start = next((a.i for a in node.attribute if a.name == "start"), 0)
        end = next((a.i for a in node.attribute if a.name == "end"), len(shape))
        return _array(list(shape)[start:end])
    if node.op_type == "Size":
        product: Any = 1
        for d in shape or ():
            product = scaled(product, d)
        return None if shape is None else _array(product)
    inputs = [values.get(n) for n in node.input if n]
    if not inputs or any(v is None for v in inputs):
        return None
    known = [v for v in inputs if v is not None]
    try:
        result = _compute(node.op_type, known, axis)
    except (IndexError, ValueError, TypeError):
        return None
    return result if result is not None and result.ndim <= 1 and result.size <= _LIMIT else None


def _compute(op_type: str, inputs: list[SymbolicValue], axis: int) -> SymbolicValue | None:
    x = inputs[0]
    if op_type in ("Identity", "Cast", "Floor", "Ceil"):
        return x
    if op_type == "Concat":
        return np.concatenate(inputs)
    if op_type == "Gather" and axis == 0 and x.ndim == 1:
        index = inputs[1].astype(np.int64)
        return _array(x[index])
    if op_type == "Unsqueeze" and x.ndim == 0:
        return x.reshape(1)
    if op_type in ("Squeeze", "Reshape") and x.size == 1:
        return x.reshape(()) if op_type == "Squeeze" else x.reshape(inputs[1].astype(np.int64))
    if op_type == "Slice" and x.ndim == 1 and len(inputs) >= 3:
        start, end = int(inputs[1][0]), int(inputs[2][0])
        step = int(inputs[4][0]) if len(inputs) > 4 else 1
        return x[start : min(end, x.size) : step]
    if op_type in _ARITHMETIC and len(inputs) == 2:
        a, b = np.broadcast_arrays(*inputs)
        return _array([_ARITHMETIC[op_type](p, q) for p, q in zip(a.reshape(-1), b.reshape(-1), strict=True)]).reshape(
            a.shape
        )
    if op_type == "ReduceProd":
        product: Any = 1
        for element in x.reshape(-1):
            product = scaled(product, element)
        return _array([product])
    return None


def _array(value: Any) -> SymbolicValue:
    """An object array of Python numbers and symbols."""
    return np.asarray(value, dtype=object)
