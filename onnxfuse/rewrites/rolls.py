"""Concats of the two parts of one tensor in the other order: what torch.roll is exported as.

Such a Concat shows the tensor from another start, and a fused kernel reads or writes through it. The nodes that cut the
tensor, which nothing else uses, become part of it.
"""

from __future__ import annotations

from onnxfuse.rewrites import views
from onnxfuse.rewrites.fragment import Fragment, Value
from onnxfuse.rewrites.graph import GraphView

__all__ = ["rolled", "take_rolls"]


def rolled(view: GraphView, fragments: dict[int, Fragment], i: int) -> Fragment | None:
    """The fragment of a node that rolls a tensor, or None. Those of the nodes before it are in `fragments`."""
    proto = view.protos[i]
    if proto.op_type != "Concat" or len(proto.input) != 2:
        return None
    cutting = [view.producer.get(name) for name in proto.input]
    if not all(_is_only_user(view, i, p) and p in fragments for p in cutting):
        return None
    parts = [fragments[p].outputs.get(name) for p, name in zip(cutting, proto.input, strict=True) if p is not None]
    op = view.operator(i)
    first, second = (None if part is None else _cut(part) for part in parts)
    if first is None or second is None or first[0].tensor != second[0].tensor:
        return None
    (tensor, axis, shift, rest), (_, other_axis, start, count) = first, second
    rank = len(tensor.shape)
    whole = shift + rest == tensor.shape[axis] and start == 0 and count == shift
    if not whole or axis != other_axis or int(op.attribute("axis", 0)) % rank != axis:
        return None
    x = op.build.tensor(tensor.tensor, tensor.storage, tensor.shape)
    fragment = op.build.fragment
    fragment.outputs[proto.output[0]] = op.build.through(x, views.rolling(x.shape, axis, shift))
    fragment.inlined = frozenset(p for p in cutting if p is not None)
    return fragment


def take_rolls(view: GraphView, fragments: dict[int, Fragment]) -> set[int]:
    """Has the nodes that roll read what is cut for them, in place; returns those that cut, which join no region."""
    taken: set[int] = set()
    for i, fragment in fragments.items():
        if fragment.inlined:
            (step,) = fragment.steps
            view.bypass(i, step.operands[0].tensor, fragment.inlined)
            taken |= fragment.inlined
    for i in taken:
        del fragments[i]
    return taken


def _is_only_user(view: GraphView, i: int, producer: int | None) -> bool:
    if producer is None:
        return False
    names = [n for n in view.protos[producer].output if n]
    return all(n not in view.kept and set(view.consumers.get(n, ())) <= {i} for n in names)


def _cut(part: Value) -> tuple[Value, int, int, int] | None:
    """The tensor that a part is cut out of, along one axis alone and element by element; axis, start and count."""
    view = part.view
    if part.op != "view" or part.operands[0].op != "tensor" or len(view.cuts) != 1 or view.source != view.target:
        return None
    ((axis, (start, step)),) = view.cuts.items()
    count = part.shape[axis]
    return (part.operands[0], axis, start, count) if step == 1 and isinstance(count, int) else None
