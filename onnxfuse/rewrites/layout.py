"""Lays the values of a region out in one iteration space.

The space is an ordered list of dimensions, of which some may be reduced. Each dimension of each value
is a row-major product of dimensions of the space: of one (as an ONNX operator aligns them: trailing dimensions
together), of several after a reshape, of none where its extent is 1. Adding a fragment either succeeds as a whole or
raises RefusalError and changes nothing.

Rules
1. Operands of an element-wise step that lie in the region must agree on the dimensions at each position; what is read
   from outside goes along with them. A position that no operand in the region decides takes a dimension of the space
   with the same extent, else a new one.
2. A new dimension repeats what was laid out before it, for each of its indices: only cheap work, and no reduction, may
   be repeated.
3. All reductions of the region have the same axes, next to each other or not (Space.walk), and so have its scans, which
   run over them in the order of the space. No reduction and no scan takes what depends on a scan.
4. A reshape that splits a dimension splits it for the whole region.
5. A slice is read through where its source lies outside of the region.
6. Where the axes of its reductions arrive with a run, all dimensions may be reduced. A value that was lies along them
   all, but varies (`depends`) along none until it meets one that does; what is squeezed meets constants alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxfuse.rewrites.fragment import Fragment, Value
from onnxfuse.rewrites.pending import Pending
from onnxfuse.rewrites.space import Entries, Place, Shown, Space

__all__ = ["Layout"]


@dataclass
class Layout:
    """A space and the values laid out in it.

    `entries` has the values that steps compute and views of them, `depends` the dimensions on which they depend (fewer
    than those along which they lie, after an expansion), `shown` what of their extents the tensors behind them show,
    `reads` how each operand that lies outside is read, by (step, operand number); `produced` the value of each tensor
    that the region computes, `passed` the reductions over extents of 1, `scanned` the scans and what depends on them,
    `squeezed` what lacks the dimensions that a run's axes name.
    """

    space: Space
    entries: dict[Value, Entries] = field(default_factory=dict)
    depends: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    shown: dict[Value, Shown] = field(default_factory=dict)
    reads: dict[tuple[Value, int], tuple[Place, ...]] = field(default_factory=dict)
    produced: dict[str, Value] = field(default_factory=dict)
    passed: set[Value] = field(default_factory=set)
    scanned: set[Value] = field(default_factory=set)
    squeezed: set[Value] = field(default_factory=set)
    work: int = 0  # cost of all steps, each counted once

    def add(self, fragment: Fragment) -> None:
        """Lays out a fragment whose inputs come from outside or from fragments added before. Raises RefusalError."""
        pending = Pending(self)
        for step in fragment.steps:
            if step.op != "view":
                pending.lay_out(step)
        for value in fragment.outputs.values():
            pending.laid_out(value)  # refuses a view that the region's entries do not allow
        self.space, self.work = pending.space, pending.work
        self.entries.update(pending.entries)
        self.depends.update(pending.depends)
        self.shown.update(pending.shown)
        self.reads.update(pending.reads)
        self.passed.update(pending.passed)
        self.scanned.update(pending.scanned)
        self.squeezed.update(pending.squeezed)
        self.produced.update(fragment.outputs)

    def behind(self, value: Value) -> Value:
        """The value behind views and tensors that the region computes."""
        while True:
            if value.op == "view":
                value = value.operands[0]
            elif value.op == "tensor" and value.tensor in self.produced:
                value = self.produced[value.tensor]
            else:
                return value

    def always_stored(self, value: Value) -> bool:
        """Whether the space has a point that stores the value, whatever the extents: a dimension that the value does
        not lie along may be empty, and with it the space.
        """
        own = {d for dims in self.laid_out(value) or () for d in self.space.bases(dims)}
        if not (own | set(self.space.bases(self.depends.get(self.behind(value), ())))) & self.space.reduced:
            own |= self.space.reduced  # a value of the row, which is stored once a row
        extents = (self.space.extents[d] for d in self.space.order if d not in own)
        return all(isinstance(extent, int) and extent > 0 for extent in extents)

    def fully_shown(self, value: Value) -> bool:
        """Whether the value has its whole extent also where all tensors that may be broadcast are."""
        shown = self.shown.get(self.behind(value))
        return shown is None or not shown.partly

    def laid_out(self, value: Value) -> Entries | None:
        """The entries of a value that the region computes; None for one that is read from outside or constant."""
        return Pending(self).laid_out(value)
