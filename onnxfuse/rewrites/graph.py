"""One graph of a model as the fusion engine sees it: nodes in order, who makes and who uses each value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxfuse.custom_ops.types import size
from onnxfuse.rewrites.constants import Constants
from onnxfuse.rewrites.cost import TYPICAL_EXTENT
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.fragment import Builder
from onnxfuse.rewrites.lowering import Operator
from onnxfuse.rewrites.lowering.data_movement import FREE
from onnxfuse.rewrites.lowering.quantization import DEQUANTIZE
from onnxfuse.rewrites.products import factors
from onnxfuse.rewrites.shapes import Scope, TensorType

__all__ = ["GraphView"]


@dataclass
class GraphView:
    """A sorted graph. `nodes` (graphsurgeon's, to edit) and `protos` (to read) are in the same order.

    `types` has the values visible in this graph; `kept` the names that must remain: graph outputs and what bodies of
    If, Loop and Scan capture.
    """

    name: str
    graph: gs.Graph
    nodes: list[gs.Node]
    protos: list[onnx.NodeProto]
    types: Scope
    constants: Constants
    symbols: Symbols
    opset: int
    kept: set[str]
    captures: dict[int, list[str]] = field(default_factory=dict)  # outer values that a node's bodies read
    new_constants: dict[str, np.ndarray] = field(default_factory=dict)  # that fragments need and the graph lacks
    derived: dict[str, np.ndarray] = field(default_factory=dict)  # integers that follow from shapes
    producer: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, list[int]] = field(default_factory=dict)
    reads: dict[int, tuple[str, ...]] = field(default_factory=dict)  # of nodes that read other values than their inputs
    repeated: dict[int, set[int]] = field(default_factory=dict)  # nodes, and which users compute them for themselves

    def __post_init__(self) -> None:
        for i, proto in enumerate(self.protos):
            for name in proto.output:
                if name:
                    self.producer[name] = i
            for name in proto.input:
                if name:
                    self.consumers.setdefault(name, []).append(i)

    @cached_property
    def tensors(self) -> dict[str, gs.Tensor]:
        """The graph's tensors to edit, by name."""
        return {t.name: t for node in self.nodes for t in (*node.inputs, *node.outputs) if t.name}

    @cached_property
    def ranks_of_byte_convolutions(self) -> set[int]:
        """The ranks of what convolutions of dequantized bytes give."""
        convolutions = [p for p in self.protos if p.op_type == "Conv" and p.input and self.dequantized(p.input[0])]
        return {len(self.type_of(p.output[0]).shape or ()) for p in convolutions}

    def producers_of(self, i: int, *, through: bool = True) -> list[int]:
        """The nodes that make what node `i` and its bodies read, each once, in the order of the inputs.

        `through`: in the place of those that it computes for itself, what makes their inputs.
        """
        names = [*self.reads.get(i, self.protos[i].input), *self.captures.get(i, ())]
        found = [self.producer[n] for n in names if n in self.producer]
        if through and self.repeated:  # none of them reads what another one gives
            found = [q for p in found for q in (self.producers_of(p) if i in self.repeated.get(p, ()) else [p])]
        return list(dict.fromkeys(found))

    def bypass(self, i: int, name: str, between: Collection[int]) -> None:
        """Has node `i` read a value itself that it reads through the nodes `between`, whose only user it is."""
        self.reads[i] = (name,)
        others = [c for c in self.consumers[name] if c not in between]
        self.consumers[name] = sorted({*others, i})

    def dead(self) -> set[int]:
        """The nodes whose results nothing uses, not even by way of other nodes."""
        found: set[int] = set()
        for i in reversed(range(len(self.protos))):
            names = [n for n in self.protos[i].output if n]
            if not any(n in self.kept or any(c not in found for c in self.consumers.get(n, ())) for n in names):
                found.add(i)
        return found

    def needed_outside(self, members: Collection[int]) -> list[str]:
        """What nodes compute that others need; `members` is a set."""
        return [
            name
            for i in sorted(members)
            for name in self.protos[i].output
            if name and (name in self.kept or any(c not in members for c in self.consumers.get(name, ())))
        ]

    def computing_users(self, name: str) -> list[int]:
        """The nodes that use a value, perhaps under another shape or name."""
        found: list[int] = []
        pending = [name]
        while pending:
            for c in self.consumers.get(pending.pop(), ()):
                if self.protos[c].op_type in FREE:
                    pending += self.protos[c].output
                else:
                    found.append(c)
        return found

    def dequantized(self, name: str) -> str:
        """The element type of the bytes that a DequantizeLinear makes a value of; "" where none does."""
        maker = self.protos[self.producer[name]] if name in self.producer else None
        if maker is None or maker.op_type != DEQUANTIZE:
            return ""
        type_ = self.type_of(maker.input[0]).type
        return type_ if type_ in ("u8", "i8") else ""

    def only_user(self, name: str) -> bool:
        """Whether a value is used by one node alone, once, and need not remain."""
        return len(self.consumers.get(name, ())) == 1 and name not in self.kept

    def operator(self, i: int) -> Operator:
        """Node `i` as lowerings want it."""
        proto = self.protos[i]
        names = [*proto.input, *proto.output]
        return Operator(
            op_type=proto.op_type,
            domain="" if proto.domain == "ai.onnx" else proto.domain,
            opset=self.opset,
            inputs=list(proto.input),
            outputs=list(proto.output),
            attributes={a.name: _value(a) for a in proto.attribute if a.type != onnx.AttributeProto.GRAPH},
            types={n: self.types[n] for n in names if n in self.types},
            constants={n: self.constants.values[n] for n in proto.input if n in self.constants.values},
            derived={n: self.derived[n] for n in proto.input if n in self.derived},
            build=Builder(self.symbols),
            unused=frozenset(n for n in proto.output if n not in self.kept and n not in self.consumers),
        )

    def bytes_of(self, name: str) -> int:
        """Bytes of an activation: a factor that only a run shows counts as a typical extent, a weight as nothing."""
        known = self.type_of(name)
        if not name or name in self.constants.values or known.shape is None or not known.type:
            return 0
        extents = [number * TYPICAL_EXTENT ** len(symbols) for number, symbols in map(factors, known.shape)]
        return int(prod(extents)) * size(known.type)

    def type_of(self, name: str) -> TensorType:
        """Type and shape of a value."""
        return self.types.get(name, TensorType("", None))


def _value(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
