"""`validate`: runs two models on the same inputs and judges each output."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from onnxfuse.errors import ModelError, OnnxfuseError
from onnxfuse.runtime import provider_name
from onnxfuse.validate.compare import OutputComparison, compare, worst
from onnxfuse.validate.inputs import Dims, combinations, load_npz, make_inputs
from onnxfuse.validate.locate import Parting, find_parting
from onnxfuse.validate.programs import wrong_functions
from onnxfuse.validate.reference import evaluate_in_float64, is_small
from onnxfuse.validate.subject import ModelLike, Subject, flat
from onnxfuse.validate.truth import against_truth

__all__ = ["Validation", "validate"]

# Name, type and shape of each input.
Signature = tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Validation:
    """What `validate` found: `ok`, and for each output its worst comparison over all seeds.

    `shapes` has name, type and shape of each input, once for each combination of extents; `parting` is the node at
    which the models part, where they do and it was found; `wrong_functions` are the fused nodes whose local function
    does not say what their program says (so that the model computes something else without the library), `notes` what a
    reader should know about the whole.
    """

    original: str
    optimized: str
    provider: str
    original_provider: str
    seeds: tuple[int, ...]
    shapes: tuple[Signature, ...]
    outputs: tuple[OutputComparison, ...]
    wrong_functions: tuple[str, ...] = ()
    parting: Parting | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where every output agrees, or is off only because the original is, and no node or function is wrong."""
        return all(output.ok for output in self.outputs) and not self.wrong_functions and self.parting is None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold; NaN and infinities as strings; `inputs`: the first shapes."""
        result = {"schema": 1, "ok": self.ok, **asdict(self)}
        result["shapes"] = [[{"name": n, "dtype": t, "shape": list(s)} for n, t, s in case] for case in self.shapes]
        result["inputs"] = result["shapes"][0]
        plain: dict[str, Any] = _plain(result)
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def validate(
    original: ModelLike,
    optimized: ModelLike,
    *,
    dims: Dims | None = None,
    inputs: Mapping[str, np.ndarray] | str | os.PathLike[str] | None = None,
    seed: int = 0,
    seeds: int = 1,
    provider: str = "CPUExecutionProvider",
    original_provider: str | None = None,
    tolerance: float | None = None,
    float64: bool = False,
    nodes: bool = False,
    locate: bool = True,
    progress: Callable[[str, float], object] | None = None,
) -> Validation:
    """Runs both models in ONNX Runtime at its defaults on the same inputs and compares every output.

    The library is registered for a model with fused nodes. Where an output differs and the original is small, it is
    also evaluated in float64, which tells whether the original or the optimized model is off; and the node is looked
    for at which the two part.

    Args:
        original: A path or a model in memory; the inputs are made for it.
        optimized: Another, with the same inputs.
        dims: Extents of free dimensions, by name or as `input.axis`; 2 where not given. Of several for one, each
            combination is tried.
        inputs: Arrays to use, by input name, or an .npz file of them; other inputs are made up.
        seed: The first seed of the random inputs.
        seeds: How many sets of inputs to try, for each combination of extents.
        provider: An execution provider, or "cpu" or "cuda".
        original_provider: The original's, where it is another one.
        tolerance: Share of an output's largest value; None takes the type's from TOLERANCES.
        float64: Compare both models with the original evaluated in float64 in any case, however long that takes.
        nodes: Compare what each fused node writes, too: outputs that saturate (a softmax that is sure of itself) hide
            what is wrong inside.
        locate: Look for the node at which the models part.
        progress: Called with what is being done and the share of it that is done.

    Raises:
        MissingRuntimeError: ONNX Runtime is not installed.
        ProgramError: A fused node's program is invalid; the message names the node and the line.
        ModelError: ONNX Runtime cannot load or run one of the models, or it cannot be evaluated in float64.
        OnnxfuseError: The dims, inputs, seeds or tolerance do not fit.
    """
    if seeds < 1:
        raise OnnxfuseError(f"seeds must be at least 1, not {seeds}")
    if seed < 0:
        raise OnnxfuseError(f"a seed cannot be negative: {seed}")
    if tolerance is not None and not tolerance >= 0:
        raise OnnxfuseError(f"a tolerance cannot be {tolerance}")
    names = [provider_name(original_provider or provider), provider_name(provider)]
    a, b = Subject(original, "original"), Subject(optimized, "optimized")
    for model, name in zip((a, b), names, strict=True):
        model.load(name)
    given = load_npz(inputs) if isinstance(inputs, (str, os.PathLike)) else dict(inputs or {})
    _same_inputs(a, b)
    trials = [(sizes, s) for sizes in combinations(dims) for s in range(seed, seed + seeds)]
    found: dict[str, list[OutputComparison]] = {}
    shown: dict[Signature, None] = {}
    bad: tuple[dict[str, np.ndarray], int] | None = None
    parting: Parting | None = None
    for done, (sizes, s) in enumerate(trials):
        if progress is not None:
            progress("comparing", done / len(trials))
        feeds = make_inputs(a.proto, sizes, given, s)
        shown[tuple((n, v.dtype.name, v.shape) for n, v in feeds.items())] = None
        comparisons = _compare_run(a, b, feeds, tolerance, s, float64)
        if bad is None and any(not c.ok for c in comparisons):
            bad = feeds, s
        elif bad is None and nodes and parting is None:
            parting = find_parting(a, b, feeds, tolerance, s, fused=True)
        for comparison in comparisons:
            found.setdefault(comparison.name, []).append(comparison)
    notes = [m.note for m in (a, b) if m.note]
    if bad is not None:
        if _random(a, bad[0]):
            notes.append(f"{a.label} gives other numbers when it runs again on the same inputs: it cannot be validated")
        elif locate:
            if progress is not None:
                progress("looking for the node at which they part", 0.0)
            parting = find_parting(a, b, bad[0], tolerance, bad[1])
    return Validation(
        original=a.label,
        optimized=b.label,
        provider=names[1],
        original_provider=names[0],
        seeds=tuple(range(seed, seed + seeds)),
        shapes=tuple(shown),
        outputs=tuple(map(worst, found.values())),
        wrong_functions=tuple(wrong_functions(b.proto)),
        parting=parting,
        notes=tuple(notes),
    )


def _same_inputs(a: Subject, b: Subject) -> None:
    first, second = ({i.name: i.type for i in m.session.get_inputs()} for m in (a, b))
    if first != second:
        apart = sorted(n for n in first.keys() | second.keys() if first.get(n) != second.get(n))
        own = [", ".join(f"{n} ({known[n]})" for n in apart if n in known) for known in (first, second)]
        raise ModelError(
            f"the models do not take the same inputs: {a.label} takes {own[0] or 'fewer'}; "
            f"{b.label} takes {own[1] or 'fewer'}"
        )


def _compare_run(
    a: Subject, b: Subject, feeds: Mapping[str, np.ndarray], tolerance: float | None, seed: int, float64: bool
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
    if not float64 and (all(c.ok for c in comparisons) or not is_small(a.proto)):
        return comparisons
    truth = evaluate_in_float64(a.whole(), feeds)
    if truth is None:
        if float64:
            raise ModelError(f"{a.label} cannot be evaluated in float64: one of its operators has no such reference")
        return comparisons
    exact = flat(dict(zip([o.name for o in a.proto.graph.output], truth, strict=True)))
    return [
        against_truth(c, original[c.name], optimized.get(c.name), exact[c.name], float64)
        if c.name in exact and c.name in original and (float64 or not c.ok)
        else c
        for c in comparisons
    ]


def _random(model: Subject, feeds: Mapping[str, np.ndarray]) -> bool:
    first, second = model.run(feeds), model.run(feeds)
    return any(
        v.shape != second[n].shape or compare(n, v, second[n], 0.0).verdict not in ("equal", "close")
        for n, v in first.items()
        if n in second
    )
