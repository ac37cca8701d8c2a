"""Constants that bodies take from the graphs around them, for ONNX's shape inference.

It knows the types of outer values in a body, and not one constant: axes, pads and bounds that an exporter leaves among
the weights of the main graph would leave ranks and extents unknown in the branches of an If.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from onnxfuse.bodies import bodies, own_names, read_names
from onnxfuse.rewrites.constants import FOLDED, SMALL, Constants, find_constants

__all__ = ["constants_for_bodies", "give_constants"]


def constants_for_bodies(graph: onnx.GraphProto, outer: Constants, ir_version: int, opset: int) -> Constants:
    """The small constants, computed ones among them, that the bodies in a graph may read.

    `outer` has those that the graph sees itself. What no body reads is not worked out.
    """
    wanted = {name for node in graph.node if bodies(node) for name in read_names(node)}
    makers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    places: set[int] = set()
    pending = [name for name in wanted if name in makers]
    while pending:
        place = makers[pending.pop()]
        node = graph.node[place]
        if place in places or not (node.op_type == "Constant" or node.op_type in FOLDED):
            continue
        places.add(place)
        wanted.update(node.input)
        pending += [name for name in node.input if name in makers]
    own = own_names(graph)
    seen = Constants(
        outer.names - own,
        {name: value for name, value in outer.values.items() if name not in own},
        inexact=outer.inexact - own,
    )
    part = onnx.GraphProto(input=graph.input, node=[graph.node[k] for k in sorted(places)])
    small = (t for t in graph.initializer if t.name in wanted and _count(t) <= SMALL)
    part.initializer.extend(small)
    return find_constants(part, seen, ir_version, opset)


def give_constants(body: onnx.GraphProto, source: onnx.GraphProto, outer: Constants) -> None:
    """Adds to a body those constants that it reads itself, as initializers; `source` is the body in the model."""
    own = own_names(source)
    read = {name for node in source.node for name in node.input} - own
    for name in sorted(read.intersection(outer.values) - outer.inexact):
        body.initializer.append(numpy_helper.from_array(outer.values[name], name))


def _count(tensor: onnx.TensorProto) -> int:
    count = 1
    for n in tensor.dims:
        count *= n
    return count
