"""An ONNX node as a lowering sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxfuse.custom_ops.runtime_axes import choices
from onnxfuse.custom_ops.types import from_onnx, value_type
from onnxfuse.rewrites.fragment import Builder, GivenAxes, RefusalError, Value
from onnxfuse.rewrites.shapes import TensorType

# Sets of axes that a run may bring to one node: each gets kernels of its own, and `compile` makes those of all.
MAX_AXES = 32

__all__ = ["LOWERINGS", "Lowering", "Operator", "lowering"]


@dataclass
class Operator:
    """A node with its attributes, the types of its inputs, the values of its constant inputs, and a builder."""

    op_type: str
    domain: str
    opset: int
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: dict[str, Any]
    types: dict[str, TensorType]  # of inputs and outputs
    constants: dict[str, np.ndarray]  # small constant inputs
    build: Builder
    derived: dict[str, np.ndarray] = field(default_factory=dict)  # inputs that are no constants but follow from shapes
    unused: frozenset[str] = frozenset()  # outputs that have names but no users

    def has(self, i: int) -> bool:
        """Whether the optional input `i` is given."""
        return i < len(self.inputs) and bool(self.inputs[i])

    def value(self, i: int, *, rank_known: bool = True) -> Value:
        """Input `i`: a constant where it is a constant of one element, else a read of its tensor."""
        if not self.has(i):
            raise RefusalError(f"its input {i} is missing")
        name = self.inputs[i]
        known = self.types.get(name)
        constant = self.constants.get(name)
        if known is None or known.type == "":
            raise RefusalError(f"the element type of {name} is unknown, or not one that onnxfuse fuses")
        if constant is not None and constant.size == 1:
            return self.build.const(constant.reshape(()).item(), value_type(known.type), constant.ndim)
        if known.shape is None and rank_known:
            raise RefusalError(f"the rank of {name} is unknown")
        return self.build.tensor(name, known.type, known.shape or ())

    def storage(self, i: int) -> str:
        """The element type of input `i`."""
        known = self.types.get(self.inputs[i])
        if known is None or known.type == "":
            raise RefusalError(f"the element type of {self.inputs[i]} is unknown, or not one that onnxfuse fuses")
        return known.type

    def knows(self, i: int) -> bool:
        """Whether the value of input `i` is known before a run."""
        return self.inputs[i] in self.constants or self.inputs[i] in self.derived

    def constant(self, i: int, what: str) -> np.ndarray:
        """Input `i`, which must be constant, or integers that follow from shapes."""
        found = self.constants.get(self.inputs[i], self.derived.get(self.inputs[i]))
        if found is None:
            raise RefusalError(f"{what} is not constant")
        return found

    def given_axes(self, i: int, rank: int, what: str) -> GivenAxes:
        """Input `i`, axes of a tensor of that rank that only a run shows; RefusalError where they may be too many."""
        name = self.inputs[i]
        known = self.types.get(name)
        if known is None or known.type not in ("i32", "i64") or known.shape is None or len(known.shape) > 1:
            raise RefusalError(f"{what} is not constant, and not known to be a vector of integers")
        count = 1 if not known.shape else known.shape[0] if isinstance(known.shape[0], int) else None
        if count is not None and not 1 <= count <= rank:
            raise RefusalError(f"{what} holds {count} axes of a tensor of rank {rank}")
        if (sets := choices(rank, count)) > MAX_AXES:
            raise RefusalError(f"{what} may be any of {sets} sets; a fused node prepares for at most {MAX_AXES}")
        return GivenAxes(name, known.type, count, not known.shape)

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value, or the operator's default."""
        return self.attributes.get(name, default)

    def float_attribute(self, name: str, default: float) -> float:
        """A float attribute as the float32 that ONNX stores."""
        return float(np.float32(self.attributes.get(name, default)))

    def output_type(self, name: str) -> str:
        """The value type of an output, or "" where it is not known."""
        known = self.types.get(name)
        return value_type(known.type) if known is not None and known.type else ""

    def used(self, i: int) -> bool:
        """Whether output `i` is used."""
        return i < len(self.outputs) and bool(self.outputs[i]) and self.outputs[i] not in self.unused

    def onnx_type(self, data_type: int) -> str:
        """The language's type for an ONNX data type."""
        name = from_onnx(data_type)
        if name is None:
            raise RefusalError("it converts to a type that onnxfuse does not fuse")
        return name


Lowering = Callable[[Operator], Sequence[Value]]
LOWERINGS: dict[tuple[str, str], Lowering] = {}


def lowering(*op_types: str, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Registers a function as the lowering of operators."""

    def register(function: Lowering) -> Lowering:
        for op_type in op_types:
            LOWERINGS[domain, op_type] = function
        return function

    return register
