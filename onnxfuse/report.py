"""What an optimization did, and what it left alone and why."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxfuse.report_page import Measurements

__all__ = ["Fusion", "Grouping", "Refusal", "Report", "SourceNode", "Tensor", "by_reason"]

# What in a reason names a tensor or a number, and so keeps equal reasons apart.
_NAME = re.compile(r"'[^']*'|\S*[0-9_/]\S*(?<![,;:])")


@dataclass(frozen=True)
class Tensor:
    """What is known of a value in the source graph.

    `type` is one of the program language ("f16", "i64"; "" for any other), `shape` has an int or a symbol for each
    dimension (None: unknown rank), `constant` says whether it is the same in every run, and `value` is the text of a
    constant that has one element.
    """

    type: str
    shape: tuple[int | str, ...] | None
    constant: bool = False
    value: str | None = None


@dataclass(frozen=True)
class SourceNode:
    """A node of the graph as it was: its name, operator, and the names of what it reads and makes ("" for left out)."""

    name: str
    operator: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    graph: str = ""


@dataclass(frozen=True)
class Fusion:
    """One fused node.

    `nodes` are the names of the source nodes it replaces, in graph order (an unnamed node shows as its type and
    first output), `operators` their types. `bytes_saved` counts the reads and writes of intermediates that no
    longer happen, where all shapes are static, else None. `notes` are things the user should know (an overflow in
    float16 that the fused arithmetic avoids). `source` has the nodes with what they read and make, with them those
    that stay for others and are computed again in the fused node, and `tensors` the types of all values there.
    """

    op_type: str
    name: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    program: str
    launches_saved: int
    bytes_saved: int | None
    graph: str = ""
    notes: tuple[str, ...] = ()
    source: tuple[SourceNode, ...] = field(default=(), repr=False)
    tensors: Mapping[str, Tensor] = field(default_factory=dict, repr=False, hash=False)

    @property
    def shared(self) -> tuple[SourceNode, ...]:
        """The nodes of which it computes its part again.

        They stay for others, or other fused nodes compute their own parts as well; then one of these replaces them and
        has what is saved by it.
        """
        return tuple(node for node in self.source if node.name not in self.nodes)


@dataclass(frozen=True)
class Refusal:
    """A node that could have been fused and was not, or a join that was refused; `reason` is for the user."""

    node: str
    operator: str
    reason: str
    graph: str = ""


@dataclass(frozen=True)
class Grouping:
    """One node in place of several independent fused ones, whose kernels share a launch.

    `members` are the names of those fused nodes; `program` has the kernels of all.
    """

    op_type: str
    name: str
    members: tuple[str, ...]
    program: str
    graph: str = ""

    @property
    def launches_saved(self) -> int:
        """Kernel launches that a run makes less."""
        return len(self.members) - 1


@dataclass
class Report:
    """All fusions and refusals of one `optimize` call, and the number of nodes before and after, bodies included.

    `notes` are things the user should know of the model as a whole; `model` is what to call it; `source` are its nodes
    in order, bodies included and Constant nodes not. `groups` are fused nodes that became one, and `separate` says of
    others of one stage why they keep a launch of their own. `respelled` has operators that became other standard ones,
    which ONNX Runtime computes in less time, or part of weights.
    """

    target: str
    fusions: list[Fusion] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    groups: list[Grouping] = field(default_factory=list)
    separate: list[Refusal] = field(default_factory=list)
    respelled: list[Refusal] = field(default_factory=list)
    nodes_before: int = 0
    nodes_after: int = 0
    model: str = ""
    source: list[SourceNode] = field(default_factory=list, repr=False)

    @property
    def launches_saved(self) -> int:
        """Kernel launches that the fused model does not make any more, over all fusions and groups."""
        return sum(f.launches_saved for f in self.fusions) + sum(g.launches_saved for g in self.groups)

    @property
    def bytes_saved(self) -> int | None:
        """Bytes of memory traffic saved by one run, or None where no fusion has static shapes."""
        known = [f.bytes_saved for f in self.fusions if f.bytes_saved is not None]
        return sum(known) if known else None

    def settle(self, nodes: Mapping[str, tuple[str, str]]) -> None:
        """Takes over what fused nodes have become in the end: op type and program, by name."""
        fusions, groups = self.fusions, self.groups
        self.fusions = [replace(f, op_type=nodes[f.name][0]) if f.name in nodes else f for f in fusions]
        settled = {g.name: nodes.get(g.name, (g.op_type, g.program)) for g in groups}
        self.groups = [replace(g, op_type=settled[g.name][0], program=settled[g.name][1]) for g in groups]

    def to_dict(self) -> dict[str, Any]:
        """What was made and left and why, as plain values that JSON can hold (`onnxfuse explain --json`)."""

        def plain(entry: Fusion | Grouping | Refusal) -> dict[str, Any]:
            return {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in ("source", "tensors")}

        return {
            "schema": 1,
            **{name: getattr(self, name) for name in ("model", "target", "nodes_before", "nodes_after")},
            **{name: getattr(self, name) for name in ("launches_saved", "bytes_saved", "notes")},
            "fusions": [plain(f) | {"shared": [node.name for node in f.shared]} for f in self.fusions],
            "groups": [plain(g) | {"launches_saved": g.launches_saved} for g in self.groups],
            "refusals": [plain(r) for r in self.refusals],
            "separate": [plain(r) for r in self.separate],
            "respelled": [plain(r) for r in self.respelled],
        }

    def to_html(self, measurements: Measurements | None = None) -> str:
        """One self-contained page for a person: what was fused and where, what was left and why, and what it gains.

        `measurements` are results of `validate` and `bench` to show with it.
        """
        from onnxfuse.report_page import render

        return render(self, measurements)

    def save_html(self, path: str | os.PathLike[str], measurements: Measurements | None = None) -> None:
        """Writes the page of `to_html`, whole or not at all. Raises ModelError saying what is in the way."""
        from onnxfuse.files import save_text

        save_text(self.to_html(measurements), path)


def by_reason(refusals: Iterable[Refusal]) -> list[tuple[str, list[Refusal]]]:
    """The refusals by reason, the most frequent first; reasons that differ in names and numbers only are one."""
    groups: dict[str, list[Refusal]] = defaultdict(list)
    for refusal in refusals:
        groups[_NAME.sub("...", refusal.reason)].append(refusal)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [(reason if len({r.reason for r in group}) > 1 else group[0].reason, group) for reason, group in ordered]
