"""Reductions and scans over axes that only a run shows: never guessed, right for all that a user may feed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from axes_corpus import spellings
from graph_check import check, fused_nodes
from graphs import fused, optimized, parse

import onnxfuse
from onnxfuse import optimize, restore
from onnxfuse.capture import capture_obstacles
from onnxfuse.kernels import compile_kernels
from onnxfuse.validate.inputs import make_inputs

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
X = np.random.default_rng(0).uniform(0.5, 2, (2, 3, 4)).astype(np.float32)


def axes(*numbers: int) -> dict[str, np.ndarray]:
    return {"axes": np.array(numbers, np.int64)}


def refusals(graph: str, opset: int = 18, **options: object) -> set[str]:
    return {r.reason for r in optimize(parse(graph, opset), **options).report.refusals}  # type: ignore[arg-type]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_alone(op: str, keepdims: int) -> None:
    """With the library and without, for one axis and two, of either sign."""
    for count in (1, 2):
        left = ", ".join("klm"[: 3 if keepdims else 3 - count])
        graph = parse(
            f"g (float[A, 3, B] x, int64[{count}] axes) => (float[{left}] y) "
            f"{{ y = {op} <keepdims = {keepdims}> (x, axes) }}",
            18,
        )
        for numbers in spellings(3, count):
            result, _ = check(graph, {"x": X, **axes(*numbers)}, min_nodes=1)
            assert fused_nodes(result) == ["FusedRuntimeAxes"]


@pytest.mark.parametrize(("op", "noop"), [*((op, 0) for op in REDUCTIONS), ("ReduceSum", 1), ("ReduceMax", 1)])
def test_any_number_of_axes(op: str, noop: int) -> None:
    graph = (
        "g (float[2, 3, 4] x, int64[n] axes) => (float[a, b, c] y) "
        f"{{ s = Sqrt (x) y = {op} <noop_with_empty_axes = {noop}> (s, axes) }}"
    )
    for count in range(4):
        feeds = {"x": X, **axes(*range(-count, 0))}
        assert fused(graph, 18, feeds=feeds) == ["FusedRuntimeAxes"]


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"])
def test_what_changes_elements_where_it_reduces_nothing(op: str) -> None:
    """What it makes of them depends on the version of ONNX Runtime."""
    graph = f"g (float[2, 3] x, int64[n] axes) => (float[a, b] y) {{ y = {op} <noop_with_empty_axes = 1> (x, axes) }}"
    assert any("whether it reduces anything shows only when it runs" in r for r in refusals(graph, min_nodes=1))
    one = graph.replace("int64[n]", "int64[1]")  # never empty
    assert fused(one, 18, feeds={"x": X[:, :, 0], **axes(1)}, min_nodes=1) == ["FusedRuntimeAxes"]


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_opsets(opset: int) -> None:
    """ReduceSum took its axes as an input five versions before the others."""
    graph = (
        "g (float[2, 3, 4] x, int64[1] axes) => (float[a, b] y) { s = Neg (x) y = ReduceSum <keepdims = 0> (s, axes) }"
    )
    assert fused(graph, opset, feeds={"x": X, **axes(1)}) == ["FusedRuntimeAxes"]


@pytest.mark.parametrize("type_", ["float16", "double", "int32", "int64"])
def test_types(type_: str) -> None:
    graph = f"g ({type_}[2, 3, 4] x, int64[1] axes) => ({type_}[a, b, c] y) {{ s = Neg (x) y = ReduceSum (s, axes) }}"
    dtype = {"float16": np.float16, "double": np.float64}.get(type_, np.dtype(type_))
    for axis in (0, -1):
        assert fused(graph, 18, feeds={"x": (9 * X).astype(dtype), **axes(axis)}) == ["FusedRuntimeAxes"]


SOFTMAX = """g (float[A, B, 4] x, int64[{count}] axes) => (float[A, B, 4] y, float[a, b, c] l) {{
    m = ReduceMax (x, axes) d = Sub (x, m) e = Exp (d) s = ReduceSum (e, axes) y = Div (e, s) k = Log (s) l = Add (k, m)
}}"""


@pytest.mark.parametrize("count", [1, 2, "n"])
def test_a_softmax_is_one_node(count: int | str) -> None:
    """Neighbours join: what is subtracted is known to be 1 or as long as what it is subtracted from."""
    for number in (0, 1, 2, 3) if count == "n" else (count,):
        for numbers in itertools.combinations(range(3), int(number)):
            assert fused(SOFTMAX.format(count=count), 18, feeds={"x": X, **axes(*numbers)}) == ["FusedRuntimeAxes"]


def test_a_variance_is_one_node() -> None:
    """In two passes, as where its axes are known."""
    graph = """g (float16[2, 3, 4] x, int64[1] axes) => (float16[2, 3, 4] y, float16[a, b, c] v) {
        s = Mul (x, x) a = ReduceMean (s, axes) m = ReduceMean (x, axes) b = Mul (m, m) v = Sub (a, b)
        c = Sub (x, m) r = Sqrt (v) y = Div (c, r)
    }"""
    x = (100 + X).astype(np.float16)
    kinds, model, report = optimized(graph, 18, feeds={"x": x, **axes(2)})
    assert kinds == ["FusedRuntimeAxes"]
    assert any("two passes" in note for f in report.fusions for note in f.notes)
    assert model.graph.node[0].input[0] == "axes"


def test_a_sum_is_no_mean_where_the_number_of_points_is_not_known() -> None:
    """The sum of squares less the square of the sum is a variance only where the sums are divided by their length."""
    graph = """g (float[2, 3, 4] x, int64[1] axes) => (float[a, b, c] v) {
        s = Mul (x, x) a = ReduceSum (s, axes) t = ReduceSum (x, axes) b = Mul (t, t) v = Sub (a, b)
    }"""
    assert fused(graph, 18, feeds={"x": X, **axes(1)}) == ["FusedRuntimeAxes"]


def test_what_follows_without_the_reduced_dimensions() -> None:
    graph = """g (float[3, 4, 5] x, int64[1] axes) => (float[a, b] y, float[c, d] z) <float two = {2}> {
        s = ReduceSum <keepdims = 0> (x, axes) b = Exp (s) y = Mul (two, b) z = Neg (b)
    }"""
    x = X.repeat(2, 0)[:3].repeat(2, 2)[:, :, :5].repeat(2, 1)[:, :4] / 9
    for axis in (0, 1, -1):
        kinds, _, report = optimized(graph, 18, feeds={"x": x, **axes(axis)})
        assert kinds == ["FusedRuntimeAxes"], report.refusals


def test_a_transposed_tensor_keeps_the_numbers_of_its_axes() -> None:
    graph = """g (float[2, 3, 4] x, int64[2] axes) => (float[a] y, float[2, 3, 4] z) {
        e = Exp (x) z = Neg (e) t = Transpose <perm = [2, 0, 1]> (e) y = ReduceSum <keepdims = 0> (t, axes)
    }"""
    for numbers in spellings(3, 2):
        kinds, _, _ = optimized(graph, 18, feeds={"x": X, **axes(*numbers)})
        assert kinds[-1] == "FusedRuntimeAxes" or "FusedRuntimeAxes" in kinds


@pytest.mark.parametrize("type_", ["int32", "int64"])
@pytest.mark.parametrize("shape", ["", "[1]"])
def test_scans(type_: str, shape: str) -> None:
    graph = (
        f"g (float[2, 3, 4] x, {type_}{shape} axis) => (float[2, 3, 4] y) "
        "{ a = Neg (x) b = CumSum <exclusive = 1> (a, axis) c = Mul (b, x) y = Neg (c) }"
    )
    for axis in range(-3, 3):
        feed = np.full((1,) if shape else (), axis, np.dtype(type_))
        assert fused(graph, 14, feeds={"x": X, "axis": feed}) == ["FusedRuntimeAxes"]


def test_scans_along_any_axis_need_company_on_the_cpu() -> None:
    """As those along another axis than the last, which it may be."""
    graph = "g (float[2, 3, 4] x, int64 axis) => (float[2, 3, 4] y) { a = Neg (x) y = CumSum (a, axis) }"
    assert any("scans along another axis" in r for r in refusals(graph, target="cpu"))
    assert len(optimize(parse(graph, 18), target="cuda").report.fusions) == 1


@pytest.mark.parametrize(
    ("inputs", "nodes", "reason"),
    [
        ("int64[n] axes", "y = ReduceSum <keepdims = 0> (s, axes)", "the rank of its result is unknown"),
        ("int64[4] axes", "y = ReduceSum (s, axes)", "holds 4 axes of a tensor of rank 3"),
        ("int64[1] axes", "t = CumSum (s, axes) y = ReduceSum (t, axes)", "computed from a scan, which must end first"),
        ("int64[1] axes, int64[1] other", "t = ReduceSum (s, axes) u = ReduceSum (s, other) y = Mul (t, u)",
         "its axes are not those of the rest of the region"),
        ("int64[1] axes", "t = ReduceSum <keepdims = 0> (s, axes) u = Neg (t) y = Add (u, one)",
         "it adds dimensions to what loses some"),
        ("int64[1] axes", "t = ReduceSum <keepdims = 0> (s, axes) y = Sum (t, k)",
         "computes with dimensions of which some go"),
    ],
)  # fmt: skip
def test_reasons(inputs: str, nodes: str, reason: str) -> None:
    graph = (
        f"g (float[2, 3, 4] x, float[1, 4] k, {inputs}) => (float[a, b, c] y) <float[1, 1, 1] one = {{1}}> "
        f"{{ s = Exp (x) {nodes} }}"
    )
    found = refusals(graph)
    assert any(reason in r for r in found), found


def test_what_is_reduced_is_not_reduced_again_in_one_kernel() -> None:
    graph = """g (float[2, 3, 4] x, int64[1] axes) => (float[a, b, c] y) {
        s = Exp (x) t = ReduceSum (s, axes) u = ReduceSum (t, axes) y = Neg (u)
    }"""
    for axis in range(3):
        assert fused(graph, 18, feeds={"x": X, **axes(axis)}) == ["FusedRuntimeAxes"] * 2


def test_too_many_sets_of_axes() -> None:
    graph = """g (float[2, 2, 2, 2, 2, 2] x, int64[n] axes) => (float[a, b, c, d, e, f] y) {
        s = Exp (x) y = ReduceSum (s, axes)
    }"""
    assert any("may be any of 64 sets" in r for r in refusals(graph))
    assert optimize(parse(graph.replace("[n]", "[3]"), 18)).report.fusions


def test_axes_that_the_region_computes_are_read_before_it() -> None:
    """Its axes come from what else the reduction's operand comes from: two nodes, and no cycle."""
    graph = """g (float[2, 3, 4] x) => (float[a, b, c] y) <float one = {1}> {
        s = Exp (x) m = ReduceMin <keepdims = 0, axes = [0, 1, 2]> (s) n = Mul (m, m) i = Cast <to = 7> (n)
        axes = Unsqueeze <axes = [0]> (i) y = ReduceMin <axes = [1]> (s)
    }"""
    assert fused(graph, 11, feeds={"x": -X})
    graph = """g (float[2, 3, 4] x, int64[1] given) => (float[a, b, c] y) {
        s = Exp (x) k = Neg (given) axes = Neg (k) y = ReduceSum (s, axes)
    }"""
    kinds, _, report = optimized(graph, 18, feeds={"x": X, "given": np.array([1], np.int64)})
    assert kinds == ["FusedElementwise", "FusedRuntimeAxes"], report.refusals
    assert any("its axes are computed in the region" in r.reason for r in report.refusals) or len(kinds) == 2


def test_nodes_of_different_axes_keep_their_own_launch() -> None:
    graph = """g (float[2, 3, 4] x, float[5] z, int64[1] axes) => (float[a, b, c] y, float[5] w) {
        s = Exp (x) y = ReduceSum (s, axes) v = Exp (z) w = Neg (v)
    }"""
    kinds, _, report = optimized(graph, 18, feeds={"x": X, **axes(0)}, target="cuda")
    assert sorted(kinds) == ["FusedElementwise", "FusedRuntimeAxes"]
    assert any("which axes it reduces shows only when it runs" in r.reason for r in report.separate)


@pytest.mark.parametrize("switch", [{"skip": ["runtime_axes"]}, {"only": ["reduction", "elementwise"]}])
def test_skip_and_only(switch: dict[str, list[str]]) -> None:
    graph = "g (float[2, 3] x, int64[1] axes) => (float[a, b] y) { s = Exp (x) t = Neg (s) y = ReduceSum (t, axes) }"
    kinds, _, report = optimized(graph, 18, feeds={"x": X[:, :, 0], **axes(1)}, **switch)
    assert kinds == ["FusedElementwise"]
    assert any("over axes that arrive with a run are switched off" in r.reason for r in report.refusals)


def test_restore_gives_the_operators_back() -> None:
    graph = parse(SOFTMAX.format(count=2), 18)
    plain = restore(optimize(graph).model).model
    assert sorted(n.op_type for n in plain.graph.node if n.op_type.startswith("Reduce")) == ["ReduceMax", "ReduceSum"]
    assert not any(n.op_type in ("If", "Gather") for n in plain.graph.node)


def test_explain_says_what_a_cuda_graph_does_with_the_axes() -> None:
    model = optimize(parse(SOFTMAX.format(count=1), 18), target="cuda").model
    (obstacle,) = capture_obstacles(model)
    assert not obstacle.prevents
    assert "reads the model's input 'axes' on the host, once, when it is captured" in obstacle.reason


def test_validate_makes_axes_up() -> None:
    for count in (1, 2, 3):
        graph = parse(SOFTMAX.format(count=count), 18)
        for seed in range(20):
            made = make_inputs(graph, {"A": 2, "B": 3}, seed=seed)["axes"]
            assert len({a % 3 for a in made.tolist()}) == count
            assert all(-3 <= a < 3 for a in made)
    graph = parse(SOFTMAX.format(count=2), 18)
    assert onnxfuse.validate(graph, optimize(graph).model, dims={"A": 2, "B": 3}).ok


def test_kernels_are_compiled_for_every_set_of_axes(tmp_path: Path, nvrtc: str) -> None:
    model = optimize(parse(SOFTMAX.format(count=1), 18), target="cuda").model
    one = compile_kernels(model, tmp_path / "one", ["sm_90"], {"A": [64], "B": [32]})
    assert one.ok
    model = optimize(parse(SOFTMAX.format(count="n"), 18), target="cuda").model
    any_ = compile_kernels(model, tmp_path / "any", ["sm_90"], {"A": [64], "B": [32], "n": [0, 1, 2, 3]})
    assert any_.ok
    assert any_.made > one.made >= 3


def test_the_same_axes_in_a_body() -> None:
    graph = parse(
        """g (float[2, 3] x, int64[1] axes, bool c) => (float[a, b] y) {
        y = If (c) <
            then_branch = t () => (float[k, l] p) { m = Exp (x) p = ReduceSum (m, axes) },
            else_branch = e () => (float[k, l] q) { n = Neg (x) q = ReduceMax (n, axes) }
        >
    }""",
        18,
    )
    for condition in (True, False):
        result, _ = check(graph, {"x": X[:, :, 0], **axes(-1), "c": np.array(condition)})
        assert fused_nodes(result) == ["FusedRuntimeAxes"] * 2
    assert isinstance(result, onnx.ModelProto)


@pytest.mark.parametrize("part", [
    "c = Slice (b, two, five, one)",
    "c = Gather <axis = 1> (b, backwards)",
    "u, c = Split <axis = 1> (b, sizes)",
    "c = Slice (b, five, zero, one, minus)",
])  # fmt: skip
@pytest.mark.parametrize("reverse", [0, 1])
def test_a_part_of_a_scan_is_not_scanned_alone(part: str, reverse: int) -> None:
    """Only a part of what the axis of the run goes along is wanted behind it."""
    constants = (
        "int64[1] two = {2}, int64[1] five = {5}, int64[1] one = {1}, int64[1] zero = {0}, int64[1] minus = {-1}, "
        "int64[3] backwards = {5, 4, 3}, int64[2] sizes = {2, 4}"
    )
    graph = parse(
        f"g (float[A, 6] x, int64 axis) => (float[A, k] y) <{constants}> "
        f"{{ a = Exp (x) b = CumSum <reverse = {reverse}> (a, axis) {part} y = Neg (c) }}",
        18,
    )
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    for axis in (0, 1, -1):
        check(graph, {"x": x, "axis": np.array(axis)})
        check(graph, {"x": x, "axis": np.array(axis)}, target="cuda")


@pytest.mark.parametrize("given", ["int64[3] axes", "int64[2] axes"])
def test_results_along_some_of_the_reduced_dimensions(given: str) -> None:
    """Where another one is empty, nothing would store them; what lies in memory then would be the result."""
    graph = parse(
        f"g (double[A, 5, 8] x, double[5, 8] z, {given}) => (double[k, l, m] s, double[k, 5, 8] y) "
        "{ s = ReduceSum (x, axes) y = Div (s, z) }",
        18,
    )
    z = np.random.default_rng(1).uniform(1, 2, (5, 8))
    over = (0, 1, 2) if "3" in given else (1, 2)
    result = optimize(graph)
    assert not [f for f in result.report.fusions if "y" in f.outputs and "ReduceSum" in f.operators]
    for extent in (0, 1, 3):
        check(graph, {"x": np.full((extent, 5, 8), 0.5), "z": z, **axes(*over)})


def test_static_extents_that_are_not_empty_do_no_harm() -> None:
    graph = parse(
        "g (float[2, 5, 8] x, float[8] z, int64[1] axes) => (float[k, l, 8] y) "
        "{ s = ReduceSum (x, axes) y = Div (s, z) }",
        18,
    )
    result, _ = check(
        graph, {"x": X[:2, :1, :1] + np.zeros((2, 5, 8), np.float32), "z": np.ones(8, np.float32), **axes(1)}
    )
    assert fused_nodes(result)
