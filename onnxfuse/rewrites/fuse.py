"""Finds the regions of one graph and turns those that pay into fused nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from onnxfuse.custom_ops import REWRITES
from onnxfuse.custom_ops.types import from_numpy
from onnxfuse.outline import node_label
from onnxfuse.report import Refusal
from onnxfuse.rewrites import cost
from onnxfuse.rewrites.classify import classify
from onnxfuse.rewrites.conv_epilogues import epilogue_of
from onnxfuse.rewrites.convolutions import among_byte_convolutions, stays_blocked
from onnxfuse.rewrites.emit import Emitted, emit
from onnxfuse.rewrites.fragment import Fragment, RefusalError, Value
from onnxfuse.rewrites.fused_node import FusedNode
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.inlining import gone, inline
from onnxfuse.rewrites.layout import Layout
from onnxfuse.rewrites.leave import cannot_run, count, left_to_runtime, without_function, without_kernel
from onnxfuse.rewrites.lowering import LOWERINGS, RUNNABLE_OPSET, lower
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.lowering.quantization import QUANTIZERS
from onnxfuse.rewrites.parts import divided, in_parts, trimmed, upstream
from onnxfuse.rewrites.regions import Region, grow_regions
from onnxfuse.rewrites.rolls import rolled, take_rolls
from onnxfuse.rewrites.savings import accuracy_notes, bytes_saved
from onnxfuse.rewrites.scatter import broken_up, scattered
from onnxfuse.rewrites.shapes import TensorType

__all__ = ["Choice", "fuse_graph"]


@dataclass(frozen=True)
class Choice:
    """What the user asked for: the target, the least number of operators in a fused node, the rewrites allowed.

    `dropped` has regions not to fuse, by the first tensor that each writes, with the reason; those met are in `met`.
    `biases` has the additions that came out of convolutions: one alone is worth a fused node.
    """

    target: str
    min_nodes: int
    rewrites: frozenset[str]
    dropped: Mapping[str, str] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    biases: set[str] = field(default_factory=set)


@dataclass
class Found:
    """What `fuse_graph` found."""

    fused: list[FusedNode] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def fuse_graph(view: GraphView, choice: Choice) -> Found:
    """The fused nodes that the graph should have, and the reasons for what stays."""
    found = Found()

    def refuse(i: int, reason: str) -> None:
        found.refusals.append(Refusal(node_label(view.protos[i]), view.protos[i].op_type, reason, view.name))

    left = left_to_runtime(view, choice.target, alone=choice.min_nodes == 1)
    left = {i: reason for i, reason in left.items() if view.protos[i].name not in choice.biases}
    dead = view.dead()
    fragments: dict[int, Fragment] = {}
    for i, proto in enumerate(view.protos):
        if ("" if proto.domain == "ai.onnx" else proto.domain, proto.op_type) not in LOWERINGS:
            continue
        if i in left:
            if i not in view.constants.nodes:
                refuse(i, left[i])
            continue
        if i in dead:
            refuse(i, "nothing uses its results")
            continue
        try:
            fragment = rolled(view, fragments, i) or lower(view.operator(i))
            _check_allowed(fragment, choice)
            fragments[i] = fragment
            for name, array in fragment.constants.items():
                view.new_constants[name] = array
                view.types[name] = TensorType(from_numpy(array.dtype) or "", array.shape)
        except RefusalError as refusal:
            refuse(i, refusal.reason)
    refused: dict[int, str] = {}
    rolling = take_rolls(view, fragments)
    lowered = dict(fragments)
    taken = rolling | inline(view, fragments)
    while scattering := _fuse_regions(view, fragments, choice, found.fused, refused):
        # The regions grow anew without what scatters them.
        for i, reason in scattering.items():
            del lowered[i]
            refuse(i, reason)
        fragments = dict(lowered)
        taken = rolling | inline(view, fragments)
    again = {i for node in found.fused for i in node.inlined}
    for i in taken - _attach_gone(view, fragments, found.fused, taken):
        if i in again or i not in view.repeated:
            others = ", which ONNX Runtime may compute on bytes," if i in view.repeated else ""
            refused.setdefault(i, f"it is part of what some of its users compute; for the others{others} it stays")
        elif i not in view.constants.nodes:
            refused.setdefault(i, "no fused node reads it; ONNX Runtime may compute what does on bytes")
    for i, reason in refused.items():
        if view.protos[i].op_type not in FREE:
            refuse(i, reason)
    fused = {i for node in found.fused for i in node.nodes}
    if fused and (reason := cannot_run(view, choice.target, fused)):
        found.fused.clear()
        for i in sorted(fused):
            refuse(i, reason)
    return found


def _attach_gone(view: GraphView, fragments: dict[int, Fragment], fused: list[FusedNode], taken: set[int]) -> set[int]:
    """Adds the nodes that all their users have taken in to the first fused node that has; returns them."""
    made = {i for node in fused for i in node.nodes}
    dead = gone(view, fragments, taken, made)
    for node in fused:
        more = [i for i in dead if i in node.inlined]
        dead -= set(more)
        if more:
            node.nodes = sorted((*more, *node.nodes))
            node.launches_saved += sum(view.protos[i].op_type not in FREE for i in more)
            node.bytes_saved = bytes_saved(view, node.nodes, node.inputs, node.outputs)
    return {i for node in fused for i in node.nodes} & taken


def _check_allowed(fragment: Fragment, choice: Choice) -> None:
    """Refuses what can be in none of the rewrites asked for."""
    if any(s.given is not None for s in fragment.steps) and "runtime_axes" not in choice.rewrites:
        raise RefusalError("reductions over axes that arrive with a run are switched off (skip, only)")
    scans = any(s.scans and s.given is None for s in fragment.steps)
    if scans and "scan" not in choice.rewrites:
        raise RefusalError("scans are switched off (skip, only)")
    if any(s.reduces and s.given is None for s in fragment.steps) and choice.rewrites <= {"elementwise"}:
        raise RefusalError("reductions are switched off (skip, only)")


def _fuse_regions(
    view: GraphView,
    fragments: dict[int, Fragment],
    choice: Choice,
    fused: list[FusedNode],
    refused: dict[int, str],
) -> dict[int, str]:
    """Grows regions and fills `fused` and, by node, `refused`; returns the nodes that must not take part, and why."""
    fused.clear()
    refused.clear()
    scattering: dict[int, str] = {}
    regions, unfit = grow_regions(view, fragments)
    refused.update(unfit)
    pending = regions[::-1]
    while pending:
        region = pending.pop()
        try:
            if pieces := divided(view, fragments, region):
                pending += region.parts or pieces
            else:
                fused.append(_finish(view, fragments, region, choice))
        except RefusalError as refusal:
            if region.parts:
                pending += region.parts
            else:
                pending += _refuse(view, fragments, region, refusal, scattering, refused)
    return scattering


def _refuse(
    view: GraphView,
    fragments: dict[int, Fragment],
    region: Region,
    refusal: RefusalError,
    scattering: dict[int, str],
    refused: dict[int, str],
) -> list[Region]:
    """Records why a region cannot be a fused node, or gives the parts to try."""
    if isinstance(refusal, _ScatterError):
        scattering.update(dict.fromkeys(sorted(refusal.nodes), refusal.reason))
    elif isinstance(refusal, _ProgramRefusalError):
        region.refused.append((region.nodes[0], refusal.reason))
        return in_parts(view, fragments, region, set(region.nodes[: len(region.nodes) // 2]))
    else:
        refused.update(dict.fromkeys(region.nodes, refusal.reason))
    return []


def _finish(view: GraphView, fragments: dict[int, Fragment], region: Region, choice: Choice) -> FusedNode:
    region = trimmed(view, fragments, region)
    layout = region.layout
    # What is only a rearrangement of what the region reads stays where others need it; the region reads through it.
    given = {value for i in region.nodes for value in fragments[i].repeated}
    needed = view.needed_outside(set(region.nodes))
    shown = [n for n in needed if _is_read(layout, layout.produced[n], given)]
    rearranged = upstream(view, set(region.nodes), shown, through=False)
    nodes = [i for i in region.nodes if i not in rearranged]
    inlined = _inlined(fragments, nodes)
    whole = gone(view, fragments, inlined & view.repeated.keys(), set(nodes))
    outputs = view.needed_outside({*nodes, *whole})
    everything = sorted((*inlined, *nodes))
    work = [i for i in everything if view.protos[i].op_type not in FREE and i not in view.repeated.keys() - whole]
    reduces = any(s.reduces or s.scans for i in nodes for s in fragments[i].steps)
    weight = count(view, work, choice.target, alone=choice.min_nodes == 1, reducing=reduces)
    computing = [i for i in work if view.protos[i].op_type not in COPIES | QUANTIZERS]
    if not computing:
        raise RefusalError("it only rearranges elements, and no neighbour that computes can join it")
    if weight < max(choice.min_nodes, 1) and any(view.protos[i].name not in choice.biases for i in computing):
        joins = dict.fromkeys(reason for _, reason in region.refused)
        if choice.min_nodes > weight > 1:
            raise RefusalError(f"fewer than {choice.min_nodes} operators lie together")
        raise RefusalError("no neighbour that can join it" + (f": {'; '.join(joins)}" if joins else ""))
    if not outputs:
        raise RefusalError("nothing uses its results")
    others = [i for i in everything if view.protos[i].op_type not in QUANTIZERS]
    if choice.target == "cpu" and choice.min_nodes > 1 and stays_blocked(view, others):
        raise RefusalError("ONNX Runtime computes it in the layout that the Conv before it leaves")
    try:
        emitted = _emitted(view, layout, outputs, choice)
    except RefusalError as refusal:
        if len(nodes) < 2:
            raise
        raise _ProgramRefusalError(refusal.reason) from None
    kernel = emitted.program.kernels[0]
    turning = {i for i in _moving(fragments, region.nodes) if view.protos[i].op_type == "Transpose"}
    if turning and scattered(kernel):
        # Rather those that change which dimension is contiguous.
        last = {i for i in turning if _moves_last(view, i)}
        raise _ScatterError("a fused kernel would read or write scattered elements through it", last or turning)
    if choice.target == "cuda" and layout.space.gathers and broken_up(kernel):
        reducing = {i for i in region.nodes if any(s.reduces or s.scans for s in fragments[i].steps)}
        raise _ScatterError("a fused kernel would read scattered elements, for its axes are not adjacent", reducing)
    between = len(computing) == 1 and set(computing) < set(work)
    if choice.target == "cpu" and choice.min_nodes > 1 and between:
        if cost.has_short_channels(kernel):
            raise RefusalError("ONNX Runtime computes it in less time where its channels have few points")
        alone = [*computing] == [i for i in everything if view.protos[i].op_type not in QUANTIZERS]
        if alone and inlined and not reduces and among_byte_convolutions(view, computing[0]):
            raise RefusalError("ONNX Runtime computes it in the layout of the convolutions of bytes around it")
    rewrite = classify(kernel)
    if choice.min_nodes > 1 and weight < cost.least_for_scan(kernel, choice.target):
        raise RefusalError("ONNX Runtime scans along another axis than the last in less time on the CPU")
    if rewrite not in choice.rewrites:
        raise RefusalError(f"the rewrite {rewrite} is switched off (skip, only)")
    if outputs[0] in choice.dropped:
        choice.met.add(outputs[0])
        raise RefusalError(choice.dropped[outputs[0]])
    behind_conv = choice.target == "cpu" and choice.min_nodes > 1 and not inlined
    value = emitted.inputs[0] if emitted.inputs else ""
    return FusedNode(
        op_type=REWRITES[rewrite],
        program=emitted.program,
        inputs=emitted.inputs,
        outputs=tuple(outputs),
        nodes=nodes,
        launches_saved=sum(view.protos[i].op_type not in FREE for i in nodes) - 1,
        bytes_saved=bytes_saved(view, nodes, emitted.inputs, outputs),
        notes=(*emitted.notes, *accuracy_notes(view, everything, outputs)),
        epilogue=epilogue_of(view, emitted.program, value, outputs[0], set(nodes)) if behind_conv else None,
        inlined=inlined,
    )


def _is_read(layout: Layout, value: Value, given: Collection[Value]) -> bool:
    """Whether a region's value only shows what it reads, or what is `given`, in another arrangement."""
    return layout.laid_out(value) is None or layout.behind(value) in given


def _moving(fragments: dict[int, Fragment], nodes: Iterable[int]) -> set[int]:
    """The nodes of a region and what they have taken in."""
    return {*nodes, *_inlined(fragments, nodes)}


def _moves_last(view: GraphView, i: int) -> bool:
    """Whether a Transpose makes another dimension the last one."""
    perm = next((list(a.ints) for a in view.protos[i].attribute if a.name == "perm"), [])
    return not perm or perm[-1] != len(perm) - 1


def _inlined(fragments: dict[int, Fragment], nodes: Iterable[int]) -> frozenset[int]:
    """The nodes whose work these have taken in."""
    return frozenset(j for i in nodes for j in fragments[i].inlined)


class _ScatterError(RefusalError):
    """A region that reads or writes scattered elements because of some nodes."""

    def __init__(self, reason: str, nodes: set[int]) -> None:
        super().__init__(reason)
        self.nodes = nodes


class _ProgramRefusalError(RefusalError):
    """Why a region cannot be one program, though its parts may be."""


def _emitted(view: GraphView, layout: Layout, outputs: Iterable[str], choice: Choice) -> Emitted:
    emitted = emit(layout, [(name, view.type_of(name).type) for name in outputs])
    if choice.target == "cpu" and (op := without_kernel(emitted.program)):
        raise RefusalError(f"ONNX Runtime has no CPU kernel for {op} of float64: only with the library would it run")
    if missing := without_function(emitted.program, min(view.opset, RUNNABLE_OPSET)):
        raise RefusalError(f"no local function can stand in for it: {missing}")
    return emitted
