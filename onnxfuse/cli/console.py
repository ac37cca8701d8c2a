"""Output: tables with colour on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["human_bytes", "line", "printable", "table"]


def printable(text: str) -> str:
    """The text with control characters escaped: names in a model may hold anything, also what drives a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


def human_bytes(count: int | None) -> str:
    """A byte count for a reader, "-" where it is unknown."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _console() -> Console:
    # Rich reads NO_COLOR and TERM itself; made afresh each time, since tests and callers replace sys.stdout.
    return Console(file=sys.stdout, highlight=False)


def line(text: str = "", style: str = "") -> None:
    """One line; the style ("bold", "green", "red") counts on a terminal only."""
    console = _console()
    if console.is_terminal:
        console.print(Text(printable(text), style))
    else:
        print(printable(text))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> None:
    """A titled table; the columns numbered in `right` are aligned to the right."""
    cells = [[printable(cell) for cell in row] for row in rows]
    console = _console()
    if console.is_terminal:
        view = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(columns):
            view.add_column(Text(column), justify="right" if number in right else "left", overflow="fold")
        for row in cells:
            view.add_row(*map(Text, row))
        console.print(view)
        return
    print(title)
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (list(columns), *cells):
        parts = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(("  " + "  ".join(parts)).rstrip())
    print()
