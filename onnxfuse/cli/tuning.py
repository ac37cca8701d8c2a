"""What `onnxfuse optimize --tune` prints."""

from __future__ import annotations

from onnxfuse.cli.console import line, table
from onnxfuse.cli.show import count_of, shorten
from onnxfuse.measure import Interval
from onnxfuse.tuning import Tuning

__all__ = ["show_tuning"]


def show_tuning(tuning: Tuning, verbose: bool) -> None:
    """Prints what was dropped on which figures, with `verbose` also what was measured and kept, then the totals."""
    shown = [d for d in tuning.decisions if d.dropped or verbose]
    rows = [
        (
            d.kind,
            str(len(d.regions)),
            _spread(d.gain),
            "dropped" if d.dropped else "kept",
            shorten(", ".join(d.regions)),
        )
        for d in shown
    ]
    if rows:
        columns = ("kind", "fusions", "times as fast by the change", "then", "which write first")
        table("Measured", columns, rows, right=(1,))
    done = f"{count_of(len(tuning.decisions), 'measurement')} in {tuning.seconds:.0f} s"
    line(f"tuned with {done}; a ratio below {tuning.noise:.3f} counts as noise")
    if not tuning.finished:
        line("time ran out before all was measured: --tune-seconds gives more", "yellow")
    line(f"against the original: {_spread(tuning.untuned)} times as fast with all fusions", "bold")
    if tuning.dropped:
        line(f"{count_of(len(tuning.dropped), 'fusion')} dropped: {_spread(tuning.tuned)} times as fast", "bold")
    else:
        line("nothing dropped: no fusion costs more than it saves, beyond noise")


def _spread(ratio: Interval) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
