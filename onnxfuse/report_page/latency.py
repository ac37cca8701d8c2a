"""The latencies that `bench` measured, for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnxfuse.report_page.charts import latency_plot
from onnxfuse.report_page.markup import escape, with_unit

__all__ = ["latency_part", "latency_tile"]

Json = Mapping[str, Any]
_ROLES = {"original": "before", "optimized": "after"}
_PERCENTILES = {"median": "p50", "p90": "p90", "p99": "p99"}
# Where a figure of a model stands, what it is called, and how it is written.
_FIGURES: list[tuple[tuple[str, ...], str, Callable[[Any], str]]] = [
    (("throughput",), "runs a second, queued", lambda v: f"{v:.4g}"),
    (("first_run",), "first run", lambda v: f"{v:.4g} ms"),
    (("account", "nodes"), "nodes run", str),
    (("account", "launches"), "kernel launches", str),
    (("account", "bytes_moved"), "memory traffic", with_unit),
    (("account", "peak_memory"), "peak memory", with_unit),
]


def latency_tile(bench: Json) -> tuple[str, str, str]:
    """For the summary: figure, what it is, and a remark; of the first case."""
    case = bench["cases"][0]
    ratio = case["ratio"]
    spread = f"{ratio['low']:.2f} to {ratio['high']:.2f} in 95 % of resamples"
    remark = spread if case.get("verdict") != "same" else f"{spread}: no difference beyond noise"
    return f"{ratio['value']:.2f}×", "as fast", remark


def latency_part(bench: Json) -> str:
    """The plots and figures of all cases."""
    where = [bench.get("provider"), bench.get("device"), f"ONNX Runtime {bench.get('runtime')}"]
    if bench.get("threads"):
        where.append(f"{bench['threads']} threads")
    if bench.get("cuda_graph"):
        where.append("CUDA graphs")
    cases = "".join(_case(case) for case in bench["cases"])
    return f'<h3>Latency</h3><p class="where">{escape(", ".join(map(str, filter(None, where))))}</p>{cases}'


def _case(case: Json) -> str:
    dims = ", ".join(f"{name} = {extent}" for name, extent in case.get("dims", {}).items())
    ratio, noise = case["ratio"], case.get("noise_level", 1.0)
    said = f"{ratio['value']:.2f} times as fast ({ratio['low']:.2f} to {ratio['high']:.2f})"
    if noise > 1:
        said += f"; two equal sessions seemed up to {noise:.2f} times apart"
    rows = [(name, _percentiles(case[role])) for role, name in _ROLES.items()]
    title = f"Milliseconds of one run{f' with {dims}' if dims else ''}"
    plot = f'<div class="scroll" tabindex="0" role="group" aria-label="Latency plot">{latency_plot(rows)}</div>'
    return f"<h4>{escape(title)}</h4><p class=where>{escape(said)}</p>{plot}{_figures(case)}"


def _percentiles(side: Json) -> list[tuple[str, float]]:
    return [(label, float(side["latency"][key])) for key, label in _PERCENTILES.items() if key in side["latency"]]


def _figures(case: Json) -> str:
    rows = ""
    for path, label, shown in _FIGURES:
        values = [_found(case[role], path) for role in _ROLES]
        if None not in values:
            cells = "".join(f'<td class="n">{escape(shown(v))}</td>' for v in values)
            rows += f'<tr><th scope="row">{label}</th>{cells}</tr>'
    if not rows:
        return ""
    heads = "".join(f'<th scope="col" class="n">{name}</th>' for name in _ROLES.values())
    return f'<table class="figures"><thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _found(side: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        side = side.get(key) if isinstance(side, Mapping) else None
    return side
