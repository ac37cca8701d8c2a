"""A node's fragment together with the work of nodes before it, which it then does itself."""

from __future__ import annotations

from collections.abc import Callable, Container

from onnxfuse.rewrites import views
from onnxfuse.rewrites.dims import Shape
from onnxfuse.rewrites.fragment import Builder, Fragment, RefusalError, Value
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.layout import Layout
from onnxfuse.rewrites.space import Space
from onnxfuse.rewrites.views import View

__all__ = ["taken_in"]


def taken_in(
    view: GraphView, fragments: dict[int, Fragment], i: int, taken: Container[int], most_steps: int | None = None
) -> Fragment:
    """The fragment of node `i` with what its inputs are computed from in the nodes `taken`.

    Raises RefusalError where it lies in no space, or where more is taken in than `most_steps` allow.
    """
    return _TakingIn(view, fragments, taken, most_steps).run(fragments[i])


class _TakingIn:
    def __init__(
        self, view: GraphView, fragments: dict[int, Fragment], taken: Container[int], most_steps: int | None
    ) -> None:
        self.view, self.fragments, self.taken, self.most_steps = view, fragments, taken, most_steps
        self.b = Builder(view.symbols)
        self.inlined: set[int] = set()
        self.repeated: set[Value] = set()

    def run(self, original: Fragment) -> Fragment:
        fragment = self.b.fragment
        mapped = self.rebuilt(original)
        fragment.constants = dict(original.constants)
        for j in self.inlined & self.fragments.keys():
            fragment.constants.update(self.fragments[j].constants)
        fragment.outputs = {name: mapped(value) for name, value in original.outputs.items()}
        fragment.steps = _needed(fragment)  # not the whole of what only parts are used of
        inlined = self.inlined | {k for j in self.inlined for k in self.fragments[j].inlined}  # the cuts of rolls
        fragment.inlined = original.inlined | inlined
        fragment.repeated = original.repeated | self.repeated
        Layout(Space(self.view.symbols)).add(fragment)  # refuses what lies in no space
        return fragment

    def rebuilt(self, fragment: Fragment) -> Callable[[Value], Value]:
        """Adds a fragment's steps, on operands that may be taken in; from its values to the new ones."""
        memo: dict[Value, Value] = {}

        def mapped(value: Value) -> Value:
            if value not in memo:
                memo[value] = self.tensor(value) if value.op == "tensor" else value
            return memo[value]

        for step in fragment.steps:
            operands = tuple(mapped(o) for o in step.operands)
            if step.op == "view":
                memo[step] = _through(self.b, operands[0], step.view, step.shape)
            else:
                memo[step] = self.b.copy(step, operands)
        return mapped

    def tensor(self, value: Value) -> Value:
        """A read of a tensor, or what is computed there instead."""
        maker = self.view.producer.get(value.tensor)
        if maker is None or maker not in self.taken:
            return value
        self.inlined.add(maker)
        if self.most_steps is not None and len(self.b.fragment.steps) > self.most_steps:
            raise RefusalError("it would compute too much again")
        fragment = self.fragments[maker]
        made = self.rebuilt(fragment)(fragment.outputs[value.tensor])
        if maker in self.view.repeated:
            self.repeated.add(made)
        return made


def _needed(fragment: Fragment) -> list[Value]:
    """The steps that a fragment's outputs are computed by."""
    found: set[Value] = set()
    pending = list(fragment.outputs.values())
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending += value.operands
    return [s for s in fragment.steps if s in found]


def _through(b: Builder, value: Value, view: View, shape: Shape) -> Value:
    """A view of a value; a part of what is computed is computed from parts."""
    if view.cuts and _is_computed(value):
        return _pushed(b, value, lambda v: b.through(v, view, shape))
    return b.through(value, view, shape)


def _is_computed(value: Value) -> bool:
    while value.op == "view":
        value = value.operands[0]
    return value.op not in ("tensor", "const")


def _pushed(b: Builder, value: Value, wrap: Callable[[Value], Value]) -> Value:
    """`wrap` of a value, which it takes in its full shape, with the wrapping done on what it is computed from."""
    if value.op == "view":
        view, shape = value.view, value.shape
        return _pushed(b, value.operands[0], lambda v: wrap(b.through(v, view, shape)))
    if value.op == "tensor":
        return wrap(value)
    widened = _expanded(value.shape)

    def whole(operand: Value) -> Value:
        return wrap(widened(b, operand))

    operands = [b.const(o.const, o.type) if o.op == "const" else _pushed(b, o, whole) for o in value.operands]
    return b.copy(value, tuple(operands), shape=b.symbols.broadcast(o.shape for o in operands))


def _expanded(shape: Shape) -> Callable[[Builder, Value], Value]:
    def expanded(b: Builder, value: Value) -> Value:
        if value.shape == shape:
            return value
        if any(d not in (1, e) for d, e in zip(value.shape[::-1], shape[::-1], strict=False)):
            raise RefusalError("it is not known which dimensions broadcast")
        return b.through(value, views.expansion(value.shape, shape), shape)

    return expanded
