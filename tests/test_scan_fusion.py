"""Running sums and products and arguments become part of fused nodes: every spelling, type, axis and opset."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from graph_check import check, fused_nodes
from graphs import fused, optimized, parse
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import optimize

F, F16, D = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
I32, I64, U64 = TensorProto.INT32, TensorProto.INT64, TensorProto.UINT64


def model_of(
    nodes: list[onnx.NodeProto], x: np.ndarray, opset: int = 17, constants: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """A model of one input x and one output y."""
    initializers = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model.graph.output[0].CopyFrom(onnx.shape_inference.infer_shapes(model).graph.output[0])
    return model


def scan_model(x: np.ndarray, axis: np.ndarray, opset: int = 17, op: str = "CumSum", **flags: int) -> onnx.ModelProto:
    """-x scanned, then doubled."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node(op, ["a", "axis"], ["b"], **flags),
        helper.make_node("Add", ["b", "b"], ["y"]),
    ]
    return model_of(nodes, x, opset, {"axis": axis})


def data(shape: tuple[int, ...], type_: int = F) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=shape) * 2
    return x.astype(helper.tensor_dtype_to_np_dtype(type_))


@pytest.mark.parametrize(("op", "opset", "types"), [
    ("CumSum", 11, (F, D, I32, I64)), ("CumSum", 14, (F, F16, D, I32, I64)), ("CumProd", 26, (F, F16, D, I32, I64)),
])  # fmt: skip
def test_every_type_axis_and_flag(op: str, opset: int, types: tuple[int, ...]) -> None:
    choices = [*itertools.product((F,), (-3, -1, 0, 2)), *((type_, 1) for type_ in types)]
    for (type_, axis), exclusive, reverse in itertools.product(choices, (0, 1), (0, 1)):
        x = data((2, 5, 3), type_)
        model = scan_model(x, np.array(axis), opset, op, exclusive=exclusive, reverse=reverse)
        result, report = check(model, {"x": x})
        assert fused_nodes(result) == ["FusedScan"], (type_, axis, report.refusals)
        assert len(result.graph.node) == 1
        (fusion,) = report.fusions
        flags = " exclusive" * exclusive + " reverse" * reverse
        assert f"scan_{'sum' if op == 'CumSum' else 'prod'}{flags} " in fusion.program
        space = {0: "| d0=2 | d1=5 d2=3", 1: "d0=2 | d1=5 | d2=3", 2: "d0=2 d1=5 | d2=3 |"}[axis % 3]
        assert f"space {space}\n" in fusion.program


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("spelling", ["initializer", "Constant"])
def test_every_spelling_of_the_axis(dtype: type, shape: tuple[int, ...], spelling: str) -> None:
    x = data((4, 3))
    model = scan_model(x, np.full(shape, -2, dtype))
    if spelling == "Constant":
        constant = helper.make_node("Constant", [], ["axis"], value=model.graph.initializer[0])
        model.graph.node.insert(0, constant)
        del model.graph.initializer[:]
    result, _ = check(model, {"x": x})
    assert fused_nodes(result) == ["FusedScan"]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 3), (3, 1), (1, 1)])
def test_extents_of_0_and_1(shape: tuple[int, ...]) -> None:
    x = data(shape)
    for axis, exclusive in itertools.product((0, 1), (0, 1)):
        result, report = check(scan_model(x, np.array(axis), exclusive=exclusive), {"x": x})
        if shape[axis] != 1:
            assert fused_nodes(result) == ["FusedScan"], report.refusals
        elif not exclusive:  # the scan of one element is that element
            assert fused_nodes(result) == ["FusedElementwise"], report.refusals


def test_nan_and_infinities_stay_from_where_they_appear() -> None:
    x = data((5, 6))
    x[0, 2], x[1, 3], x[2, 1], x[2, 4], x[3, 0] = np.nan, np.inf, np.inf, -np.inf, np.nan
    for exclusive, reverse in itertools.product((0, 1), (0, 1)):
        result, _ = check(scan_model(x, np.array(1), exclusive=exclusive, reverse=reverse), {"x": x})
        assert fused_nodes(result) == ["FusedScan"]


def test_a_softmax_and_the_scan_after_it_are_one_node() -> None:
    graph = (
        "g (float[N, 33] x) => (float[N, 33] y) <int64 axis = {1}>"
        "{ a = Softmax <axis = 1> (x) b = CumSum (a, axis) c = Constant <value_float = 0.9> () d = Sub (b, c) "
        "y = Relu (d) }"
    )
    kinds, model, _ = optimized(graph, sizes={"N": 3})
    assert kinds == ["FusedScan"]
    assert len(model.graph.node) == 1


@pytest.mark.parametrize(
    "after",
    ["b = ReduceMax <axes = [1]> (a)", "b = CumSum <reverse = 1> (a, axis)", "b = ArgMax <axis = 1> (a)"],
)
def test_what_takes_a_scan_needs_another_kernel(after: str) -> None:
    graph = (
        "g (float[N, 8] x) => (float[N, 8] y) <int64 axis = {1}>"
        f"{{ t = Tanh (x) a = CumSum (t, axis) {after} c = Cast <to = 1> (b) d = Mul (c, x) y = Sigmoid (d) }}"
    )
    kinds, _, report = optimized(graph, sizes={"N": 3})
    assert kinds[0] == "FusedScan"
    assert len(kinds) == 2
    assert not any("scan_" in f.program and "reduce_" in f.program for f in report.fusions)


def test_two_scans_of_one_axis_are_one_node_and_two_of_different_axes_are_two() -> None:
    graph = (
        "g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <int64 i = {1}, int64 k = {AXIS}>"
        "{ a = Abs (x) b = CumSum (a, i) y = Sqrt (b) c = CumSum <exclusive = 1> (a, k) z = Sqrt (c) }"
    )
    assert fused(graph.replace("AXIS", "-1")) == ["FusedScan"]
    assert fused(graph.replace("AXIS", "0"), target="cuda") == ["FusedScan", "FusedScan"]


def test_a_scan_in_a_shape_that_splits_its_axis() -> None:
    graph = (
        "g (float[2, 12] x) => (float[2, 3, 4] y) <int64 axis = {1}, int64[3] s = {2, 3, 4}>"
        "{ a = Exp (x) b = CumSum (a, axis) c = Reshape (b, s) y = Neg (c) }"
    )
    kinds, _, report = optimized(graph)
    assert kinds == ["FusedScan"]
    assert "space d0=2 | d1=3 d2=4 |" in report.fusions[0].program


def test_a_scan_of_a_transposition_runs_in_its_own_order() -> None:
    graph = (
        "g (float[3, 4, 5] x) => (float[3, 20] y) <int64 axis = {1}, int64[2] s = {3, 20}>"
        "{ t = Transpose <perm = [0, 2, 1]> (x) r = Reshape (t, s) a = CumSum (r, axis) y = Neg (a) }"
    )
    assert fused(graph) == ["FusedScan"]


@pytest.mark.parametrize(("options", "expected"), [
    ({"skip": ["scan"]}, "FusedElementwise"), ({"only": ["scan"]}, "FusedScan"),
    ({"only": ["elementwise"]}, "FusedElementwise"),
])  # fmt: skip
def test_skip_and_only(options: dict[str, list[str]], expected: str) -> None:
    graph = (
        "g (float[N, 8] x) => (float[N, 8] y) <int64 axis = {1}>"
        "{ a = Exp (x) b = CumSum (a, axis) c = Neg (b) y = Tanh (c) }"
    )
    kinds, _, report = optimized(graph, sizes={"N": 3}, **options)
    assert kinds == [expected]
    if "scan" not in options.get("only", []):
        assert any(r.reason == "scans are switched off (skip, only)" for r in report.refusals)


@pytest.mark.parametrize(("inputs", "values", "reason"), [
    (", int64[2] k", "", "its axis is not known to be one number"),
    ("", "<int64 k = {2}>", "its axes do not fit its input"),
])  # fmt: skip
def test_what_is_left(inputs: str, values: str, reason: str) -> None:
    graph = f"g (float[4, 8] x{inputs}) => (float[4, 8] y) {values} {{ a = Neg (x) b = CumSum (a, k) y = Neg (b) }}"
    assert any(r.reason == reason for r in optimize(parse(graph), target="cpu").report.refusals)


ARGUMENTS = ("ArgMax", "ArgMin")


@pytest.mark.parametrize("op", ARGUMENTS)
@pytest.mark.parametrize("opset", [7, 11, 12, 13, 21])
def test_every_argument(op: str, opset: int) -> None:
    last = (0, 1) if opset >= 12 else (0,)
    choices = [*itertools.product((F,), (-2, 0, 2), (0, 1)), *((type_, 1, 1) for type_ in (F, F16, D, I32, I64))]
    for (type_, axis, keepdims), flag in itertools.product(choices, last):
        x = np.round(data((3, 4, 5), type_)).astype(helper.tensor_dtype_to_np_dtype(type_))  # with equal elements
        attributes = {"axis": axis, "keepdims": keepdims, **({"select_last_index": 1} if flag else {})}
        nodes = [
            helper.make_node("Abs", ["x"], ["a"]),
            helper.make_node(op, ["a"], ["b"], **attributes),
            helper.make_node("Cast", ["b"], ["c"], to=F),
            helper.make_node("Neg", ["c"], ["y"]),
        ]
        result, report = check(model_of(nodes, x, opset), {"x": x})
        assert fused_nodes(result) == ["FusedReduction"], (type_, axis, keepdims, flag, report.refusals)
        assert f"reduce_{op.lower()}{' last' if flag else ''} i64 " in report.fusions[0].program


def test_an_argument_without_attributes_is_along_the_first_axis() -> None:
    graph = "g (float[3, 4] x) => (int64[1, 4] y) { a = Exp (x) y = ArgMax (a) }"
    kinds, _, report = optimized(graph)
    assert kinds == ["FusedReduction"]
    assert "space | d0=3 | d1=4" in report.fusions[0].program


def test_the_maximum_and_its_argument_are_one_node() -> None:
    graph = (
        "g (float[N, 80, M] x) => (float[N, M] y, int64[N, M] i)"
        "{ s = Sigmoid (x) y = ReduceMax <axes = [1], keepdims = 0> (s) i = ArgMax <axis = 1, keepdims = 0> (s) }"
    )
    kinds, model, _ = optimized(graph, sizes={"N": 2, "M": 7})
    assert kinds == ["FusedReduction"]
    assert len(model.graph.node) == 1


@pytest.mark.parametrize("step", ["ArgMax <axis = 1> (a)", "CumSum <exclusive = 1> (a, k)", "CumSum (a, k)"])
def test_an_axis_of_extent_1(step: str) -> None:
    graph = f"{{ a = Neg (x) b = {step} c = Cast <to = 1> (b) y = Exp (c) }}"
    fused(f"g (float[4, 1] x) => (float[4, 1] y) <int64 k = {{1}}> {graph}")


def test_a_running_sum_alone_is_worth_a_node_on_the_gpu() -> None:
    graph = "g (float[N, 8] x) => (float[N, 8] y) <int64 axis = {1}> { y = CumSum (x, axis) }"
    assert fused(graph, sizes={"N": 3}, target="cuda") == ["FusedScan"]


def test_a_running_sum_along_columns_needs_company_on_the_cpu() -> None:
    graph = "g (float[N, 8] x) => (float[N, 8] y) <int64 axis = {0}> { a = CumSum (x, axis) y = Neg (a) }"
    assert fused(graph, sizes={"N": 3}) == []
    assert fused(graph, sizes={"N": 3}, min_nodes=1) == ["FusedScan"]
    assert fused(graph.replace("{0}", "{1}"), sizes={"N": 3}) == ["FusedScan"]
    assert fused(graph, sizes={"N": 3}, target="cuda") == ["FusedScan"]
