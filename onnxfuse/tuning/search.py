"""The search: which fusions to leave out.

Fusions of one program are one question, since what pays for one of them pays for all. First all of a kind are left out
together. Where that is faster, the halves of them that are faster in place are put back; where it is not, each half is
asked about in turn; both down to single programs, and what slowed the model down least comes first. At last the result
meets the original: if it is slower than that, nothing is fused. Every comparison is of two models that run in turn, and
counts only beyond noise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from onnxfuse.custom_ops import OUT_OF_PLACE, REWRITES
from onnxfuse.errors import OnnxfuseError
from onnxfuse.measure import Interval
from onnxfuse.report import Fusion
from onnxfuse.runtime import provider_name
from onnxfuse.tuning.result import Decision, Tune, Tuning, beyond
from onnxfuse.tuning.rig import Rig
from onnxfuse.validate.inputs import combinations, load_npz, make_inputs

__all__ = ["tuned"]

_KIND = {**{op_type: name for name, op_type in REWRITES.items()}, OUT_OF_PLACE: "elementwise"}

# From the regions to leave out, each with the reason, to the model and its fusions.
Make = Callable[[Mapping[str, str]], tuple[onnx.ModelProto, list[Fusion]]]


@dataclass(frozen=True)
class _Group:
    """Fusions with one program, named by the first tensor that each writes."""

    kind: str
    regions: tuple[str, ...]
    saved: int


@dataclass
class _Search:
    make: Make
    rig: Rig
    tell: Callable[[str, float], object]
    current: Callable[[], None]
    dropped: dict[str, str] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def run(self, kinds: Iterable[list[_Group]]) -> None:
        """Asks about every kind, then about parts of those that stayed, the kind that gained least first."""
        pending = [(gain, groups) for groups in kinds if (gain := self._leave_out(groups)) is not None]
        while pending and not self.rig.over:
            pending.sort(key=lambda entry: entry[0])
            _, groups = pending.pop()
            for half in _halves(groups):
                gain = None if self.rig.over else self._leave_out(half)
                pending += [] if gain is None else [(gain, half)]

    def _leave_out(self, groups: list[_Group]) -> float | None:
        """Leaves the groups out where that is faster; else how many times as fast it was."""
        regions = [r for g in groups for r in g.regions]
        if not self._ask(groups, self.dropped | dict.fromkeys(regions, ""), drop=True):
            return self.decisions[-1].gain.value
        for half in _halves(groups):
            self._restore(half)
        return None

    def _restore(self, groups: list[_Group]) -> None:
        """Puts those of the groups back that make the model faster."""
        if self.rig.over:
            return
        back = {r for g in groups for r in g.regions}
        if not self._ask(groups, {r: why for r, why in self.dropped.items() if r not in back}, drop=False):
            for half in _halves(groups):
                self._restore(half)

    def _ask(self, groups: list[_Group], dropped: dict[str, str], drop: bool) -> bool:
        """Whether the model is faster with these regions left out; if so, that is the current model from now on."""
        self.tell(f"measuring {groups[0].kind}", min(1.0, self.rig.passed / self.rig.seconds))
        candidate = self.rig.runner(self.make(dropped)[0])
        (gain,) = self.rig.compare([self.current, candidate])
        faster = beyond(gain, self.rig.noise)
        regions = tuple(r for g in groups for r in g.regions)
        self.decisions.append(Decision(groups[0].kind, regions, gain, faster if drop else not faster))
        if faster:
            self.current = candidate
            why = (
                f"measured: without it the model is {gain.value:.2f} times as fast ({gain.low:.2f} to {gain.high:.2f})"
            )
            self.dropped = {r: reason or why for r, reason in dropped.items()}
        return faster


def _halves(groups: list[_Group]) -> list[list[_Group]]:
    """Two parts of about equal length; none of a single group."""
    middle = (len(groups) + 1) // 2
    return [groups[:middle], groups[middle:]] if len(groups) > 1 else []


def _groups(fusions: list[Fusion]) -> dict[str, list[_Group]]:
    """By kind; within a kind, what saves least comes first: it is the likeliest not to pay."""
    alike: dict[tuple[str, str], list[Fusion]] = defaultdict(list)
    for fusion in fusions:
        alike[fusion.op_type, fusion.program].append(fusion)
    kinds: dict[str, list[_Group]] = defaultdict(list)
    for (op_type, _), members in alike.items():
        saved = sum(f.bytes_saved or 0 for f in members)
        kinds[_KIND[op_type]].append(_Group(_KIND[op_type], tuple(f.outputs[0] for f in members), saved))
    return {kind: sorted(groups, key=lambda g: (g.saved, g.regions)) for kind, groups in sorted(kinds.items())}


def tuned(original: Any, proto: onnx.ModelProto, target: str, make: Make, tune: Tune) -> tuple[Tuning, dict[str, str]]:
    """Measures, and says which regions to leave out, each with the reason for the report.

    Args:
        original: The model as ONNX Runtime takes it: a path, or in memory.
        proto: The same in memory; the data of its weights is not needed.
        target: "cuda" or "cpu".
        make: The optimizer, as a function of what to leave out.
        tune: How to tune.

    Raises:
        MissingRuntimeError: ONNX Runtime is not installed.
        ModelError: ONNX Runtime lacks the provider, or cannot load or run the model.
        OnnxfuseError: The dims, inputs or seconds do not fit.
    """
    if not tune.seconds > 0:
        raise OnnxfuseError(f"the time to tune must be more than 0 seconds, not {tune.seconds}")
    tell = tune.progress or (lambda *_: None)
    tell("measuring noise", 0.0)
    given = tune.inputs
    arrays = dict(given) if isinstance(given, Mapping) else load_npz(given) if given is not None else {}
    feeds = [make_inputs(proto, sizes, arrays, tune.seed) for sizes in combinations(tune.dims)]
    rig = Rig.around(original, provider_name(tune.provider or target), tune.threads, feeds, tune.seconds)
    rig.measure_noise(original)
    model, fusions = make({})
    search = _Search(make, rig, tell, rig.runner(model))
    base = rig.runner(original)
    (untuned,) = rig.compare([base, search.current])
    kinds = _groups(fusions)
    search.run(kinds.values())
    finished = not rig.over
    ratio = untuned
    if search.dropped:
        tell("comparing with the original", 1.0)
        (ratio,) = rig.compare([base, search.current])
    if fusions and ratio.high < 1 and 1 / ratio.value > rig.noise:
        spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
        why = f"measured: with what is left, the model is {ratio.value:.2f} times as fast as the original ({spread})"
        search.dropped |= {f.outputs[0]: why for f in fusions if f.outputs[0] not in search.dropped}
        search.decisions += [
            Decision(kind, tuple(r for g in groups for r in g.regions), ratio, True) for kind, groups in kinds.items()
        ]
        ratio = Interval(1.0, 1.0, 1.0)
    dropped = tuple(sorted(search.dropped))
    tuning = Tuning(dropped, tuple(search.decisions), rig.noise, untuned, ratio, finished, rig.passed)
    return tuning, search.dropped
