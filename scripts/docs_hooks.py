"""Hooks of MkDocs: tables that follow from the code stand in the pages as comments and are filled in here.

`options: validate` is replaced by the arguments and options of a command, `primitives` by the operations of the program
language, `operators: module` by the ONNX operators that a module of rewrites/lowering opens, `file: path` by a file of
the repository.
"""

from __future__ import annotations

import inspect
import re
import typing
from enum import Enum
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo

_MARK = re.compile(r"<!-- (options|operators|file): ([\w, ./]+) -->|<!-- (primitives) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this with each page."""
    return _MARK.sub(lambda m: _TABLES[m[1] or m[3]](m[2] or ""), markdown)


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ").strip()


def options(command: str) -> str:
    """The arguments and options of a command, as its function declares them."""
    from onnxfuse.cli.app import app

    named = {c.name or c.callback.__name__: c.callback for c in app.registered_commands if c.callback}
    function = named[command]
    rows = ["| argument | what it says |", "|---|---|"]
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind, info = typing.get_args(parameter.annotation)[:2]
        # Typer takes the first name for the default that stands there without Annotated.
        declared = [d for d in (info.default, *(info.param_decls or ())) if isinstance(d, str)]
        flags = ", ".join(declared) or f"--{name.replace('_', '-')}"
        value = info.metavar or _value(kind)
        shown = f"`{value or name.upper()}`" if isinstance(info, ArgumentInfo) else f"`{f'{flags} {value}'.strip()}`"
        given = parameter.default
        default = (
            "" if given in (None, False, inspect.Parameter.empty) else f" (default: {getattr(given, 'value', given)})"
        )
        rows.append(f"| {_cell(shown)} | {_cell(info.help)}{default} |")
    return "\n".join(rows)


def _value(kind: Any) -> str:
    """What stands for an option's value: the choices, or N, or nothing for a switch."""
    inner = next(k for k in (typing.get_args(kind) or (kind,)) if k is not type(None))
    if inner is bool:
        return ""
    return "|".join(m.value for m in inner) if isinstance(inner, type) and issubclass(inner, Enum) else "N"


def primitives(_: str) -> str:
    """The table of primitives, as the language has it."""
    from onnxfuse.custom_ops.primitives import PRIMITIVES

    rows = ["| operation | operands | result | kind |", "|---|---|---|---|"]
    for name, p in sorted(PRIMITIVES.items()):
        rows.append(f"| `{name}` | {p.arity} of {', '.join(p.types)} | {p.result} | {p.kind} |")
    return "\n".join(rows)


def operators(modules: str) -> str:
    """The ONNX operators that modules of rewrites/lowering open."""
    from onnxfuse.rewrites.lowering import LOWERINGS

    wanted = [f"onnxfuse.rewrites.lowering.{m.strip()}" for m in modules.split(",")]
    names = sorted(f"{d}.{op}" if d else op for (d, op), f in LOWERINGS.items() if f.__module__ in wanted)
    return ", ".join(f"`{n}`" for n in names) + "."


def file(path: str) -> str:
    """A file of the repository as a block of code."""
    source = Path(__file__).resolve().parent.parent / path
    languages = {".py": "python", ".cc": "cpp", ".cs": "csharp", ".java": "java"}
    return f"```{languages[source.suffix]}\n{source.read_text(encoding='utf-8').rstrip()}\n```"


_TABLES = {"file": file, "options": options, "primitives": primitives, "operators": operators}
