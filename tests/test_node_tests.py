"""ONNX's own tests of its operators, and of what composite ones are defined by: all of them, optimized.

Each brings inputs and what comes out. What ONNX Runtime itself makes of them otherwise counts for right, too.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from graph_check import fused_nodes
from truth import run

import onnxfuse
from onnxfuse.editing import ModelEditor

PARTS = 4  # for test workers to share
LEAST = 190  # of each part, have something fused


@functools.cache
def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    assert len(found) > 1500
    return list(found)


def test_editing_leaves_them_as_they_are() -> None:
    for case in cases():
        before = case.model.SerializeToString(deterministic=True)
        assert ModelEditor(case.model).to_model().SerializeToString(deterministic=True) == before, case.name


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("part", range(PARTS))
def test_they_mean_the_same_optimized(part: int, target: str) -> None:
    """Every one is optimized; those that are changed run, with the library and without."""
    wrong: dict[str, str] = {}
    fused = 0
    for case in cases()[part::PARTS]:
        try:
            optimized = onnxfuse.optimize(case.model, target=target, min_nodes=1).model
        except Exception as error:
            wrong[case.name] = f"optimize: {type(error).__name__}: {error}"
            continue
        fused += bool(fused_nodes(optimized))
        if optimized.graph.node != case.model.graph.node and (found := mistake(case, optimized)):
            wrong[case.name] = found
    assert not wrong
    assert fused >= LEAST


def mistake(case: Any, optimized: onnx.ModelProto) -> str:
    """What is wrong with the optimized model; nothing where ONNX Runtime runs neither."""
    inputs, expected = case.data_sets[0]
    feeds = dict(zip([i.name for i in case.model.graph.input], inputs, strict=False))
    try:
        plain = run(case.model, feeds, library=False)
    except Exception:
        plain = None
    for library in (True, False):
        try:
            found = run(optimized, feeds, library)
        except Exception as error:
            if plain is not None:
                return f"library {library}: {error}"
            continue
        if not same(found, expected) and (plain is None or not same(found, plain)):
            return f"library {library}: other results than {'expected' if plain is None else 'before'}"
    return ""


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return len(found) == len(expected) and all(map(alike, found, expected))


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, list) or a is None or isinstance(b, list) or b is None:
        return (isinstance(a, list) and isinstance(b, list) and same(a, b)) or a is b
    a, b = np.asarray(a), np.asarray(b)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if a.dtype.kind not in "fV":
        return np.array_equal(a, b)
    relative = 1e-4 if a.dtype.itemsize > 2 else 1e-2
    return np.allclose(a.astype(np.float64), b.astype(np.float64), relative, relative * 0.1, equal_nan=True)
