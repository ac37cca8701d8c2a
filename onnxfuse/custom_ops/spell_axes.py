"""Axes that arrive with a run in standard operators: these take them as an input, too."""

from __future__ import annotations

from onnxfuse.custom_ops.emit import NoFunctionError
from onnxfuse.custom_ops.layout import FULL, Space, Value
from onnxfuse.custom_ops.over_axes import varying
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply, Output
from onnxfuse.custom_ops.runtime_axes import RuntimeAxes
from onnxfuse.custom_ops.spell import compute_type, narrowed

__all__ = ["reduce_over", "scan_over", "store_over"]


def reduce_over(space: Space, axes: RuntimeAxes, apply: Apply, x: Value) -> Value:
    """A reduction of x. What it reduced stays with extent 1, so that the result shows the extent of no dimension.

    Raises:
        NoFunctionError: in that opset its axes are an attribute.
    """
    e = space.emitter
    x = space.spread(x, range(space.rank))
    op, wide = _operator(space, apply, x)
    e.require(f"{op} with axes as an input", 13 if op == "ReduceSum" else 18)
    inputs = [e.cast(x.name, x.type, wide), _numbers(space, axes)]
    name = e.node(op, inputs, keepdims=1, **({"noop_with_empty_axes": 1} if axes.noop else {}))
    may_be_empty = not all(space.kernel.extents[d] for d in axes.dims)  # 0 or unknown
    return Value(narrowed(e, apply.op, name, wide, x.type, may_be_empty=may_be_empty), x.type, x.rank)


def scan_over(space: Space, axes: RuntimeAxes, apply: Apply, x: Value) -> Value:
    """A scan of x.

    Raises:
        NoFunctionError: no operator that ONNX Runtime has computes it.
    """
    e = space.emitter
    x = space.spread(x, range(space.rank))
    op, wide = _operator(space, apply, x)
    if wide not in PRIMITIVES[apply.op].runtime:
        raise NoFunctionError(f"ONNX Runtime has no {op} of {x.type} whose axis arrives with a run")
    axis = e.squeeze(_numbers(space, axes), [0])
    name = e.node(op, [e.cast(x.name, x.type, wide), axis], **dict.fromkeys(apply.flags, 1))
    return Value(e.cast(name, wide, x.type), x.type, x.rank, dict.fromkeys(range(space.rank), frozenset((FULL,))))


def store_over(space: Space, axes: RuntimeAxes, output: Output, value: Value) -> str:
    """The tensor that the value fills."""
    e, kernel = space.emitter, space.kernel
    value = space.spread(value, sorted(varying(kernel)[output.value]))
    name = e.transpose(value.name, kernel.dims(*output.map))
    return e.node("Squeeze", [name, _vector(space, axes)]) if output.squeezed else name


def _operator(space: Space, apply: Apply, x: Value) -> tuple[str, str]:
    """The operator, and the type in which it computes."""
    primitive = PRIMITIVES[apply.op]
    wide = compute_type(primitive, x.type, space.emitter.opset) if primitive.onnx else None
    if wide is None or primitive.onnx is None:
        raise NoFunctionError(f"{apply.op} of {x.type} does not exist in opset {space.emitter.opset}")
    return primitive.onnx, wide


def _vector(space: Space, axes: RuntimeAxes) -> str:
    """The axes as ONNX's operators take them: a vector of int64."""
    name = space.emitter.cast(space.inputs[0], axes.type, "i64")
    return space.emitter.unsqueeze(name, [0]) if axes.scalar else name


def _numbers(space: Space, axes: RuntimeAxes) -> str:
    """The same, as the numbers of the space's dimensions."""
    vector = _vector(space, axes)
    if axes.dims == tuple(range(space.rank)):
        return vector
    return space.emitter.gather(space.emitter.ints(axes.dims), vector, 0)
