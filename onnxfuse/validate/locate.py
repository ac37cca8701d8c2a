"""Where two models part: the first node of the optimized one whose results differ though what it reads agrees.

A fused node keeps the names of the tensors that it writes, so both models can be made to give these tensors as
outputs, and the original's nodes between what a fused node reads and what it writes are those it stands for. Of an If,
the branch that it takes is looked into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxfuse.custom_ops import DOMAIN
from onnxfuse.errors import ModelError
from onnxfuse.runtime import make_session, run
from onnxfuse.validate.branches import take_branches
from onnxfuse.validate.compare import OutputComparison, alike, compare
from onnxfuse.validate.subject import Subject

__all__ = ["Parting", "find_parting"]

_MOST_OUTPUTS = 400  # of a model that is made for this: each is held in memory


@dataclass(frozen=True)
class Parting:
    """The first node at which the models part.

    `node` is its name in the optimized model (its first output where it has none), `sources` the nodes of the original
    that it stands for, in order, each as "name (operator)" (where it holds several independent programs, those behind
    the outputs that differ); `outputs` compares what the node writes.
    """

    node: str
    op_type: str
    fused: bool
    sources: tuple[str, ...]
    outputs: tuple[OutputComparison, ...]


def find_parting(
    a: Subject,
    b: Subject,
    feeds: Mapping[str, np.ndarray],
    tolerance: float | None,
    seed: int = 0,
    *,
    fused: bool = False,
) -> Parting | None:
    """The first node of b, in its order, that writes something that a computes otherwise; None where none is found.

    Only tensors that both models have by name are compared: what fused nodes and nodes with bodies write, then what all
    nodes up to the first difference write, since another node may have made it. With `fused`, fused nodes alone.
    """
    original, optimized = (take_branches(m.whole(), feeds, m.provider) for m in (a, b))

    def first(nodes: Sequence[onnx.NodeProto]) -> Parting | None:
        return _first_apart(original, optimized, nodes, a.provider, b.provider, feeds, tolerance, seed)

    nodes = list(optimized.graph.node)
    if fused:
        return first([n for n in nodes if n.domain == DOMAIN])
    coarse = first([n for n in nodes if n.domain == DOMAIN or _has_body(n)])
    if coarse is None:
        return first(nodes)
    end = next(i for i, n in enumerate(nodes) if coarse.node == _label(n))
    return first(nodes[: end + 1]) or coarse


def _first_apart(
    original: onnx.ModelProto,
    optimized: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    provider_a: str,
    provider_b: str,
    feeds: Mapping[str, np.ndarray],
    tolerance: float | None,
    seed: int,
) -> Parting | None:
    known = {name for n in original.graph.node for name in n.output if name}
    wanted = [[name for name in n.output if name in known] for n in nodes]
    for start in range(0, len(nodes), _MOST_OUTPUTS):
        part = range(start, min(start + _MOST_OUTPUTS, len(nodes)))
        names = [name for i in part for name in wanted[i]]
        if not names:
            continue
        x = _values(original, names, provider_a, feeds)
        y = _values(optimized, names, provider_b, feeds)
        for i in part:
            both = [name for name in wanted[i] if name in x and name in y]
            if not all(alike(x[name], y[name], tolerance) for name in both):
                comparisons = [compare(name, x[name], y[name], tolerance, seed) for name in both]
                return _parting(original, nodes[i], comparisons)
    return None


def _values(
    model: onnx.ModelProto, names: Sequence[str], provider: str, feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the model computes under these names, tensors alone.

    ONNX Runtime's own fusions are off: they would make the names that they fuse away disappear.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    present = {o.name for o in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in present)
    try:
        session = make_session(shown, provider=provider, optimize=False)
        values = run(session, feeds)
    except ModelError:
        return {}
    outputs: dict[str, Any] = dict(zip([o.name for o in session.get_outputs()], values, strict=True))
    return {name: outputs[name] for name in names if isinstance(outputs.get(name), np.ndarray)}


def _parting(original: onnx.ModelProto, node: onnx.NodeProto, comparisons: Sequence[OutputComparison]) -> Parting:
    # Of independent programs that share a launch, those that are right have nothing to do with it.
    wrong = [c.name for c in comparisons if not c.ok] if _programs(node) > 1 else list(node.output)
    return Parting(
        node=_label(node),
        op_type=node.op_type,
        fused=node.domain == DOMAIN,
        sources=tuple(f"{n.name or n.output[0]} ({n.op_type})" for n in _sources(original.graph, node, wrong)),
        outputs=tuple(comparisons),
    )


def _programs(node: onnx.NodeProto) -> int:
    """How many programs a fused node holds: each begins with its space."""
    text = next((a.s.decode(errors="replace") for a in node.attribute if a.name == "program"), "")
    return sum(line.startswith("space") for line in text.splitlines())


def _sources(graph: onnx.GraphProto, node: onnx.NodeProto, outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes of the original that make these outputs of the node from what it reads, in the graph's order.

    What is computed from constants and shapes alone is left out: it stays a matter of ONNX Runtime.
    """
    makers = {name: i for i, n in enumerate(graph.node) for name in n.output if name}
    given = {name for name in node.input if name} | _known_early(graph)
    found: set[int] = set()
    pending = [name for name in outputs if name in makers]
    while pending:
        i = makers[pending.pop()]
        if i not in found:
            found.add(i)
            pending += [name for name in graph.node[i].input if name in makers and name not in given]
    return [graph.node[i] for i in sorted(found)]


def _known_early(graph: onnx.GraphProto) -> set[str]:
    """The tensors that constants and shapes decide, without any other data."""
    known = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    for n in graph.node:
        read = [name for name in n.input if name]
        if n.op_type in ("Constant", "Shape", "Size") or (read and not _has_body(n) and known.issuperset(read)):
            known.update(name for name in n.output if name)
    return known


def _label(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), "")


def _has_body(node: onnx.NodeProto) -> bool:
    return any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)
