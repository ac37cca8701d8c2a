"""`validate`: runs two models on the same inputs and judges each output."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import onnx

from onnxfuse.errors import ModelError, OnnxfuseError, ProgramError
from onnxfuse.files import load_model
from onnxfuse.runtime import make_session, provider_name, run
from onnxfuse.validate.compare import (
    TOLERANCES,
    OutputComparison,
    agrees,
    compare,
    difference,
    is_float,
    worst,
)
from onnxfuse.validate.inputs import free_dimensions, input_specs, load_npz, make_inputs
from onnxfuse.validate.programs import check_programs, wrong_functions
from onnxfuse.validate.reference import evaluate_in_float64, is_small

__all__ = ["Validation", "validate"]

ModelLike = str | os.PathLike[str] | onnx.ModelProto


@dataclass(frozen=True)
class Validation:
    """What `validate` found: `ok`, and for each output its worst comparison over all seeds.

    `inputs` are the type and shape of each input, `wrong_functions` the fused nodes whose local function does not say
    what their program says (so that the model computes something else without the library), `notes` what a reader
    should know about the whole.
    """

    original: str
    optimized: str
    provider: str
    seeds: tuple[int, ...]
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    outputs: tuple[OutputComparison, ...]
    wrong_functions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where every output agrees, or is off only because the original is, and no function is wrong."""
        return all(output.ok for output in self.outputs) and not self.wrong_functions

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold; NaN and infinities as strings."""
        result = {"ok": self.ok, **asdict(self)}
        result["inputs"] = [{"name": n, "dtype": t, "shape": list(s)} for n, t, s in self.inputs]
        plain: dict[str, Any] = _plain(result)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class _Model:
    """One of the two models: its session, and what messages call it."""

    def __init__(self, model: ModelLike, role: str) -> None:
        self.source = model
        self.label = f"the {role} model" if isinstance(model, onnx.ModelProto) else os.fspath(model)
        self.proto = model if isinstance(model, onnx.ModelProto) else load_model(model).proto
        self.note = ""

    def load(self, provider: str) -> None:
        model = self.source
        try:
            check_programs(self.proto)
        except ProgramError as error:
            raise ProgramError(f"{self.label}: {error}") from error
        try:
            self.session = make_session(model, provider=provider)
        except ModelError as error:
            # ONNX Runtime's own fusions make some valid models unloadable: without them there is still a truth.
            try:
                self.session = make_session(model, provider=provider, optimize=False)
            except ModelError:
                raise error from None
            self.note = f"{self.label} loads only with ONNX Runtime's optimizations off ({error})"

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        try:
            values = run(self.session, feeds)
        except ModelError as error:
            raise ModelError(f"{self.label}: {error}{self._hint()}") from error
        return _flat(dict(zip([o.name for o in self.session.get_outputs()], values, strict=True)))

    def _hint(self) -> str:
        free = free_dimensions(input_specs(self.proto))
        return f" (free dimensions, to set with --dim or dims: {', '.join(free)})" if free else ""


def _flat(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same with sequences taken apart, so that every value is an array."""
    flat: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            flat |= _flat({f"{name}[{i}]": inner for i, inner in enumerate(value)})
        elif isinstance(value, dict):
            flat |= _flat({f"{name}[{key!r}]": inner for key, inner in value.items()})
        else:
            flat[name] = np.asarray(value)
    return flat


def validate(
    original: ModelLike,
    optimized: ModelLike,
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | str | os.PathLike[str] | None = None,
    seed: int = 0,
    seeds: int = 1,
    provider: str = "CPUExecutionProvider",
    tolerance: float | None = None,
) -> Validation:
    """Runs both models in ONNX Runtime at its defaults on the same inputs and compares every output.

    The library is registered for a model with fused nodes. Where an output differs and the original is small, it is
    also evaluated in float64, which tells whether the original or the optimized model is off.

    Args:
        original: A path or a model in memory; the inputs are made for it.
        optimized: Another, with the same inputs.
        dims: Extents of free dimensions, by name or as `input.axis`; 2 where not given.
        inputs: Arrays to use, by input name, or an .npz file of them; other inputs are made up.
        seed: The first seed of the random inputs.
        seeds: How many sets of inputs to try.
        provider: An execution provider, or "cpu" or "cuda".
        tolerance: Share of an output's largest value; None takes the type's from TOLERANCES.

    Raises:
        MissingRuntimeError: ONNX Runtime is not installed.
        ProgramError: A fused node's program is invalid; the message names the node and the line.
        ModelError: ONNX Runtime cannot load or run one of the models.
        OnnxfuseError: The dims, inputs, seeds or tolerance do not fit.
    """
    if seeds < 1:
        raise OnnxfuseError(f"seeds must be at least 1, not {seeds}")
    if seed < 0:
        raise OnnxfuseError(f"a seed cannot be negative: {seed}")
    if tolerance is not None and not tolerance >= 0:
        raise OnnxfuseError(f"a tolerance cannot be {tolerance}")
    name = provider_name(provider)
    a, b = _Model(original, "original"), _Model(optimized, "optimized")
    for model in (a, b):
        model.load(name)
    given = load_npz(inputs) if isinstance(inputs, (str, os.PathLike)) else dict(inputs or {})
    _same_inputs(a, b)
    found: dict[str, list[OutputComparison]] = {}
    shown: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    notes = [m.note for m in (a, b) if m.note]
    for s in range(seed, seed + seeds):
        feeds = make_inputs(a.proto, dims, given, s)
        shown = shown or tuple((n, v.dtype.name, v.shape) for n, v in feeds.items())
        comparisons = _compare_run(a, b, feeds, tolerance, s)
        for comparison in comparisons:
            found.setdefault(comparison.name, []).append(comparison)
    if any(not c.ok for group in found.values() for c in group) and _random(a, feeds):
        notes.append(f"{a.label} gives other numbers when it runs again on the same inputs: it cannot be validated")
    return Validation(
        original=a.label,
        optimized=b.label,
        provider=name,
        seeds=tuple(range(seed, seed + seeds)),
        inputs=shown,
        outputs=tuple(map(worst, found.values())),
        wrong_functions=tuple(wrong_functions(b.proto)),
        notes=tuple(notes),
    )


def _same_inputs(a: _Model, b: _Model) -> None:
    first, second = ({i.name: i.type for i in m.session.get_inputs()} for m in (a, b))
    if first != second:
        apart = ", ".join(sorted(n for n in first.keys() | second.keys() if first.get(n) != second.get(n)))
        raise ModelError(f"{a.label} and {b.label} do not take the same inputs: {apart}")


def _compare_run(
    a: _Model, b: _Model, feeds: Mapping[str, np.ndarray], tolerance: float | None, seed: int
) -> list[OutputComparison]:
    original, optimized = a.run(feeds), b.run(feeds)
    comparisons = []
    for name in dict.fromkeys([*original, *optimized]):
        if name in original and name in optimized:
            comparisons.append(compare(name, original[name], optimized[name], tolerance, seed))
        else:
            value, lacking = (original[name], b) if name in original else (optimized[name], a)
            note = f"{lacking.label} has no such output"
            comparisons.append(OutputComparison(name, value.dtype.name, value.shape, "different", note=note, seed=seed))
    if all(c.ok for c in comparisons) or not is_small(a.proto):
        return comparisons
    truth = evaluate_in_float64(_with_weights(a), feeds)
    if truth is None:
        return comparisons
    exact = _flat(dict(zip([o.name for o in a.proto.graph.output], truth, strict=True)))
    return [
        c if c.ok or c.name not in exact else _against_truth(c, original[c.name], optimized.get(c.name), exact[c.name])
        for c in comparisons
    ]


def _with_weights(model: _Model) -> onnx.ModelProto:
    return model.source if isinstance(model.source, onnx.ModelProto) else onnx.load(model.source)


def _against_truth(c: OutputComparison, a: np.ndarray, b: np.ndarray | None, truth: np.ndarray) -> OutputComparison:
    """The comparison with a verdict of "better" where it is the original that misses the float64 evaluation."""
    comparable = b is not None and b.shape == a.shape == truth.shape and b.dtype == a.dtype and is_float(a.dtype)
    if b is None or not comparable:
        return c
    limit = c.tolerance if c.tolerance is not None else TOLERANCES[a.dtype.name]
    with np.errstate(all="ignore"):
        rounded = truth.astype(a.dtype)  # what overflows the output's own type is no fault of either model
    missed = [difference(rounded, values) for values in (a, b)]
    by = "the optimized model misses a float64 evaluation by {1:.2g}, the original by {0:.2g}".format(*missed)
    if agrees(rounded, b, limit).all():
        hint = ": it overflows" if _overflows(a, rounded) else ""
        return replace(c, verdict="better" if missed[1] <= missed[0] else "close", note=by + hint)
    return replace(c, note=f"{c.note}; {by}" if c.note else by)


def _overflows(a: np.ndarray, truth: np.ndarray) -> bool:
    return bool(np.any(~np.isfinite(a.astype(np.float64)) & np.isfinite(truth.astype(np.float64))))


def _random(model: _Model, feeds: Mapping[str, np.ndarray]) -> bool:
    first, second = model.run(feeds), model.run(feeds)
    return any(
        v.shape != second[n].shape or compare(n, v, second[n], 0.0).verdict not in ("equal", "close")
        for n, v in first.items()
        if n in second
    )
