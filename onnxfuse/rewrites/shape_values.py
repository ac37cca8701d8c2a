"""What is known of integer tensors that hold shapes: each element an int or a symbolic dimension.

Exporters compute the target of a Reshape from Shape, Gather, Slice, Concat and a little arithmetic; following these
with symbols tells the shape that the Reshape gives. What turns out to have no symbols is as good as a constant: pads
and bounds of Slices that exporters compute from static dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxfuse.rewrites.dims import Dim
from onnxfuse.rewrites.products import quotient, rounded, scaled
from onnxfuse.rewrites.slice_bounds import means_otherwise

__all__ = ["SymbolicValue", "propagate", "rounded_to"]

# An object array of rank 0 to 2 whose elements are ints, floats or symbols.
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


def _times(a: Dim | float, b: Dim | float) -> Any:
    """A product; a whole float that multiplies a symbol counts as the integer."""
    if isinstance(a, str) != isinstance(b, str):
        a, b = (int(n) if isinstance(n, float) and n.is_integer() else n for n in (a, b))
    return scaled(a, b)


def _quotient(a: Dim | float, b: Dim | float) -> Any:
    if any(isinstance(n, int) and n < 0 for n in (a, b)):
        raise ValueError("ONNX rounds towards 0, this down")
    return quotient(a, b)


def _remainder(a: Dim | float, b: Dim | float) -> Any:
    if isinstance(a, int) and isinstance(b, int) and a >= 0 and b > 0:
        return a % b
    raise ValueError("the remainder is not known, or which one it is")


def _equal(a: Dim | float, b: Dim | float) -> bool:
    """Whether numbers or symbols are equal: a dimension is none of the numbers below 0.

    Raises:
        ValueError: it is not known.
    """
    if a == b:
        return True
    for p, q in ((a, b), (b, a)):
        if isinstance(p, str) and (isinstance(q, str) or q >= 0 or "-" in p):  # a difference may be below 0
            raise ValueError("whether they are equal is not known")
    return False


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": _plus,
    "Sub": _minus,
    "Mul": _times,
    "Div": _quotient,
    "Mod": _remainder,
    "Equal": _equal,
}


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
        with np.errstate(all="ignore"):
            result = _compute(node, known, axis)
    except (IndexError, ValueError, TypeError, OverflowError):
        return None
    return result if result is not None and result.ndim <= 2 and result.size <= _LIMIT else None


def _compute(node: onnx.NodeProto, inputs: list[SymbolicValue], axis: int) -> SymbolicValue | None:
    x, op_type = inputs[0], node.op_type
    if op_type == "Identity":
        return x
    if op_type == "Cast":
        target = helper.tensor_dtype_to_np_dtype(next(a.i for a in node.attribute if a.name == "to"))
        if target.kind == "f":
            return _each(lambda n: float(target.type(n)), x)
        return _rounded(x, "floor", int) if target in (np.int32, np.int64) else None
    if op_type in ("Floor", "Ceil"):
        return _rounded(x, op_type.lower(), float)
    if op_type == "Concat":
        return np.concatenate(inputs, axis)
    if op_type == "ConstantOfShape":
        fill = next((numpy_helper.to_array(a.t).item() for a in node.attribute if a.name == "value"), 0.0)
        extents = [int(d) for d in x]
        return np.full(extents, fill, object) if math.prod(extents) <= _LIMIT else None
    if op_type == "Gather" and axis == 0 and x.ndim == 1:
        index = inputs[1].astype(np.int64)
        return _array(x[index])
    if op_type == "Unsqueeze" and x.ndim == 0:
        return x.reshape(1)
    if op_type == "Squeeze" and x.shape == (1,):
        return x.reshape(())
    if op_type == "Reshape" and 0 not in inputs[1]:
        return x.reshape([int(d) for d in inputs[1]])
    if op_type == "Transpose":
        perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
        return x.transpose(perm)
    if op_type == "Slice" and len(inputs) >= 3 and all(v.size == 1 for v in inputs[1:]):
        given = dict(zip([k for k, name in enumerate(node.input) if name], inputs, strict=True))  # axes may be left out
        start, end = int(given[1][0]), int(given[2][0])
        along, step = (int(given[k][0]) if k in given else default for k, default in ((3, 0), (4, 1)))
        if means_otherwise(start, end, step, x.shape[along]):
            return None
        places = range(*slice(start, end, step).indices(x.shape[along]))
        return x.take(list(places), along)
    if op_type in _ARITHMETIC and len(inputs) == 2:
        a, b = np.broadcast_arrays(*inputs)
        return _array([_ARITHMETIC[op_type](p, q) for p, q in zip(a.reshape(-1), b.reshape(-1), strict=True)]).reshape(
            a.shape
        )
    if op_type == "Where":  # as torch.expand is exported: -1 stands for an extent that stays
        condition, yes, no = np.broadcast_arrays(*inputs)
        return np.where(condition.astype(bool), yes, no)
    if op_type == "Expand":
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(d) for d in inputs[1])))
    if op_type == "ReduceProd" and x.ndim == 1:
        product: Any = 1
        for element in x.reshape(-1):
            product = scaled(product, element)
        kept = next((a.i for a in node.attribute if a.name == "keepdims"), 1)
        return _array([product] if kept else product)
    return None


def rounded_to(narrow: type[np.floating], x: SymbolicValue) -> SymbolicValue:
    """The numbers as a narrower type of floats holds them."""
    with np.errstate(all="ignore"):
        return _each(lambda n: float(narrow(n)), x)


def _each(convert: Callable[[Any], Any], x: SymbolicValue) -> SymbolicValue:
    """The numbers converted; symbols stay, for they are whole."""
    return _array([n if isinstance(n, str) else convert(n) for n in x.reshape(-1)]).reshape(x.shape)


def _rounded(x: SymbolicValue, how: str, number: type[int | float]) -> SymbolicValue:
    """Numbers and symbols rounded; a number from a float to an integer goes towards 0."""
    return _array(
        [
            rounded(n, how) if isinstance(n, str) else number(n if number is int else rounded(n, how))
            for n in x.reshape(-1)
        ]
    ).reshape(x.shape)


def _array(value: Any) -> SymbolicValue:
    """An object array of Python numbers and symbols."""
    return np.asarray(value, dtype=object)
