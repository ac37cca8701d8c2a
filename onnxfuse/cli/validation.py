"""What `onnxfuse validate` prints."""

from __future__ import annotations

from onnxfuse.cli.console import line, table
from onnxfuse.cli.show import count_of, shorten
from onnxfuse.validate.compare import OutputComparison
from onnxfuse.validate.locate import Parting
from onnxfuse.validate.validation import Validation

__all__ = ["show_validation"]

_MOST_SOURCES = 12


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.7f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def _row(c: OutputComparison, exact: bool) -> tuple[str, ...]:
    shape = "x".join(map(str, c.shape)) or "scalar"
    ulp = "-" if c.ulp is None else str(c.ulp) if c.ulp < 10**6 else f"{c.ulp:.1e}"
    errors = (_figure(c.absolute), _figure(c.relative), ulp, _cosine(c.cosine))
    shares = (_percent(c.mismatches), _percent(c.argmax))
    truth = (_figure(c.original_error), _figure(c.optimized_error)) if exact else ()
    return (c.name, f"{c.dtype} {shape}", *errors, *shares, *truth, _figure(c.tolerance), c.verdict)


def show_validation(result: Validation) -> None:
    """Prints the inputs, a row for each output, its notes, where the models part, and the verdict."""
    seeds = f"seed {result.seeds[0]}" if len(result.seeds) == 1 else f"seeds {result.seeds[0]} to {result.seeds[-1]}"
    where = result.provider
    if result.original_provider != where:
        where = f"{result.original_provider} against {where}"
    for shapes in result.shapes:
        given = ", ".join(f"{n} {t} {'x'.join(map(str, s)) or 'scalar'}" for n, t, s in shapes) or "none"
        line(f"{where}, {seeds}, inputs: {given}")
    exact = any(c.original_error is not None for c in result.outputs)
    columns = ["output", "type", "max abs", "max rel", "max ulp", "cosine", "mismatch", "same argmax"]
    columns += ["A to float64", "B to float64"] if exact else []
    columns += ["tolerance", "verdict"]
    table("Outputs", columns, [_row(c, exact) for c in result.outputs], right=range(2, len(columns) - 1))
    for output in result.outputs:
        if output.note:
            line(f"{output.name}: {output.note}", "yellow")
    if result.parting is not None:
        _show_parting(result.parting)
    for wrong_function in result.wrong_functions:
        line(f"without the library: {wrong_function}", "yellow")
    for note in result.notes:
        line(f"note: {note}", "yellow")
    total = count_of(len(result.outputs), "output")
    wrong = [c.name for c in result.outputs if not c.ok]
    if wrong:
        line(f"FAILED: {len(wrong)} of {total} not within tolerance: {shorten(', '.join(wrong))}", "bold red")
    elif result.parting is not None:
        line(f"FAILED: {total} within tolerance, but not what {result.parting.node} writes", "bold red")
    elif result.wrong_functions:
        line(f"FAILED: {count_of(len(result.wrong_functions), 'local function')} not as the program says", "bold red")
    else:
        line(f"OK: {total} within tolerance", "bold green")


def _show_parting(parting: Parting) -> None:
    kind = "the fused node" if parting.fused else "the node"
    line(f"the models part at {kind} {parting.node} ({parting.op_type})", "bold")
    for c in parting.outputs:
        line(
            f"  writes {c.name}: {c.verdict}, max abs {_figure(c.absolute)}, {_percent(c.mismatches)} of the values off"
        )
    more = len(parting.sources) - _MOST_SOURCES
    rest = f" and {more} more" if more > 0 else ""
    line(f"  stands for {', '.join(parting.sources[:_MOST_SOURCES])}{rest}")
