"""Finds the Ifs whose condition is known: a constant, or what follows from shapes that are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from onnxfuse.bodies import bodies
from onnxfuse.rewrites.constants import FOLDED, Constants, find_constants, fold
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.if_branches import GraphPath, can_join
from onnxfuse.rewrites.shapes import Scope, infer, symbolic_scope

__all__ = ["KnownConditions", "Seen"]


@dataclass(frozen=True)
class Seen:
    """What is known in a graph of a model, the values that it sees of those around it among them."""

    graph: onnx.GraphProto
    types: Scope
    known: Constants

    def truth(self, name: str) -> bool | None:
        """The value of a condition; None where it is not known, or not for certain."""
        value = None if name in self.known.inexact else self.known.values.get(name)
        return bool(value.reshape(-1)[0]) if value is not None and value.size == 1 and value.dtype == np.bool_ else None


class KnownConditions:
    """The Ifs of a model whose condition is known, and those of which it is not.

    `known` has, for each graph, by the places of the Ifs in it, the attribute of the branch that is taken, and is what
    `open_branches` takes; `unknown` has the places of the others. `seen` has what is known in each graph, but for what
    is in Ifs of known condition.
    """

    def __init__(self, model: onnx.ModelProto, opset: int) -> None:
        self.model, self.opset, self.symbols = model, opset, Symbols()
        self.known: dict[GraphPath, dict[int, str]] = {}
        self.unknown: list[tuple[GraphPath, int]] = []
        self.seen: dict[GraphPath, Seen] = {}
        self._graph(model.graph, infer(model, distinct=True).graph, {}, Constants(), ())

    def _graph(
        self, graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Scope, constants: Constants, path: GraphPath
    ) -> None:
        derived: dict[str, np.ndarray] = {}
        # Without what is declared of values that inference cannot type: nothing would see that it is not so.
        types = {**outer, **symbolic_scope(inferred, outer, self.symbols, derived=derived)}
        constants = find_constants(graph, constants, self.model.ir_version, self.opset)
        known = Constants(
            constants.names | derived.keys(), {**constants.values, **derived}, inexact=set(constants.inexact)
        )
        seen = self.seen[path] = Seen(graph, types, known)
        annotated = iter([node for node in inferred.node if bodies(node)])
        for place, node in enumerate(graph.node):
            standard = node.domain in ("", "ai.onnx")
            if standard and node.op_type in FOLDED and node.input and node.output[0] not in known.values:
                fold(known, node, self.opset)
            if not bodies(node):
                continue
            inner = next(annotated)
            if standard and node.op_type == "If":
                condition = seen.truth(node.input[0])
                taken = "then_branch" if condition else "else_branch"
                if condition is not None and can_join(node, taken, self.opset):
                    self.known.setdefault(path, {})[place] = taken
                    continue
                self.unknown.append((path, place))
            for k, body in bodies(node):
                if node.attribute[k].type == onnx.AttributeProto.GRAPH:
                    self._graph(body, inner.attribute[k].g, types, known, (*path, (place, k)))
