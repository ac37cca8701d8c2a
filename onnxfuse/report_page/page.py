"""Puts the page together.

It loads nothing: styles and script stand in it, and a content security policy forbids all else, so that a hostile name
in a model can do nothing even where a browser took it for markup. All of it can be read without the script, which only
filters and opens cards.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from onnxfuse.report import Grouping, Report
from onnxfuse.report_page.cards import Group, fused_cards, groups, kind, left_entries
from onnxfuse.report_page.charts import operator_bars, strip
from onnxfuse.report_page.markup import escape, with_unit
from onnxfuse.report_page.measured import Measurements, measured_section, measured_tiles

__all__ = ["render"]


def render(report: Report, measurements: Measurements | None = None) -> str:
    """The page as text (UTF-8 is to be its encoding)."""
    measurements = measurements or Measurements()
    found = groups(report.fusions)
    style, script = _part("style.css"), _part("script.js")
    name = PurePath(report.model).name or "model"
    measured = measured_section(measurements)
    links = [("summary", "Summary", True), ("measured", "Measured", measured), ("fused", "Fused", found)]
    links.append(("left", "Left", True))
    menu = "".join(f'<li><a href="#{target}">{text}</a></li>' for target, text, there in links if there)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(name)} · onnxfuse report</title><style>{style}</style></head><body>"
        '<svg width="0" height="0" aria-hidden="true"><defs><marker id="arrow" viewBox="0 0 8 8" refX="3" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8Z"/></marker></defs></svg>'
        '<a class="skip" href="#summary">Skip to the summary</a>'
        f'<header><p class="brand">onnxfuse report</p><h1>{escape(name)}</h1>'
        f'<p class="sub">optimized for {escape(report.target.upper())}</p>'
        f'<nav aria-label="Sections"><ul>{menu}</ul></nav></header><main>'
        f"{_summary(report, measurements)}{measured}{_fused(found, report.groups)}{_left(report)}"
        f"</main><footer><p>Written by onnxfuse {escape(_version())}. This page loads nothing.</p></footer>"
        f"<script>{script}</script></body></html>\n"
    )


def _summary(report: Report, measurements: Measurements) -> str:
    known = sum(f.bytes_saved is not None for f in report.fusions)
    rest = "" if known == len(report.fusions) else f"known for {known} of {len(report.fusions)} fusions"
    less = 100 * (1 - report.nodes_after / report.nodes_before) if report.nodes_before else 0.0
    fused = sum(len(f.nodes) for f in report.fusions)
    tiles = [
        (f"{report.nodes_before} → {report.nodes_after}", "nodes", f"{less:.0f} % fewer"),
        (str(len(report.fusions)), "fused nodes", f"in place of {fused} operators"),
        (str(report.launches_saved), "launches saved", "in each run"),
        (
            with_unit(report.bytes_saved) if report.bytes_saved is not None else "–",
            "memory traffic saved",
            rest or "in each run",
        ),
        *measured_tiles(measurements),
    ]
    shown = "".join(
        f"<li><b>{escape(figure)}</b><span>{escape(what)}</span><small>{escape(remark)}</small></li>"
        for figure, what, remark in tiles
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in report.notes)
    nothing = "" if report.fusions else "<p>Nothing was fused: the section Left says why.</p>"
    return (
        '<section id="summary" aria-labelledby="hs"><h2 id="hs">Summary</h2>'
        f'<ul class="tiles">{shown}</ul>{nothing}{notes}'
        f"<h3>The model from its first node to its last</h3>{strip(report)}"
        f'<details class="inner"><summary>By operator</summary>{operator_bars(report)}</details></section>'
    )


def _fused(found: list[Group], shared: Sequence[Grouping]) -> str:
    if not found:
        return ""
    kinds = dict.fromkeys(group.fusions[0].op_type for group in found)
    chips = "".join(
        f'<label class="chip k-{kind(k)}"><input type="checkbox" value="{kind(k)}" checked>{escape(k)}</label>'
        for k in kinds
    )
    count = sum(len(group.fusions) for group in found)
    alike = (
        f"{len(found)} different regions, {count} in all; those that save most come first."
        if len(found) < count
        else ""
    )
    return (
        f'<section id="fused" aria-labelledby="hf"><h2 id="hf">What was fused</h2><p>{alike}</p>'
        '<form class="filter" hidden role="search"><label>Find <input type="search" id="find" '
        f'placeholder="operator or node"></label><fieldset><legend class="hidden">Kinds</legend>{chips}</fieldset>'
        '<button type="button" id="all">Open all</button><output id="shown" aria-live="polite"></output></form>'
        f'<div id="cards">{fused_cards(found)}</div>{_shared(shared)}</section>'
    )


def _shared(shared: Sequence[Grouping]) -> str:
    """The fused nodes that became one, so that their kernels share a launch."""
    if not shared:
        return ""
    rows = "".join(
        f"<li><b>{escape(g.name)}</b>{f' in {escape(g.graph)}' if g.graph else ''}: {escape(', '.join(g.members))}</li>"
        for g in shared
    )
    members, launches = sum(len(g.members) for g in shared), f"{len(shared)} launch{'es' if len(shared) > 1 else ''}"
    return (
        f'<details class="left"><summary><span class="count">{members}</span>'
        f'<span class="reason">independent fused nodes share {launches}</span></summary>'
        f'<ul class="places">{rows}</ul></details>'
    )


def _left(report: Report) -> str:
    if not report.refusals:
        return (
            '<section id="left" aria-labelledby="hl"><h2 id="hl">What was left</h2>'
            "<p>Nothing that could be fused.</p></section>"
        )
    count = len(report.refusals)
    return (
        '<section id="left" aria-labelledby="hl"><h2 id="hl">What was left, and why</h2>'
        f"<p>{count} operator{'s' if count != 1 else ''} that onnxfuse knows stayed as they were.</p>"
        f"{left_entries(report.refusals)}</section>"
    )


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _version() -> str:
    try:
        return importlib.metadata.version("onnxfuse")
    except importlib.metadata.PackageNotFoundError:  # run from the source tree
        return "(not installed)"
