"""What is left to ONNX Runtime because it computes it for less, target by target; neighbours still fuse."""

from __future__ import annotations

import pytest
from graphs import optimized

from onnxfuse.rewrites.dims import reaches_end

CONV = "float[1, 2, 6, 6] x, float[2, 2, 1, 1] w"
MAP = "float[1, 2, 6, 6]"
SCALE = "<float[2, 1, 1] s = {2, 3}>"


def left(nodes: str, target: str, inputs: str = CONV, constants: str = "") -> tuple[list[str], list[str]]:
    """The operators that remain beside fused nodes, and those that were fused."""
    _, model, report = optimized(f"g ({inputs}) => ({MAP} y) {constants} {{ {nodes} }}", target=target)
    rest = [n.op_type for n in model.graph.node if n.domain != "onnxfuse" and n.op_type != "Constant"]
    return rest, [op for f in report.fusions for op in f.operators]


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid"])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_activation_inside_conv(activation: str, target: str) -> None:
    rest, fused = left(f"c = Conv (x, w) r = {activation} (c) e = Exp (r) y = Tanh (e)", target)
    assert (activation in rest) == (target == "cpu")
    assert fused == ["Exp", "Tanh"] if target == "cpu" else [activation, "Exp", "Tanh"]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_channel_constants_inside_conv(target: str) -> None:
    nodes = "c = Conv (x, w) m = Mul (c, s) a = Add (m, s) e = Exp (a) y = Tanh (e)"
    rest, fused = left(nodes, target, constants=SCALE)
    assert rest == (["Conv", "Mul", "Add"] if target == "cpu" else ["Conv"])
    assert fused == ["Exp", "Tanh"] if target == "cpu" else ["Mul", "Add", "Exp", "Tanh"]


NORMALIZED = "n = BatchNormalization (t, k, k, k, k) y = Relu (n)"


@pytest.mark.parametrize(("before", "stays"), [
    ("t = ConvTranspose (x, w)", False),
    ("t = Transpose <perm = [0, 1, 3, 2]> (x)", False),
    ("c = Conv (x, w) t = Add (c, x)", False),
    ("t = Conv (x, w)", True),
    ("c = Conv (x, w) r = Relu (c) t = Add (r, c)", True),
    ("t = MaxPool <kernel_shape = [1, 1]> (x)", True),
])  # fmt: skip
def test_normalization_in_blocks_of_channels(before: str, stays: bool) -> None:
    """There it is a Conv to ONNX Runtime; of a plain map, a pass of its own."""
    _, fused = left(f"{before} {NORMALIZED}", "cpu", constants="<float[2] k = {2, 3}>")
    assert ("BatchNormalization" in fused) == (not stays)


def test_a_sum_with_its_constant_in_front_stays_outside() -> None:
    """ONNX Runtime 1.31 folds such a product, and no such sum."""
    nodes = "c = Conv (x, w) m = Mul (s, c) a = Add (s, m) e = Exp (a) y = Tanh (e)"
    assert left(nodes, "cpu", constants=SCALE) == (["Conv", "Mul"], ["Add", "Exp", "Tanh"])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("end", ["y = Conv (a, w)", "p = MaxPool <kernel_shape = [1, 1]> (a) y = Conv (p, w)"])
def test_channel_constants_that_no_region_follows(target: str, end: str) -> None:
    rest, fused = left(f"c = Conv (x, w) m = Mul (c, s) a = Add (m, s) {end}", target, constants=SCALE)
    assert fused == []
    assert rest.count("Conv") == 2


def test_a_conv_with_another_user_keeps_nothing() -> None:
    rest, fused = left("c = Conv (x, w) r = Relu (c) e = Exp (r) y = Add (c, e)", "cuda")
    assert rest == ["Conv"]
    assert fused == ["Relu", "Exp", "Add"]


@pytest.mark.parametrize(("target", "expected"), [("cpu", []), ("cuda", ["Add", "Relu"])])
def test_residual_sum_and_its_activation(target: str, expected: list[str]) -> None:
    _, fused = left("c = Conv (x, w) a = Add (x, c) y = Relu (a)", target)
    assert fused == expected


@pytest.mark.parametrize(("target", "expected"), [("cpu", []), ("cuda", ["Sigmoid", "Mul"])])
def test_silu_stays_in_the_layout_of_convolutions_on_the_cpu(target: str, expected: list[str]) -> None:
    _, fused = left("c = Conv (x, w) s = Sigmoid (c) y = Mul (c, s)", target)
    assert fused == expected


def test_silu_before_a_quantizer_stays_there_as_well() -> None:
    nodes = "c = Conv (x, w) s = Sigmoid (c) m = Mul (c, s) q = QuantizeLinear (m, half) y = DequantizeLinear (q, half)"
    assert left(nodes, "cpu", constants="<float half = {0.5}>")[1] == []
    assert left(nodes, "cuda", constants="<float half = {0.5}>")[1] == ["Sigmoid", "Mul", "QuantizeLinear"]


def test_silu_of_an_input_fuses_on_the_cpu() -> None:
    assert left("s = Sigmoid (x) y = Mul (x, s)", "cpu", f"{MAP} x")[1] == ["Sigmoid", "Mul"]


def test_scalar_constants_leave_that_layout_anyway() -> None:
    nodes = "c = Conv (x, w) a = Add (c, three) m = Mul (c, a) y = Div (m, three)"
    assert left(nodes, "cpu", constants="<float three = {3}>")[1] == ["Add", "Mul", "Div"]


@pytest.mark.parametrize("batch", ["300", "N"])
def test_a_transposition_that_would_scatter_stays(batch: str) -> None:
    graph = (
        f"g (float[{batch}, 300] x) => (float[300, {batch}] y) "
        "{ a = Exp (x) b = Neg (a) t = Transpose (b) c = Tanh (t) y = Abs (c) }"
    )
    ops, model, report = optimized(graph, sizes={"N": 3})
    assert ops == ["FusedElementwise"] * 2
    assert "Transpose" in [n.op_type for n in model.graph.node]
    assert any(r.operator == "Transpose" and "scattered" in r.reason for r in report.refusals)


def test_transpositions_that_cancel_are_one_kernel() -> None:
    graph = (
        "g (float[N, 300] x) => (float[N, 300] y) "
        "{ a = Exp (x) t = Transpose (a) b = Tanh (t) u = Transpose (b) y = Abs (u) }"
    )
    ops, model, _ = optimized(graph, sizes={"N": 3})
    assert ops == ["FusedElementwise"]
    assert len(model.graph.node) == 1


def test_a_small_transposition_may_scatter() -> None:
    assert optimized("g (float[9, 7] x) => (float[7, 9] y) { a = Exp (x) t = Transpose (a) y = Abs (t) }")[0] == [
        "FusedElementwise"
    ]


def test_which_slices_reach_the_end() -> None:
    assert reaches_end(("N", 512, 512), 0, 10**9)
    assert reaches_end(("N", 4), 0, "N")
    assert reaches_end(("N",), 0, 2**31 - 1)
    assert not reaches_end(("N",), 0, 10**9)
    assert not reaches_end(("N", 512, 512), 0, 4096)
    assert not reaches_end(("N", 4), 0, "M")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(("cast", "counts"), [("Cast <to = 1> (c)", False), ("CastLike (c, x)", True)])
def test_a_cast_to_the_same_type_is_no_operator(cast: str, counts: bool, target: str) -> None:
    """ONNX Runtime removes a Cast, so that what stands beside it is alone; a CastLike it runs."""
    nodes = f"c = MaxPool <kernel_shape = [1, 1]> (x) k = {cast} r = Tanh (k) y = MaxPool <kernel_shape = [1, 1]> (r)"
    op_type = cast.split(maxsplit=1)[0]
    inputs = f"{MAP} x"
    assert left(nodes, target, inputs)[1] == ([op_type, "Tanh"] if counts else [])
    both = nodes.replace("Tanh (k)", "Tanh (e)").replace("r =", "e = Exp (k) r =")
    assert left(both, target, inputs)[1] == [op_type, "Exp", "Tanh"]
    assert left(nodes.replace("Tanh", "Softmax"), target, inputs)[1] == [op_type, "Softmax"]
    assert optimized(f"g ({inputs}) => ({MAP} y) {{ {nodes} }}", target=target, min_nodes=1)[0] == ["FusedElementwise"]
