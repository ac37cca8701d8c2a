"""Computes what a model computes from shapes with the fewest nodes: each extent once, each vector of them once.

Exporters write Shape, Gather, Unsqueeze and Concat anew for every Reshape and turn pads around with Reshape, Slice and
Transpose. Each such node costs a dispatch of about a microsecond, which in a small model is much of its time. ONNX
Runtime merges only those that are spelled alike. Of the 1819 nodes that it runs of Piper's en_US-joe-medium (with its
regions fused) 966 are left, 5 phonemes take 8 % less; of a Swin transformer by TorchScript's exporter a third goes, and
30 more operators are fused, whose shapes are then known to agree.

A Reshape's target may say "as it was" for an extent, and an Expand's 1: what is constant then is no node at all. An
Expand to the shape that a tensor has goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import reduce
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxfuse.bodies import graphs
from onnxfuse.editing import ModelEditor
from onnxfuse.rewrites.dims import Shape, element_count, stated
from onnxfuse.rewrites.edited_graphs import EditedGraph, edited_graphs
from onnxfuse.rewrites.products import scaled
from onnxfuse.rewrites.shape_elements import Element, Elements, Made
from onnxfuse.rewrites.shape_vectors import Vectors
from onnxfuse.rewrites.shapes import UNKNOWN

__all__ = ["shorten_shape_arithmetic"]

_FACTORS = 64
_SHAPED = ("Reshape", "Expand", "ConstantOfShape")


def shorten_shape_arithmetic(
    model: onnx.ModelProto, opset: int, base_dir: Path | None = None
) -> tuple[onnx.ModelProto, int]:
    """The model with all of its graphs rewritten, and by how many nodes it is smaller; itself where it is not.

    External data is in `base_dir`.
    """
    if not any(node.op_type == "Shape" for graph in graphs(model.graph) for node in graph.node):
        return model, 0
    editor, edited = edited_graphs(model, opset, base_dir)
    saved = sum(_Rewrite(editor, graph, opset).run() for graph in edited)
    return (editor.to_model(), saved) if saved else (model, 0)


class _Rewrite:
    """Of one graph: which of its nodes only compute with elements, and what takes their place."""

    def __init__(self, editor: ModelEditor, graph: EditedGraph, opset: int) -> None:
        self.editor, self.graph = editor, graph
        self.nodes, self.proto, self.kept = graph.nodes, graph.proto, graph.kept
        self.elements = Elements(graph.types, graph.constants.values, opset)
        self.maker = {name: i for i, node in enumerate(self.proto.node) for name in node.output}
        self.users = Counter(name for node in self.proto.node for name in node.input)
        self.gone: list[int] = []
        self.needed: set[str] = set()

    def run(self) -> int:
        for value in self.proto.input:
            if value.name in self.elements.types:
                self.elements.add_source(value.name)
        following = [self.elements.follow(node) for node in self.proto.node]
        if not any(following) or any(self.fails(node) for node in self.proto.node):
            return 0
        targets = {i: target for i, node in enumerate(self.proto.node) if (target := self.spelled(i, following))}
        self.divide(following)
        return self.replace(targets)

    def fails(self, node: onnx.NodeProto) -> bool:
        """Whether a node cannot be given the shape that it is to have.

        With a constant for that the model would fail where it is loaded, though nothing may ever run the node.
        """
        name = node.input[0 if node.op_type == "ConstantOfShape" else 1] if node.op_type in _SHAPED else ""
        if node.domain not in ("", "ai.onnx") or name not in self.elements.known:
            return False
        wanted = self.elements.known[name].reshape(-1).tolist()
        if any(type(e) is int and e < (-1 if node.op_type == "Reshape" else 0) for e in wanted):
            return True
        shape = self.graph.types.get(node.input[0], UNKNOWN).shape or ()
        if node.op_type == "Reshape":
            counts = element_count(shape), element_count(wanted)
            return wanted.count(-1) > 1 or (None not in counts and min([*wanted, 1]) > 0 and counts[0] != counts[1])
        pairs = zip(reversed(wanted), reversed(shape), strict=False)
        ints = [(e, d) for e, d in pairs if type(e) is int and type(d) is int]
        return node.op_type == "Expand" and any(e not in (1, d) and d != 1 for e, d in ints)

    def divide(self, following: list[bool]) -> None:
        """Finds the nodes that go, and what the others need of what they make."""
        for i, node in reversed(list(enumerate(self.proto.node))):
            if following[i]:
                name = node.output[0]
                value = self.elements.known[name]
                held = name in self.kept or not self.users[name]
                if not held and (name not in self.needed or _can_be_made(value)):
                    self.gone.append(i)
                    continue
            self.needed.update(node.input)
        self.gone_set = set(self.gone)

    def spelled(self, i: int, following: list[bool]) -> list[int] | None:
        """The target of a Reshape or an Expand as a constant that means the same, where there is one."""
        node = self.proto.node[i]
        if node.op_type not in ("Reshape", "Expand") or node.domain not in ("", "ai.onnx") or following[i]:
            return None
        target = self.elements.known.get(node.input[1])
        known = self.elements.types.get(node.input[0])
        if target is None or target.ndim != 1 or known is None or known.shape is None:
            return None
        elements: list[Element] = target.tolist()
        if node.op_type == "Expand":
            return expand_target(known.shape, elements)
        literal = any(a.name == "allowzero" and a.i for a in node.attribute)
        found = reshape_target(known.shape, elements, literal)
        if found is None and not literal:
            for k in self.folded_by_runtime(node, known.shape):
                following[k] = False
        return found

    def folded_by_runtime(self, node: onnx.NodeProto, shape: Shape) -> list[int]:
        """The nodes that compute a Reshape's target of which ONNX Runtime makes a constant all the same.

        It does where a Concat puts single elements together that are numbers, or extents of the data at their own
        places as Shape, Gather and Unsqueeze give them, all but one, which it leaves open; some tensors without
        elements fit no such target.
        """
        concat = self.maker.get(node.input[1], -1)
        if concat < 0 or self.proto.node[concat].op_type != "Concat" or node.input[1] in self.kept:
            return []
        if self.users[node.input[1]] != 1:
            return []
        nodes, place, left_open = [concat], 0, 0
        for name in self.proto.node[concat].input:
            value = self.elements.of(name)
            if name in self.elements.constants:
                left_open += value.tolist().count(-1)
            elif value.size != 1:
                return []
            else:
                chain = self.chain(name)
                nodes += chain
                element = value.item()
                own = chain and self.proto.node[chain[-1]].input[0] == node.input[0]
                same = isinstance(element, str) and place < len(shape) and element == shape[place]
                left_open += not (same and chain and (own or stated(element) is not None))
            place += value.size
        return nodes if left_open <= 1 else []

    def chain(self, name: str) -> list[int]:
        """Unsqueeze, Gather and Shape, if they make a value in this order; else nothing."""
        nodes = []
        for op in ("Unsqueeze", "Gather", "Shape"):
            i = self.maker.get(name, -1)
            if i < 0 or self.proto.node[i].op_type != op:
                return []
            nodes.append(i)
            name = self.proto.node[i].input[0]
        return nodes

    def replace(self, targets: dict[int, list[int]]) -> int:
        made = {self.proto.node[i].output[0] for i in self.gone}
        reads = [
            (i, place, name)
            for i, node in enumerate(self.proto.node)
            if i not in self.gone_set
            for place, name in enumerate(node.input)
            if name in made and not (i in targets and place == 1)
        ]
        values = {name: self.elements.known[name] for _, _, name in reads}
        asked = [v.tolist() for v in values.values() if v.ndim == 1]
        vectors = Vectors(self.editor, self.elements, self.graph.tensors(), asked)
        new = {
            name: vectors.vector(value.tolist()) if value.ndim else vectors.scalar(value.item())
            for name, value in values.items()
        }
        whole = [i for i in targets if self.is_whole(i, targets[i])]
        saved = len(self.gone) + len(whole) - len(vectors.nodes)
        if saved <= 0:
            for node in vectors.nodes:
                node.inputs.clear()
                node.outputs.clear()
            return 0
        for i, place, name in reads:
            self.nodes[i].inputs[place] = new[name]
        for i, target in targets.items():
            node = self.nodes[i]
            node.inputs[1] = vectors.constant(np.array(target))
            if 0 in target:
                node.attrs.pop("allowzero", None)
        for i in whole:
            _bypass(self.nodes[i])
        self.graph.scope.nodes.extend(vectors.nodes)
        self.editor.remove_nodes(self.nodes[i] for i in (*self.gone, *whole))
        return saved

    def is_whole(self, i: int, target: list[int]) -> bool:
        """Whether an Expand to the target gives what it reads, and nothing else needs it under its name."""
        node = self.proto.node[i]
        shape = self.elements.types[node.input[0]].shape or ()
        pairs = zip(reversed(target), reversed(shape), strict=False)
        fits = len(target) <= len(shape) and all(t in (1, d) for t, d in pairs)
        return node.op_type == "Expand" and fits and node.output[0] not in self.kept


def reshape_target(shape: Shape, elements: list[Element], literal: bool) -> list[int] | None:
    """The target of a Reshape of a tensor of some shape as a constant: 0 where an extent stays, -1 for what follows.

    `literal`: a 0 in the target as it is means 0. With an extent left open ONNX Runtime takes a tensor without elements
    only where all else in the target are numbers above 0.
    """
    if literal and (0 in elements or -1 in elements):
        return None
    target = [0 if isinstance(e, str) and k < len(shape) and e == shape[k] else e for k, e in enumerate(elements)]
    unknown = [k for k, e in enumerate(target) if type(e) is not int]
    if not unknown:
        return target
    others = [e for k, e in enumerate(target) if k not in unknown]
    if len(unknown) > 1 or not all(e > 0 for e in others):
        return None
    count = product_of(elements)
    return [-1 if k in unknown else e for k, e in enumerate(target)] if count == product_of(shape) else None


def expand_target(shape: Shape, elements: list[Element]) -> list[int] | None:
    """The target of an Expand of a tensor of some shape as a constant: 1 where an extent stays."""
    padded = (1,) * (len(elements) - len(shape)) + tuple(shape[max(len(shape) - len(elements), 0) :])
    target = [1 if isinstance(e, str) and e == d else e for e, d in zip(elements, padded, strict=True)]
    return target if all(type(e) is int for e in target) else None


def product_of(elements: Iterable[Element]) -> Element | None:
    factors: list[Element] = []
    pending = list(elements)
    while pending and len(factors) <= _FACTORS:
        element = pending.pop()
        if isinstance(element, Made) and element.op == "Mul":
            pending += (element.a, element.b)
        elif isinstance(element, (int, str)):
            factors.append(element)
        else:
            return None
    return reduce(scaled, sorted(factors, key=str), 1) if not pending else None


def _can_be_made(value: np.ndarray) -> bool:
    return value.ndim <= 1 and not any(type(e) is bool for e in value.reshape(-1))


def _bypass(node: gs.Node) -> None:
    """Has the users of a node's result read its input."""
    value, result = node.inputs[0], node.outputs[0]
    for user in list(result.outputs):
        user.inputs = [value if t is result else t for t in user.inputs]
