"""Slices of opset 10, whose results ONNX's shape inference misnames.

There, a dimension that is cut keeps the symbol of the input's: `Slice` of `float[N]` to its first two elements is
`float[N]` again (seen with onnx 1.23; opsets below and above leave the dimension open). ONNX Runtime infers the same
names and plans memory by them: a buffer of N elements is handed to what has two, and the run fails. A name that is
declared goes before one that is inferred, in both, so these dimensions get names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx
from onnx import numpy_helper

from onnxfuse.custom_ops.types import to_onnx
from onnxfuse.rewrites.dims import INVENTED, stated
from onnxfuse.rewrites.shape_site import Scope

__all__ = ["MISNAMING_OPSET", "declared_names", "misnamed_outputs", "misnamed_slices", "misnames", "part_names"]

MISNAMING_OPSET = 10


def misnames(function: onnx.FunctionProto) -> bool:
    """Whether a local function has such a Slice."""
    at = any(o.domain in ("", "ai.onnx") and o.version == MISNAMING_OPSET for o in function.opset_import)
    return at and _has_slice(function.node)


def _has_slice(nodes: Sequence[onnx.NodeProto]) -> bool:
    bodies = (a.g for n in nodes for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)
    return any(_is_slice(n) for n in nodes) or any(_has_slice(body.node) for body in bodies)


def _is_slice(node: onnx.NodeProto) -> bool:
    return node.op_type == "Slice" and node.domain in ("", "ai.onnx")


def misnamed_slices(graph: onnx.GraphProto) -> Iterator[tuple[str, list[int] | None]]:
    """The results of the Slices of a graph (not of its bodies) of opset 10, with the axes cut; None: perhaps any."""
    constants: dict[str, onnx.TensorProto] = {}
    slices = [node for node in graph.node if _is_slice(node) and node.output[0]]
    if slices:
        constants = {t.name: t for t in graph.initializer}
        constants |= {
            n.output[0]: a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"
        }
    for node in slices:
        starts, axes = (constants.get(node.input[k]) if len(node.input) > k else None for k in (1, 3))
        if axes is not None:
            yield node.output[0], [int(a) for a in numpy_helper.to_array(axes).reshape(-1)]
        elif starts is not None and not (len(node.input) > 3 and node.input[3]):
            yield node.output[0], list(range(starts.dims[0] if starts.dims else 1))
        else:
            yield node.output[0], None


def part_names(skeleton: onnx.GraphProto, inferred: onnx.GraphProto, count: int = 0) -> int:
    """Declares the dimensions that are cut, in `skeleton` and its bodies, by names that nothing else has.

    Returns how many it declared. `inferred` is the same graph with the types that inference found.
    """
    known = {v.name: v for v in (*inferred.value_info, *inferred.output)}
    outputs = {v.name: v for v in skeleton.output}
    for name, axes in misnamed_slices(skeleton):
        if name not in known or not known[name].type.tensor_type.HasField("shape"):
            continue
        declared = onnx.ValueInfoProto()
        declared.CopyFrom(known[name])
        dims = declared.type.tensor_type.shape.dim
        cut = range(len(dims)) if axes is None else {a % max(len(dims), 1) for a in axes}
        for axis, dim in enumerate(dims):
            if dim.HasField("dim_value"):
                continue
            dim.Clear()  # what is not cut is left to inference: it may have been cut before, and be misnamed here
            if axis in cut:
                dim.dim_param = f"{INVENTED}part_{count}"
                count += 1
        if not any(dim.dim_param for dim in dims):
            continue
        if name in outputs:
            outputs[name].CopyFrom(declared)
        else:
            skeleton.value_info.append(declared)
    for node, typed in zip(skeleton.node, inferred.node, strict=True):
        for attribute, after in zip(node.attribute, typed.attribute, strict=True):
            if attribute.type == onnx.AttributeProto.GRAPH:
                count = part_names(attribute.g, after.g, count)
    return count


def declared_names(graph: onnx.GraphProto, types: Scope) -> Iterator[onnx.ValueInfoProto]:
    """What to declare of a graph of opset 10 for ONNX Runtime: the results of Slices, and what was declared after them.

    A symbol stays where it is proven to be the extent; else the dimension gets a name of its own. Outputs of the graph
    are declared already (see `misnamed_outputs`).
    """
    names = [name for name, _ in misnamed_slices(graph)]
    names += [v.name for v in graph.value_info if names and v.name in types]
    outputs = {o.name for o in graph.output}
    for name in dict.fromkeys(n for n in names if n not in outputs):
        if value := _declared(name, types, name):
            yield value


def misnamed_outputs(
    graph: onnx.GraphProto, types: Scope, unique_name: Callable[[str], str]
) -> Iterator[tuple[str, onnx.ValueInfoProto]]:
    """Outputs of the graph that are results of Slices, with what to declare of the same value inside.

    An output keeps the type that it is declared with, where a dimension may have no name: then what is inferred from it
    is misnamed as well, unless its users read a value of another name.
    """
    outputs = {o.name for o in graph.output}
    for name, _ in misnamed_slices(graph):
        if name in outputs and (value := _declared(name, types, unique_name(f"{name}_part"))):
            yield name, value


def _declared(name: str, types: Scope, own_name: str) -> onnx.ValueInfoProto | None:
    shape, type_ = types[name].shape, types[name].type
    if not type_ or shape is None or all(isinstance(d, int) for d in shape):
        return None
    dims = [f"{own_name}.{k}" if stated(d) is None else d for k, d in enumerate(shape)]
    return onnx.helper.make_tensor_value_info(own_name, to_onnx(type_), dims)
