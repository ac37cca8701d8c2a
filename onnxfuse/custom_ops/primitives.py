"""The table of primitive operations, read from primitives.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from onnxfuse.custom_ops.types import FLOAT_TYPES, INTEGER_TYPES, TYPES, UNSIGNED_TYPES

__all__ = ["PRIMITIVES", "Primitive"]

# The flags that an operation of a kind may have, in the order in which they are written.
_FLAGS = {"argument": ("last",), "scan": ("exclusive", "reverse")}

_CLASSES = {"float": FLOAT_TYPES, "int": INTEGER_TYPES, "uint": UNSIGNED_TYPES}


@dataclass(frozen=True)
class Primitive:
    """One operation of the program language.

    `types` are the types that its operands may have (all the same one, but the condition of `where`, which is bool);
    `result` is "same", "bool" or "i64", `kind` "element", "reduction", "argument" or "scan". `onnx` names the standard
    operator that computes it, or is None where function.py spells it out; `attributes` are that operator's, and
    `runtime` the types for which ONNX Runtime's CPU provider has a kernel of it. `cost` is in simple arithmetic
    operations.
    """

    name: str
    arity: int
    types: tuple[str, ...]
    result: str = "same"
    onnx: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict, hash=False)
    runtime: tuple[str, ...] = ()
    cost: int = 1
    kind: str = "element"

    def result_type(self, operand: str) -> str:
        """The type of the result where the (last) operand has this type."""
        return operand if self.result == "same" else self.result

    @property
    def reduces(self) -> bool:
        """Whether its value no longer depends on the reduced dimensions."""
        return self.kind in ("reduction", "argument")

    @property
    def scans(self) -> bool:
        """Whether its value at a point combines those of its operand at other points."""
        return self.kind == "scan"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that it may have, in the order in which they are written."""
        return _FLAGS.get(self.kind, ())


def _expand(names: Iterable[str]) -> tuple[str, ...]:
    wanted = {type_ for name in names for type_ in _CLASSES.get(name, (name,))}
    return tuple(type_ for type_ in TYPES if type_ in wanted)


def _read() -> dict[str, Primitive]:
    text = resources.files(__package__).joinpath("primitives.toml").read_text(encoding="utf-8")
    table: dict[str, Primitive] = {}
    for name, row in tomllib.loads(text).items():
        types = _expand(row["types"])
        letters = set(re.findall(r"\b[abc]\b", row.get("c", "a")))
        table[name] = Primitive(
            name=name,
            arity=len(letters),
            types=types,
            result=row.get("result", "same"),
            onnx=row.get("onnx"),
            attributes=row.get("attributes", {}),
            runtime=_expand(row["runtime"]) if "runtime" in row else types,
            cost=row.get("cost", 1),
            kind=row.get("kind", "element"),
        )
    return table


PRIMITIVES: dict[str, Primitive] = _read()
