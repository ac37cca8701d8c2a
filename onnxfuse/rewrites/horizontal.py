"""Horizontal fusion: independent small fused nodes of one stage become one node, whose kernels share a launch.

Pre: vertical fusion has found all it can; the graph is sorted. Post: as many nodes fewer as the report's groups save
launches; every value that others need keeps its name.

Nodes are of one stage where the longest ways to them pass equally many fused nodes. No way leads from one of them to
another, and none leads from a group to one of an earlier stage: all groups together leave no cycle.

It refuses, with the reason on record,
- what moves so much that its launch does not matter, or holds scans, which need launches of their own;
- what has extents that neither the model nor the dimensions of its inputs tell, unless only few nodes lie between it
  and the rest of the group, and what waits for them is no larger than what is freed: it might be large, and so might
  be what waits for it;
- what would no longer fit into one program (kernels, tensors, text);
- a group that would raise the peak of activation memory: its members wait for each other, and what they read and
  what waits for them stays in memory meanwhile.

Measured on an H200: eight independent kernels of 256 KiB take 22.6 us on a stream and 7.8 us in a CUDA graph one after
the other, 2.8 and 1.5 us in one launch.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from onnxfuse.custom_ops import DOMAIN, OP_TYPES, OUT_OF_PLACE, REWRITES
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply, Input, Kernel, Program
from onnxfuse.custom_ops.verify import MAX_KERNELS, MAX_TEXT
from onnxfuse.outline import node_label
from onnxfuse.report import Grouping, Refusal
from onnxfuse.rewrites.cost import LAUNCH_BYTES, MAX_TENSORS, SHARED_LAUNCH_BYTES
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.products import factors

__all__ = ["GroupedNode", "Groups", "group_launches"]

# By so much the peak may rise: ONNX Runtime's arena takes no less at a time.
_SLACK = 1 << 20
_NEAR = 16  # nodes that may lie between members whose sizes are not known
_ROUNDS = 8  # of looking for the groups that raise the peak of memory


@dataclass
class GroupedNode:
    """A node to be put in place of the fused nodes `nodes`."""

    op_type: str
    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: list[int]

    def grouping(self, view: GraphView, name: str) -> Grouping:
        """The report's line."""
        members = tuple(node_label(view.protos[i]) for i in self.nodes)
        return Grouping(self.op_type, name, members, self.program.text(), view.name)


@dataclass
class Groups:
    """What `group_launches` found: nodes to make, and the fused nodes that keep a launch of their own, with reasons."""

    grouped: list[GroupedNode] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass
class _Member:
    node: int
    program: Program
    bytes: int
    known: bool  # how many


def group_launches(view: GraphView) -> Groups:
    """The groups that the fused nodes of a graph should form. Linear in the size of the graph, and deterministic."""
    found = Groups()

    def refuse(member: int, reason: str) -> None:
        proto = view.protos[member]
        found.refusals.append(Refusal(node_label(proto), proto.op_type, reason, view.name))

    sizes = _Sizes(view)
    groups: list[list[_Member]] = []
    for stage in _stages(view):
        small: list[_Member] = []
        for i in stage if len(stage) > 1 else []:
            program = Program.parse(_attribute(view, i))
            names = {*view.protos[i].input, *view.protos[i].output}
            moved = sum(sizes.of(n) for n in names)
            if len(program.kernels) > 1:
                continue  # a group already
            if program.axes is not None:
                refuse(i, "which axes it reduces shows only when it runs")
            elif _is_scan(program.kernels[0]):
                refuse(i, "a scan needs a launch of its own")
            elif moved > LAUNCH_BYTES:
                refuse(i, f"it moves {moved / 2**20:.1f} MiB: a launch of its own hardly matters")
            else:
                small.append(_Member(i, program, moved, all(sizes.known(n) for n in names)))
        for group in _divided(view, small):
            if len(group) > 1:
                groups.append(group)
            elif not group[0].known:
                refuse(group[0].node, "its size is not known, and no other node of its stage is near")
    for group in _too_long_lived(view, groups, sizes):
        groups.remove(group)
        for member in group:
            refuse(member.node, "nodes that wait for each other to share a launch would raise the peak of memory")
    found.grouped = [_merged(view, group) for group in groups]
    return found


def _attribute(view: GraphView, i: int) -> str:
    return str(next(a.s.decode() for a in view.protos[i].attribute if a.name == "program"))


def _stages(view: GraphView) -> list[list[int]]:
    """The fused nodes by the number of fused nodes on the longest way to them."""
    depth = [0] * len(view.protos)
    stages: dict[int, list[int]] = defaultdict(list)
    for i, proto in enumerate(view.protos):
        fused = [view.protos[p].domain == DOMAIN for p in view.producers_of(i)]
        depth[i] = max((depth[p] + f for p, f in zip(view.producers_of(i), fused, strict=True)), default=0)
        if proto.domain == DOMAIN and proto.op_type in OP_TYPES:
            stages[depth[i]].append(i)
    return [stages[d] for d in sorted(stages)]


def _is_scan(kernel: Kernel) -> bool:
    operations = [s.op for s in kernel.statements if isinstance(s, Apply) and s.op in PRIMITIVES]
    return any(PRIMITIVES[op].scans for op in operations)


class _Sizes:
    """Bytes of activations, and whether they are known."""

    def __init__(self, view: GraphView) -> None:
        self.view = view
        shapes = [view.type_of(t.name).shape or () for t in view.graph.inputs]
        self.free = {d for shape in shapes for d in shape if isinstance(d, str)}

    def of(self, name: str) -> int:
        return self.view.bytes_of(name)

    def known(self, name: str) -> bool:
        """Whether all extents are fixed, or products of those of the graph's inputs."""
        shape = self.view.type_of(name).shape
        return not name or (shape is not None and all(set(factors(d)[1]) <= self.free for d in shape))


def _divided(view: GraphView, members: Sequence[_Member]) -> list[list[_Member]]:
    """Neighbours that one program and the GPU's cache can hold."""
    groups: list[list[_Member]] = []
    for member in members:
        if groups and _fits(view, [*groups[-1], member]):
            groups[-1].append(member)
        else:
            groups.append([member])
    return groups


def _fits(view: GraphView, group: Sequence[_Member]) -> bool:
    inputs = {n for m in group for n in view.protos[m.node].input}
    return (
        len(group) <= MAX_KERNELS
        and len(inputs) <= MAX_TENSORS
        and sum(len(m.program.outputs) for m in group) <= MAX_TENSORS
        and sum(len(m.program.text().encode()) + 8 * len(m.program.inputs) for m in group) <= MAX_TEXT
        and sum(m.bytes for m in group) <= SHARED_LAUNCH_BYTES
        and (all(m.known for m in group) or _is_dense(view, group))
    )


def _is_dense(view: GraphView, group: Sequence[_Member]) -> bool:
    """Whether few nodes lie between the members, and what they make does not take more memory by coming at once.

    It does not where nothing uses what a member makes before the last one runs, or where as much is freed: tensors that
    were there before and that nobody else needs.
    """
    first, last, own = group[0].node, group[-1].node, {m.node for m in group}
    users = (c for i in own for n in view.protos[i].output for c in view.computing_users(n))
    if last - first > _NEAR or all(c > last for c in users):
        return last - first <= _NEAR
    read = {n for i in own for n in view.protos[i].input if view.producer.get(n, first) < first and n not in view.kept}
    freed = sum(view.bytes_of(n) for n in read if own.issuperset(view.consumers[n]))
    early = sum(view.bytes_of(n) for m in group[1:] for n in view.protos[m.node].output)
    return early <= freed


def _merged(view: GraphView, group: Sequence[_Member]) -> GroupedNode:
    inputs: dict[str, int] = {}
    outputs: list[str] = []
    kernels: list[Kernel] = []
    for member in group:
        proto = view.protos[member.node]
        numbers = [inputs.setdefault(name, len(inputs)) for name in proto.input]
        for kernel in member.program.kernels:
            statements = tuple(
                replace(s, tensor=numbers[s.tensor]) if isinstance(s, Input) else s for s in kernel.statements
            )
            stores = tuple(replace(o, tensor=len(outputs) + o.tensor) for o in kernel.outputs)
            kernels.append(replace(kernel, statements=statements, outputs=stores))
        outputs += proto.output
    elementwise, reduction = REWRITES["elementwise"], REWRITES["reduction"]
    types = {view.protos[m.node].op_type for m in group}
    types = {elementwise if t == OUT_OF_PLACE else t for t in types}
    op_type = next(iter(types)) if len(types) == 1 else reduction if types != {elementwise} else elementwise
    program = Program(tuple(kernels))
    return GroupedNode(op_type, program, tuple(inputs), tuple(outputs), [m.node for m in group])


def _too_long_lived(view: GraphView, groups: Sequence[list[_Member]], sizes: _Sizes) -> list[list[_Member]]:
    """The groups that must go for the peak of activation memory to be no higher than without any."""
    lives = _Lives(view, sizes)
    limit = lives.peak([])[0] + _SLACK
    kept = list(groups)
    for _ in range(_ROUNDS):
        peak, culprits = lives.peak([[m.node for m in group] for group in kept])
        if peak <= limit:
            break
        kept = [group for k, group in enumerate(kept) if k not in culprits] if culprits else []
    else:
        kept = []
    return [group for group in groups if group not in kept]


class _Lives:
    """Activations in memory while a graph runs in the order of its nodes, as far as groups let it."""

    def __init__(self, view: GraphView, sizes: _Sizes) -> None:
        self.view = view
        self.sizes: dict[str, int] = {}
        self.users: dict[str, list[int]] = defaultdict(list)
        for i, proto in enumerate(view.protos):
            self.sizes |= {n: sizes.of(n) for n in proto.output if n}
            for name in dict.fromkeys((*proto.input, *view.captures.get(i, ()))):
                self.users[name].append(i)

    def peak(self, groups: Sequence[Sequence[int]]) -> tuple[int, set[int]]:
        """The most bytes that are alive at a time, and the numbers of the groups that span that moment."""
        view = self.view
        unit = list(range(len(view.protos)))  # a group's nodes run as its first one
        for group in groups:
            for i in group:
                unit[i] = group[0]
        members: dict[int, list[int]] = defaultdict(list)
        for i, u in enumerate(unit):
            members[u].append(i)
        made_by = {n: unit[i] for i, proto in enumerate(view.protos) for n in proto.output if n}
        waits = {
            u: {made_by[n] for i in own for n in self._reads(i) if n in made_by} - {u} for u, own in members.items()
        }
        left = {u: len(needed) for u, needed in waits.items()}
        followers: dict[int, list[int]] = defaultdict(list)
        for u, needed in waits.items():
            for needed_unit in needed:
                followers[needed_unit].append(u)
        ready = [u for u, count in left.items() if count == 0]
        heapq.heapify(ready)
        uses = {n: len({unit[i] for i in own}) for n, own in self.users.items()}
        time, alive, most, moment = 0, 0, 0, 0
        when: dict[int, int] = {}
        while ready:
            u = heapq.heappop(ready)
            when[u] = time
            alive += sum(self.sizes.get(n, 0) for i in members[u] for n in view.protos[i].output)
            if alive > most:
                most, moment = alive, time
            for name in {n for i in members[u] for n in self._reads(i)}:
                uses[name] -= 1
                if uses[name] == 0 and name not in view.kept:
                    alive -= self.sizes.get(name, 0)
            for follower in followers[u]:
                left[follower] -= 1
                if left[follower] == 0:
                    heapq.heappush(ready, follower)
            time += 1
        spans = (self._span(group, unit, made_by, when) for group in groups)
        return most, {k for k, (begin, end) in enumerate(spans) if begin <= moment <= end}

    def _reads(self, i: int) -> Iterable[str]:
        return (*self.view.protos[i].input, *self.view.captures.get(i, ()))

    def _span(
        self, group: Sequence[int], unit: Sequence[int], made_by: dict[str, int], when: dict[int, int]
    ) -> tuple[int, int]:
        own = when[unit[group[0]]]
        before = [when[made_by[n]] for i in group for n in self._reads(i) if n in made_by]
        after = [when[unit[c]] for i in group for n in self.view.protos[i].output for c in self.users.get(n, ())]
        return min([own, *before]), max([own, *after])
