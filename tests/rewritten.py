"""Holds a rewrite of standard operators to what the model computed before, to the bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from graphs import feeds_for

from onnxfuse.runtime import make_session

__all__ = ["counted", "rewritten"]


def rewritten(
    model: onnx.ModelProto,
    rewrite: Callable[[onnx.ModelProto, int], tuple[onnx.ModelProto, int]],
    opset: int,
    sizes: Sequence[Mapping[str, int]],
) -> Counter[str]:
    """How often each operator is left after a rewrite, which says by how many nodes the model is smaller.

    For all sizes of the symbolic dimensions the results are the same, or a failure is still one.
    """
    given = model.SerializeToString(deterministic=True)
    result, saved = rewrite(model, opset)
    assert model.SerializeToString(deterministic=True) == given
    onnx.checker.check_model(result)
    count, before = counted(result.graph), counted(model.graph)
    assert before.total() - count.total() == saved
    assert (result is model) == (saved == 0)
    # As the model says: optimized, ONNX Runtime takes extents for equal that only their names say are.
    plain, session = (make_session(m, threads=1, optimize=False) for m in (model, result))
    for extents in sizes:
        feeds = feeds_for(model, extents)
        got, wanted = outcome(session, feeds), outcome(plain, feeds)
        if wanted is None and got is not None:
            # Which takes an extent of 0 for what it is, where a Reshape does not.
            wanted = outcome(make_session(model, threads=1), feeds)
        assert type(wanted) is type(got)
        for a, b in zip(wanted or (), got or (), strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    return count


def outcome(session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """The results of a run, or None where it fails."""
    try:
        return list(session.run(None, feeds))
    except Exception:
        return None


def counted(graph: onnx.GraphProto) -> Counter[str]:
    """How many nodes of each operator there are, bodies included, without Constant nodes."""
    count: Counter[str] = Counter()
    for node in graph.node:
        count[node.op_type] += node.op_type != "Constant"
        for attribute in node.attribute:
            count += counted(attribute.g)
    return +count
