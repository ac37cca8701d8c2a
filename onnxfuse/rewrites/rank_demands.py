"""The ranks that operators demand of what they read: a run in which it has another fails.

Only what ONNX Runtime refuses, whatever the specification says: its Gemm, for one, takes a vector for A.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx

from onnxfuse.rewrites.shape_site import Scope

__all__ = ["cannot_run"]

_STANDARD = ("", "ai.onnx")
_RECURRENT = {0: {3}, 1: {3}, 2: {3}, 3: {2}, 5: {3}}  # X, W, R, B, initial_h
_FIXED: dict[str, dict[int, set[int]]] = {
    "LSTM": {**_RECURRENT, 6: {3}},  # initial_c
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
    "Gemm": {0: {1, 2}, 1: {2}},
    "DepthToSpace": {0: {4}},
    "SpaceToDepth": {0: {4}},
}
_CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))
_POOLS = frozenset(("MaxPool", "AveragePool", "LpPool"))


def cannot_run(node: onnx.NodeProto, types: Scope) -> bool:
    """Whether the node fails in every run, for an input whose rank is known to be none that it takes."""
    ranks = [len(t.shape) if (t := types.get(n)) is not None and t.shape is not None else None for n in node.input]
    demands = _demands(node, ranks) if node.domain in _STANDARD else {}
    return any(k < len(ranks) and ranks[k] is not None and ranks[k] not in taken for k, taken in demands.items())


def _demands(node: onnx.NodeProto, ranks: list[int | None]) -> dict[int, Collection[int]]:
    """The ranks that an input, by its number, may have."""
    if node.op_type in _FIXED:
        return dict(_FIXED[node.op_type])
    attributes = {a.name: a for a in node.attribute}
    if node.op_type in _CONVOLUTIONS and len(ranks) > 1 and (rank := ranks[1]) is not None:
        return {0: {rank}}
    if node.op_type in _POOLS and "kernel_shape" in attributes:
        return {0: {len(attributes["kernel_shape"].ints) + 2}}
    if node.op_type == "Transpose" and "perm" in attributes:
        return {0: {len(attributes["perm"].ints)}}
    return {}
