"""The check that tests of `optimize` share: the optimized model computes what the model means.

The truth is the model evaluated in float64 by onnx.reference, or, where it cannot follow the model, what ONNX Runtime
makes of it with its optimizations off, in float32 for narrower types.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from truth import Feeds, element_types, graphs_of, in_wider_types, knows_overloads, moved_by_rounding, run

import onnxfuse
from onnxfuse.external_data import all_tensors
from onnxfuse.report import Report

# dtype: (relative, share of the largest value) by which a fused result may miss the truth, and the original may.
FUSED = {"float64": (1e-9, 1e-11), "float32": (1e-4, 2e-6), "float16": (2e-3, 5e-4), "bfloat16": (1.6e-2, 4e-3)}
PLAIN = {"float64": (1e-9, 1e-11), "float32": (1e-4, 1e-5), "float16": (2e-2, 1e-2), "bfloat16": (1e-1, 5e-2)}
# Beyond these a model itself and its evaluation in wider types mean something else; below, it only rounds coarsely.
MEANING = PLAIN | {"float32": (1e-3, 1e-3)}


class WrongError(AssertionError):
    """What is wrong with an optimized model."""


class NotRunError(Exception):
    """The model itself does not run."""


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
    return [n.op_type for g in graphs_of(model.graph) for n in g.node if n.domain == "onnxfuse"]


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
    if truth is None:
        truth = plain
    elif plain is not None:  # which of them onnx.reference means otherwise, says ONNX Runtime
        allowed = _tolerances(model, MEANING)
        truth = [p if _disagree([t], [p], allowed) else t for t, p in zip(truth, plain, strict=True)]
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
    names = [f.name for f in optimized.functions]
    alone = knows_overloads() or len(set(names)) == len(names)
    ways = [(True, False)] if fused or plain is not None else []
    ways += [(False, False)] if plain is not None and alone else []
    ways += [(True, True)] if plain is not None and optimizations else []
    ways += [(False, True)] if plain is not None and optimizations and alone else []
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
            wrong = difference(truth, itself, found, allowed, moved_by_rounding(model, feeds, truth))
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
    types = element_types(model)
    worst = of_type["float16"] if TensorProto.FLOAT16 in types else of_type["float32"]
    if TensorProto.FLOAT16 in types:
        return {name: max(t, worst) for name, t in of_type.items()}
    return {**of_type, "float64": worst} if TensorProto.FLOAT in types else of_type


def _disagree(truth: Sequence[Any], plain: Sequence[Any], of_type: Mapping[str, tuple[float, float]]) -> bool:
    """Whether they mean something else: more than that what is at the end of a type's range overflows."""
    return bool(difference([_as_overflown(t, p) for t, p in zip(truth, plain, strict=True)], None, plain, of_type))


def _as_overflown(truth: Any, plain: Any) -> Any:
    t, p = np.asarray(truth), np.asarray(plain)
    if t.shape != p.shape or p.dtype.kind != "f" or t.dtype.kind != "f":
        return truth
    return np.where(np.isinf(p) & (np.abs(t) > 0.99 * float(np.finfo(p.dtype).max)), p.astype(t.dtype), t)


def _signature(values: Sequence[onnx.ValueInfoProto]) -> list[tuple[str, bytes]]:
    return [(v.name, v.type.SerializeToString(deterministic=True)) for v in values]
