"""How reports are printed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from onnxfuse.cli.console import human_bytes, line, table
from onnxfuse.report import Fusion, Grouping, Refusal, Report, by_reason

__all__ = ["count_of", "shorten", "show_groups", "show_refusals", "show_report"]

_MOST_ROWS = 20
_MOST_EXAMPLES = 3
_WIDEST = 64


def compact(operators: Iterable[str]) -> str:
    """Each operator once, in order of first appearance, with its count: "Mul x2 Add"."""
    return " ".join(f"{name} x{count}" if count > 1 else name for name, count in Counter(operators).items())


def shorten(text: str, width: int = _WIDEST) -> str:
    """The text, cut at a width."""
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def _operators(fusion: Fusion) -> str:
    """Those of what it replaces and, apart, of what it computes its part of again."""
    shared = compact(node.operator for node in fusion.shared)
    return compact(fusion.operators) + (f" (and its part of {shared})" if shared else "")


def _saved(fusions: Sequence[Fusion]) -> str:
    known = [f.bytes_saved for f in fusions if f.bytes_saved is not None]
    more = "+" if known and len(known) < len(fusions) else ""
    return human_bytes(sum(known) if known else None) + more


def show_report(report: Report, verbose: bool) -> None:
    """Prints what was fused, by kind, and what was not, by reason; with `verbose` each fusion and each node."""
    if report.fusions:
        (_every_fusion if verbose else _kinds_of_fusion)(report.fusions)
    if report.refusals:
        (show_refusals if verbose else _reasons)(report.refusals)
    if report.groups and verbose:
        show_groups(report.groups)
    for note, count in Counter(n for f in report.fusions for n in f.notes).items():
        line(f"note: {note}" + (f" ({count} nodes)" if count > 1 else ""), "yellow")
    for note in report.notes:
        line(f"note: {note}", "yellow")
    before, after = report.nodes_before, report.nodes_after
    line(f"target {report.target}: {before} nodes -> {after}, of which {len(report.fusions)} fused", "bold")
    if report.fusions:
        traffic = f"{_saved(report.fusions)} of memory traffic" if report.bytes_saved is not None else ""
        line(" and ".join(filter(None, (f"each run saves {count_of(report.launches_saved, 'launch')}", traffic))))
    if report.groups:
        members = sum(len(g.members) for g in report.groups)
        line(f"({members} independent fused nodes share {count_of(len(report.groups), 'launch')})")
    if any(f.bytes_saved is None for f in report.fusions):
        line("(memory traffic is known where all shapes are static)")


def show_groups(groups: Sequence[Grouping]) -> None:
    """Prints a row for each node whose kernels share a launch."""
    rows = [(g.op_type, g.name, ", ".join(g.members), g.graph, str(g.launches_saved)) for g in groups]
    table("Share a launch", ("node", "name", "in place of", "graph", "launches saved"), rows, right=(4,))


def _kinds_of_fusion(fusions: Sequence[Fusion]) -> None:
    kinds: dict[tuple[str, str], list[Fusion]] = defaultdict(list)
    for fusion in fusions:
        kinds[fusion.op_type, _operators(fusion)].append(fusion)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    rows = [
        (op, str(len(group)), shorten(operators), str(sum(f.launches_saved for f in group)), _saved(group))
        for (op, operators), group in ordered[:_MOST_ROWS]
    ]
    columns = ("fused node", "count", "source operators", "launches saved", "bytes saved")
    table("Fused", columns, rows, right=(1, 3, 4))
    if len(ordered) > _MOST_ROWS:
        line(f"... and {len(ordered) - _MOST_ROWS} more kinds (--verbose shows each fusion)")


def _every_fusion(fusions: Sequence[Fusion]) -> None:
    rows = [
        (f.op_type, f.name, _operators(f), ", ".join(f.nodes), f.graph, str(f.launches_saved), _saved([f]))
        for f in fusions
    ]
    columns = ("fused node", "name", "source operators", "source nodes", "graph", "launches saved", "bytes saved")
    table("Fused", columns, rows, right=(5, 6))


def _reasons(refusals: Sequence[Refusal]) -> None:
    ordered = by_reason(refusals)
    rows = []
    for reason, group in ordered[:_MOST_ROWS]:
        examples = [f"{r.node} ({r.operator})" for r in group[:_MOST_EXAMPLES]]
        rows.append((str(len(group)), reason, shorten(", ".join(examples))))
    table("Not fused", ("count", "reason", "examples"), rows, right=(0,))
    if len(ordered) > _MOST_ROWS:
        line(f"... and {len(ordered) - _MOST_ROWS} more reasons (--verbose shows all)")


def show_refusals(refusals: Sequence[Refusal]) -> None:
    """Prints a row for each node that was not fused."""
    rows = [(r.node, r.operator, r.graph, r.reason) for r in refusals]
    table("Not fused", ("node", "operator", "graph", "reason"), rows)


def count_of(number: int, noun: str) -> str:
    """The number and the noun, in the plural where that is due."""
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{number} {noun if number == 1 else plural}"
