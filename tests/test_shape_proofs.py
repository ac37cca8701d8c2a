"""What must not be taken for known of shapes: graphs that a proof too many gets wrong, as they are and optimized."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import parse
from truth import run

import onnxfuse

Feeds = dict[str, np.ndarray]

VECTORS = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] minus = {-1}"


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def same(model: onnx.ModelProto, feeds: Feeds) -> None:
    expected = run(model, feeds, library=False)
    for target in ("cuda", "cpu"):
        found = run(onnxfuse.optimize(model, target=target).model, feeds, library=True)
        for x, y in zip(expected, found, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
            assert y.shape == x.shape


def same_where_swapped(inputs: str, nodes: str, feeds: Feeds, values: str = "") -> None:
    """The nodes make `p` and `q`, each a vector of one extent: a Reshape from [p, q] to [q, p] must stay."""
    graph = (
        f"g ({inputs}) => (float[U, V] y) <{VECTORS}{values}> {{ {nodes} given = Concat <axis = 0> (p, q) "
        "wanted = Concat <axis = 0> (q, p) filled = ConstantOfShape <value = float[1] {1}> (given) "
        "before = Tanh (filled) after = Reshape (before, wanted) y = Exp (after) }"
    )
    same(parse(graph, opset=18, ir_version=9), feeds)


@pytest.mark.parametrize(
    ("inputs", "values", "nodes", "feeds"),
    [
        (
            "float[4, 16] x, int64 i", "int64 i = {1}",
            "q = Exp (x) sh = Shape (q) h = Gather (sh, i) w = Cast <to = 1> (h) s = Mul (q, w) y = Add (s, q)",
            {"x": floats(4, 16), "i": np.array(0)},
        ),
        (
            "float[N, 12] x, int64[2] t", "int64[2] t = {-1, 6}",
            "q = Exp (x) r = Reshape (q, t) y = Tanh (r)",
            {"x": floats(4, 12), "t": integers(-1, 3)},
        ),
        (
            "float[4, 12] x, int64[1] t", "int64[1] t = {0}",
            "q = Exp (x) r = ReduceSum (q, t) k = Tanh (r) y = Exp (k)",
            {"x": floats(4, 12), "t": integers(1)},
        ),
        (
            "float[1, 12] x, int64[2] t", "int64[2] t = {3, 12}",
            "r = Expand (x, t) k = Tanh (r) y = Exp (k)",
            {"x": floats(1, 12), "t": integers(2, 1)},
        ),
    ],
    ids=["index", "target", "axes", "expand"],
)  # fmt: skip
def test_initializers_that_the_caller_may_override(inputs: str, values: str, nodes: str, feeds: Feeds) -> None:
    same(parse(f"g ({inputs}) => (float[A, B] y) <{values}> {{ {nodes} }}", opset=18, ir_version=9), feeds)


def test_a_function_that_is_called_like_an_operator() -> None:
    graph = (
        "g (float[3, 4] x) => (float[3, 4] y) <int64 i = {1}> { q = Exp (x) s = Shape (q) d = local.Mul (s, s) "
        "e = Gather (d, i) f = Cast <to = 1> (e) k = Add (q, f) y = Tanh (k) } "
        '<domain: "local", opset_import: ["" : 18]> Mul (a, b) => (c) { c = Sub (a, b) }'
    )
    same(parse(graph, opset=18, ir_version=9), {"x": floats(3, 4)})


@pytest.mark.parametrize(
    ("inputs", "equation", "shapes"),
    [
        ("float[1, 8] x, float[4, 8] z", "ij,ij->ij", ((1, 8), (4, 8))),
        ("float[1, 3, S, 8] x, float[2, 3, T, 8] z", "bhsd,bhtd->bhst", ((1, 3, 4, 8), (2, 3, 5, 8))),
    ],
)
def test_letters_of_einsum_that_broadcast(inputs: str, equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    result = ", ".join(equation.split("->")[1])
    graph = (
        f'g ({inputs}) => (float[{result}] y) {{ p = Einsum <equation = "{equation}"> (x, z) '
        "e = Exp (p) y = Softmax (e) }"
    )
    same(parse(graph, opset=18), dict(zip("xz", (floats(*s) for s in shapes), strict=True)))


@pytest.mark.parametrize("scale", [0.7, 1.4, 0.9, 2.0])
@pytest.mark.parametrize("extent", ["10", "H"])
def test_resizing_rounds_in_float32(extent: str, scale: float) -> None:
    graph = (
        f"g (float[1, 1, {extent}] x, float[1] b) => (float[A, B, C] y) <float[3] s = {{1, 1, {scale}}}> "
        "{ p = Resize (x, , s) e = Exp (p) y = Add (e, b) }"
    )
    same(parse(graph, opset=18), {"x": floats(1, 1, 10), "b": floats(1)})


@pytest.mark.parametrize("extent", [5, 8])
def test_pools_that_round_up(extent: int) -> None:
    graph = (
        f"g (float[N, 2, {extent}] x, float[2, 1] b) => (float[N, 2, U] y) "
        "{ p = MaxPool <kernel_shape = [3], strides = [3], pads = [1, 1], ceil_mode = 1> (x) "
        "e = Exp (p) y = Add (e, b) }"
    )
    same(parse(graph, opset=18), {"x": floats(2, 2, extent), "b": floats(2, 1)})


@pytest.mark.parametrize(
    ("number", "result"),
    [("ReduceProd <keepdims = 0> (sh)", ""), ("n", "[1]")],
    ids=["product", "squeezed"],
)
def test_the_rank_of_numbers_that_follow_from_shapes(number: str, result: str) -> None:
    graph = (
        f"g (float x, float[4, 16] z) => (float{result} y) <{VECTORS}, int64[2] ones = {{1, 1}}> {{ sh = Shape (z) "
        f"h = Slice (sh, one, two) m = Reshape (h, ones) n = Squeeze (m, zero) p = Identity ({number}) "
        "w = Cast <to = 1> (p) k = Mul (x, w) y = Tanh (k) }"
    ).replace("p = Identity (ReduceProd <keepdims = 0> (sh))", "p = ReduceProd <keepdims = 0> (sh)")
    same(parse(graph, opset=17), {"x": floats(), "z": floats(4, 16)})


def test_axes_of_tensors_of_two_ranks() -> None:
    nodes = (
        "a = ReduceSum (x, ax) b = ReduceSum (w, ax) p = Shape <start = 1, end = 2> (a) "
        "q = Shape <start = 1, end = 2> (b)"
    )
    feeds = {"x": floats(4, 3), "w": floats(4, 3, 5), "ax": integers(-1)}
    same_where_swapped("float[M, N] x, float[M, N, P] w, int64[1] ax", nodes, feeds)


def test_no_axes_that_leave_everything_or_nothing() -> None:
    nodes = (
        "a = ReduceSum <noop_with_empty_axes = 1> (x, ax) b = ReduceSum (x, ax) "
        "p = Shape <start = 1, end = 2> (a) q = Shape <start = 1, end = 2> (b)"
    )
    same_where_swapped("float[N, M] x, int64[K] ax", nodes, {"x": floats(3, 4), "ax": integers()})


@pytest.mark.parametrize("name", ["size", "batch"])
def test_a_dimension_whose_name_ends_like_a_number(name: str) -> None:
    """2 * (size + 3) is not 2 * size + 3."""
    nodes = (
        "p0 = Concat <axis = 0> (a, b) p1 = Tile (p0, two) p = Shape (p1) r = Reshape (c, minus) "
        "s = Concat <axis = 0> (r, b) q = Shape (s)"
    )
    feeds = {"a": floats(4), "b": floats(3), "c": floats(4, 2)}
    same_where_swapped(f"float[{name}] a, float[3] b, float[{name}, 2] c", nodes, feeds)


def test_halves_rounded_down_and_up() -> None:
    nodes = (
        "s = Shape (x) f = Cast <to = 1> (s) h = Div (f, half) d = Floor (h) p = Cast <to = 7> (d) "
        "c = Ceil (h) q = Cast <to = 7> (c)"
    )
    same_where_swapped("float[N] x", nodes, {"x": floats(5)}, ", float[1] half = {2}")


def test_resizing_before_and_after_repeating() -> None:
    nodes = (
        "a = Resize (x, , s) b = Tile (a, t) p = Shape <start = 2, end = 3> (b) "
        "c = Tile (x, t) d = Resize (c, , s) q = Shape <start = 2, end = 3> (d)"
    )
    values = ", float[3] s = {1, 1, 1.5}, int64[3] t = {1, 1, 2}"
    same_where_swapped("float[N, 2, H] x", nodes, {"x": floats(1, 2, 5)}, values)


def test_a_difference_that_is_nothing_copies_an_extent() -> None:
    nodes = (
        "a = Shape (u) b = Shape (w) d = Sub (a, b) rest = Shape <start = 1, end = 2> (x) "
        "t = Concat <axis = 0> (d, rest) "
        "yy = Reshape (x, t) i = Shape <start = 0, end = 1> (yy) e = ConstantOfShape <value = float[1] {1}> (d) "
        "j = Shape (e) q = Add (j, one) p = Add (i, one)"
    )
    feeds = {"x": floats(2, 3), "u": floats(2), "w": floats(2)}
    same_where_swapped("float[A, B] x, float[N] u, float[M] w", nodes, feeds)
