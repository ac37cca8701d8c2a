"""What a model means: its outputs in wider types than its own, and how far rounding moves them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from reference_operators import OPERATORS

import onnxfuse

ort.set_default_logger_severity(4)

Feeds = Mapping[str, np.ndarray]
# Operators whose result a small error of an operand may change by much.
_JUMPS = {"Floor", "Ceil", "Round", "Sign", "ArgMax", "ArgMin", "Less", "Greater", "Equal", "Mod"}
_JUMPS |= {"ThresholdedRelu", "Shrink", "QuantizeLinear"}
_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)

# By the name of a target. TF32 would take half of float32's bits from a MatMul that is not ours to test.
PROVIDERS: dict[str, list[Any]] = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": [
        ("CUDAExecutionProvider", {"use_tf32": "0", "arena_extend_strategy": "kSameAsRequested"}),
        "CPUExecutionProvider",
    ],
}


def run(
    model: onnx.ModelProto, feeds: Feeds, library: bool, optimizations: bool = False, provider: str = "cpu"
) -> list[Any]:
    """What ONNX Runtime computes on the provider, with or without the library."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimizations else levels.ORT_DISABLE_ALL
    if library:
        options.register_custom_ops_library(str(onnxfuse.library_path()))
    session = ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS[provider])
    return list(session.run(None, dict(feeds)))


def knows_overloads() -> bool:
    """Whether this ONNX Runtime tells local functions of one name apart."""
    return tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 27)


def in_wider_types(
    model: onnx.ModelProto, feeds: Feeds, rounded: np.random.Generator | None = None
) -> list[Any] | None:
    """The outputs in float64, or in float32 where onnx.reference cannot follow a model of narrower types.

    Constants keep their rounding. None: not possible. `rounded`: each operator gets its float16 operands off by half a
    unit, up or down.
    """
    shaken = onnx.ModelProto()
    shaken.CopyFrom(model)
    if rounded is not None:
        _round_operands(shaken, rounded)

    narrow = {i.name for i in model.graph.input if i.type.tensor_type.elem_type in _NARROW}

    def widened(dtype: type[np.floating[Any]]) -> Feeds:
        return {k: v.astype(dtype) if k in narrow else v for k, v in feeds.items()}

    found = _with_reference(_widened(shaken, TensorProto.DOUBLE), widened(np.float64))
    if found is not None or TensorProto.FLOAT16 not in element_types(model):
        return found
    try:
        return run(_widened(shaken, TensorProto.FLOAT), widened(np.float32), library=False)
    except Exception:
        return None


def _widened(model: onnx.ModelProto, wide: int) -> onnx.ModelProto:
    """The model with every float narrower than `wide`, an element type of ONNX, as that."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for graph in graphs_of(result.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _NARROW:
                value.type.tensor_type.elem_type = wide
        for tensor in graph.initializer:
            _widen(tensor, wide)
        _widen_nodes(graph.node, wide)
    for function in result.functions:
        _widen_nodes(function.node, wide)
    return result


def _widen(tensor: onnx.TensorProto, wide: int) -> None:
    if tensor.data_type in _NARROW:
        dtype = helper.tensor_dtype_to_np_dtype(wide)
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))


def _widen_nodes(nodes: Sequence[onnx.NodeProto], wide: int) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t, wide)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                value = np.asarray(helper.get_attribute_value(attribute), helper.tensor_dtype_to_np_dtype(wide))
                attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(value)))
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i in _NARROW:
                attribute.i = wide


def _with_reference(model: onnx.ModelProto, feeds: Feeds) -> list[Any] | None:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            _sort(copy.graph)  # it computes in the order given
            return list(ReferenceEvaluator(copy, new_ops=OPERATORS).run(None, dict(feeds)))
    except Exception:
        return None


def _sort(graph: onnx.GraphProto) -> None:
    """Puts each node of a graph behind those that it reads, in bodies too."""
    made = {name for node in graph.node for name in node.output}
    waiting, done = list(graph.node), set[str]()
    sorted_nodes: list[onnx.NodeProto] = []
    while waiting:
        ready = [n for n in waiting if (_read(n) & made) <= done]
        if not ready:
            return
        sorted_nodes += ready
        done |= {name for node in ready for name in node.output}
        waiting = [n for n in waiting if not any(n is r for r in ready)]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in sorted_nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _read(node: onnx.NodeProto) -> set[str]:
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for body in graphs_of(attribute.g):
                names |= {n for inner in body.node for n in inner.input} | {o.name for o in body.output}
    return names


def _round_operands(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """As casts around what has no float16 kernel do: one user of a value may get it rounded, another not."""
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except Exception:
        return
    known = [v for g in graphs_of(typed.graph) for v in (*g.value_info, *g.input, *g.output)]
    half = {v.name for v in known if v.type.tensor_type.elem_type == TensorProto.FLOAT16}
    floats = {v.name for v in known if v.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.DOUBLE)}
    for graph in graphs_of(model.graph):  # in a wider type it is as unsure
        half |= {n.output[0] for n in graph.node if n.op_type == "Cast" and n.input[0] in half} & floats
    made = 0
    for graph in list(graphs_of(model.graph)):
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            for k, name in enumerate(node.input):
                if name in half and node.op_type not in _JUMPS:
                    value, factor = f"{name}.rounded.{made}", f"{name}.rounded.{made}.by"
                    tensor = numpy_helper.from_array(np.array(1 + rng.choice([-1, 1]) * 2.0**-11, np.float32), factor)
                    constant = helper.make_node("Constant", [], [factor], value=tensor)
                    nodes += [constant, helper.make_node("Mul", [name, factor], [value])]
                    node.input[k] = value
                    made += 1
            nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
        del graph.node[:]
        graph.node.extend(nodes)


def moved_by_rounding(model: onnx.ModelProto, feeds: Feeds, truth: Sequence[Any]) -> list[float]:
    """How far each output moves when every float input is rounded otherwise, or when numpy rounds after each operator.

    And with float16, when each of its operands is rounded otherwise.

    Where the model cancels, this is much; a mistake of a fused node it is not.
    """
    rng = np.random.default_rng(0)
    half = TensorProto.FLOAT16 in element_types(model)
    narrow = half or TensorProto.FLOAT in element_types(model)
    moved = [(5e-4 if half else 1e-6) if narrow else 1e-15] * len(truth)  # values are about 1 in the model
    results = [_with_reference(model, feeds)]
    for _ in range(4):
        shaken = {
            k: np.asarray(v.astype(np.float64) * (1 + (5e-4 if half else 6e-8) * rng.choice([-1, 1], v.shape)))
            if v.dtype.kind in "fV"
            else v
            for k, v in feeds.items()
        }
        results.append(in_wider_types(model, shaken, rng if half else None))
    # What onnx.reference means otherwise than ONNX Runtime is no rounding: its results are compared with each other.
    start = in_wider_types(model, feeds) or truth
    for found in results:
        for i, (t, y) in enumerate(zip(start, found or start, strict=True)):
            with np.errstate(all="ignore"):
                change = np.abs(np.asarray(y, np.float64) - np.asarray(t, np.float64))
            moved[i] = max(moved[i], float(np.max(change, initial=0.0, where=np.isfinite(change))))
    return moved


def element_types(model: onnx.ModelProto) -> set[int]:
    types = {i.type.tensor_type.elem_type for i in model.graph.input}
    types |= {t.data_type for g in graphs_of(model.graph) for t in g.initializer}
    return types | {a.i for g in graphs_of(model.graph) for n in g.node if n.op_type == "Cast" for a in n.attribute}


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs_of(attribute.g)
