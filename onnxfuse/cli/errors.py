"""Exit codes, and errors as one line on stderr."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import ParamSpec

import typer

from onnxfuse.cli.console import printable
from onnxfuse.errors import OnnxfuseError

__all__ = ["BAD_INPUT", "INTERRUPTED", "MISMATCH", "UNEXPECTED", "reports_errors"]

MISMATCH = 1
BAD_INPUT = 2
UNEXPECTED = 3
INTERRUPTED = 130

P = ParamSpec("P")


def _say(message: str) -> None:
    print(printable(message), file=sys.stderr)


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A command that ends with a message and an exit code instead of a traceback.

    What the user can act on (OnnxfuseError, OSError) gives exit code 2, anything else 3, with the traceback where the
    command's parameter `debug` is true. Warnings are one line each on stderr.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
                command(*args, **kwargs)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except OnnxfuseError as error:
            _say(f"error: {error}")
            raise typer.Exit(BAD_INPUT) from error
        except OSError as error:
            file = f"{error.filename}: " if error.filename is not None else ""
            _say(f"error: {file}{error.strerror or error}")
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as error:
            _say("interrupted")
            raise typer.Exit(INTERRUPTED) from error
        except Exception as error:
            if kwargs.get("debug"):
                traceback.print_exc()
            _say(
                f"unexpected error: {type(error).__name__}: {error}\n"
                "This is a fault of onnxfuse. Please report it with the model, if you can share it"
                + ("." if kwargs.get("debug") else ", and the output of the same command with --debug.")
            )
            raise typer.Exit(UNEXPECTED) from error

    return wrapped
