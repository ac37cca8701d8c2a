"""Which integers a model's input may hold, found from what it feeds.

A random index beyond a vocabulary makes a model fail, and a random sampling rate takes it down a path that nobody
uses; so an integer input is followed to the operators that limit it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxfuse.rewrites.shapes import infer

__all__ = ["MOVES", "IntegerRange", "Scope", "all_nodes", "integer_range"]

# Operators whose output holds the values of their first input (Concat: of all).
MOVES = {
    *(
        "Cast",
        "Identity",
        "Unsqueeze",
        "Squeeze",
        "Reshape",
        "Flatten",
        "Transpose",
        "Slice",
        "Concat",
        "Expand",
        "Tile",
    ),
    *("Split", "Pad"),
}
_ARITHMETIC = {"Add", "Sub", "Min", "Max", "Clip", "Where"}
# (operator, input): a value there decides a shape or a place, so what is not known to fit must stay small
_PLACES = {
    *(("Gather", 1), ("GatherElements", 1), ("GatherND", 1), ("ScatterElements", 1), ("ScatterND", 1), ("Scatter", 1)),
    *(("Reshape", 1), ("Slice", 1), ("Slice", 2), ("Slice", 3), ("Slice", 4), ("Expand", 1), ("Tile", 1), ("Pad", 1)),
    *(("Range", 0), ("Range", 1), ("Range", 2), ("ConstantOfShape", 0), ("OneHot", 0), ("OneHot", 1), ("Resize", 3)),
    *(("Loop", 0), ("If", 0), ("TopK", 1), ("Split", 1), ("Unsqueeze", 1), ("Squeeze", 1), ("ReverseSequence", 1)),
    *(("LSTM", 4), ("GRU", 4), ("RNN", 4), ("Trilu", 1)),
}
_SCANS = {"CumSum", "CumProd"}
_CONSTANT_ATTRIBUTES = ("value_int", "value_ints", "value_float", "value_floats")
_SMALL = (0, 2)
_WIDE = (-100, 101)


@dataclass(frozen=True)
class IntegerRange:
    """Values to draw from: `choices` where there are any, else low (inside) to high (outside); and why these.

    Of `axes`, a tensor holds each once, counted from either end.
    """

    low: int
    high: int
    choices: tuple[int, ...]
    why: str
    axes: bool = False


@dataclass
class _Facts:
    bounds: list[int]
    choices: list[int]
    place: bool = False
    reduced: list[str] = field(default_factory=list)  # tensors whose axes the values are


class Scope:
    """Consumers and constants of one scope; values of outer scopes are visible by name."""

    def __init__(self, nodes: Iterable[onnx.NodeProto], graph: onnx.GraphProto) -> None:
        self.consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        self.constants: dict[str, onnx.TensorProto] = {t.name: t for t in graph.initializer}
        for node in nodes:
            for position, name in enumerate(node.input):
                self.consumers.setdefault(name, []).append((node, position))
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    self.constants[node.output[0]] = attribute.t
                elif node.op_type == "Constant" and attribute.name in _CONSTANT_ATTRIBUTES:
                    value = np.array(onnx.helper.get_attribute_value(attribute))
                    exact = value.astype(np.float32 if "float" in attribute.name else np.int64)
                    self.constants[node.output[0]] = numpy_helper.from_array(exact)

    def rows(self, name: str, axis: int) -> int | None:
        """The extent of a constant along an axis."""
        tensor = self.constants.get(name)
        if tensor is None or not -len(tensor.dims) <= axis < len(tensor.dims):
            return None
        return int(tensor.dims[axis])

    def array(self, name: str) -> np.ndarray | None:
        """A small constant's values; None where the value is none, or its data lies beside the model."""
        tensor = self.constants.get(name)
        if tensor is None or int(np.prod(tensor.dims)) > 64 or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)

    def integers(self, name: str) -> list[int]:
        """The values of a small integer constant."""
        array = self.array(name)
        return [int(v) for v in array.ravel()] if array is not None and array.dtype.kind in "iu" else []


def all_nodes(graph: onnx.GraphProto) -> Iterable[onnx.NodeProto]:
    """The graph's nodes and those of its nodes' bodies."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def _axis(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "axis"), 0)


def _follow(graph: Scope, name: str) -> _Facts:
    facts = _Facts([], [])
    seen = {name}
    work = [(name, 1)]  # a value, and by what an offset added on the way divides its bound
    while work:
        value, share = work.pop()
        for node, position in graph.consumers.get(value, ()):
            kind = node.op_type
            if (kind, position) in _PLACES:
                facts.place = True
            if position == 1 and (kind.startswith("Reduce") or kind in _SCANS):
                facts.reduced.append(node.input[0])
            if kind in ("Gather", "GatherElements") and position == 1:
                rows = graph.rows(node.input[0], _axis(node))
                if rows:
                    facts.bounds.append(max(1, rows // share))
            elif kind == "Equal":
                facts.choices += graph.integers(node.input[1 - position])
            moves = kind in MOVES and (position == 0 or kind == "Concat")
            if moves or kind in _ARITHMETIC:
                for output in node.output:
                    if output and output not in seen:
                        seen.add(output)
                        work.append((output, share if moves else 2 * share))
    return facts


def integer_range(model: onnx.ModelProto, name: str, dtype: np.dtype[Any]) -> IntegerRange:
    """The range for an integer input of the model.

    In this order: 0 and 1 for a mask (by its name); the axes of what it reduces; below the smallest table that it
    indexes; the constants that it is compared with; 0 and 1 where it decides a shape or a place; else -100 to 100, as
    far as its type goes.
    """
    if "mask" in name.lower():
        return IntegerRange(*_SMALL, (), "mask")
    facts = _follow(Scope(all_nodes(model.graph), model.graph), name)
    if facts.reduced:
        rank = _least_rank(model, facts.reduced)
        return IntegerRange(-rank, rank, (), "axes of a reduction", axes=True)
    if facts.bounds:
        return IntegerRange(0, min(facts.bounds), (), f"index below {min(facts.bounds)}")
    if facts.choices and not facts.place:
        choices = tuple(sorted(set(facts.choices)))
        return IntegerRange(choices[0], choices[-1] + 1, choices, f"compared with {', '.join(map(str, choices[:4]))}")
    if facts.place:
        return IntegerRange(*_SMALL, (), "decides a shape or a place")
    limits = np.iinfo(dtype)
    return IntegerRange(max(_WIDE[0], int(limits.min)), min(_WIDE[1], int(limits.max) + 1), (), "any")


def _least_rank(model: onnx.ModelProto, names: Iterable[str]) -> int:
    """The least rank of those of these values that is known, else 1."""
    graph = infer(model).graph
    known = {v.name: v.type.tensor_type for v in (*graph.input, *graph.value_info, *graph.output)}
    return min((len(known[n].shape.dim) for n in names if n in known and known[n].HasField("shape")), default=1)
