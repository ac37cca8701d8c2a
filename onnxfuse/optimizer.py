"""`optimize`: from a model to a model with fused nodes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_graphsurgeon as gs

from onnxfuse.custom_ops import REWRITES as NODE_TYPES
from onnxfuse.custom_ops.fallback import refresh_functions
from onnxfuse.damage import check_damage
from onnxfuse.diagnosis import diagnosed
from onnxfuse.editing import ModelEditor, from_graphsurgeon
from onnxfuse.errors import ModelError, OnnxfuseError
from onnxfuse.external_data import external_tensors, with_small_values
from onnxfuse.files import load_model, save_model
from onnxfuse.opsets import declare_runnable
from onnxfuse.outline import same_order, source_nodes
from onnxfuse.passes import Pass
from onnxfuse.report import Fusion, Refusal, Report, by_reason
from onnxfuse.rewrites.biases import settle_biases, take_out_biases
from onnxfuse.rewrites.conv_prologues import may_have_prologues
from onnxfuse.rewrites.functions import inline_fusible
from onnxfuse.rewrites.fuse import Choice
from onnxfuse.rewrites.hoisting import hoist_transposes
from onnxfuse.rewrites.in_place import name_op_types
from onnxfuse.rewrites.lowering import RUNNABLE_OPSET
from onnxfuse.rewrites.matmul_transposes import expose_swaps
from onnxfuse.rewrites.merged_views import merge_views
from onnxfuse.rewrites.open_ifs import open_known_ifs
from onnxfuse.rewrites.shape_arithmetic import shorten_shape_arithmetic
from onnxfuse.rewrites.squeezed_axes import with_axes_in_order
from onnxfuse.rewrites.static_scalars import fix_static_scalars
from onnxfuse.rewrites.unsigned_pairs import with_unsigned_pairs

if TYPE_CHECKING:
    from onnxfuse.tuning import Tune, Tuning

__all__ = ["REWRITES", "TARGETS", "Result", "optimize"]

# The names that `skip` and `only` take.
REWRITES: tuple[str, ...] = (*NODE_TYPES, "horizontal")
TARGETS = ("cuda", "cpu")
# What a fused node leaves may fuse with what other fused nodes leave, and a group parts what would not fuse as a whole.
# The last pass finds nothing: that is how a second call changes nothing.
_PASSES = 12


@dataclass
class Result:
    """An optimized model and the report of what was done.

    `model` keeps references to external data as they were, relative to the folder of the source model. `tuning` is
    what was measured, where that was asked for.
    """

    model: onnx.ModelProto
    report: Report
    source_dir: Path | None = None
    tuning: Tuning | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model with its external data, whole or not at all. Raises ModelError saying what is in the way."""
        save_model(self.model, path, self.source_dir)

    def with_weights(self) -> onnx.ModelProto:
        """The model with the weights in it that lie beside the source model's file; `model` itself stays as it is."""
        if self.source_dir is None or next(external_tensors(self.model), None) is None:
            return self.model
        whole = onnx.ModelProto()
        whole.CopyFrom(self.model)
        onnx.load_external_data_for_model(whole, str(self.source_dir))
        return whole


def optimize(
    model: str | os.PathLike[str] | onnx.ModelProto | gs.Graph,
    target: str = "cuda",
    min_nodes: int = 2,
    skip: Iterable[str] = (),
    only: Iterable[str] = (),
    fallback: bool = True,
    drop: Iterable[str] | Mapping[str, str] = (),
    tune: Tune | None = None,
) -> Result:
    """Fuses the memory-bound parts of a model into nodes of the domain `onnxfuse`.

    Args:
        model: a path, a ModelProto (not changed) or an onnx_graphsurgeon Graph.
        target: "cuda" or "cpu", where the model is to run fast; it runs on both.
        min_nodes: the least number of operators that a fused node replaces.
        skip: names of REWRITES not to make.
        only: names of REWRITES to make, and no others.
        fallback: with each fused node, embed a local function that computes the same in standard operators.
        drop: regions not to fuse, each by the first tensor that its fused node writes (`Fusion.outputs[0]`); as a
            mapping, with reasons for the report. What a tuning dropped makes the same model anywhere.
        tune: measure on this machine which fusions pay, and drop those that do not; the result's `tuning` has the
            figures. Needs ONNX Runtime.

    Returns:
        The optimized model and the report. A model in which nothing can be fused comes back as it was, sorted.

    Raises:
        ModelError: the model cannot be read or is not valid.
        ProgramError: a fused node that the model already holds has a program that is not valid.
        OnnxfuseError: an argument is wrong.
    """
    choice = _choice(target, min_nodes, skip, only, drop)
    if tune is not None:
        return _tuned(model, choice, fallback, tune)
    result = _optimized(model, choice, fallback)
    if unknown := sorted(set(choice.dropped) - choice.met):
        raise OnnxfuseError(f"drop names {unknown[0]!r}, which no fused node writes first")
    return result


def _tuned(
    model: str | os.PathLike[str] | onnx.ModelProto | gs.Graph, choice: Choice, fallback: bool, tune: Tune
) -> Result:
    from onnxfuse.tuning import tuned

    proto, _ = _read(model)
    original = proto if isinstance(model, gs.Graph) else model

    def make(dropped: Mapping[str, str]) -> tuple[onnx.ModelProto, list[Fusion]]:
        # Without groups: each region is measured in a node of its own.
        alone = replace(choice, dropped={**choice.dropped, **dropped}, rewrites=choice.rewrites - {"horizontal"})
        result = _optimized(original, alone, fallback=False)
        return result.with_weights(), result.report.fusions

    tuning, dropped = tuned(original, proto, choice.target, make, tune)
    result = _optimized(original, replace(choice, dropped={**choice.dropped, **dropped}), fallback)
    result.tuning = tuning
    return result


def _optimized(model: str | os.PathLike[str] | onnx.ModelProto | gs.Graph, choice: Choice, fallback: bool) -> Result:
    proto, source_dir = _read(model)
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else proto.graph.name
    with diagnosed(proto):
        return _fused(proto, source_dir, choice, fallback, name)


def _fused(proto: onnx.ModelProto, source_dir: Path | None, choice: Choice, fallback: bool, name: str) -> Result:
    target = choice.target
    opset = _opset(proto)
    proto = inline_fusible(proto, choice.min_nodes)
    report = Report(target, model=name)
    proto = original = ModelEditor(proto).to_model()
    additions: dict[str, str] = {}
    settled = False
    proto = with_axes_in_order(proto, opset)
    ordered = proto is not original
    proto, opened = open_known_ifs(proto, opset, source_dir)
    editor = ModelEditor(proto)
    fixed = fix_static_scalars(editor, opset, source_dir)
    if fixed is not None:
        proto = editor.to_model()
    merged: int | None = None  # nodes, once fusion has left what it leaves
    proto, shorter = shorten_shape_arithmetic(proto, opset, source_dir)
    proto, unsigned = with_unsigned_pairs(proto) if target == "cpu" else (proto, 0)
    proto, in_weights = _with_maps_in_weights(proto, source_dir, choice, report, opset, fused=False), False
    for _ in range(_PASSES):
        editor = ModelEditor(proto)
        if target == "cuda":
            more = {} if settled else take_out_biases(editor, opset, source_dir)
            additions |= more
            choice.biases.update(name for name, reshape in more.items() if reshape)
            if hoist_transposes(editor) | expose_swaps(editor, source_dir) or more:
                editor = ModelEditor(editor.to_model())
        sorted_model = editor.to_model()
        if not same_order(proto.graph, sorted_model.graph):
            editor = ModelEditor(sorted_model)
        if not report.source:
            report.source = source_nodes(sorted_model.graph)
            report.nodes_before = len(source_nodes(original.graph))  # before any were taken apart
        before, report.refusals = report.refusals, []
        made = len(report.fusions)
        analyzed = with_small_values(sorted_model, source_dir)
        Pass(editor, analyzed, choice, report, opset, fallback).run()
        report.refusals = _first_reasons(before, report.refusals)
        if len(report.fusions) > made:
            settled = False  # what is left of it may take biases that the whole did not
        else:
            undone = settle_biases(editor, additions)
            additions.clear()
            if undone:  # once more, with what stays
                settled, proto = True, editor.to_model()
                continue
            if not in_weights:
                in_weights = True
                proto = _with_maps_in_weights(editor.to_model(), source_dir, choice, report, opset, fused=True)
                editor = ModelEditor(proto)
            if merged is None and (report.fusions or report.respelled):
                proto, merged = merge_views(editor.to_model(), opset, source_dir)
                if merged:
                    continue  # what has come next to each other may fuse
            if target != "cuda" or "horizontal" not in choice.rewrites:
                break
            proto = editor.to_model()
            editor, analyzed = ModelEditor(proto), with_small_values(proto, source_dir)
            made = len(report.groups)
            report.separate.clear()
            Pass(editor, analyzed, choice, report, opset, fallback).share_launches()
            if len(report.groups) == made:
                break
        proto = editor.to_model()
    settle_biases(editor, additions)
    report.settle(name_op_types(editor, target))
    refresh_functions(editor, min(opset, RUNNABLE_OPSET), fallback)
    changed = bool(report.fusions or report.respelled)
    optimized = editor.to_model() if changed or not (ordered or fixed or opened or shorter or unsigned) else original
    report.refusals += fixed or [] if changed else []
    if opset > RUNNABLE_OPSET and changed:
        if reason := declare_runnable(optimized):
            optimized = _undone(report, original, f"ONNX Runtime loads no opset above {RUNNABLE_OPSET}, and {reason}")
        else:
            report.notes.append(
                f"the model declares opset {RUNNABLE_OPSET} in place of {opset}: what is left of it means the same "
                "there, and ONNX Runtime 1.32 loads no newer one"
            )
    if opened and changed:
        report.notes.append(
            f"{opened} branches of Ifs are always taken: the conditions follow from known shapes, or the other branch "
            "can give no result"
        )
    if shorter and changed:
        report.notes.append(f"nodes that compute with shapes: {shorter} fewer, for each extent is computed once")
    if unsigned and changed:
        report.notes.append(f"{unsigned} quantized values are uint8 in place of int8, as ONNX Runtime has them on x86")
    if merged:
        report.notes.append(
            f"nodes that only show a tensor in another shape: {merged} fewer, for those behind each other are one"
        )
    for reason, operators in by_reason(report.respelled):
        report.notes.append(f"{len(operators)} operators are spelled otherwise: {reason}")
    report.nodes_after = len(source_nodes(optimized.graph))
    return Result(optimized, report, source_dir)


def _with_maps_in_weights(
    proto: onnx.ModelProto, source_dir: Path | None, choice: Choice, report: Report, opset: int, fused: bool
) -> onnx.ModelProto:
    """The model with affine maps in the weights of convolutions on the CPU; the model itself where there are none."""
    wanted = choice.target == "cpu" and choice.min_nodes > 1 and "elementwise" in choice.rewrites
    if not wanted or not may_have_prologues(proto):
        return proto
    editor = ModelEditor(proto)
    sorted_model = editor.to_model()
    if not same_order(proto.graph, sorted_model.graph):
        editor = ModelEditor(sorted_model)
    analyzed = with_small_values(sorted_model, source_dir)
    moved = Pass(editor, analyzed, choice, report, opset, fallback=False).move_into_weights(fused)
    return editor.to_model() if moved else proto


def _first_reasons(before: list[Refusal], now: list[Refusal]) -> list[Refusal]:
    """The refusals of a pass, with the reasons of the pass before: its neighbours had not been fused away yet."""
    reasons = {(r.graph, r.node): r for r in before}
    return [reasons.get((r.graph, r.node), r) for r in now]


def _undone(report: Report, original: onnx.ModelProto, reason: str) -> onnx.ModelProto:
    """The model as it was, sorted, with the reason for what had been fused in the report."""
    for fusion in report.fusions:
        nodes = zip(fusion.nodes, fusion.operators, strict=True)
        report.refusals += [Refusal(node, operator, reason, fusion.graph) for node, operator in nodes]
    report.refusals += [replace(r, reason=reason) for r in report.respelled]
    report.respelled.clear()
    report.fusions.clear()
    report.groups.clear()
    report.separate.clear()
    return original


def _choice(
    target: str,
    min_nodes: int,
    skip: Iterable[str],
    only: Iterable[str],
    drop: Iterable[str] | Mapping[str, str],
) -> Choice:
    if target not in TARGETS:
        raise OnnxfuseError(f"target is {target!r}; it must be one of {', '.join(TARGETS)}")
    if not isinstance(min_nodes, int) or min_nodes < 1:
        raise OnnxfuseError(f"min_nodes is {min_nodes!r}; it must be a whole number of 1 or more")
    skipped, wanted = _names(skip, "skip"), _names(only, "only")
    dropped = dict(drop) if isinstance(drop, Mapping) else dict.fromkeys(drop, "it is switched off (drop)")
    return Choice(target, min_nodes, frozenset(wanted or REWRITES) - frozenset(skipped), dropped)


def _names(names: Iterable[str], what: str) -> tuple[str, ...]:
    given = (names,) if isinstance(names, str) else tuple(names)
    unknown = [n for n in given if n not in REWRITES]
    if unknown:
        raise OnnxfuseError(f"{what} names {unknown[0]!r}, which is no rewrite; they are {', '.join(REWRITES)}")
    return given


def _read(model: str | os.PathLike[str] | onnx.ModelProto | gs.Graph) -> tuple[onnx.ModelProto, Path | None]:
    if isinstance(model, onnx.ModelProto):
        if not model.graph.node and not model.graph.output:
            raise ModelError("the model holds no graph; it is not valid ONNX")
        check_damage(model)
        return model, None
    if isinstance(model, gs.Graph):
        return from_graphsurgeon(model), None
    if isinstance(model, (str, os.PathLike)):
        loaded = load_model(model)
        return loaded.proto, loaded.base_dir
    raise OnnxfuseError(f"model is a {type(model).__name__}; give a path, a ModelProto or an onnx_graphsurgeon Graph")


def _opset(model: onnx.ModelProto) -> int:
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            return int(entry.version)
    if not any(n.domain in ("", "ai.onnx") for n in model.graph.node):
        return 17
    raise ModelError("the model imports no version of ONNX's operators (opset_import); it is not valid ONNX")
