"""Affine maps before convolutions, on the CPU: scales and shifts that go into the weights and biases behind them.

Conv(x * s + t, W, b) is Conv(x, W * s, b + sum of W * t) where no zeros are put around the map, or t is 0. Such maps
stand between the convolutions of PP-LCNet, behind activations, where ONNX Runtime cannot put them into the Conv before:
they cost a pass, which conv_epilogues.py can but have made in that Conv's layout. PP-OCRv4, one and two threads of an
EPYC, without and with this, in turn with ONNX Runtime: recognition 1.31 and 1.32, 1.62 and 1.73 times as fast,
detection 1.24 and 1.27, 1.26 and 1.30.

A map is what Mul, Add, Sub, Div and BatchNormalization make of a value and constants, one number or one a channel. It
goes where all that read it are convolutions that take it in:

1. Their weights (float32) and biases are constants, not quantized ones.
2. They pad nothing, or nothing is added.
3. The numbers are ordinary: no product with the weights overflows, none that counts is below the normal numbers.
4. It would cost a pass: what a fused node computes with other operators stays there, and what goes into the Conv before
   goes there.

The weights stay as they are in the model; nodes on constants compute the new ones, which ONNX Runtime folds when it
creates a session, at every level of optimization and before it fuses anything into a Conv (tried for opsets 7 to 24).

Results differ by roundings: by a few 2^-24 of the sum of |W| * (|s * x| + |t|). Without this it is that of
|W| * |s * x + t|, which is less where s * x and t cancel; so t is limited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray
from onnx import numpy_helper

from onnxfuse.bodies import graphs
from onnxfuse.errors import ModelError
from onnxfuse.rewrites.convolutions import folds_before, has_constant_weights, inside_convolutions, stays_blocked
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering import LOWERINGS

__all__ = ["IN_WEIGHTS", "Prologue", "Reader", "find_prologues", "may_have_prologues"]

IN_WEIGHTS = "it is part of the weights of the convolutions that read its result"

_STEPS = frozenset(("Mul", "Add", "Sub", "Div", "BatchNormalization"))
_OLDEST_OPSET = 7  # as operators broadcast, and without is_test
_SCALES = (2.0**-30, 2.0**30)
_LARGEST_SHIFT = 64.0  # results of a normalization are near 1: they lose 6 bits to this one at most
_WEIGHTS = (2.0**-100, 2.0**100)

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class _Affine:
    """x * scale + shift, with one number or one a channel."""

    scale: Numbers
    shift: Numbers

    @property
    def is_ordinary(self) -> bool:
        size = np.abs(self.scale)
        return bool(np.all((_SCALES[0] < size) & (size < _SCALES[1])) and np.all(np.abs(self.shift) < _LARGEST_SHIFT))


@dataclass(frozen=True)
class Reader:
    """A Conv that takes a map in: node `index`, what its weights are multiplied by, and what is added to its input.

    `scale` broadcasts to the weights, None for 1; `shift` is as large as the kernel, [1, channels, ...], None for 0.
    """

    index: int
    group: int
    scale: NDArray[np.float32] | None
    shift: NDArray[np.float32] | None


@dataclass(frozen=True)
class Prologue:
    """The affine map that the nodes compute of `value`, and the convolutions that read it."""

    value: str
    nodes: list[int]
    readers: list[Reader]


def may_have_prologues(model: onnx.ModelProto) -> bool:
    """Whether a Conv reads what may be an affine map."""
    constants: set[str] = set()  # of the graph and those around it
    for graph in graphs(model.graph):
        constants.update(tensor.name for tensor in graph.initializer)
        constants.update(n for node in graph.node if node.op_type == "Constant" for n in node.output)
        steps = [node for node in graph.node if node.op_type in _STEPS and not constants.isdisjoint(node.input)]
        made = {name for node in steps for name in node.output}
        if any(node.op_type == "Conv" and node.input and node.input[0] in made for node in graph.node):
            return True
    return False


def find_prologues(view: GraphView, fused: bool) -> list[Prologue]:
    """The affine maps of a graph that can go into convolutions.

    `fused`: whether all has been fused that can be. Before, maps behind what a region may take in are left to that.
    """
    if view.opset < _OLDEST_OPSET:
        return []
    inside = inside_convolutions(view, "cpu")
    left = view.dead() | view.constants.nodes
    found: list[Prologue] = []
    for i, proto in enumerate(view.protos):
        users = view.consumers.get(proto.output[0], ()) if proto.op_type in _STEPS and proto.output else ()
        if not users or i in left or not all(view.protos[c].op_type == "Conv" for c in users):
            continue
        value, nodes, affine = _map(view, i)
        maker = view.producer.get(value)
        if not nodes or not affine.is_ordinary or folds_before(view, nodes[0], value):
            continue
        if len(nodes) > 1 and view.only_user(value) and has_constant_weights(view, value):
            continue  # conv_epilogues.py spells it as BatchNormalization
        if not fused and maker is not None and maker not in inside and _may_fuse(view, maker):
            continue
        # Of a map that convolutions read as well, which would go into their weights only after this one has.
        if maker is not None and _step(view, maker) and _only_into_convolutions(view, value):
            continue
        readers = [_reader(view, c, proto.output[0], affine) for c in users]
        taking = [r for r in readers if r is not None]
        if len(taking) == len(readers) and proto.output[0] not in view.kept:
            found.append(Prologue(value, nodes, taking))
    return found


def _only_into_convolutions(view: GraphView, value: str) -> bool:
    return all(view.protos[c].op_type in (*_STEPS, "Conv") for c in view.consumers[value])


def _may_fuse(view: GraphView, i: int) -> bool:
    """Whether a region may take a node in, which it does not where an activation of a Conv gates that Conv's result."""
    proto = view.protos[i]
    gates = [k for k in view.producers_of(i) if view.protos[k].op_type in ("HardSigmoid", "Sigmoid")]
    lowered = ("" if proto.domain == "ai.onnx" else proto.domain, proto.op_type) in LOWERINGS
    return lowered and not (gates and stays_blocked(view, [i, *gates]))


def _map(view: GraphView, i: int) -> tuple[str, list[int], _Affine]:
    """The value of which node `i` makes an affine map, the nodes that do so, in order, and the map."""
    nodes: list[int] = []
    value, affine = view.protos[i].output[0], _Affine(np.ones(()), np.zeros(()))
    with np.errstate(all="ignore"):
        while (step := _step(view, i)) is not None and (not nodes or view.only_user(value)):
            value, by, plus = step
            affine = _Affine(affine.scale * by, affine.shift + affine.scale * plus)
            nodes.insert(0, i)
            if value not in view.producer:
                break
            i = view.producer[value]
    return value, nodes, affine


def _step(view: GraphView, i: int) -> tuple[str, Numbers, Numbers] | None:
    """Where a node makes x * a + b of a float32 map x and constants: x, a and b."""
    proto = view.protos[i]
    if proto.op_type not in _STEPS or proto.domain not in ("", "ai.onnx"):
        return None
    if proto.op_type == "BatchNormalization":
        return _normalization(view, proto)
    if len(proto.input) != 2:
        return None
    first, second = proto.input
    if second in view.constants.names:
        x, c = first, _of_channels(view, second, first)
        if c is None or (proto.op_type == "Div" and not np.all(c)):
            return None
        one, zero = np.ones(()), np.zeros(())
        return x, *{"Mul": (c, zero), "Div": (1 / c, zero), "Add": (one, c), "Sub": (one, -c)}[proto.op_type]
    if first in view.constants.names and proto.op_type != "Div":
        c = _of_channels(view, first, second)
        if c is None:
            return None
        return second, *{"Mul": (c, np.zeros(())), "Add": (np.ones(()), c), "Sub": (-np.ones(()), c)}[proto.op_type]
    return None


def _normalization(view: GraphView, proto: onnx.NodeProto) -> tuple[str, Numbers, Numbers] | None:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
    trains = attributes.get("training_mode", 0) or attributes.get("spatial", 1) != 1 or len(proto.output) > 1
    if trains or len(proto.input) != 5:
        return None
    given = [_numbers(view, name) for name in proto.input[1:]]
    scale, bias, mean, variance = (np.asarray(np.nan) if g is None else g.astype(np.float64) for g in given)
    by = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
    is_map = _float_map(view, proto.input[0]) is not None
    return (proto.input[0], by, bias - mean * by) if is_map and np.all(np.isfinite(by)) else None


def _of_channels(view: GraphView, constant: str, value: str) -> Numbers | None:
    """The numbers of a constant that is one, or one a channel (dimension 1), beside a float32 map."""
    shape, numbers = _float_map(view, value), _numbers(view, constant)
    if shape is None or numbers is None or numbers.ndim > len(shape):
        return None
    if numbers.size == 1:
        return numbers.reshape(()).astype(np.float64)
    along = (1,) * (len(shape) - numbers.ndim) + numbers.shape
    fits = along == (1, shape[1], *(1 for _ in shape[2:]))
    return numbers.reshape(-1).astype(np.float64) if fits else None


def _float_map(view: GraphView, name: str) -> tuple[object, ...] | None:
    """The shape of a value, where it is a float32 map of one or more spatial dimensions."""
    known = view.type_of(name)
    return known.shape if known.type == "f32" and known.shape is not None and len(known.shape) > 2 else None


def _numbers(view: GraphView, name: str) -> np.ndarray | None:
    """The values of a float32 constant that stands in the model itself."""
    if name not in view.constants.names or view.type_of(name).type != "f32":
        return None
    if name in view.constants.values:
        return view.constants.values[name]
    if name in view.producer:
        maker = view.protos[view.producer[name]]
        given = [a.t for a in maker.attribute if a.name == "value"] if maker.op_type == "Constant" else []
        return numpy_helper.to_array(given[0]) if given else None
    try:
        tensor = view.tensors.get(name)
        return tensor.values if isinstance(tensor, gs.Constant) else None
    except ModelError:  # in a file that is not at hand
        return None


def _reader(view: GraphView, i: int, value: str, affine: _Affine) -> Reader | None:
    """What becomes of a Conv that reads the map, None where it cannot take it in."""
    proto = view.protos[i]
    if proto.domain not in ("", "ai.onnx") or len(proto.input) < 2:
        return None
    weights = proto.input[1]
    shape = view.type_of(weights).shape
    if shape is None or len(shape) != len(_float_map(view, value) or ()):
        return None
    extents = [d for d in shape if isinstance(d, int)]
    constant = all(n in view.constants.names and not _quantized(view, n) for n in proto.input[1:] if n)
    if not constant or view.type_of(weights).type != "f32" or len(extents) != len(shape) or not prod(extents):
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
    results, inputs, *kernel = extents
    group = int(attributes.get("group", 1))
    shifted = bool(np.any(affine.shift))
    if results % group or (shifted and _pads(attributes, kernel)) or not _stays_normal(view, weights, affine):
        return None
    if not {affine.scale.size, affine.shift.size} <= {1, inputs * group}:
        return None
    scale = affine.scale
    if scale.size > 1 and group > 1:
        scale = np.repeat(scale.reshape(group, 1, inputs), results // group, axis=1)
    if scale.ndim:
        scale = scale.reshape(-1, inputs, *(1 for _ in kernel))
    shift = affine.shift.reshape(1, -1, *(1 for _ in kernel)) * np.ones((1, inputs * group, *kernel))
    return Reader(
        i,
        group,
        None if np.all(scale == 1) else np.asarray(scale, np.float32),
        np.asarray(shift, np.float32) if shifted else None,
    )


def _quantized(view: GraphView, name: str) -> bool:
    """Whether a constant comes from a DequantizeLinear, whose Conv computes with integers perhaps."""
    while name in view.producer:
        proto = view.protos[view.producer[name]]
        if proto.op_type == "DequantizeLinear":
            return True
        name = proto.input[0] if proto.input else ""
    return False


def _pads(attributes: dict[str, object], kernel: Iterable[int]) -> bool:
    """Whether a Conv may pad its map."""
    how = attributes.get("auto_pad", b"NOTSET")
    if how in (b"SAME_UPPER", b"SAME_LOWER"):
        return any(k != 1 for k in kernel)
    pads = attributes.get("pads", ())
    return how != b"VALID" and isinstance(pads, (list, tuple)) and any(pads)


def _stays_normal(view: GraphView, weights: str, affine: _Affine) -> bool:
    """Whether float32 has the products of weights and map, as far as the weights can be seen."""
    numbers = _numbers(view, weights)
    if numbers is None:
        return True
    size, scale = float(np.abs(numbers).max()), np.abs(affine.scale)
    most = size * max(float(scale.max()), float(np.abs(affine.shift).max())) * numbers[0].size
    return _WEIGHTS[0] < size * float(scale.min()) and most < _WEIGHTS[1]
