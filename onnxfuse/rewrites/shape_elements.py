"""What each element is of a tensor of integers that a model computes from shapes: a number, an extent, or made of such.

Exporters take shapes apart and put them together one element at a time. Followed through all that, two vectors are
known to be equal where their elements are, however each of them is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from onnxfuse.rewrites.dims import Dim
from onnxfuse.rewrites.shape_site import Scope, TensorType
from onnxfuse.rewrites.slice_bounds import means_otherwise

__all__ = ["Element", "Elements", "Found", "Made", "axes_of"]

# No shape has more elements.
_LONG = 64
_WIDE = 2**63
_NEGATIVE_AXES = 11


@dataclass(frozen=True, eq=False)
class Made:
    """The result of an operator on two elements; there is one such object for each result."""

    op: str
    a: Element
    b: Element


@dataclass(frozen=True)
class Found:
    """An element, by its place, of a tensor of which nothing else is known."""

    name: str
    place: int


# An int (or bool), the symbol of an extent, or one of the above.
Element: TypeAlias = Any


class Elements:
    """The values of one graph, as arrays of elements. Give it the nodes in their order.

    `types` has the values that the graph sees, `constants` those of small constants.
    """

    def __init__(self, types: Scope, constants: Mapping[str, np.ndarray], opset: int) -> None:
        self.types, self.constants, self.opset = types, constants, opset
        self.known: dict[str, np.ndarray] = {}
        self._sources: dict[str, tuple[int, list[str]]] = {}  # of an extent: the tensors that have it first, and when
        self._made_at: dict[str, int] = {}
        self._made: dict[tuple[str, Element, Element], Made] = {}

    def add_source(self, name: str) -> None:
        """Lets extents be read from a tensor, unless one that is made earlier has them, too."""
        place = self._made_at.get(name, -1)
        for dim in set(self.types[name].shape or ()):
            if isinstance(dim, str):
                first, names = self._sources.get(dim, (place, []))
                if place < first:
                    self._sources[dim] = place, [name]
                elif place == first and name not in names:
                    self._sources[dim] = first, [*names, name]

    def sources(self, extents: Sequence[str]) -> list[str]:
        """Tensors that may have the extents.

        They are made before whatever depends on the extents in the model as it is, so none can depend on that: the
        extent that comes last is in no tensor before these.
        """
        return max((self._sources[e] for e in extents), key=lambda found: found[0])[1]

    def follow(self, node: onnx.NodeProto) -> bool:
        """Whether a node does nothing but rearrange or compute elements that are known; then its result is, too."""
        rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        self._made_at.update(dict.fromkeys(node.output, len(self._made_at)))
        if rule is None or len(node.output) != 1 or node.output[0] in self.constants:
            return False
        try:
            value = rule(self, node)
        except (IndexError, ValueError, TypeError, OverflowError):
            return False
        if value is None or value.size > _LONG:
            return False
        self.known[node.output[0]] = value
        return True

    def of(self, name: str) -> np.ndarray:
        """The elements of a tensor of integers (or bools).

        Raises ValueError where it is none or where it is not known how many it has.
        """
        if (value := self.known.get(name)) is not None:
            return value
        if (constant := self.constants.get(name)) is not None:
            if constant.dtype not in (np.int64, np.bool_):
                raise ValueError("no shape is of this type")
            return constant.astype(object)
        known = self.types.get(name, TensorType("", None))
        if known.type != "i64" or known.shape is None or len(known.shape) > 1:
            raise ValueError("no shape, or nothing is known of it")
        count = known.shape[0] if known.shape else 1
        if not isinstance(count, int) or count > _LONG:
            raise ValueError("no shape is so long")
        return _array([Found(name, k) for k in range(count)], known.shape)

    def numbers(self, name: str) -> list[int]:
        """The elements of a tensor that are all numbers; raises ValueError where one is not."""
        value = self.of(name).reshape(-1).tolist()
        if not all(type(v) is int for v in value):
            raise ValueError("a run brings it")
        return value

    def combined(self, op: str, a: Element, b: Element) -> Element:
        """The element that an operator on two of them gives."""
        if type(a) is int and type(b) is int:
            return _number(op, a, b)
        if (op == "Add" and b == 0) or (op == "Sub" and b == 0) or (op in ("Mul", "Div") and b == 1):
            return a
        if (op == "Add" and a == 0) or (op == "Mul" and a == 1):
            return b
        if op == "Mul" and 0 in (a, b):
            return 0
        if op == "Sub" and a == b:
            return 0
        if op == "Div" and b == 0:
            raise ValueError("it fails")
        if op in ("Add", "Mul") and (op, b, a) in self._made:
            return self._made[op, b, a]
        return self._made.setdefault((op, a, b), Made(op, a, b))


def axes_of(node: onnx.NodeProto, numbers: Callable[[str], list[int]], opset: int) -> list[int] | None:
    """The axes that a node gives, as an attribute or as an input of known `numbers`; None where it gives none.

    Raises ValueError for axes that are not valid: before opset 11 none is counted from the end.
    """
    given = len(node.input) > 1 and node.input[1]
    axes: list[int] | None = numbers(node.input[1]) if given else _attribute(node, "axes", None)
    if axes is not None and opset < _NEGATIVE_AXES and any(a < 0 for a in axes):
        raise ValueError("no axis is counted from the end")
    return axes


def _number(op: str, a: int, b: int) -> int:
    """Raises ValueError where the result is more than an int64 holds, or none."""
    if op == "Div":
        if b == 0:
            raise ValueError("it fails")
        result = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    else:
        result = {"Add": a + b, "Sub": a - b, "Mul": a * b}[op]
    if not -_WIDE <= result < _WIDE:
        raise ValueError("it overflows")
    return result


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def _array(elements: list[Element], shape: tuple[Dim, ...]) -> np.ndarray:
    result = np.empty(len(elements), object)
    result[:] = elements
    return result.reshape([int(d) for d in shape])


def _shape(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    shape = at.types[node.input[0]].shape if node.input[0] in at.types else None
    if shape is None:
        return None
    part = list(shape)[_attribute(node, "start", 0) : _attribute(node, "end", len(shape))]
    at.add_source(node.input[0])
    return _array(part, (len(part),))


def _gather(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    x = at.of(node.input[0])
    places = at.of(node.input[1])
    at.numbers(node.input[1])
    axis = _axis(_attribute(node, "axis", 0), x.ndim)
    return np.asarray(x.take(places.astype(np.int64), axis), object)  # raises IndexError beyond the ends


def _slice(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    x = at.of(node.input[0])
    if at.opset < 10:
        starts, ends = _attribute(node, "starts", []), _attribute(node, "ends", [])
        axes, steps = _attribute(node, "axes", None), None
    else:
        given = [at.numbers(n) if n else None for n in node.input[1:]]
        starts, ends, axes, steps = (*given, None, None)[:4]
    axes = range(len(starts)) if axes is None else [_axis(a, x.ndim) for a in axes]
    if len(set(axes)) != len(starts) or len(ends) != len(starts):
        return None
    parts = [slice(None)] * x.ndim
    for k, axis in enumerate(axes):
        step = 1 if steps is None else steps[k]
        if means_otherwise(starts[k], ends[k], step, x.shape[axis]):
            return None
        parts[axis] = slice(starts[k], ends[k], step)
    return x[tuple(parts)]


def _concat(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    return np.concatenate([at.of(n) for n in node.input], _attribute(node, "axis", 0))


def _reshape(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    x, target = at.of(node.input[0]), at.numbers(node.input[1])
    if 0 in target and _attribute(node, "allowzero", 0):
        return None
    return x.reshape([x.shape[k] if d == 0 else d for k, d in enumerate(target)])


def _squeeze(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    x, axes = at.of(node.input[0]), axes_of(node, at.numbers, at.opset)
    if axes == []:
        return None  # runtimes differ in what that means
    return x.squeeze(None if axes is None else tuple(_axis(a, x.ndim) for a in axes))


def _unsqueeze(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    x, axes = at.of(node.input[0]), axes_of(node, at.numbers, at.opset) or []
    return np.expand_dims(x, tuple(_axis(a, x.ndim + len(axes)) for a in axes))


def _transpose(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    return at.of(node.input[0]).transpose(_attribute(node, "perm", None))


def _same(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    if node.op_type == "Cast" and _attribute(node, "to", 0) != onnx.TensorProto.INT64:
        return None
    value = at.of(node.input[0])
    return None if any(type(v) is bool for v in value.reshape(-1)) else value


def _expand(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    x, target = at.of(node.input[0]), at.numbers(node.input[1])
    if np.prod(np.asarray([*x.shape, *target], np.float64)) > _LONG:
        return None
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(target)))


def _arithmetic(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    if at.types.get(node.output[0], TensorType("", None)).type != "i64":
        return None
    a, b = np.broadcast_arrays(*(at.of(n) for n in node.input))
    pairs = zip(a.reshape(-1), b.reshape(-1), strict=True)
    return _array([at.combined(node.op_type, p, q) for p, q in pairs], a.shape)


def _equal(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    a, b = np.broadcast_arrays(*(at.of(n) for n in node.input))
    return _array([_are_equal(p, q) for p, q in zip(a.reshape(-1), b.reshape(-1), strict=True)], a.shape)


def _are_equal(a: Element, b: Element) -> bool:
    if isinstance(a, str):
        a, b = b, a
    if isinstance(b, str) and type(a) is int and a < 0:
        return False  # no extent is
    if a == b or (isinstance(a, int) and isinstance(b, int)):
        return bool(a == b)
    raise ValueError("a run shows it")


def _where(at: Elements, node: onnx.NodeProto) -> np.ndarray | None:
    condition, yes, no = np.broadcast_arrays(*(at.of(n) for n in node.input))
    if not all(type(c) is bool for c in condition.reshape(-1)):
        return None
    return np.where(condition.astype(bool), yes, no)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError("there is no such axis")
    return axis % rank


_RULES: dict[str, Callable[[Elements, onnx.NodeProto], np.ndarray | None]] = {
    "Shape": _shape,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Identity": _same,
    "Cast": _same,
    "Expand": _expand,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    "Equal": _equal,
    "Where": _where,
}
