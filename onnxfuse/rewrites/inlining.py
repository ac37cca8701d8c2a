"""What a region computes or reads through again, so that a rearrangement with several users costs none of them.

Three kinds of nodes do not join regions themselves but become part of what their users compute:

1. A Split of what no region computes, all of whose users are in regions: each of them reads its part through it.
2. Cheap element-wise work of which only parts are used: the bias before a packed query, key and value is split. Each
   part is computed where it is used, from the part of the operands that it needs.
3. DequantizeLinear (dequantizing.py).

A node that all of its users have taken in is gone afterwards; otherwise it stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Container

from onnxfuse.rewrites import cost
from onnxfuse.rewrites.dequantizing import take_dequantizers
from onnxfuse.rewrites.fragment import Fragment, RefusalError
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering.data_movement import FREE
from onnxfuse.rewrites.taking_in import taken_in

__all__ = ["gone", "inline"]

# Steps that a user takes in at most, and parts that one value is cut into.
_MAX_STEPS = 16
_MAX_PARTS = 8


def inline(view: GraphView, fragments: dict[int, Fragment]) -> set[int]:
    """Takes nodes in where they are used, in place; returns those that no longer join regions of their own."""
    view.repeated = {}
    return _Inlining(view, fragments).run() | take_dequantizers(view, fragments)


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
                        result[i] = taken_in(self.view, self.fragments, i, self.taken, 2 * _MAX_STEPS)
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


def gone(view: GraphView, fragments: dict[int, Fragment], taken: Collection[int], fused: Container[int]) -> set[int]:
    """The nodes taken in that nothing but fused nodes has used, which all do their work."""
    dead: set[int] = set()
    for i in sorted(taken, reverse=True):
        names = [n for n in view.protos[i].output if n]
        users = [c for n in names for c in view.consumers.get(n, ())]
        if not any(n in view.kept for n in names) and all(
            c in dead or (c in fused and i in fragments[c].inlined) for c in users
        ):
            dead.add(i)
    return dead
