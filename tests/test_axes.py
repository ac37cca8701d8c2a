"""Reductions over axes with others between them, such as the statistics of a batch over all axes but the channels'."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from graphs import fused, optimized


def batch_norm(shape: str, axes: str, opset: int, keepdims: int = 1, types: str = "float") -> str:
    """A batch normalization with the statistics of the batch, channels second; `axes` as a list."""
    rank = shape.count(",") + 1
    ones = ", ".join(["1"] * (rank - 2))
    given = "ax" if opset >= 18 else ""
    attribute = f"keepdims = {keepdims}" + ("" if given else f", axes = [{axes}]")
    mean = f"ReduceMean <{attribute}> ({{}}{', ' + given if given else ''})"
    kept = "m = Identity (m0) v = Identity (v0)"
    if not keepdims:
        kept = "m = Reshape (m0, whole) v = Reshape (v0, whole)"
    return (
        f"g ({types}[{shape}] x, {types}[6, {ones}] s, {types}[6, {ones}] t) => ({types}[{shape}] y) "
        f"<int64[{axes.count(',') + 1}] ax = {{{axes}}}, int64[{rank}] whole = {{1, 6, {ones}}}, "
        f"float epsilon = {{0.001}}> {{ e = Cast <to = {10 if types == 'float16' else 1}> (epsilon) "
        f"m0 = {mean.format('x')} {kept.split(' v = ')[0]} c = Sub (x, m) q = Mul (c, c) v0 = {mean.format('q')} "
        f"v = {kept.split(' v = ')[1]} a = Add (v, e) r = Sqrt (a) n = Div (c, r) k = Mul (n, s) y = Add (k, t) }}"
    )


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axes", "opset"),
    [
        ("3, 6, 8", "0, 2", 13),
        ("3, 6, 8", "-1, 0", 18),
        ("N, 6, L", "0, -1", 17),
        ("N, 6, 4, 4", "0, 2, 3", 18),
        ("N, 6, H, 5", "3, -2, -4", 13),
        ("2, 6, 3, 2, 4", "0, 2, 3, 4", 20),
    ],
)
def test_statistics_of_a_batch_are_one_node(target: str, keepdims: int, shape: str, axes: str, opset: int) -> None:
    graph = batch_norm(shape, axes, opset, keepdims)
    for sizes in ({"N": 3, "L": 7, "H": 4}, {"N": 1, "L": 1, "H": 1}):
        found, model, _ = optimized(graph, opset, sizes, target=target)
        assert found == ["FusedLayerNorm"]
        assert [n.op_type for n in model.graph.node] == found


def test_float16() -> None:
    assert fused(batch_norm("3, 6, 8", "0, 2", 18, types="float16"), 18) == ["FusedLayerNorm"]


@pytest.mark.parametrize("axes", [a for n in (1, 2, 3) for a in itertools.combinations(range(4), n)])
def test_any_axes_of_equal_extents(axes: tuple[int, ...]) -> None:
    """Extents do not tell the dimensions apart."""
    listed = ", ".join(str(a - 4 if a % 2 else a) for a in axes[::-1])
    graph = (
        f"g (float[3, 3, 3, 3] x, float[3, 1, 3] w) => (float[3, 3, 3, 3] y, float[?, ?, ?, ?] h) "
        f"<int64[{len(axes)}] ax = {{{listed}}}> {{ a = Mul (x, w) h = ReduceMax (a, ax) m = ReduceMean (x, ax) "
        "c = Sub (a, m) y = Sub (c, h) }"
    )
    assert fused(graph, 18) == ["FusedReduction"]


def test_symbols_that_are_equal() -> None:
    graph = (
        "g (float[N, 4, N] x) => (float[N, 4, N] y) { m = ReduceMean <axes = [0, 2]> (x) c = Sub (x, m) y = Tanh (c) }"
    )
    for size in (1, 3):
        assert fused(graph, sizes={"N": size}) == ["FusedReduction"]


def test_through_a_transposition() -> None:
    graph = (
        "g (float[3, 6, 8] x) => (float[8] y) { t = Transpose <perm = [1, 2, 0]> (x) a = Exp (t) "
        "y = ReduceSumSquare <axes = [0, 2], keepdims = 0> (a) }"
    )
    assert fused(graph, target="cuda") == ["FusedReduction"]


def test_different_axes_stay_apart() -> None:
    graph = (
        "g (float[3, 6, 8] x) => (float[3, 6, 8] y) { m = ReduceMean <axes = [0, 2]> (x) c = Sub (x, m) "
        "n = ReduceMax <axes = [2]> (c) y = Div (c, n) }"
    )
    found, _, report = optimized(graph)
    assert len(found) == 2
    assert [f.operators for f in report.fusions] == [("ReduceMean", "Sub"), ("ReduceMax", "Div")]


def test_scan_beside_a_reduction_of_other_axes() -> None:
    graph = (
        "g (float[3, 6, 8] x) => (float[3, 6, 8] y) <int64 last = {2}> { m = ReduceMean <axes = [0, 2]> (x) "
        "c = Sub (x, m) d = CumSum (c, last) y = Tanh (d) }"
    )
    _, _, report = optimized(graph, target="cuda")
    assert sorted(f.op_type for f in report.fusions) == ["FusedReduction", "FusedScan"]


@pytest.mark.parametrize(("type_", "length", "fuses"), [
    ("float", 4, True), ("float", 2, False), ("float16", 4, False), ("float16", 8, True), ("double", 2, True),
])  # fmt: skip
def test_short_runs_are_left_to_a_gpu(type_: str, length: int, fuses: bool) -> None:
    """What lies in a row is less than half of what a GPU reads at a time; the CPU has caches for that."""
    graph = (
        f"g ({type_}[300, 300, {length}] x) => ({type_}[1, 300, 1] y) {{ a = Abs (x) b = Neg (a) "
        "y = ReduceMax <axes = [0, 2]> (b) }"
    )
    found, _, report = optimized(graph, target="cuda", feeds={"x": np.ones((300, 300, length), _dtype(type_))})
    assert (found == ["FusedReduction"]) == fuses
    if not fuses:
        assert found == ["FusedElementwise"]
        assert any(r.operator == "ReduceMax" and "not adjacent" in r.reason for r in report.refusals)
    assert fused(graph, target="cpu") == ["FusedReduction"]


def test_a_scan_of_short_runs_reads_what_a_transposition_put_in_a_row() -> None:
    graph = (
        "g (float[200, 200, 2] x) => (float[200, 400] y) <int64[2] flat = {200, 400}, int64 last = {1}> { e = Abs (x) "
        "a = Neg (e) t = Transpose <perm = [1, 0, 2]> (a) r = Reshape (t, flat) y = CumSum (r, last) }"
    )
    _, _, report = optimized(graph, target="cuda")
    assert [f.operators for f in report.fusions] == [("Abs", "Neg", "Transpose"), ("CumSum",)]


def _dtype(type_: str) -> str:
    return {"float": "float32", "double": "float64"}.get(type_, type_)
