"""Puts vectors of elements (shape_elements.py) into a graph, with as few nodes as it takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxfuse.editing import ModelEditor
from onnxfuse.rewrites.shape_elements import Element, Elements, Found, Made

__all__ = ["Vectors"]

_PARTS_OF_SHAPES = 15  # the opset from which on Shape gives a part
_AXES_AS_INPUTS = 13


class Vectors:
    """Makes tensors of a scope that have given elements; each set of elements once.

    `whole` has the vectors that will be asked for. `nodes` are those made; none is in the scope yet.
    """

    def __init__(
        self,
        editor: ModelEditor,
        elements: Elements,
        tensors: dict[str, gs.Tensor],
        whole: Iterable[Sequence[Element]],
    ) -> None:
        self.editor, self.elements, self.tensors = editor, elements, tensors
        self.opset = elements.opset
        self.nodes: list[gs.Node] = []
        self._done: dict[tuple[str, tuple[Element, ...]], gs.Tensor] = {}
        self._in_vectors: set[Element] = set()  # elements that are there as vectors of one in any case
        for vector in whole:
            pieces = self._pieces(vector)
            if not (len(pieces) > 1 and self._common_source(vector)):
                for piece in pieces:
                    if len(piece) == 1:
                        self._note(piece[0])

    def _note(self, element: Element) -> None:
        pending = [element]
        while pending:
            element = pending.pop()
            if element in self._in_vectors or type(element) is int:
                continue
            self._in_vectors.add(element)
            if isinstance(element, Made):
                pending += (element.a, element.b)

    def vector(self, elements: Sequence[Element]) -> gs.Tensor:
        """A tensor of rank 1."""
        return self._once("vector", tuple(elements), self._vector)

    def scalar(self, element: Element) -> gs.Tensor:
        """A tensor of rank 0."""
        return self._once("scalar", (element,), self._scalar)

    def _once(self, kind: str, elements: tuple[Element, ...], make: Any) -> gs.Tensor:
        key = (kind, elements)
        if key not in self._done:
            self._done[key] = make(elements)
        return self._done[key]

    def _vector(self, elements: tuple[Element, ...]) -> gs.Tensor:
        if all(type(e) is int for e in elements):
            return self.constant(np.array(elements, np.int64))
        pieces = self._pieces(elements)
        if len(pieces) == 1:
            return self._piece(pieces[0])
        if source := self._common_source(elements):
            name, places = source
            if not isinstance(elements[0], Found):
                whole = self._shape(name)
            elif self.elements.types[name].shape:
                whole = self.tensors[name]
            else:
                whole = self.vector(elements[:1])  # of a scalar
            return self.node("Gather", [whole, self.constant(np.array(places, np.int64))], axis=0)
        return self.node("Concat", [self.vector(piece) for piece in pieces], axis=0)

    def _pieces(self, elements: Sequence[Element]) -> list[tuple[Element, ...]]:
        """The elements in runs of which each comes from one place."""
        pieces = []
        begin = 0
        while begin < len(elements):
            first, rest = elements[begin], elements[begin:]
            if type(first) is int:
                count = next((k for k, e in enumerate(rest) if type(e) is not int), len(rest))
            elif isinstance(first, Found):
                count = next((k for k, e in enumerate(rest) if e != Found(first.name, first.place + k)), len(rest))
            elif isinstance(first, str):
                count = self._run(rest)[2]
            else:
                count = 1
            pieces.append(tuple(rest[:count]))
            begin += count
        return pieces

    def _run(self, elements: Sequence[Element]) -> tuple[str, int, int]:
        """Where the most elements that begin with an extent can be read: tensor, dimension, and how many they are."""
        extents = list(itertools.takewhile(lambda e: isinstance(e, str), elements))
        for length in range(len(extents), 0, -1):
            for name in self.elements.sources(extents[:length]):
                shape = self.elements.types[name].shape or ()
                for place in range(len(shape) - length + 1):
                    if list(shape[place : place + length]) == extents[:length]:
                        return name, place, length
        raise KeyError(elements)

    def _common_source(self, elements: Sequence[Element]) -> tuple[str, list[int]] | None:
        """The one tensor of which all elements are, or are extents, and their places there."""
        if all(isinstance(e, Found) for e in elements) and len({e.name for e in elements}) == 1:
            return elements[0].name, [e.place for e in elements]
        if not all(isinstance(e, str) for e in elements):
            return None
        for name in self.elements.sources(elements):
            shape = list(self.elements.types[name].shape or ())
            if all(e in shape for e in elements):
                return name, [shape.index(e) for e in elements]
        return None

    def _piece(self, elements: tuple[Element, ...]) -> gs.Tensor:
        first = elements[0]
        if isinstance(first, Made):
            return self.node(first.op, [self.vector([first.a]), self.vector([first.b])])
        if isinstance(first, Found):
            return self._found(first, len(elements))
        name, place, count = self._run(elements)
        rank = len(self.elements.types[name].shape or ())
        if count == rank:
            return self._shape(name)
        if self.opset >= _PARTS_OF_SHAPES:
            return self.node("Shape", [self.tensors[name]], start=place, end=place + count)
        return self.node("Gather", [self._shape(name), self.constant(np.arange(place, place + count))], axis=0)

    def _found(self, first: Found, count: int) -> gs.Tensor:
        tensor, shape = self.tensors[first.name], self.elements.types[first.name].shape
        if not shape:
            return self._unsqueezed(tensor)
        if shape == (count,):
            return tensor
        places = np.arange(first.place, first.place + count)
        return self.node("Gather", [tensor, self.constant(places)], axis=0)

    def _scalar(self, elements: tuple[Element, ...]) -> gs.Tensor:
        (element,) = elements
        if type(element) is int:
            return self.constant(np.array(element, np.int64))
        if isinstance(element, Found):
            tensor, shape = self.tensors[element.name], self.elements.types[element.name].shape
            if not shape:
                return tensor
            if shape != (1,) and element not in self._in_vectors:
                return self.node("Gather", [tensor, self.constant(np.array(element.place))], axis=0)
        elif element not in self._in_vectors:
            if isinstance(element, Made):
                if not any(e in self._in_vectors for e in (element.a, element.b)):
                    return self.node(element.op, [self.scalar(element.a), self.scalar(element.b)])
            else:
                name, place, _ = self._run(elements)
                return self.node("Gather", [self._shape(name), self.constant(np.array(place))], axis=0)
        return self.node("Squeeze", [self.vector(elements)])

    def _shape(self, name: str) -> gs.Tensor:
        return self._once("shape", (name,), lambda _: self.node("Shape", [self.tensors[name]]))

    def _unsqueezed(self, tensor: gs.Tensor) -> gs.Tensor:
        if self.opset < _AXES_AS_INPUTS:
            return self.node("Unsqueeze", [tensor], axes=[0])
        return self.node("Unsqueeze", [tensor, self.constant(np.array([0]))])

    def constant(self, value: np.ndarray) -> gs.Tensor:
        """A constant of the value's elements, as int64."""
        key = (f"constant of rank {value.ndim}", tuple(value.reshape(-1).tolist()))
        if key not in self._done:
            self._done[key] = gs.Constant(self.editor.unique_name("extents"), value.astype(np.int64))
        return self._done[key]

    def node(self, op: str, inputs: list[gs.Tensor], **attributes: Any) -> gs.Tensor:
        """The result of a new node."""
        result = gs.Variable(self.editor.unique_name(f"extents_{op}"), dtype=np.int64)
        name = self.editor.unique_name(f"{result.name}_node")
        self.nodes.append(gs.Node(op, name, attributes, inputs=inputs, outputs=[result]))
        return result
