"""Opens local functions in which something can be fused, and keeps the others.

A fused node with an overload cannot stand inside a local function (ONNX Runtime 1.31 and 1.32 do not load it without
the library), so a function is inlined where it holds two or more operators that a region could take.
"""

from __future__ import annotations

import onnx
import onnx.inliner

from onnxfuse.errors import ModelError
from onnxfuse.rewrites.lowering import LOWERINGS
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.lowering.quantization import QUANTIZERS

__all__ = ["inline_fusible"]

_Key = tuple[str, str]  # domain and name
_MOST_NODES = 1_000_000


def inline_fusible(model: onnx.ModelProto, min_nodes: int) -> onnx.ModelProto:
    """The model with those functions inlined; the same object where there are none.

    Functions of another opset than the model's stay: their operators may mean something else there. The inliner takes
    no model that holds one, so then all stay.
    """
    functions = [f for f in model.functions if f.domain != "onnxfuse"]
    imported = _opsets(model)
    if not functions or any(imported.get(d, v) != v for f in functions for d, v in _opsets(f).items()):
        return model
    calls = {(f.domain, f.name): [(n.domain, n.op_type) for n in f.node] for f in functions}
    chosen = {key for key, nodes in calls.items() if sum(_fusible(node) for node in nodes) >= min_nodes}
    # A function that calls a chosen one is opened too: what it calls then fuses with its neighbours.
    while more := {key for key, nodes in calls.items() if key not in chosen and any(node in chosen for node in nodes)}:
        chosen |= more
    if not chosen:
        return model
    count = _count_inlined([(n.domain, n.op_type) for n in model.graph.node], calls)
    if count > _MOST_NODES:
        raise ModelError(
            f"the model's local functions call each other so that {count} operators come of them; at most "
            f"{_MOST_NODES} are followed"
        )
    return onnx.inliner.inline_selected_functions(model, sorted(chosen), exclude=False)


def _count_inlined(nodes: list[_Key], calls: dict[_Key, list[_Key]]) -> int:
    """The number of operators once all functions are opened; one that calls itself is the inliner's to refuse."""
    counts: dict[_Key, int] = {}
    pending = list(calls)
    for _ in range(len(calls)):  # each turn knows at least one more, where none calls itself
        pending = [key for key in pending if key not in counts]
        for key in pending:
            if all(inner in counts or inner not in calls for inner in calls[key]):
                counts[key] = sum(counts.get(inner, 1) for inner in calls[key])
    return sum(counts.get(key, 1) for key in nodes)


def _opsets(owner: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """The version of each domain that a model or function imports."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in owner.opset_import}


def _fusible(node: tuple[str, str]) -> bool:
    domain, op_type = node
    computes = op_type not in FREE | COPIES | QUANTIZERS
    return computes and ("" if domain == "ai.onnx" else domain, op_type) in LOWERINGS
