"""Symbolic, unknown, empty and wrongly declared shapes: fused where equality is proven, right at run time always."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from graph_check import check, fused_nodes
from graphs import fused, optimized, parse
from onnx import TensorProto, helper, numpy_helper
from truth import run

import onnxfuse
from onnxfuse.rewrites.dims import Symbols
from onnxfuse.rewrites.products import exact_quotient, quotient, scaled
from onnxfuse.rewrites.shapes import infer, symbolic_scope


def test_equal_symbols_fuse() -> None:
    graph = "g (float[N, M] a, float[N, M] b) => (float[N, M] y) { s = Add (a, b) t = Exp (s) y = Mul (t, a) }"
    for n, m in itertools.product((0, 1, 3), repeat=2):
        assert fused(graph, sizes={"N": n, "M": m}) == ["FusedElementwise"]


def test_different_symbols_may_be_broadcast() -> None:
    graph = "g (float[N] a, float[M] b) => (float[K] y) { s = Add (a, b) t = Exp (s) y = Neg (t) }"
    for n, m in ((3, 3), (1, 3), (3, 1), (1, 1)):
        assert fused(graph, sizes={"N": n, "M": m}) == ["FusedElementwise"]


def test_different_symbols_that_a_region_computes() -> None:
    graph = (
        "g (float[N, 4] a, float[M, 4] b) => (float[K, 4] y) { p = Exp (a) q = Neg (p) r = Exp (b) s = Neg (r) "
        "t = Add (q, s) y = Tanh (t) }"
    )
    for n, m in ((3, 3), (1, 3), (3, 1), (1, 1), (0, 1), (0, 0)):
        assert fused(graph, sizes={"N": n, "M": m})


def test_a_convolution_whose_weight_has_a_symbolic_extent() -> None:
    """How far it reaches is not known: neither is the extent of its result."""
    graph = (
        "g (float[2, 4, 6, 5] x, float[3, 4, 3, K] w, float[3] b) => (float[?, ?, ?, ?] y) "
        "{ c = Conv <pads = [1, 0, 1, 1]> (x, w, b) y = Tanh (c) }"
    )
    for k in (1, 3):
        assert fused(graph, sizes={"K": k}, target="cuda") == ["FusedElementwise"]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_dimension_that_goes_where_a_run_says(axis: int) -> None:
    graph = (
        "g (float[3] x, int64[1] axes, float[1, 3] z) => (float[?, ?] y) "
        "{ a = Exp (x) u = Unsqueeze (a, axes) s = Add (u, z) y = Tanh (s) }"
    )
    model = parse(graph)
    feeds = {"x": np.arange(3, dtype=np.float32), "axes": np.array([axis]), "z": np.ones((1, 3), np.float32)}
    check(model, feeds, min_nodes=1, target="cuda")


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4)])
def test_parts_of_extents_that_a_run_says(sizes: tuple[int, int]) -> None:
    model = parse(
        "g (float[6, 2] x, int64[2] sizes) => (float[?, 2] p, float[?, 2] q) "
        "{ a = Exp (x) b, c = Split <axis = 0> (a, sizes) d = Neg (b) p = Tanh (d) e = Neg (c) q = Tanh (e) }"
    )
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(6, 2), "sizes": np.array(sizes)}
    check(model, feeds, min_nodes=1, target="cuda")


@pytest.mark.parametrize("runtime", ["starts", "ends", "axes", "steps"])
@pytest.mark.parametrize("bounds", [(1, -9, 0, -1), (0, 2, 1, 1), (0, 4, 0, 2)])
def test_slices_of_which_a_run_says_a_part(runtime: str, bounds: tuple[int, int, int, int]) -> None:
    named = dict(zip(("starts", "ends", "axes", "steps"), bounds, strict=True))
    values = ", ".join(f"int64[1] {n} = {{{v}}}" for n, v in named.items() if n != runtime)
    model = parse(
        f"g (float[4, 4] x, int64[1] {runtime}) => (float[?, ?] y) <{values}> "
        "{ a = Exp (x) s = Slice (a, starts, ends, axes, steps) b = Neg (s) y = Tanh (b) }"
    )
    feeds = {"x": np.arange(16, dtype=np.float32).reshape(4, 4), runtime: np.array([named[runtime]])}
    for target in ("cpu", "cuda"):
        check(model, feeds, min_nodes=1, target=target)


def test_a_shape_turned_around_by_a_slice_without_axes() -> None:
    graph = (
        "g (float[N, 4] x) => (float[?, ?] y) <int64[1] last = {-1}, int64[1] end = {-9}> { a = Exp (x) s = Shape (a) "
        "t = Slice (s, last, end, , last) r = Reshape (a, t) b = Neg (r) y = Tanh (b) }"
    )
    for n in (4, 6):
        assert fused(graph, sizes={"N": n}, min_nodes=1)
    model = parse(graph)
    assert symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)["r"].shape == (4, "N")


@pytest.mark.parametrize(
    "how",
    [
        'coordinate_transformation_mode = "tf_crop_and_resize"> (a, roi, scales)',
        'keep_aspect_ratio_policy = "not_larger"> (a, , , sizes)',
        "axes = [1, 0]> (a, , scales)",
    ],
)
def test_images_resized_otherwise_than_by_their_scales(how: str) -> None:
    """What another Resize doubles has another extent, although both are made from one symbol."""
    graph = (
        "g (float[N, M] x) => (float[?, ?] y, float[?, ?] z) <float[4] roi = {0, 0, 0.5, 0.5}, "
        f"float[2] scales = {{2, 3}}, int64[2] sizes = {{7, 8}}> {{ a = Exp (x) r = Resize <{how} s = Neg (r) "
        "y = Tanh (s) b = Neg (x) t = Resize (b, , scales) u = Neg (t) z = Tanh (u) }"
    )
    model = parse(graph, opset=18)
    for n, m in ((4, 6), (5, 4)):
        check(model, {"x": np.ones((n, m), np.float32)}, min_nodes=1, target="cuda")
    inferred = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    assert inferred["r"].shape is None or not set(inferred["r"].shape) & {"2*N", "3*M", 7, 8}


def test_reduction_over_a_symbol_that_may_be_one() -> None:
    graph = (
        "g (float[N, M] a, float[N, K] b) => (float[N, 1] y) { s = Mul (a, b) m = ReduceMean <axes = [-1]> (s) "
        "y = Exp (m) }"
    )
    for m, k in ((5, 5), (1, 5), (5, 1)):
        assert fused(graph, sizes={"N": 2, "M": m, "K": k})


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12])
@pytest.mark.parametrize(
    ("inputs", "axes", "left"), [("1, 1, N", "1, 0", ("N",)), ("1, 3, 1, N", "2, 0", (3, "N")), ("1, N", "0", ("N",))]
)
def test_squeezed_axes_in_any_order(inputs: str, axes: str, left: tuple[int | str, ...], opset: int) -> None:
    graph = f"g (float[{inputs}] x) => (float[] y) {{ s = Squeeze <axes = [{axes}]> (x) y = Exp (s) }}"
    assert symbolic_scope(infer(parse(graph, opset)).graph, {}, Symbols())["s"].shape == left
    graph = (
        f"g (float[{inputs}] x) => (float[A] y) {{ s = Squeeze <axes = [{axes}]> (x) e = Exp (s) "
        "n = Neg (e) t = Tanh (n) y = Unsqueeze <axes = [0]> (t) }"
    )
    model = parse(graph, opset)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    result = onnxfuse.optimize(model, target="cpu").model
    assert fused_nodes(result)
    shape = [int(d) if d != "N" else 4 for d in inputs.split(", ")]
    x = np.linspace(0, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for library in (True, False):
        (a,), (b,) = run(model, {"x": x}, library=False), run(result, {"x": x}, library=library)
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("end", ["2147483647", "9223372036854775807", "-2147483648"])
@pytest.mark.parametrize(("start", "step"), [("-1", "-1"), ("3", "-2"), ("1", "-1")])
def test_a_slice_backwards_to_the_largest_integer(start: str, step: str, end: str) -> None:
    for inputs in ("4", "N"):
        graph = (
            f"g (float[{inputs}] x) => (float[A] y) <int64[1] s = {{{start}}}, int64[1] e = {{{end}}}, "
            f"int64[1] a = {{0}}, int64[1] t = {{{step}}}> {{ q = Exp (x) "
            "r = Slice (q, s, e, a, t) u = Neg (r) y = Exp (u) }"
        )
        model = parse(graph)
        found, _ = check(model, {"x": np.linspace(0, 1, 4, dtype=np.float32)}, optimizations=True)
        assert fused_nodes(found)


def test_unknown_dimensions() -> None:
    graph = "g (float[?, ?] a, float[?] b) => (float[?, ?] y) { s = Add (a, b) t = Exp (s) y = Mul (t, s) }"
    for shape in ((3, 4), (1, 4), (3, 1)):
        feeds = {"a": np.ones(shape, np.float32), "b": np.arange(4, dtype=np.float32)}
        assert fused(graph, feeds=feeds)


def test_unknown_rank_is_refused() -> None:
    found, _, report = optimized(
        "g (float[N] a, int64[K] shape) => (float y) { r = Reshape (a, shape) s = Exp (r) t = Neg (s) "
        "y = ReduceSum <keepdims = 0> (t) }",
        feeds={"a": np.ones(1, np.float32), "shape": np.array([1, 1], np.int64)},
        sizes={"K": 2},
    )
    assert found == []
    assert any("rank" in r.reason for r in report.refusals)


def test_scalars() -> None:
    assert fused("g (float x) => (float y) { a = Exp (x) b = Mul (a, x) y = Neg (b) }") == ["FusedElementwise"]
    assert fused("g (float[1] x, float z) => (float[1] y) { a = Exp (x) b = Mul (a, z) y = Neg (b) }")
    assert fused("g (float x, float[2, 3] z) => (float[2, 3] y) { a = Exp (x) b = Mul (a, z) y = Neg (b) }")


def test_full_reduction_to_a_scalar() -> None:
    graph = "g (float[3, 4] x) => (float y) { a = Mul (x, x) s = ReduceSum <keepdims = 0> (a) y = Sqrt (s) }"
    assert fused(graph) == ["FusedReduction"] or fused(graph) == ["FusedRMSNorm"]


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (0, 0)])
def test_empty_tensors(shape: tuple[int, int]) -> None:
    x = {"x": np.zeros(shape, np.float32)}
    elementwise = "g (float[N, M] x) => (float[N, M] y) { a = Exp (x) b = Add (a, x) y = Tanh (b) }"
    assert fused(elementwise, feeds=x) == ["FusedElementwise"]
    reduction = (
        "g (float[N, M] x) => (float[N, 1] y) <int64[1] k = {1}> { a = Exp (x) s = ReduceSum (a, k) y = Neg (s) }"
    )
    assert fused(reduction, feeds=x) == ["FusedReduction"]
    if shape[1]:
        softmax = "g (float[N, M] x) => (float[N, M] y) { a = Add (x, x) y = Softmax <axis = -1> (a) }"
        assert fused(softmax, feeds=x) == ["FusedSoftmax"]


def test_static_empty_tensors() -> None:
    assert fused("g (float[0, 4] x) => (float[0, 4] y) { a = Exp (x) b = Add (a, x) y = Tanh (b) }")


def test_normalized_extent_of_one() -> None:
    graph = (
        "g (float[4, M] x) => (float[4, M] y) <float e = {0.001}> { m = ReduceMean <axes = [-1]> (x) c = Sub (x, m) "
        "q = Mul (c, c) v = ReduceMean <axes = [-1]> (q) a = Add (v, e) r = Sqrt (a) y = Div (c, r) }"
    )
    assert fused(graph, sizes={"M": 1}) == fused(graph, sizes={"M": 5}) == ["FusedLayerNorm"]


def test_stale_declarations_do_not_decide() -> None:
    graph = "g (float[2, 3] x, float[3] b) => (float[2, 3] y) {t} {{ s = Add (x, b) t = Exp (s) y = Mul (t, x) }}"
    for declared in ("<float[7] s>", "<float[2, 3] gone, float[9, 9] t>"):
        model = parse(graph.format(t=declared))
        scope = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
        assert scope["s"].shape == scope["t"].shape == (2, 3)


@pytest.mark.parametrize("dims", ["[2, 3, 1]", "[1, 2, 3]", "[6]", "", "[5, 3]", "[N, 3]"])
@pytest.mark.parametrize("tail", ["m = ReduceMean <axes = [-1], keepdims = 0> (y) z = Mul (m, m)", "z = Softmax (y)"])
def test_outputs_declared_with_other_ranks(tail: str, dims: str) -> None:
    """ONNX Runtime runs such a model, and so fused."""
    nodes = f"a = Relu (x) y = Add (a, x) {tail} w = Neg (y)"
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    for outputs in (f"float{dims} y, float{dims} z", f"float{dims} z", f"float{dims} y"):
        model = parse(f"g (float[2, 3] x) => ({outputs}) {{ {nodes} }}", opset=13)
        result = onnxfuse.optimize(model, target="cpu").model
        assert fused_nodes(result)
        for library in (True, False):
            for found, expected in zip(run(result, feeds, library), run(model, feeds, library=False), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-6, strict=True)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("dims", [[2, 3, 1], [1, 2, 3], [6], [], [5, 3], ["N", "M", "K"]])
@pytest.mark.parametrize("name", ["h", "r", "s", "e"])
def test_values_declared_with_other_ranks(name: str, dims: list[int | str], target: str) -> None:
    """Between a product and a fused node, inside, and behind it: ONNX Runtime runs such a model, and so fused."""
    weights = ", ".join(str(k % 5) for k in range(9))
    model = parse(
        f"g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {{{weights}}}, float[3] b = {{1, 2, 3}}> "
        "{ h = MatMul (x, w) a = Add (h, b) r = Relu (a) s = Exp (r) e = Neg (s) y = MatMul (e, w) }"
    )
    model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    result = onnxfuse.optimize(model, target=target).model
    assert fused_nodes(result)
    for library in (True, False):
        for found, expected in zip(run(result, feeds, library), run(model, feeds, library=False), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6, strict=True)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("dims", ["[1, 3]", "[3, 2]", "[7, 3]", "[3]", "[2, 3, 1]", "[2, 3]", "[N, 3]"])
def test_loops_that_carry_what_they_do_not_declare(dims: str, nested: bool) -> None:
    """ONNX Runtime runs them; a fused node that took 1 for the number of rows computed only the first."""
    if nested and dims in ("[3]", "[2, 3, 1]"):
        return  # ONNX Runtime infers itself that the inner one is wrong

    def loop(result: str, state: str, level: int, inner: str, last: str) -> str:
        return (
            f"{result} = Loop (n, c, {state}) "
            f"<body = b{level} (int64 i{level}, bool d{level}, float{dims} s{level}) => (bool e{level}, "
            f"float{dims} {last}) {{ e{level} = Identity (d{level}) {inner} }}>"
        )

    inner = "u = Exp (s{0}) v = Neg (u) t{0} = Tanh (v)"
    body = loop("q", "s1", 2, inner.format(2), "t2") + " t1 = Abs (q)" if nested else inner.format(1)
    text = (
        "g (float[2, 3] x, int64 n) => (float[2, 3] y) <bool c = {1}> "
        f"{{ a = Abs (x) {loop('z', 'a', 1, body, 't1')} y = Neg (z) }}"
    )
    model = parse(text)
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "n": np.array(2)}
    result = onnxfuse.optimize(model, target="cpu").model
    for library in (True, False):
        for found, expected in zip(run(result, feeds, library), run(model, feeds, library=False), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, strict=True)
    assert fused_nodes(result) or nested or dims not in ("[2, 3]", "[N, 3]")


def test_reshape_target_computed_from_shapes() -> None:
    graph = (
        "g (float[N, S, 12] x, float[N, 3, S, 4] z) => (float[N, 3, S, 4] y) "
        "<int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, int64[2] rest = {3, 4}> { "
        "a = Exp (x) sh = Shape (x) n = Gather (sh, zero) s = Gather (sh, one) n1 = Unsqueeze (n, axis) "
        "s1 = Unsqueeze (s, axis) target = Concat <axis = 0> (n1, s1, rest) r = Reshape (a, target) "
        "t = Transpose <perm = [0, 2, 1, 3]> (r) y = Add (t, z) }"
    )
    found, _, report = optimized(graph, sizes={"N": 2, "S": 5})
    assert found == ["FusedElementwise"]
    assert any("computes on shapes" in r.reason for r in report.refusals) or len(report.fusions) == 1


def test_two_branches_of_equal_convolutions_agree() -> None:
    # Shape inference leaves the spatial extents of both open; they are the same expression.
    graph = (
        "g (float[1, 2, H, W] x, float[3, 2, 3, 3] w, float[3, 2, 3, 3] v) => (float[1, 3, P, Q] y) { "
        "a = Conv <strides = [2, 2]> (x, w) b = Conv <strides = [2, 2]> (x, v) s = Add (a, b) t = Exp (s) "
        "y = Mul (t, a) }"
    )
    assert fused(graph, sizes={"H": 9, "W": 7}) == ["FusedElementwise"]


@pytest.mark.parametrize(("attributes", "kernel"), [
    ("strides = [2, 2]", (2, 2)),
    ("strides = [2, 1], pads = [1, 0, 0, 2], output_padding = [1, 0], dilations = [1, 2]", (3, 3)),
    ("group = 2", (1, 2)),
    ('auto_pad = "SAME_UPPER", strides = [2, 2]', (3, 3)),
    ("output_shape = [12, 9], strides = [2, 2]", (2, 2)),
    ("output_shape = [12, 9], strides = [2, 2], pads = [0, 0, 1, 1]", (2, 2)),
])  # fmt: skip
@pytest.mark.parametrize("extents", ["H, W", "H, 5", "6, 5"])
def test_a_transposed_convolution(attributes: str, kernel: tuple[int, int], extents: str) -> None:
    """Inference says nothing of one with symbolic extents; what adds to its result, and is behind it, is fused."""
    graph = (
        f"g (float[N, 4, {extents}] x, float[4, 2, {kernel[0]}, {kernel[1]}] w, float[1, C, 1, 1] b) => "
        f"(float[?, ?, ?, ?] y) {{ c = ConvTranspose <{attributes}> (x, w) s = Add (c, b) t = Relu (s) y = Exp (t) }}"
    )
    channels = 4 if "group" in attributes else 2
    _, model, _ = optimized(graph, sizes={"N": 2, "H": 6, "W": 5, "C": channels})
    assert [n.op_type for n in model.graph.node] == ["ConvTranspose", "FusedElementwise"]


def test_two_transposed_convolutions_agree() -> None:
    graph = (
        "g (float[1, 2, H, W] x, float[2, 3, 3, 2] w, float[2, 3, 3, 2] v) => (float[1, 3, P, Q] y) { "
        "a = ConvTranspose <strides = [2, 2]> (x, w) b = ConvTranspose <strides = [2, 2]> (x, v) s = Add (a, b) "
        "t = Exp (s) u = ReduceMean <axes = [1], keepdims = 1> (t) y = Mul (u, a) }"
    )
    _, model, _ = optimized(graph, sizes={"H": 4, "W": 3})
    assert [n.op_type for n in model.graph.node] == ["ConvTranspose", "ConvTranspose", "FusedReduction"]


def test_dimensions_that_two_declarations_name_differently() -> None:
    graph = "g (float[A, 4] x) => (float[B, 4] y, float[C, 4] z) { y = Exp (x) s = Neg (y) z = Mul (s, y) }"
    assert fused(graph, sizes={"A": 3}) == ["FusedElementwise"]


def test_products_of_dimensions_have_one_spelling() -> None:
    assert scaled("b", 6) == scaled(2, scaled("b", 3)) == "6*b"
    assert scaled("s", "b") == scaled("b", "s") == "b*s"
    assert quotient("196*b", 49) == "4*b"
    assert quotient(scaled(quotient("196*b", 49), 49), 196) == "b"
    assert quotient("b*s", "s") == "b"
    assert quotient("b", "b") == 1
    assert scaled(0, "b") == 0
    assert scaled("a+b", "c") == "(a+b)*c"
    assert quotient(scaled("a+b", "c"), "c") == "a+b"


def test_what_does_not_divide_is_no_product() -> None:
    assert quotient("a*b+c", "a") != "b+c"
    assert quotient("6*b", 4) == "(6*b)/(4)"
    assert scaled(quotient("6*b", 4), 4) != "6*b"
    assert exact_quotient("6*b", 4) is None
    assert exact_quotient("(a)-(b)", "a") is None
    assert exact_quotient(7, 2) is None


def test_a_dimension_whose_name_reads_like_a_product_is_a_symbol_of_its_own() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b*s", "b"])
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    shape = numpy_helper.from_array(np.array([0, -1], np.int64), "shape")
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    first, second = symbolic_scope(infer(model).graph, {}, Symbols())["x"].shape
    assert second == "b"
    assert exact_quotient(first, "b") is None


@pytest.mark.parametrize("opset", [2, 11, 18])
def test_pads(opset: int) -> None:
    pads = [0, 0, 2, 0, 0, 1, -1, 0] if opset < 18 else [2, 0, -1, 1]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "h", 5, 4])
    constants = [numpy_helper.from_array(np.array(pads, np.int64), "pads")]
    if opset < 11:
        node = helper.make_node("Pad", ["x"], ["y"], pads=pads)
        constants = []
    elif opset < 18:
        node = helper.make_node("Pad", ["x", "pads"], ["y"])
    else:
        constants.append(numpy_helper.from_array(np.array([2, -3], np.int64), "axes"))
        node = helper.make_node("Pad", ["x", "pads", "", "axes"], ["y"])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    assert symbolic_scope(infer(model).graph, {}, Symbols())["y"].shape == ("b", "(h)+1", 6, 4)


def test_names_that_inference_invents_are_not_declared() -> None:
    # Another run of inference calls other dimensions so.
    graph = (
        "g (float[8, C] x, int64[K] n) => (float[?, ?] y, float[?, ?] z) { t = Tile (x, n) a = Exp (t) b = Neg (a) "
        "y = MatMul (b, b) c = Sigmoid (y) d = Tanh (c) z = MatMul (d, d) }"
    )
    _, model, _ = optimized(graph, sizes={"C": 8, "K": 2}, feeds={"n": np.array([1, 1])})
    names = [d.dim_param for v in model.graph.value_info for d in v.type.tensor_type.shape.dim]
    assert names
    assert not any(name.startswith("unk__") for name in names)


@pytest.mark.parametrize(
    ("dim", "bounds", "expected"),
    [
        ("N", "zero, limit, one", "N"),
        ("7", "zero, limit, one", 7),
        ("7", "two, limit, two", 3),
        ("7", "limit, zero, one", 0),
        ("N", "two, limit, one", None),  # N may be below 2
        ("N", "limit, zero, one", None),
    ],
)
def test_as_many_numbers_as_a_dimension_has_elements(dim: str, bounds: str, expected: object) -> None:
    model = parse(
        f"g (float[{dim}, 4] x) => (int64[K] r, int64[P, 1] p) "
        "<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] axis = {0}, int64[1] last = {1}> { "
        f"sh = Shape (x) limit = Gather (sh, zero) r = Range ({bounds}) p = Unsqueeze (r, last) }}"
    )
    scope = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    (found,) = scope["r"].shape
    if expected is None:
        assert found not in ("N", 0)
        assert not isinstance(found, int)
    else:
        assert scope["p"].shape == (expected, 1)


@pytest.mark.parametrize(("batch_dims", "expected"), [(0, ("N", 5, 4)), (1, ("N", 5))])
def test_gathering_by_several_indices(batch_dims: int, expected: tuple[object, ...]) -> None:
    model = parse(
        f"g (float[N, 3, 4] x, int64[N, 5, 2] i) => (float y) {{ y = GatherND <batch_dims = {batch_dims}> (x, i) }}"
    )
    scope = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    assert scope["y"].shape == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("Tile (x, repeats)", ("4*N", 8, "6*M", 5)),
        ("Tile (x, counted)", ("N*N", 8, "M", 5)),
        ("DepthToSpace <blocksize = 2> (x)", ("N", 2, "2*M", 10)),
        ("SpaceToDepth <blocksize = 5> (x)", ("N", 200, "(M)/(5)", 1)),
        ("GatherElements <axis = 2> (x, i)", ("N", 8, "K", 5)),
        ("ScatterElements <axis = 2> (x, i, x)", ("N", 8, "M", 5)),
        ("Trilu (x)", ("N", 8, "M", 5)),
        ('Einsum <equation = "nchw, nckw -> nhk"> (x, z)', ("N", "M", "K")),
    ],
)
def test_shapes_that_onnx_leaves_open(node: str, expected: tuple[object, ...]) -> None:
    """`x` has no name for any extent in ONNX's inference, where its target is computed: all follows from ours."""
    model = parse(
        "g (float[N, 8, M, 5] x0, int64[N, 8, K, 5] i, float[N, 8, K, 5] z) => (float y) "
        "<int64[4] repeats = {4, 1, 6, 1}, int64[3] ones = {1, 1, 1}, int64[1] zero = {0}> { "
        "sh = Shape (x0) n = Gather (sh, zero) counted = Concat <axis = 0> (n, ones) flat = Reshape (x0, sh) "
        f"x = Identity (flat) y = {node} }}"
    )
    scope = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    assert scope["x"].shape == ("N", 8, "M", 5)
    assert scope["y"].shape == expected


def test_a_bias_repeated_for_each_of_a_batch() -> None:
    """ALiBi: slopes for each head, as often as there are samples, join the softmax behind them."""
    graph = (
        "g (float[N, 4, 6, 6] x, float[4, 1, 6] slopes, float[N, 1, 6, 6] mask) => (float[N, 4, 6, 6] y) "
        "<int64[2] ones = {1, 1}, int64[1] zero = {0}, int64[3] heads = {-1, 6, 6}, int64[4] back = {-1, 4, 6, 6}> "
        "{ sh = Shape (x) n = Gather (sh, zero) repeats = Concat <axis = 0> (n, ones) bias = Tile (slopes, repeats) "
        "scores = Reshape (x, heads) biased = Add (scores, bias) all = Reshape (biased, back) "
        "masked = Add (all, mask) y = Softmax <axis = -1> (masked) }"
    )
    for n in (1, 3):
        nodes, model, _ = optimized(graph, sizes={"N": n}, target="cuda")
        assert nodes == ["FusedSoftmax"]
        assert "Add" not in [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("Concat <axis = 0> (n, minus, six)", ("N", 4, 6)),  # -1: the extent stays
        ("Concat <axis = 0> (minus, minus, six)", ("N", 4, 6)),
        ("Concat <axis = 0> (less, minus, six)", None),  # n - 1 may be below 0
    ],
)
def test_expanding_but_for_some_axes(target: str, expected: tuple[object, ...] | None) -> None:
    """torch.expand, whose -1 TorchScript's exporter replaces when the model runs."""
    model = parse(
        "g (float[N, 4, 1] x) => (float y) <int64[1] zero = {0}, int64[1] minus = {-1}, int64[1] six = {6}, "
        "int64 negative = {-1}, int64[3] same = {0, 0, 0}> { sh = Shape (x) n = Gather (sh, zero) "
        f"less = Add (n, minus) given = {target} count = Shape (given) "
        "ones = ConstantOfShape <value = int64[1] {1}> (count) kept = Mul (ones, negative) "
        "stays = Equal (given, kept) extents = Where (stays, ones, given) y = Expand (x, extents) }"
    )
    scope = symbolic_scope(infer(model).graph, {}, Symbols(), model.graph)
    found = scope["y"].shape
    assert found == expected if expected is not None else found is None or found[0] != "N"


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("size", [8, 1])
@pytest.mark.parametrize("part", ["Slice (b, s, e, a)", "Gather <axis = 1> (b, i)", "Split <axis = 1> (b, l)"])
def test_a_part_of_what_may_be_broadcast(part: str, size: int, target: str) -> None:
    """That it begins at 0 does not make it the whole of a dimension that a run brings, or 1."""
    results = "c, r" if "Split" in part else "c"
    graph = (
        "g (float[A, 8] x, float[2, 3, 8] w) => (float[2, 3, 8] y) <int64[1] s = {0}, int64[1] e = {3}, "
        "int64[1] a = {1}, int64[3] i = {0, 1, 2}, int64[2] l = {3, 5}, int64[3] t = {2, 8, 1}> "
        f"{{ b = Expand (x, t) {results} = {part} d = Sub (c, w) y = Exp (d) }}"
    )
    assert fused(graph, opset=13, sizes={"A": size}, target=target)


def test_a_fused_result_of_unknown_rank_is_not_declared_to_have_none() -> None:
    graph = (
        "g (float[B, 6, 6, 6, 1] x) => (float[?, B, ?, 1] y, float[?, 6, 1] w) <float[1, 6, 1] w = {1, 2, 3, 4, 5, 6}, "
        "int64[4] t = {6, 1, 6, 1}> { l = ReduceL2 <axes = [-3, -1], keepdims = 1> (x) m = Min (l, w) "
        "p = Slice <axes = [3], ends = [6], starts = [-5]> (m) q = Slice <axes = [3], ends = [-5], starts = [0]> (m) "
        "c = Concat <axis = 3> (p, q) r = Reshape (c, t) y = Slice <axes = [0], ends = [5], starts = [3]> (r) }"
    )
    found, model, _ = optimized(graph, opset=9, sizes={"B": 1}, min_nodes=1, target="cuda")
    assert found
    for value in model.graph.value_info:
        assert not value.type.tensor_type.HasField("shape") or len(value.type.tensor_type.shape.dim) == 5
