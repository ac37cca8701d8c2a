"""What a region computes or reads through again, so that a rearrangement with several users costs none of them.

Two kinds of nodes do not join regions themselves but become part of what their users compute:

1. A Split of what no region computes, all of whose users are in regions: each of them reads its part through it.
2. Cheap element-wise work of which only parts are used: the bias before a packed query, key and value is split. Each
   part is computed where it is used, from the part of the operands that it needs.

A node that all of its users have taken in is gone afterwards; otherwise it stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from onnxfuse.rewrites import cost, views
from onnxfuse.rewrites.dims import Shape
from onnxfuse.rewrites.fragment import Builder, Fragment, RefusalError, Value
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.layout import Layout
from onnxfuse.rewrites.lowering.data_movement import FREE
from onnxfuse.rewrites.space import Space
from onnxfuse.rewrites.views import View

__all__ = ["gone", "inline"]

# Steps that a user takes in at most, and parts that one value is cut into.
_MAX_STEPS = 16
_MAX_PARTS = 8


def inline(view: GraphView, fragments: dict[int, Fragment]) -> set[int]:
    """Takes nodes in where they are used, in place; returns those that no longer join regions of their own."""
    return _Inlining(view, fragments).run()


class _Inlining:
    def __init__(self, view: GraphView, fragments: dict[int, Fragment]) -> None:
        self.view, self.fragments = view, fragments
        self.rearranging = {i for i, f in fragments.items() if all(s.op == "view" for s in f.steps)}
        self.cutting = {i for i in self.rearranging if any(s.view.cuts for s in fragments[i].steps)}
        self.outside = self.outside_regions()
        self.taken: set[int] = set()
        self.excluded: set[int] = set()

    def run(self) -> set[int]:
        while True:
            parted = self.parted()
            self.taken = parted | {i for i in self.rearranging - parted if self.is_spread(i, parted)}
            result: dict[int, Fragment] = {}
            failed: set[int] = set()
            for i in sorted(self.fragments.keys() - self.taken):
                if any(p in self.taken for p in self.view.producers_of(i)):
                    try:
                        result[i] = self.with_inputs(i)
                    except RefusalError:
                        failed |= {i, *self.makers(i)}
            if not failed:
                break
            self.excluded |= failed  # where one user cannot take it in, nothing is gained by the others
        self.fragments.update(result)
        for i in self.taken:
            del self.fragments[i]
        return self.taken

    def makers(self, i: int) -> set[int]:
        """The nodes that node `i` takes in."""
        found: set[int] = set()
        pending = [i]
        while pending:
            more = [p for p in self.view.producers_of(pending.pop()) if p in self.taken and p not in found]
            found.update(more)
            pending += more
        return found

    def users(self, i: int) -> list[int]:
        return [c for n in self.view.protos[i].output if n for c in self.view.consumers.get(n, ())]

    def is_kept(self, i: int) -> bool:
        return any(n in self.view.kept for n in self.view.protos[i].output)

    def parted(self) -> set[int]:
        """Cheap work of which all users are parts (kind 2), of what no region computes."""
        cuts = {i for i in self.cutting - self.excluded if self.is_whole_cut(i)}
        found = {i for i in self.fragments if i not in cuts and self.may_be_parted(i)}
        while True:
            before = len(found)
            for i in sorted(found):
                if any(p not in found and p not in self.outside for p in self.view.producers_of(i)):
                    found.discard(i)
            depth: dict[int, int] = dict.fromkeys(cuts, 0)
            for i in sorted(found, reverse=True):
                below = [depth.get(c, _MAX_STEPS) for c in self.users(i)]
                if max(below) < _MAX_STEPS:
                    depth[i] = max(below) + 1
                else:
                    found.discard(i)
            if len(found) == before:
                return found

    def may_be_parted(self, i: int) -> bool:
        steps = self.fragments[i].steps
        return (
            i not in self.excluded
            and i not in self.outside  # a reshape there costs nothing
            and 0 < len(self.users(i)) <= _MAX_PARTS
            and not self.is_kept(i)
            and len(steps) <= _MAX_STEPS
            and all(s.op == "view" or not (s.reduces or s.scans or s.axes) for s in steps)
            and sum(cost.step_cost(s) for s in steps) <= cost.REPEATED_WORK
        )

    def is_whole_cut(self, i: int) -> bool:
        """A cut with one result, or one whose results are all used in regions."""
        return len(self.fragments[i].outputs) == 1 or all(c in self.fragments for c in self.users(i))

    def outside_regions(self) -> set[int]:
        """The nodes that compute nothing a region could: no operators that fuse, and reshapes of their results."""
        found: set[int] = set()
        for i in range(len(self.view.protos)):
            free = i in self.rearranging and self.view.protos[i].op_type in FREE
            if i not in self.fragments or (free and all(p in found for p in self.view.producers_of(i))):
                found.add(i)
        return found

    def is_spread(self, i: int, parted: set[int]) -> bool:
        """Parts with users in regions alone, of what no region computes (kind 1)."""
        users = self.users(i)
        makers = [p for p in self.view.producers_of(i) if p not in self.outside]
        return (
            i not in self.excluded
            and len(self.fragments[i].outputs) > 1
            and not self.is_kept(i)
            and all(c in self.fragments for c in users)
            and all(p in parted for p in makers)
        )

    def with_inputs(self, i: int) -> Fragment:
        """A node's fragment with what its inputs are computed from."""
        b = Builder(self.view.symbols)
        inlined: set[int] = set()
        original = self.fragments[i]
        mapped = self.rebuilt(b, original, inlined)
        b.fragment.constants = dict(original.constants)
        for j in inlined & self.fragments.keys():
            b.fragment.constants.update(self.fragments[j].constants)
        b.fragment.outputs = {name: mapped(value) for name, value in original.outputs.items()}
        b.fragment.steps = _needed(b.fragment)  # not the whole of what only parts are used of
        inlined |= {k for j in inlined for k in self.fragments[j].inlined}  # the cuts of rolls taken in
        b.fragment.inlined = original.inlined | inlined
        Layout(Space(self.view.symbols)).add(b.fragment)  # refuses what lies in no space
        return b.fragment

    def rebuilt(self, b: Builder, fragment: Fragment, inlined: set[int]) -> Callable[[Value], Value]:
        """Adds a fragment's steps to `b`, on operands that may be taken in; from its values to the new ones."""
        memo: dict[Value, Value] = {}

        def mapped(value: Value) -> Value:
            if value not in memo:
                memo[value] = self.tensor(b, value, inlined) if value.op == "tensor" else value
            return memo[value]

        for step in fragment.steps:
            operands = tuple(mapped(o) for o in step.operands)
            if step.op == "view":
                memo[step] = _through(b, operands[0], step.view, step.shape)
            else:
                memo[step] = b.copy(step, operands)
        return mapped

    def tensor(self, b: Builder, value: Value, inlined: set[int]) -> Value:
        """A read of a tensor, or what is computed there instead."""
        maker = self.view.producer.get(value.tensor)
        if maker is None or maker not in self.taken:
            return value
        inlined.add(maker)
        if len(b.fragment.steps) > 2 * _MAX_STEPS:
            raise RefusalError("it would compute too much again")
        fragment = self.fragments[maker]
        return self.rebuilt(b, fragment, inlined)(fragment.outputs[value.tensor])


def _needed(fragment: Fragment) -> list[Value]:
    """The steps that a fragment's outputs are computed by."""
    found: set[Value] = set()
    pending = list(fragment.outputs.values())
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending += value.operands
    return [s for s in fragment.steps if s in found]


def _through(b: Builder, value: Value, view: View, shape: Shape) -> Value:
    """A view of a value; a part of what is computed is computed from parts."""
    if view.cuts and _is_computed(value):
        return _pushed(b, value, lambda v: b.through(v, view, shape))
    return b.through(value, view, shape)


def _is_computed(value: Value) -> bool:
    while value.op == "view":
        value = value.operands[0]
    return value.op not in ("tensor", "const")


def _pushed(b: Builder, value: Value, wrap: Callable[[Value], Value]) -> Value:
    """`wrap` of a value, which it takes in its full shape, with the wrapping done on what it is computed from."""
    if value.op == "view":
        view, shape = value.view, value.shape
        return _pushed(b, value.operands[0], lambda v: wrap(b.through(v, view, shape)))
    if value.op == "tensor":
        return wrap(value)
    operands = []
    for operand in value.operands:
        if operand.op == "const":
            operands.append(b.const(operand.const, operand.type))
            continue
        widened = _expanded(value.shape)
        operands.append(_pushed(b, operand, lambda v, widened=widened: wrap(widened(b, v))))  # type: ignore[misc]
    return b.copy(value, tuple(operands), shape=b.symbols.broadcast(o.shape for o in operands))


def _expanded(shape: Shape) -> Callable[[Builder, Value], Value]:
    def expanded(b: Builder, value: Value) -> Value:
        if value.shape == shape:
            return value
        if any(d not in (1, e) for d, e in zip(value.shape[::-1], shape[::-1], strict=False)):
            raise RefusalError("it is not known which dimensions broadcast")
        return b.through(value, views.expansion(value.shape, shape), shape)

    return expanded


def gone(view: GraphView, taken: set[int], fused: Container[int]) -> set[int]:
    """The nodes taken in that nothing but fused nodes has used."""
    dead: set[int] = set()
    for i in sorted(taken, reverse=True):
        names = [n for n in view.protos[i].output if n]
        users = [c for n in names for c in view.consumers.get(n, ())]
        if not any(n in view.kept for n in names) and all(c in fused or c in dead for c in users):
            dead.add(i)
    return dead
