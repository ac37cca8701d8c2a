"""What `onnxfuse explain` prints: every region, what it saves, and for every operator left over the reason."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.capture import Obstacle
from onnxfuse.cli.console import human_bytes, line, table
from onnxfuse.cli.show import count_of, show_groups, show_refusals
from onnxfuse.report import Fusion, Report, by_reason

__all__ = ["show_capture", "show_explanation"]


def show_explanation(report: Report, programs: bool) -> None:
    """Prints the regions one by one, then the table of what is left, then the totals."""
    for number, fusion in enumerate(report.fusions, 1):
        _show_fusion(number, fusion, programs)
    if report.refusals:
        show_refusals(report.refusals)
    if report.groups:
        show_groups(report.groups)
    for reason, refusals in by_reason(report.separate):
        line(f"with launches of their own: {', '.join(r.node for r in refusals)}: {reason}", "yellow")
    if report.respelled:
        show_refusals(report.respelled)
    for note in report.notes:
        line(f"note: {note}", "yellow")
    saved = f" and {human_bytes(report.bytes_saved)} of memory traffic" if report.bytes_saved is not None else ""
    line(f"target {report.target}: {report.nodes_before} nodes -> {report.nodes_after}", "bold")
    if not report.fusions:
        line("nothing would be fused")
        return
    fused, save = count_of(len(report.fusions), "fused node"), "saves" if len(report.fusions) == 1 else "save"
    line(f"{fused} {save} {count_of(report.launches_saved, 'launch')}{saved} a run")


def show_capture(obstacles: Sequence[Obstacle], placed: Sequence[Obstacle] | None) -> None:
    """Prints what keeps the optimized model off a CUDA graph; `placed` is what ONNX Runtime says, if asked."""
    found = [*obstacles, *(placed or ())]
    if found:
        rows = [(o.node, o.operator, o.reason) for o in found]
        table("CUDA graph", ("node", "operator", "what is in the way"), rows)
    if placed is not None and not any(o.prevents for o in placed):
        line("CUDA graph: ONNX Runtime accepts the optimized model for capture")
    elif any(o.prevents for o in found):
        line("CUDA graph: the optimized model cannot be captured", "yellow")
    else:
        line("CUDA graph: nothing is known that prevents the optimized model from being captured")


def _show_fusion(number: int, fusion: Fusion, programs: bool) -> None:
    where = f" in {fusion.graph}" if fusion.graph else ""
    line(f"{number}. {fusion.op_type} '{fusion.name}'{where}", "bold")
    for node, operator in zip(fusion.nodes, fusion.operators, strict=True):
        line(f"     {operator:24s} {node}")
    for other in fusion.shared:
        line(f"   part of {other.operator:18s} {other.name}")
    line(f"   reads  {', '.join(fusion.inputs)}")
    line(f"   writes {', '.join(fusion.outputs)}")
    traffic = f", {human_bytes(fusion.bytes_saved)} of memory traffic" if fusion.bytes_saved is not None else ""
    counted = " (those of what it shares with other nodes are counted once)" if fusion.shared else ""
    line(f"   saves  {count_of(fusion.launches_saved, 'launch')}{traffic}{counted}")
    for note in fusion.notes:
        line(f"   note: {note}", "yellow")
    if programs:
        for text in fusion.program.splitlines():
            line(f"     | {text}")
