"""Charts of the page as SVG or as HTML boxes, each with its figures in text for those who cannot see it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from onnxfuse.report import Report
from onnxfuse.report_page.cards import kind
from onnxfuse.report_page.markup import escape

__all__ = ["error_bar", "latency_plot", "operator_bars", "strip"]

_MOST_OPERATORS = 14
_SMALLEST, _LARGEST = -12, 1  # powers of ten of an error


def strip(report: Report) -> str:
    """All nodes of the model in order, coloured by what became of them."""
    fates = _fates(report)
    runs = [(fate, len(list(run))) for fate, run in groupby(fates)]
    cells, start = [], 0
    for fate, length in runs:
        cells.append(f'<rect class="{fate}" x="{start}" width="{length}" height="1"/>')
        start += length
    names = {**_NAMES, **{f"k-{kind(f.op_type)}": f.op_type for f in report.fusions}}
    counts = [(fate, names[fate], count) for fate, count in Counter(fates).most_common()]
    shown = ", ".join(f"{count} {name}" for _, name, count in counts)
    legend = "".join(f'<li class="{fate}"><i></i>{escape(name)} <b>{count}</b></li>' for fate, name, count in counts)
    return (
        f'<svg class="strip" role="img" aria-label="Nodes in graph order: {escape(shown)}" preserveAspectRatio="none" '
        f'viewBox="0 0 {max(start, 1)} 1">{"".join(cells)}</svg><ul class="legend">{legend}</ul>'
    )


_NAMES = {"other": "not memory-bound, or left to ONNX Runtime", "refused": "could be fused, was not"}


def _fates(report: Report) -> list[str]:
    fused = {(f.graph, name): f"k-{kind(f.op_type)}" for f in report.fusions for name in f.nodes}
    refused = {(r.graph, r.node) for r in report.refusals}
    keys = [(n.graph, n.name) for n in report.source]
    return [fused.get(key) or ("refused" if key in refused else "other") for key in keys]


def operator_bars(report: Report) -> str:
    """The operators of the source model by number, and how many of each were fused."""
    total: Counter[str] = Counter()
    fused: Counter[str] = Counter()
    for node, fate in zip(report.source, _fates(report), strict=True):
        total[node.operator] += 1
        fused[node.operator] += fate.startswith("k-")
    if not total:
        return ""
    most = max(total.values())
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="n">{count}</td><td class="n">{fused[name]}</td>'
        f'<td class="wide"><span class="stack" style="width:{100 * count / most:.1f}%">'
        f'<i style="width:{100 * fused[name] / count:.1f}%"></i></span></td></tr>'
        for name, count in total.most_common(_MOST_OPERATORS)
    )
    rest = len(total) - _MOST_OPERATORS
    more = f"<p class=more>and {rest} other operator types</p>" if rest > 0 else ""
    return (
        '<table class="operators"><thead><tr><th scope="col">operator</th><th scope="col" class="n">nodes</th>'
        f'<th scope="col" class="n">fused</th><th scope="col"><span class="hidden">share</span></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{more}"
    )


def error_bar(error: float | None, limit: float | None) -> str:
    """An error on a logarithmic axis, with the tolerance as a mark; the figures stand in the cells beside it."""
    if error is None or not math.isfinite(error):
        return ""
    mark = f'<line x1="{_log(limit):.1f}" x2="{_log(limit):.1f}" y1="1" y2="15"/>' if limit else ""
    return (
        '<svg class="error" aria-hidden="true" viewBox="0 0 130 16" width="130" height="16"><path d="M0 8H130"/>'
        f'<rect x="0" y="5" width="{_log(error):.1f}" height="6" rx="3"/>{mark}</svg>'
    )


def _log(value: float) -> float:
    power = math.log10(value) if value > 0 else _SMALLEST
    return 130 * (min(max(power, _SMALLEST), _LARGEST) - _SMALLEST) / (_LARGEST - _SMALLEST)


def latency_plot(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """Percentiles of latency in milliseconds, a line for each model, on one axis that starts at zero."""
    most = max((value for _, points in rows for _, value in points), default=0.0) * 1.08 or 1.0
    left, width, step = 96.0, 560.0, 58.0
    shapes = []
    for tick in _ticks(most):
        x = left + width * tick / most
        shapes.append(f'<path class="g" d="M{x:.0f} 0V{len(rows) * step:.0f}"/>')
        shapes.append(f'<text class="t" x="{x:.0f}" y="{len(rows) * step + 14:.0f}">{tick:g}</text>')
    for number, (name, points) in enumerate(rows):
        y = number * step + 34
        places = [(label, value, left + width * value / most) for label, value in points]
        look = "was" if number == 0 else "is"
        shapes.append(f'<text class="r" x="{left - 10:.0f}" y="{y + 4:.0f}">{escape(name)}</text>')
        ends = [x for *_, x in places]
        shapes.append(f'<path class="range {look}" d="M{min(ends):.1f} {y:.0f}H{max(ends):.1f}"/>')
        last = -math.inf
        for label, value, x in sorted(places, key=lambda p: p[2]):
            title = f"<title>{escape(name)} {escape(label)}: {value:.3g} ms</title>"
            big = 7 if label in ("p50", "median") else 4
            shapes.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.0f}" r="{big}">{title}</circle>')
            if x - last > 58:  # else the texts would lie over each other
                shapes.append(f'<text class="t" x="{x:.1f}" y="{y - 13:.0f}">{escape(label)} {value:.3g}</text>')
                last = x
    said = "; ".join(f"{n}: {', '.join(f'{label} {v:.3g} ms' for label, v in p)}" for n, p in rows)
    return (
        f'<svg class="latency" role="img" aria-label="Latency. {escape(said)}" '
        f'viewBox="0 0 {left + width + 30:.0f} {len(rows) * step + 20:.0f}">{"".join(shapes)}</svg>'
    )


def _ticks(most: float) -> Iterable[float]:
    raw = most / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw)
    return [step * i for i in range(int(most / step) + 1)]
