"""What an optimization did, and what it left alone and why."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Fusion", "Refusal", "Report"]


@dataclass(frozen=True)
class Fusion:
    """One fused node.

    `nodes` are the names of the source nodes it replaces, in graph order (an unnamed node shows as its type and
    first output), `operators` their types. `bytes_saved` counts the reads and writes of intermediates that no
    longer happen, where all shapes are static, else None. `notes` are things the user should know (an overflow in
    float16 that the fused arithmetic avoids).
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


@dataclass(frozen=True)
class Refusal:
    """A node that could have been fused and was not, or a join that was refused; `reason` is for the user."""

    node: str
    operator: str
    reason: str
    graph: str = ""


@dataclass
class Report:
    """All fusions and refusals of one `optimize` call, and the number of nodes before and after, bodies included.

    `notes` are things the user should know of the model as a whole.
    """

    target: str
    fusions: list[Fusion] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nodes_before: int = 0
    nodes_after: int = 0

    @property
    def launches_saved(self) -> int:
        """Kernel launches that the fused model does not make any more, over all fusions."""
        return sum(f.launches_saved for f in self.fusions)

    @property
    def bytes_saved(self) -> int | None:
        """Bytes of memory traffic saved by one run, or None where no fusion has static shapes."""
        known = [f.bytes_saved for f in self.fusions if f.bytes_saved is not None]
        return sum(known) if known else None
