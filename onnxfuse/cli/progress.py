"""Progress of long work: a bar on stderr where that is a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Tell", "progress"]

# Takes what is being done and the share of it that is done, from 0 to 1.
Tell = Callable[[str, float], object]


def _silent(_what: str, _share: float) -> None:
    pass


@contextmanager
def progress(quiet: bool = False) -> Iterator[Tell]:
    """A function to tell of progress, which draws a bar that is gone when the work is done.

    Nothing is drawn where stderr is no terminal, or with `quiet`, so that logs and pipes stay clean. Colours respect
    NO_COLOR and TERM.
    """
    console = Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        yield _silent
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def tell(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        yield tell
