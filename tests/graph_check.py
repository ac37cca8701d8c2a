"""The check that tests of `optimize` share: the optimized model computes what the model means.

The truth is the model evaluated in float64 by onnx.reference, or, where it cannot follow the model, what ONNX Runtime
makes of it with its optimizations off, in float32 for narrower types.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxfuse
from onnxfuse.external_data import all_tensors
from onnxfuse.report import Report

ort.set_default_logger_severity(4)

Feeds = Mapping[str, np.ndarray]
# dtype: (relative, share of the largest value) by which a fused result may miss the truth, and the original may.
FUSED = {"float64": (1e-9, 1e-11), "float32": (1e-4, 2e-6), "float16": (2e-3, 5e-4), "bfloat16": (1.6e-2, 4e-3)}
PLAIN = {"float64": (1e-9, 1e-11), "float32": (1e-4, 1e-5), "float16": (2e-2, 1e-2), "bfloat16": (1e-1, 5e-2)}
# Operators whose result a small error of an operand may change by much.
_JUMPS = {"Floor", "Ceil", "Round", "Sign", "ArgMax", "ArgMin", "Less", "Greater", "Equal", "Mod"}
_JUMPS |= {"ThresholdedRelu", "Shrink"}
_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class WrongError(AssertionError):
    """What is wrong with an optimized model."""


class NotRunError(Exception):
    """The model itself does not run."""


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

    def widened(dtype: type[np.floating[Any]]) -> Feeds:
        return {k: v.astype(dtype) if v.dtype.kind in "fV" else v for k, v in feeds.items()}

    found = _with_reference(_widened(shaken, TensorProto.DOUBLE), widened(np.float64))
    if found is not None or TensorProto.FLOAT16 not in (types := _element_types(model)) or TensorProto.DOUBLE in types:
        return found
    try:
        return run(_widened(shaken, TensorProto.FLOAT), widened(np.float32), library=False)
    except Exception:
        return None


def _widened(model: onnx.ModelProto, wide: int) -> onnx.ModelProto:
    """The model with every float narrower than `wide`, an element type of ONNX, as that."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for graph in _graphs(result.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _NARROW:
                value.type.tensor_type.elem_type = wide
        for tensor in graph.initializer:
            _widen(tensor, wide)
        _widen_nodes(graph.node, wide)
    for function in result.functions:
        _widen_nodes(function.node, wide)
    return result


def _with_reference(model: onnx.ModelProto, feeds: Feeds) -> list[Any] | None:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            _sort(copy.graph)  # it computes in the order given
            return list(ReferenceEvaluator(copy).run(None, dict(feeds)))
    except Exception:
        return None


def _round_operands(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """As casts around what has no float16 kernel do: one user of a value may get it rounded, another not."""
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except Exception:
        return
    known = [v for g in _graphs(typed.graph) for v in (*g.value_info, *g.input, *g.output)]
    half = {v.name for v in known if v.type.tensor_type.elem_type == TensorProto.FLOAT16}
    made = 0
    for graph in list(_graphs(model.graph)):
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
            for body in _graphs(attribute.g):
                names |= {n for inner in body.node for n in inner.input} | {o.name for o in body.output}
    return names


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


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


def difference(
    truth: Sequence[Any],
    plain: Sequence[Any] | None,
    found: Sequence[Any],
    tolerances: Mapping[str, tuple[float, float]],
    noise: Sequence[float] | None = None,
) -> str:
    """What is wrong with `found`, or "".

    `plain` are the outputs of the model in its own types: they say dtype and shape, where a narrow type overflows, and
    how far from the truth the model itself is: `found` may be as far, and by four times for what is left to chance.
    `noise` is how far rounding of the inputs moves each output: `found` may be off by eight times that.
    """
    for i, y in enumerate(found):
        t, p = np.asarray(truth[i]), np.asarray(plain[i]) if plain is not None else None
        if p is not None and (p.dtype, p.shape) != (y.dtype, y.shape):
            return f"output {i}: {p.dtype}{p.shape} became {y.dtype}{y.shape}"
        if t.shape != y.shape:
            return f"output {i}: shape {t.shape} became {y.shape}"
        if y.dtype.name not in tolerances:
            if not np.array_equal(t.astype(y.dtype), y):
                return f"output {i}: {int((t.astype(y.dtype) != y).sum())} of {y.size} values differ"
            continue
        with np.errstate(all="ignore"):
            wrong = ~_close(t.astype(np.float64), p, y.astype(np.float64), *tolerances[y.dtype.name])
            if noise is not None:
                wrong &= ~(np.abs(t.astype(np.float64) - y.astype(np.float64)) <= 8 * noise[i])
        if wrong.any():
            first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            return f"output {i}: {int(wrong.sum())} of {y.size} values off, first {y[first]!r} for {t[first]!r}"
    return ""


def _close(t: np.ndarray, p: np.ndarray | None, y: np.ndarray, relative: float, share: float) -> np.ndarray:
    finite = np.isfinite(t)
    largest = float(np.abs(t[finite]).max()) if finite.any() else 0.0
    allowed = relative * np.abs(t) + share * largest
    close = np.zeros(t.shape, bool)
    if p is not None:
        z = p.astype(np.float64)
        both = finite & np.isfinite(z)
        allowed = allowed + 4 * float(np.abs(z - t)[both].max() if both.any() else 0)
        close = ~np.isfinite(z) & ((z == y) | (np.isnan(z) & np.isnan(y)))
    return close | np.where(finite, np.abs(t - y) <= allowed, (t == y) | (np.isnan(t) & np.isnan(y)))


def fused_nodes(model: onnx.ModelProto) -> list[str]:
    """The op types of the fused nodes, in bodies too."""
    return [n.op_type for g in _graphs(model.graph) for n in g.node if n.domain == "onnxfuse"]


def check(
    model: onnx.ModelProto,
    feeds: Feeds,
    optimizations: bool = False,
    runs: bool = True,
    provider: str = "cpu",
    beside: bool = False,
    **options: Any,
) -> tuple[onnx.ModelProto, Report]:
    """Optimizes a model and compares results with and without the library.

    Also checks that the result is valid ONNX, that inputs and outputs stay, and that optimizing again changes nothing.
    Raises WrongError. `optimizations`: run with ONNX Runtime's own as well. `runs`: ONNX Runtime runs the model itself
    (NotRunError where it doesn't). `provider` runs the optimized model with the library; all else runs on the CPU
    provider. `beside`: the model is a file with its weights in another. `options` are those of `optimize`.
    """
    options.setdefault("target", "cpu")
    try:
        plain: list[Any] | None = run(model, feeds, library=False)
    except Exception as error:
        if runs:
            raise NotRunError(str(error)) from error
        plain = None
    truth = in_wider_types(model, feeds)
    if truth is None or (plain is not None and _disagree(truth, plain, _tolerances(model, PLAIN))):
        truth = plain
    if truth is None:
        raise NotRunError("neither ONNX Runtime nor onnx.reference runs the model itself")
    before = model.SerializeToString(deterministic=True)
    optimized, report = _optimized(model, beside, options)
    if model.SerializeToString(deterministic=True) != before:
        raise WrongError("optimize changed its argument")
    onnx.checker.check_model(optimized, full_check=bool(fused_nodes(optimized)) and plain is not None)
    for side in ("input", "output"):
        if _signature(getattr(optimized.graph, side)) != _signature(getattr(model.graph, side)):
            raise WrongError(f"the graph's {side}s changed name, order or type")
    fused = bool(fused_nodes(optimized))
    ways = [(True, False)] if fused or plain is not None else []
    ways += [(False, False)] if plain is not None else []
    ways += [(True, True), (False, True)] if plain is not None and optimizations else []
    elsewhere: list[Any] | None = None  # what the model itself makes of it on the provider, where that is needed
    for library, level in ways:
        how = f"{'with' if library else 'without'} the library{', ONNX Runtime optimizing' if level else ''}"
        try:
            found = run(optimized, feeds, library, level, provider if library else "cpu")
        except Exception as error:
            if library and provider != "cpu":
                _run_itself(model, feeds, provider)
            raise WrongError(f"{how}: {error}") from error
        tolerances = FUSED if library and not level and fused else PLAIN
        allowed = _tolerances(model, tolerances)
        if difference(truth, plain, found, allowed):
            if library and provider != "cpu" and elsewhere is None:
                elsewhere = _run_itself(model, feeds, provider)
                for _ in range(3):  # what the provider does not compute twice alike says nothing about ours
                    for i, other in enumerate(_run_itself(model, feeds, provider)):
                        if not np.array_equal(other, elsewhere[i], equal_nan=other.dtype.kind == "f"):
                            found[i] = elsewhere[i]
            itself = elsewhere if library and elsewhere is not None else plain
            wrong = difference(truth, itself, found, allowed, _noise(model, feeds, truth))
            if wrong:
                raise WrongError(f"{how}: {wrong}")
    again, _ = _optimized(optimized, beside, options)
    if again.SerializeToString(deterministic=True) != optimized.SerializeToString(deterministic=True):
        raise WrongError("a second optimize changed the model")
    return optimized, report


def _optimized(model: onnx.ModelProto, beside: bool, options: Mapping[str, Any]) -> tuple[onnx.ModelProto, Report]:
    if not beside:
        result = onnxfuse.optimize(model, **options)
        return result.model, result.report
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))  # as bytes, which can move
    with tempfile.TemporaryDirectory() as folder:
        file, saved = Path(folder, "model.onnx"), Path(folder, "elsewhere", "model.onnx")
        saved.parent.mkdir()
        onnx.save(copy, file, save_as_external_data=True, location="weights", size_threshold=0)
        result = onnxfuse.optimize(file, **options)
        result.save(saved)
        loaded = onnx.load(saved)
        for tensor in all_tensors(loaded):
            tensor.ClearField("data_location")  # that it is in the model is what goes without saying
        return loaded, result.report


def _run_itself(model: onnx.ModelProto, feeds: Feeds, provider: str) -> list[Any]:
    """What the model, not optimized, computes on a provider, which has mistakes and limits of its own."""
    try:
        return run(model, feeds, library=False, provider=provider)
    except Exception as error:
        raise NotRunError(str(error)) from error


def _tolerances(
    model: onnx.ModelProto, of_type: Mapping[str, tuple[float, float]]
) -> Mapping[str, tuple[float, float]]:
    """Tolerances by type of output; float64 that comes from narrower types is no better than they are."""
    types = _element_types(model)
    worst = of_type["float16"] if TensorProto.FLOAT16 in types else of_type["float32"]
    if TensorProto.FLOAT16 in types:
        return {name: max(t, worst) for name, t in of_type.items()}
    return {**of_type, "float64": worst} if TensorProto.FLOAT in types else of_type


def _element_types(model: onnx.ModelProto) -> set[int]:
    types = {i.type.tensor_type.elem_type for i in model.graph.input}
    return types | {a.i for g in _graphs(model.graph) for n in g.node if n.op_type == "Cast" for a in n.attribute}


def _disagree(truth: Sequence[Any], plain: Sequence[Any], of_type: Mapping[str, tuple[float, float]]) -> bool:
    return bool(difference(truth, None, plain, of_type))


def _noise(model: onnx.ModelProto, feeds: Feeds, truth: Sequence[Any]) -> list[float]:
    """How far each output moves when every float input is rounded otherwise, or when numpy rounds after each operator.

    And with float16, when each of its operands is rounded otherwise.

    Where the model cancels, this is much; a mistake of a fused node it is not.
    """
    rng = np.random.default_rng(0)
    half = TensorProto.FLOAT16 in _element_types(model)
    narrow = half or TensorProto.FLOAT in _element_types(model)
    moved = [(5e-4 if half else 1e-6) if narrow else 1e-15] * len(truth)  # values are about 1 in the model
    results = [_with_reference(model, feeds)]
    for _ in range(4):
        shaken = {
            k: v.astype(np.float64) * (1 + (5e-4 if half else 6e-8) * rng.choice([-1, 1], v.shape))
            if v.dtype.kind in "fV"
            else v
            for k, v in feeds.items()
        }
        results.append(in_wider_types(model, shaken, rng if half else None))
    for found in results:
        for i, (t, y) in enumerate(zip(truth, found or truth, strict=True)):
            with np.errstate(all="ignore"):
                change = np.abs(np.asarray(y, np.float64) - np.asarray(t, np.float64))
            moved[i] = max(moved[i], float(np.max(change, initial=0.0, where=np.isfinite(change))))
    return moved


def _signature(values: Sequence[onnx.ValueInfoProto]) -> list[tuple[str, bytes]]:
    return [(v.name, v.type.SerializeToString(deterministic=True)) for v in values]
