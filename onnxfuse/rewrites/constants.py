"""Which values of a graph are constant, and the small ones' values.

This is an analysis, not an edit: a scalar that a region inlines no longer needs its producers, and what else is
constant stays where it is, where ONNX Runtime folds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxfuse.rewrites.slice_bounds import means_otherwise

__all__ = ["FOLDED", "Constants", "find_constants", "fold"]

# Elements of a constant whose value is looked at.
SMALL = 64
FOLDED = frozenset(
    (
        "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "DequantizeLinear", "Div", "Equal", "Exp",
        "Expand", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Mul",
        "Neg", "Not", "Or", "Pow", "Range", "Reciprocal", "ReduceProd", "Reshape", "Shape", "Size", "Slice", "Sqrt",
        "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where", "Xor",
    )
)  # fmt: skip


# The first version that onnx.reference has, where it means the same by it as earlier ones did.
_IN_REFERENCE = {"DequantizeLinear": 19}
# ONNX Runtime's kernels of these round floats otherwise than numpy, and those of narrow floats compute in wider ones.
_ROUNDED_OTHERWISE = frozenset(("Exp", "Log", "Pow", "Range"))


@dataclass
class Constants:
    """Names of constant values, the values of the small ones, and the nodes (by index) that compute constants.

    Of the values, those `inexact` are what ONNX Runtime computes but for their last bits, or follow from such.
    """

    names: set[str] = field(default_factory=set)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: set[int] = field(default_factory=set)
    inexact: set[str] = field(default_factory=set)


def find_constants(graph: onnx.GraphProto, outer: Constants, ir_version: int, opset: int) -> Constants:
    """The constants of a sorted graph, on top of those that it captures from `outer`.

    An initializer that is also an input of the graph has a value that the caller may override, except before IR
    version 4, where every initializer had to be listed as an input.
    """
    found = Constants(set(outer.names), dict(outer.values), inexact=set(outer.inexact))
    overridable = {i.name for i in graph.input} if ir_version >= 4 else set()
    for i in graph.input:
        found.names.discard(i.name)
        found.values.pop(i.name, None)
    for tensor in graph.initializer:
        if tensor.name not in overridable:
            found.names.add(tensor.name)
            if int(np.prod(tensor.dims)) <= SMALL:
                _remember(found, tensor.name, tensor)
    for index, node in enumerate(graph.node):
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "Constant":
            found.nodes.add(index)
            found.names.add(node.output[0])
            _remember_constant_node(found, node)
        elif node.input and node.op_type in FOLDED and all(n in found.names for n in node.input if n):
            found.nodes.add(index)
            found.names.update(node.output)
            fold(found, node, opset)
        elif any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
            continue
        elif node.input and all(n in found.names for n in node.input if n) and not node.op_type.startswith("Random"):
            found.nodes.add(index)
            found.names.update(node.output)
    return found


def _remember(found: Constants, name: str, tensor: onnx.TensorProto) -> None:
    if tensor.data_type != onnx.TensorProto.STRING and tensor.data_location != onnx.TensorProto.EXTERNAL:
        found.values[name] = numpy_helper.to_array(tensor)


def _remember_constant_node(found: Constants, node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "value" and int(np.prod(attribute.t.dims)) <= SMALL:
            _remember(found, node.output[0], attribute.t)
        elif attribute.name in ("value_float", "value_floats"):
            found.values[node.output[0]] = np.asarray(onnx.helper.get_attribute_value(attribute), np.float32)
        elif attribute.name in ("value_int", "value_ints"):
            found.values[node.output[0]] = np.asarray(onnx.helper.get_attribute_value(attribute), np.int64)


def fold(found: Constants, node: onnx.NodeProto, opset: int) -> None:
    """Computes a node of small constants; what the reference cannot compute has no known value."""
    if not all(n in found.values for n in node.input if n):
        return
    if node.op_type in ("Expand", "ConstantOfShape", "Range") and not _stays_small(found.values, node):
        return
    if node.op_type == "Slice" and _is_sliced_otherwise(found.values, node):
        return
    graph = onnx.helper.make_graph(
        [node],
        "fold",
        [onnx.ValueInfoProto(name=n) for n in node.input if n],
        [onnx.ValueInfoProto(name=n) for n in node.output],
    )
    version = max(opset, _IN_REFERENCE.get(node.op_type, 0))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, {n: found.values[n] for n in node.input if n})
    except Exception:
        return
    follows = node.op_type not in ("Shape", "Size") and not found.inexact.isdisjoint(node.input)
    for name, value in zip(node.output, results, strict=False):
        if isinstance(value, (np.ndarray, np.generic)) and np.asarray(value).size <= SMALL:
            found.values[name] = np.asarray(value)
            wide = value.dtype in (np.float32, np.float64) and node.op_type not in _ROUNDED_OTHERWISE
            if follows or not (wide or value.dtype.kind in "iub"):
                found.inexact.add(name)


def _is_sliced_otherwise(values: Mapping[str, np.ndarray], node: onnx.NodeProto) -> bool:
    """Whether onnx.reference makes something else of a Slice than ONNX Runtime."""
    if len(node.input) < 5:
        return False
    data, starts, ends, axes, steps = (values.get(n) for n in node.input)
    if data is None or starts is None or ends is None or steps is None:
        return False
    over = range(starts.size) if axes is None else axes.reshape(-1)
    bounds = zip(*(v.reshape(-1).tolist() for v in (starts, ends, steps)), over, strict=False)
    return any(means_otherwise(start, end, step, data.shape[axis]) for start, end, step, axis in bounds)


def _stays_small(values: Mapping[str, np.ndarray], node: onnx.NodeProto) -> bool:
    if node.op_type == "Range":
        start, limit, delta = (float(values[n].reshape(-1)[0]) for n in node.input)
        return delta != 0 and abs((limit - start) / delta) <= SMALL
    shape = values[node.input[-1]].reshape(-1)
    return bool(np.prod(shape.astype(np.float64)) <= SMALL)
