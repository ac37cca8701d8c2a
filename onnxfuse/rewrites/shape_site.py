"""A node as the rules of shapes see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from onnxfuse.rewrites.dims import Dim, Shape, Symbols
from onnxfuse.rewrites.shape_values import SymbolicValue

__all__ = ["Scope", "Shapes", "Site", "TensorType", "only_axes"]


@dataclass(frozen=True)
class TensorType:
    """Element type (of the program language, or "" for any other) and shape (None: unknown rank) of a value."""

    type: str
    shape: Shape | None


# The values that a graph sees, by name.
Scope: TypeAlias = dict[str, TensorType]
Shapes: TypeAlias = list[Shape | None] | None


def only_axes(shape: Shape | None, axes: Shape | None) -> list[int] | None:
    """The axes of a tensor of `shape` that an input of shape `axes` must hold, whatever its values; None: unknown."""
    if axes == (0,):
        return []
    if shape is not None and len(shape) == 1 and axes is not None and all(isinstance(d, int) and d > 0 for d in axes):
        return [0]
    return None


@dataclass(frozen=True)
class Site:
    """A node, the types of its inputs, and what is known of constant inputs."""

    node: onnx.NodeProto
    inputs: list[TensorType]
    constants: dict[str, np.ndarray]
    values: dict[str, SymbolicValue]
    symbols: Symbols

    def attribute(self, name: str, default: object = None) -> object:
        """The value of an attribute, or `default`."""
        for a in self.node.attribute:
            if a.name == name:
                return onnx.helper.get_attribute_value(a)
        return default

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        """An attribute that is a list of integers."""
        value = self.attribute(name)
        return [int(v) for v in value] if isinstance(value, (list, tuple)) else list(default)

    def constant(self, i: int) -> np.ndarray | None:
        """The value of input `i`, where it is a small constant."""
        return self.constants.get(self.node.input[i]) if i < len(self.node.input) else None

    def dims(self, i: int) -> list[Dim] | None:
        """Input `i` as a list of dimensions, symbolic or not, where it is known."""
        name = self.node.input[i] if i < len(self.node.input) else ""
        value = self.values.get(name)
        if value is None:
            return None
        return [d if isinstance(d, str) else int(d) for d in value.reshape(-1)]

    def axes(self) -> list[int] | None:
        """The axes of input 0, from input 1 or the attribute; None where they are not known."""
        if len(self.node.input) > 1 and self.node.input[1]:
            value = self.constant(1)
            return (
                only_axes(self.inputs[0].shape, self.inputs[1].shape) if value is None else value.reshape(-1).tolist()
            )
        return self.ints("axes", [])
