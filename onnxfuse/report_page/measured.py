"""What was measured on the two models, for the page: the results of `validate` and of `bench`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfuse.errors import OnnxfuseError
from onnxfuse.report_page.charts import error_bar
from onnxfuse.report_page.latency import latency_part, latency_tile
from onnxfuse.report_page.markup import escape
from onnxfuse.report_page.tuning import tuning_part, tuning_tile

__all__ = ["Measurements", "measured_section", "measured_tiles", "read_measurements"]

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Measurements:
    """Results as `onnxfuse validate --json` and `onnxfuse bench --json` print them, and as `Tuning.to_dict` gives them.

    None stands for what was not measured.
    """

    validation: Json | None = None
    bench: Json | None = None
    tuning: Json | None = None


def read_measurements(
    validation: str | os.PathLike[str] | None = None, bench: str | os.PathLike[str] | None = None
) -> Measurements:
    """Measurements from files that hold what the commands printed with --json.

    Raises:
        OnnxfuseError: a file cannot be read, or is not such a result.
    """
    return Measurements(
        _read(validation, "validate", ("outputs", "ok")) if validation is not None else None,
        _one_case(_read(bench, "bench", ("original", "optimized"))) if bench is not None else None,
    )


def _read(path: str | os.PathLike[str], command: str, keys: tuple[str, ...]) -> Json:
    path = Path(path)
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise OnnxfuseError(f"'{path}' cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise OnnxfuseError(f"'{path}' is not JSON: give what `onnxfuse {command} --json` prints") from error
    if not isinstance(data, dict) or not all(data.get(key) not in (None, []) for key in keys):
        raise OnnxfuseError(
            f"'{path}' is not the result of `onnxfuse {command} --json`: it has no {' or no '.join(keys)}"
        )
    return data


def _one_case(result: Json) -> Json:
    """The figures of the first set of shapes, with what holds for all: the page shows one."""
    if not result.get("cases"):
        return result
    case = dict(result["cases"][0])
    for role in ("original", "optimized"):
        created = result.get("session_ms", {}).get(role, [None])[0]
        case[role] = {**(case[role].get("account") or {}), **case[role], "session_creation": created}
    return {**result, **case}


def measured_section(measurements: Measurements) -> str:
    """The section of the page; empty where nothing was measured."""
    parts = []
    if measurements.tuning is not None:
        parts.append(tuning_part(measurements.tuning))
    if measurements.bench is not None:
        parts.append(latency_part(measurements.bench))
    if measurements.validation is not None:
        parts.append(_errors(measurements.validation))
    return (
        f'<section id="measured" aria-labelledby="hm"><h2 id="hm">Measured</h2>{"".join(parts)}</section>'
        if parts
        else ""
    )


def measured_tiles(measurements: Measurements) -> list[tuple[str, str, str]]:
    """For the summary: figure, what it is, and a remark."""
    tiles = []
    if measurements.tuning is not None:
        tiles.append(tuning_tile(measurements.tuning))
    if measurements.bench is not None:
        tiles.append(latency_tile(measurements.bench))
    if measurements.validation is not None:
        outputs = measurements.validation["outputs"]
        right = sum(o.get("verdict") != "different" for o in outputs)
        verdict = "all within tolerance" if measurements.validation["ok"] else "see below"
        tiles.append((f"{right} of {len(outputs)}", "outputs agree", verdict))
    return tiles


def _errors(validation: Json) -> str:
    rows = "".join(_error_row(output) for output in validation["outputs"])
    seeds = validation.get("seeds", [])
    parting = validation.get("parting")
    inputs = ", ".join(
        f"{i['name']} {i['dtype']} {'×'.join(map(str, i['shape'])) or 'scalar'}" for i in validation.get("inputs", [])
    )
    where = f"{validation.get('provider', '')}, {len(seeds)} set{'s' if len(seeds) != 1 else ''} of inputs: {inputs}"
    notes = [*validation.get("wrong_functions", []), *validation.get("notes", [])]
    if parting:
        notes.insert(0, f"The models part at {parting['op_type']} {parting['node']}: {', '.join(parting['sources'])}")
    heads = (
        "largest error (bar) and tolerance (mark)",
        "max abs",
        "max rel",
        "max ulp",
        "cosine",
        "mismatch",
        "tolerance",
    )
    columns = "".join(f'<th scope="col" class="n">{h}</th>' for h in heads)
    return (
        f'<h3>Difference of each output</h3><p class="where">{escape(where)}</p>'
        '<div class="scroll" tabindex="0" role="group" aria-label="Outputs"><table class="outputs">'
        f'<thead><tr><th scope="col">output</th>{columns}<th scope="col">verdict</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>" + "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    )


def _error_row(output: Json) -> str:
    shape = "×".join(map(str, output["shape"])) or "scalar"
    error, limit = _number(output.get("absolute")), _number(output.get("tolerance"))
    figures = [_figure(output.get(key)) for key in ("absolute", "relative")]
    ulp, cosine = output.get("ulp"), _number(output.get("cosine"))
    figures += ["–" if ulp is None else f"{ulp:,}".replace(",", "\u202f") if isinstance(ulp, int) else str(ulp)]
    figures += ["–" if cosine is None else f"{cosine:.7f}", f"{100 * output.get('mismatches', 0):.3g} %"]
    figures += [_figure(output.get("tolerance"))]
    cells = "".join(f'<td class="n">{escape(f)}</td>' for f in figures)
    verdict = escape(output.get("verdict", ""))
    note = f'<p class="note">{escape(output["note"])}</p>' if output.get("note") else ""
    return (
        f'<tr><th scope="row">{escape(output["name"])}<small>{escape(output["dtype"])} {shape}</small></th>'
        f'<td>{error_bar(error, limit)}</td>{cells}<td class="v-{verdict}">{verdict}{note}</td></tr>'
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _figure(value: Any) -> str:
    return "–" if value is None else f"{value:.2e}" if isinstance(value, (int, float)) else str(value)
