"""Normalizations and softmaxes in every spelling become one node of their kind; near misses fuse as what they are."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from graph_check import check, fused_nodes
from graphs import fused, optimized
from onnx import TensorProto, helper, numpy_helper

F, F16, D = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE


class Spelling:
    """A model that spells something out, in the way that its arguments say."""

    def __init__(self, type_: int = F, opset: int = 17, constants: str = "initializer", keepdims: int = 1) -> None:
        self.type, self.opset, self.constants, self.keepdims = type_, opset, constants, keepdims
        self.dtype = helper.tensor_dtype_to_np_dtype(type_)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object, dtype: object = None) -> str:
        """An initializer, a Constant node, or a Cast of a float64 constant."""
        array = np.asarray(value, self.dtype if dtype is None else dtype)
        if self.constants == "cast" and dtype is None:
            wide = self("Constant", value=numpy_helper.from_array(array.astype(np.float64)))
            return self("Cast", wide, to=self.type)
        if self.constants != "initializer":
            return self("Constant", value=numpy_helper.from_array(array))
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def reduce(self, op: str, x: str, axes: list[int]) -> str:
        as_input = self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13)
        inputs = [x, self.constant(axes, np.int64)] if as_input else [x]
        y = self(op, *inputs, keepdims=self.keepdims, **({} if as_input else {"axes": axes}))
        if self.keepdims:
            return y
        if self.opset >= 13:
            return self("Unsqueeze", y, self.constant(axes, np.int64))
        return self("Unsqueeze", y, axes=axes)

    def check(self, y: str, x: np.ndarray, **options: object) -> list[str]:
        self.nodes[-1].output[0] = "y" if y == self.nodes[-1].output[0] else self.nodes[-1].output[0]
        inputs = [helper.make_tensor_value_info("x", self.type, x.shape)]
        graph = helper.make_graph(self.nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        model.graph.output[0].CopyFrom(onnx.shape_inference.infer_shapes(model).graph.output[0])
        result, _ = check(model, {"x": x.astype(self.dtype)}, **options)  # type: ignore[arg-type]
        return fused_nodes(result)


def square(s: Spelling, x: str, how: str) -> str:
    if how == "mul":
        return s("Mul", x, x)
    return s("Pow", x, s.constant(2) if how == "pow" else s.constant(2, np.int64))


def scaled_by_root(s: Spelling, x: str, variance: str, how: str, epsilon: float = 1e-3) -> str:
    """x / sqrt(variance + epsilon)."""
    shifted = s("Add", variance, s.constant(epsilon))
    if how == "div sqrt":
        return s("Div", x, s("Sqrt", shifted))
    if how == "mul reciprocal":
        return s("Mul", s("Reciprocal", s("Sqrt", shifted)), x)
    if how == "one over":
        return s("Mul", x, s("Div", s.constant(1), s("Sqrt", shifted)))
    if how == "div pow":
        return s("Div", x, s("Pow", shifted, s.constant(0.5)))
    return s("Mul", x, s("Pow", shifted, s.constant(-0.5)))


ROOTS = ["div sqrt", "mul reciprocal", "one over", "div pow", "mul pow"]
X = np.random.default_rng(0).normal(1, 2, (3, 4, 7))


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("squared", ["mul", "pow", "pow int64"])
def test_layer_norm_spelled_out(squared: str, root: str) -> None:
    kinds = itertools.product(("initializer", "node", "cast"), (13, 18), (1, 0))
    for (constants, opset, keepdims), type_ in zip(kinds, itertools.cycle((F, F16, D))):
        for affine in ("", "scale", "scale bias"):
            s = Spelling(type_, opset, constants, keepdims)
            centred = s("Sub", "x", s.reduce("ReduceMean", "x", [-1]))
            y = scaled_by_root(s, centred, s.reduce("ReduceMean", square(s, centred, squared), [-1]), root)
            if "scale" in affine:
                y = s("Mul", s.constant(np.arange(7)), y)
            if "bias" in affine:
                y = s("Add", y, s.constant(np.arange(7)))
            assert s.check(y, X) == ["FusedLayerNorm"], (constants, opset, keepdims, type_, affine)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("squared", ["mul", "pow", "pow int64"])
def test_rms_norm_spelled_out(squared: str, root: str) -> None:
    for type_, opset, scale in itertools.product((F, F16, D), (13, 18), (False, True)):
        s = Spelling(type_, opset)
        y = scaled_by_root(s, "x", s.reduce("ReduceMean", square(s, "x", squared), [-1]), root)
        y = s("Mul", y, s.constant(np.arange(7))) if scale else y
        assert s.check(y, X) == ["FusedRMSNorm"], (type_, opset, scale)


@pytest.mark.parametrize("axes", [[-1], [2], [1, 2], [-2, -1], [0, 1, 2], [1], [0]])
def test_layer_norm_over_other_axes(axes: list[int]) -> None:
    for opset, keepdims in ((17, 1), (18, 0)):
        s = Spelling(F, opset, keepdims=keepdims)
        axes = axes if keepdims else [a % 3 for a in axes]
        centred = s("Sub", "x", s.reduce("ReduceMean", "x", axes))
        y = scaled_by_root(s, centred, s.reduce("ReduceMean", s("Mul", centred, centred), axes), "div sqrt")
        assert s.check(y, X) == ["FusedLayerNorm"]


@pytest.mark.parametrize("maximum", [True, False])
@pytest.mark.parametrize("divide", ["div", "mul reciprocal"])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_softmax_spelled_out(maximum: bool, divide: str, axis: int) -> None:
    for type_, opset, keepdims in itertools.product((F, F16, D), (11, 13, 18), (1, 0)):
        s = Spelling(type_, opset, keepdims=keepdims)
        axes = [axis % 3]
        shifted = s("Sub", "x", s.reduce("ReduceMax", "x", axes)) if maximum else "x"
        powers = s("Exp", shifted)
        total = s.reduce("ReduceSum", powers, axes)
        y = s("Div", powers, total) if divide == "div" else s("Mul", powers, s("Reciprocal", total))
        assert s.check(y, X) == ["FusedSoftmax"], (type_, opset, keepdims)


def test_log_softmax_spelled_out() -> None:
    s = Spelling()
    shifted = s("Sub", "x", s.reduce("ReduceMax", "x", [-1]))
    y = s("Sub", shifted, s("Log", s.reduce("ReduceSum", s("Exp", shifted), [-1])))
    assert s.check(y, X) == ["FusedSoftmax"]


def test_float32_island_in_float16() -> None:
    for narrow_scale in (True, False):
        s = Spelling(F16)
        wide = s("Cast", "x", to=F)
        mean = s.reduce("ReduceMean", s("Mul", wide, wide), [-1])
        root = s("Sqrt", s("Add", mean, s.constant(1e-6, np.float32)))
        y = s("Div", wide, root)
        if narrow_scale:
            y = s("Mul", s("Cast", y, to=F16), s.constant(np.arange(7)))
        else:
            y = s("Cast", s("Mul", y, s.constant(np.arange(7), np.float32)), to=F16)
        assert s.check(y, X) == ["FusedRMSNorm"]


def test_square_of_large_float16_no_longer_overflows() -> None:
    graph = (
        "g (float16[2, 8] x, float16 e) => (float16[2, 8] y) { s = Mul (x, x) m = ReduceMean <axes = [-1]> (s) "
        "a = Add (m, e) r = Sqrt (a) y = Div (x, r) }"
    )
    x = (np.random.default_rng(0).normal(size=(2, 8)) * 3000).astype(np.float16)
    found, _, report = optimized(graph, feeds={"x": x, "e": np.array(0.5, np.float16)})
    assert found == ["FusedRMSNorm"]
    assert "no longer overflow" in report.fusions[0].notes[0]


def test_near_misses_of_a_layer_norm_keep_their_meaning() -> None:
    for exponent in (4.0, 3.0, 1.0, 0.5):
        s = Spelling()
        centred = s("Sub", "x", s.reduce("ReduceMean", "x", [-1]))
        powers = s("Pow", s("Abs", centred), s.constant(exponent))
        y = scaled_by_root(s, centred, s.reduce("ReduceMean", powers, [-1]), "div sqrt")
        assert len(s.check(y, X)) == 1, exponent
    s = Spelling()  # epsilon outside of the root
    centred = s("Sub", "x", s.reduce("ReduceMean", "x", [-1]))
    root = s("Sqrt", s.reduce("ReduceMean", s("Mul", centred, centred), [-1]))
    assert s.check(s("Div", centred, s("Add", root, s.constant(0.5))), X) == ["FusedLayerNorm"]
    s = Spelling()  # other axes in the second mean
    centred = s("Sub", "x", s.reduce("ReduceMean", "x", [-1]))
    variance = s.reduce("ReduceMean", s("Mul", centred, centred), [1])
    assert s.check(scaled_by_root(s, centred, variance, "div sqrt"), X)


def test_mean_without_keepdims_broadcasts_along_another_axis() -> None:
    graph = (
        "g (float[4, 4] x) => (float[4, 4] y) <float e = {0.01}> { m = ReduceMean <axes = [-1], keepdims = 0> (x) "
        "c = Sub (x, m) s = Mul (c, c) v = ReduceMean <axes = [-1], keepdims = 0> (s) a = Add (v, e) r = Sqrt (a) "
        "y = Div (c, r) }"
    )
    assert fused(graph) != ["FusedLayerNorm"]


@pytest.mark.parametrize("scale", [(2,), (1, 7), (3, 1, 7), (4, 7), (1,), (), (2, 1, 1, 1)])
def test_scales_of_any_shape(scale: tuple[int, ...]) -> None:
    for x in (X, X[:, :, :1]):
        if scale and scale[-1] > 1 and x.shape[-1] > 1 and scale[-1] != x.shape[-1]:
            continue
        s = Spelling()
        centred = s("Sub", "x", s.reduce("ReduceMean", "x", [-1]))
        variance = s.reduce("ReduceMean", s("Mul", centred, centred), [-1])
        y = scaled_by_root(s, centred, variance, "div sqrt")
        assert s.check(s("Mul", s.constant(np.random.default_rng(1).normal(size=scale)), y), x)


def test_variance_from_means_of_squares_is_exact_enough() -> None:
    s = Spelling()
    mean = s.reduce("ReduceMean", "x", [-1])
    variance = s("Sub", s.reduce("ReduceMean", s("Mul", "x", "x"), [-1]), s("Mul", mean, mean))
    y = scaled_by_root(s, s("Sub", "x", mean), variance, "div sqrt")
    assert len(s.check(y, X)) == 1


def test_what_stands_around_joins() -> None:
    found, _, report = optimized(
        "g (float[2, 3, 8] a, float[2, 3, 8] b, float[8] w) => (float[2, 3, 8] y, float[2, 3, 8] s) { s = Add (a, b) "
        "n = LayerNormalization (s, w) g = Sigmoid (n) y = Mul (n, g) }"
    )
    assert found == ["FusedLayerNorm"]
    assert report.fusions[0].outputs == ("s", "y")
    assert report.fusions[0].launches_saved == 3
