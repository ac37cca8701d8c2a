"""The shapes of the tensors that each fused node of a model reads, for given extents of the model's free dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from onnxfuse.custom_ops import DOMAIN
from onnxfuse.errors import OnnxfuseError
from onnxfuse.restore import restore
from onnxfuse.rewrites.dims import Dim, Symbols
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope
from onnxfuse.validate.inputs import free_dimensions, input_specs

__all__ = ["NodeShapes", "node_shapes"]

# Whole shape inferences for a model; a combination costs one where an extent is computed from free dimensions.
_MOST_COMBINATIONS = 256
_MOST_SHAPES = 65536  # of one node

Shape = tuple[int, ...]


@dataclass
class NodeShapes:
    """A fused node, the sets of input shapes that it meets, and why there may be others ("" where there are not)."""

    name: str
    program: str
    shapes: list[tuple[Shape, ...]] = field(default_factory=list)
    unknown: str = ""


def node_shapes(model: onnx.ModelProto, dims: Mapping[str, Sequence[int]]) -> list[NodeShapes]:
    """All fused nodes of the model's graph and its bodies, with their shapes.

    Args:
        model: The model; small values of external data must be in it, for they can be shapes.
        dims: The extents of each free dimension that count, by name or as `input.axis`.

    Raises:
        OnnxfuseError: a name that the model has not; a free dimension that a fused node's shapes depend on and that
            `dims` lacks; too many combinations.
        ProgramError: a fused node's program is not valid.
    """
    free = free_dimensions(input_specs(model))
    values = _values(model, free, dims)
    plain = restore(model).model
    plain = _with_dimensions(plain, {})
    found = list(_walk(model, plain))
    computed: dict[int, NodeShapes] = {}
    missing: set[str] = set()
    for place, (node, shapes) in enumerate(found):
        names = {d for shape in shapes or () for d in shape if isinstance(d, str)}
        if shapes is None or not names <= set(free):
            computed[place] = node
        elif names <= set(values):
            node.shapes = _product(node, shapes, {n: values[n] for n in free if n in names})
        else:
            missing |= names - set(values)
    if computed:
        missing |= set(free) - set(values)
    if missing:
        listed = ", ".join(n for n in free if n in missing)
        raise OnnxfuseError(
            f"shapes of fused nodes depend on free dimensions of the model: say which extents count, as --dim NAME=1,8 "
            f"or --dim NAME=1..16 (without: {listed})"
        )
    if computed:
        _infer_each(model, plain, computed, values)
    return [node for node, _ in found]


def _values(model: onnx.ModelProto, free: Sequence[str], dims: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    places = {
        f"{spec.name}.{axis}": d
        for spec in input_specs(model)
        for axis, d in enumerate(spec.dims or ())
        if isinstance(d, str)
    }
    values: dict[str, Sequence[int]] = {}
    for given, extents in dims.items():
        name = given if given in free else places.get(given)
        if name is None:
            known = ", ".join(free) if free else "none: all its dimensions are fixed"
            raise OnnxfuseError(f"the model has no free dimension {given!r}; it has {known}")
        values[name] = list(extents)
    return values


def _with_dimensions(model: onnx.ModelProto, extents: Mapping[str, int]) -> onnx.ModelProto:
    """A copy whose inputs have these extents, and a name in every other free dimension; no other shape is declared."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                continue
            name = dim.dim_param if dim.dim_param not in ("", "?") else f"{value.name}.{axis}"
            if name in extents:
                dim.dim_value = extents[name]
            else:
                dim.dim_param = name
    if extents:
        del copy.graph.value_info[:]
    return copy


def _walk(model: onnx.ModelProto, plain: onnx.ModelProto) -> Iterator[tuple[NodeShapes, list[tuple[Dim, ...]] | None]]:
    """Each fused node of `model` with the shapes that its inputs have in `plain`; None where one has no known rank."""
    yield from _walk_graph(model.graph, plain.graph, infer(plain).graph, {}, Symbols(), "")


def _walk_graph(
    graph: onnx.GraphProto, plain: onnx.GraphProto, inferred: onnx.GraphProto, outer: Scope, symbols: Symbols, path: str
) -> Iterator[tuple[NodeShapes, list[tuple[Dim, ...]] | None]]:
    scope = {**outer, **symbolic_scope(inferred, outer, symbols, plain)}
    # Operators with bodies are never fused: each stands in all three graphs, among others in the plain one.
    bodies = {node.output[0]: node for node in inferred.node if _bodies(node) and node.output}
    plain_bodies = {node.output[0]: node for node in plain.node if _bodies(node) and node.output}
    for node in graph.node:
        if node.domain == DOMAIN:
            text = next((a.s.decode() for a in node.attribute if a.name == "program"), "")
            shapes = [known.shape if (known := scope.get(name)) is not None else None for name in node.input]
            label = f"{path}/{node.name or node.op_type}".lstrip("/")
            yield NodeShapes(label, text), None if None in shapes else [s for s in shapes if s is not None]
        elif _bodies(node) and node.output and node.output[0] in bodies and node.output[0] in plain_bodies:
            step = f"{path}/{node.name or node.op_type}"
            three = zip(
                _bodies(node), _bodies(plain_bodies[node.output[0]]), _bodies(bodies[node.output[0]]), strict=True
            )
            for (name, own), (_, body), (_, typed) in three:
                yield from _walk_graph(own, body, typed, scope, symbols, f"{step}.{name}")


def _bodies(node: onnx.NodeProto) -> list[tuple[str, onnx.GraphProto]]:
    return [(a.name, a.g) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def _product(
    node: NodeShapes, shapes: Sequence[Sequence[Dim]], values: Mapping[str, Sequence[int]]
) -> list[tuple[Shape, ...]]:
    count = math.prod(len(v) for v in values.values())
    if count > _MOST_SHAPES:
        raise OnnxfuseError(
            f"the node {node.name} would meet {count} sets of shapes, at most {_MOST_SHAPES} are followed: "
            f"give fewer extents of {', '.join(values)}"
        )
    result = []
    for extents in itertools.product(*values.values()):
        known = dict(zip(values, extents, strict=True))
        result.append(tuple(tuple(known[d] if isinstance(d, str) else d for d in shape) for shape in shapes))
    return list(dict.fromkeys(result))


def _infer_each(
    model: onnx.ModelProto, plain: onnx.ModelProto, nodes: Mapping[int, NodeShapes], values: Mapping[str, Sequence[int]]
) -> None:
    """Fills in the shapes of nodes, given by their place in the walk: an inference for each combination of extents."""
    count = math.prod(len(v) for v in values.values())
    if count > _MOST_COMBINATIONS:
        first = next(iter(nodes.values()))
        raise OnnxfuseError(
            f"the shapes of {len(nodes)} fused nodes (the first is {first.name}) are computed from free dimensions, "
            f"which takes an inference for each of the {count} combinations of extents; at most {_MOST_COMBINATIONS} "
            f"are made: give fewer extents of {', '.join(values)}"
        )
    for extents in itertools.product(*values.values()):
        known = dict(zip(values, extents, strict=True))
        for place, (_, shapes) in enumerate(_walk(model, _with_dimensions(plain, known))):
            node = nodes.get(place)
            if node is None:
                continue
            static = None if shapes is None else _static(shapes)
            if static is None:
                node.unknown = "its shapes depend on data, or cannot be inferred"
            elif static not in node.shapes:
                node.shapes.append(static)


def _static(shapes: Sequence[Sequence[Dim]]) -> tuple[Shape, ...] | None:
    result = []
    for shape in shapes:
        extents = [d for d in shape if isinstance(d, int)]
        if len(extents) < len(shape):
            return None
        result.append(tuple(extents))
    return tuple(result)
