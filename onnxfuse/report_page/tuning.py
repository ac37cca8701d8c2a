"""What `optimize --tune` measured and dropped, for the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxfuse.report_page.markup import escape

__all__ = ["tuning_part", "tuning_tile"]

Json = Mapping[str, Any]


def tuning_tile(tuning: Json) -> tuple[str, str, str]:
    """For the summary: figure, what it is, and a remark."""
    dropped = len(tuning["dropped"])
    remark = f"{dropped} fusion{'s' if dropped != 1 else ''} dropped" if dropped else "nothing to drop"
    return f"{tuning['tuned']['value']:.2f}×", "as fast, tuned here", remark


def tuning_part(tuning: Json) -> str:
    """The questions that were measured, and what was decided."""
    said = (
        f"With all fusions {_spread(tuning['untuned'])} times as fast as the original, as tuned "
        f"{_spread(tuning['tuned'])}; a ratio below {tuning['noise']:.3f} counts as noise. "
        f"{len(tuning['decisions'])} measurements in {tuning['seconds']:.0f} s"
    )
    said += "." if tuning["finished"] else "; time ran out before all was measured."
    rows = "".join(
        f'<tr><th scope="row">{escape(d["kind"])}</th><td class="n">{len(d["regions"])}</td>'
        f'<td class="n">{escape(_spread(d["gain"]))}</td><td>{"dropped" if d["dropped"] else "kept"}</td>'
        f"<td>{escape(_some(d['regions']))}</td></tr>"
        for d in tuning["decisions"]
    )
    heads = "".join(
        f'<th scope="col"{look}>{head}</th>'
        for head, look in (
            ("kind", ""),
            ("fusions", ' class="n"'),
            ("times as fast by the change", ' class="n"'),
            ("then", ""),
            ("which write first", ""),
        )
    )
    pane = '<div class="scroll" tabindex="0" role="group" aria-label="Tuning">'
    table = f"{pane}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>" if rows else ""
    return f'<h3>Tuning: which fusions pay</h3><p class="where">{escape(said)}</p>{table}'


def _spread(ratio: Json) -> str:
    return f"{ratio['value']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _some(regions: list[str], most: int = 3) -> str:
    rest = f" and {len(regions) - most} more" if len(regions) > most else ""
    return ", ".join(regions[:most]) + rest
