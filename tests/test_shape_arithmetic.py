"""What a model computes from shapes takes fewer nodes, and every result stays what it was, to the bit."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from graphs import optimized, parse
from random_shapes import random_shape_model
from rewritten import counted, rewritten

from onnxfuse.rewrites.shape_arithmetic import shorten_shape_arithmetic
from onnxfuse.runtime import make_session

CONSTANTS = """
int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64 last = {-1}, int64[1] zero = {0}, int64[1] one = {1},
int64[1] two = {2}, int64[1] four = {4}, int64[1] minus = {-1}, int64[1] end = {9223372036854775807},
int64[1] begin = {-9223372036854775807}, int64[2] pairs = {-1, 2}
"""
# An extent as a vector of one, as TorchScript's exporter has it.
EXTENT = "g{k} = Gather (s, i{k}) {unsqueeze} "
UNSQUEEZES = {13: "v{k} = Unsqueeze (g{k}, zero)", 11: "v{k} = Unsqueeze <axes = [0]> (g{k})"}


def extent(k: int, opset: int = 17) -> str:
    return EXTENT.format(k=k, unsqueeze=UNSQUEEZES[13 if opset >= 13 else 11].format(k=k))


def text(nodes: str, inputs: str, outputs: str) -> str:
    return f"g ({inputs}) => ({outputs}) <{CONSTANTS}> {{ {nodes} }}"


def shortened(
    nodes: str,
    inputs: str = "float[N, 4, M] x",
    outputs: str = "float[A, B] y",
    opset: int = 17,
    sizes: Sequence[Mapping[str, int]] = ({"N": 2, "M": 3}, {"N": 1, "M": 1}, {"N": 3, "M": 0}, {"N": 0, "M": 2}),
) -> Counter[str]:
    """How often each operator is left, once the results for all sizes have been compared."""
    return rewritten(parse(text(nodes, inputs, outputs), opset), shorten_shape_arithmetic, opset, sizes)


@pytest.mark.parametrize("opset", [9, 11, 13, 14, 15, 21])
def test_a_target_that_keeps_extents_is_constant(opset: int) -> None:
    outputs = "float[A, B, C, D] y, int64[4] z"
    nodes = f"s = Shape (x) {extent(0, opset)} {extent(2, opset)} t = Concat <axis = 0> (v0, two, two, v2) "
    left = shortened(f"{nodes} y = Reshape (x, t) z = Neg (t)", outputs=outputs, opset=opset)
    assert left["Shape"] + left["Gather"] + left["Concat"] == (3 if opset >= 15 else 4)
    assert left["Unsqueeze"] == 0
    nodes = f"s = Shape (x) {extent(0, opset)} t = Concat <axis = 0> (v0, minus) "
    assert shortened(f"{nodes} y = Reshape (x, t)", opset=opset) == {"Reshape": 1}


def test_what_the_runtime_makes_a_constant_stays_for_it() -> None:
    """It leaves one extent open in [N, 2, 2, M], where a tensor without elements could have any."""
    nodes = f"e = Exp (x) s = Shape (x) {extent(0)} {extent(2)} t = Concat <axis = 0> (v0, two, two, v2) "
    left = shortened(f"{nodes} y = Reshape (e, t)", outputs="float[A, B, C, D] y")
    assert (left["Gather"], left["Unsqueeze"], left["Concat"]) == (2, 2, 1)


def test_one_extent_left_open_where_nothing_can_be_empty() -> None:
    """[N, 4, M] as [N * 4, M] has no such target; [N, 4, 3] as [4, 3, N] has."""
    nodes = f"s = Shape (x) {extent(0)} t = Concat <axis = 0> (four, v0, two) y = Reshape (x, t)"
    sizes = [{"N": n} for n in (0, 1, 3)]
    assert shortened(nodes, "float[N, 4, 2] x", "float[A, B, C] y", sizes=sizes) == {"Reshape": 1}
    # What does not fit still fails: 8 elements a row are no 4.
    nodes = f"s = Shape (x) {extent(0)} t = Concat <axis = 0> (four, v0) y = Reshape (x, t)"
    assert shortened(nodes, "float[N, 4, 2] x", sizes=sizes)["Concat"] == 1


@pytest.mark.parametrize("literal", [0, 1])
def test_zeros_that_are_meant(literal: int) -> None:
    nodes = (
        f"s = Shape (x) {extent(0)} t = Concat <axis = 0> (v0, zero, two) y = Reshape <allowzero = {literal}> (x, t)"
    )
    shortened(nodes, "float[N, 4, 2] x", "float[A, B, C] y", sizes=[{"N": 0}, {"N": 2}])
    nodes = f"s = Shape (x) {extent(0)} t = Concat <axis = 0> (v0, minus) y = Reshape <allowzero = {literal}> (x, t)"
    left = shortened(nodes, "float[N, 4, 2] x", sizes=[{"N": 0}, {"N": 2}])
    assert left == ({"Shape": 1, "Concat": 1, "Reshape": 1} if literal else {"Reshape": 1})


def test_pads_that_are_turned_around() -> None:
    """As torch.nn.functional.pad is exported: pairs from the last dimension on, turned into starts and ends."""
    nodes = (
        f"s = Shape (x) {extent(2)} p = Concat <axis = 0> (v2, one, zero, zero, zero, zero) q = Reshape (p, pairs) "
        "r = Slice (q, minus, begin, zero, minus) t = Transpose <perm = [1, 0]> (r) f = Reshape (t, minus) "
        "y = Pad (x, f)"
    )
    assert shortened(nodes, outputs="float[A, B, C] y", sizes=[{"N": 2, "M": 3}]) == {"Shape": 1, "Concat": 1, "Pad": 1}


def test_extents_are_read_once() -> None:
    once = f"s = Shape (x) {extent(0)} {extent(2)} t = Concat <axis = 0> (v2, two, two, v0) y = Reshape (x, t)"
    again = re.sub(r"\b(s|g0|g2|v0|v2|t|y)\b", r"\1z", once).replace("(x", "(e")
    assert shortened(f"e = Exp (x) {once} {again}", outputs="float[A, B, C, D] y, float[E, F, G, H] yz") == {
        "Exp": 1,
        "Shape": 2,
        "Concat": 1,
        "Reshape": 2,
    }


def test_extents_of_the_same_name_may_differ() -> None:
    """ONNX Runtime takes inputs of other extents than each other's where only their names are equal."""
    nodes = f"s = Shape (z) {extent(0)} t = Concat <axis = 0> (v0, minus) y = Reshape (x, t)"
    inputs = "float[N, 4] x, float[N] z"
    model = parse(text(nodes, inputs, "float[A, B] y"))
    result, _ = shorten_shape_arithmetic(model, 17)
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "z": np.zeros(4, np.float32)}
    for m in (model, result):
        assert make_session(m, threads=1, optimize=False).run(None, feeds)[0].shape == (4, 2)


def test_an_expansion_to_the_own_shape_goes() -> None:
    wanted = "s = Shape (e) m = Equal (s, no) w = Where (m, ones, s) "
    nodes = "e = Exp (x) no = Constant <value_ints = [-1, -1, -1]> () ones = Constant <value_ints = [1, 1, 1]> () "
    assert shortened(f"{nodes} {wanted} f = Expand (e, w) y = Neg (f)", outputs="float[A, B, C] y") == {
        "Exp": 1,
        "Neg": 1,
    }
    # As an output it has a name of its own.
    assert shortened(f"{nodes} {wanted} y = Expand (e, w)", outputs="float[A, B, C] y") == {"Exp": 1, "Expand": 1}


def test_an_expansion_to_another_shape_stays() -> None:
    nodes = f"s = Shape (x) {extent(0)} {extent(2)} t = Concat <axis = 0> (v0, four, v2) f = Expand (z, t) y = Neg (f)"
    left = shortened(nodes, "float[N, 4, M] x, float[K, 1, 1] z", "float[A, B, C] y", sizes=[{"N": 2, "M": 3, "K": 1}])
    assert left["Expand"] == 1


@pytest.mark.parametrize("opset", [11, 13, 15])
def test_scalars_and_arithmetic(opset: int) -> None:
    nodes = (
        f"s = Shape (x) g0 = Gather (s, i0) {extent(2, opset)} a = Mul (g0, i2) b = Mul (a, i1) c = Add (b, i0) "
        "r = Range (i0, c, i1) d = Div (v2, two) e = Sub (v2, d) f = Concat <axis = 0> (e, d) y = ConstantOfShape (f)"
    )
    left = shortened(nodes, outputs="int64[A] r, float[B, C] y", opset=opset)
    assert left["Mul"] == left["Range"] == left["Sub"] == left["Div"] == 1
    assert left["Add"] == left["Unsqueeze"] == 0


def test_division_rounds_towards_zero() -> None:
    nodes = "s = Shape (x) g = Gather (s, i1) m = Sub (i0, g) n = Sub (m, i1) d = Div (n, i2) y = Add (d, z)"
    assert shortened(nodes, "float[N, 4] x, int64[1] z", "int64[1] y", sizes=[{"N": 1}]) == {"Add": 1}


@pytest.mark.parametrize("end", ["2147483647", "9223372036854775807", "-2147483648", "0"])
@pytest.mark.parametrize("inputs", ["N, M, 3", "2, 5, 3"])
def test_slices_backwards_to_the_largest_integer(inputs: str, end: str) -> None:
    nodes = (
        f"s = Shape (x) b = Constant <value_ints = [-1]> () e = Constant <value_ints = [{end}]> () a = Constant "
        "<value_ints = [0]> () t = Slice (s, b, e, a, b) u = Shape (x) i = Concat <axis = 0> (u, t) "
        "j = Slice (i, b, e, a, b) y = Neg (t) z = Neg (j)"
    )
    shortened(nodes, f"float[{inputs}] x", "int64[A] y, int64[B] z", sizes=[{"N": 2, "M": 5}])


@pytest.mark.parametrize("opset", [11, 13, 15])
def test_a_scalar_that_a_run_brings_several_times(opset: int) -> None:
    unsqueeze = "Unsqueeze (k, zero)" if opset >= 13 else "Unsqueeze <axes = [0]> (k)"
    nodes = (
        f"s = Shape (x) t = Concat <axis = 0> (s) u = {unsqueeze} z = Constant <value = int64[2] {{0, 0}}> () "
        "v = Gather (u, z) y = Neg (v) o = Neg (t)"
    )
    inputs, outputs = "float[N] x, int64 k", "int64[2] y, int64[1] o"
    assert shortened(nodes, inputs, outputs, opset, sizes=[{"N": 2}])["Concat"] == 0


@pytest.mark.parametrize("target", ["1, 1", "N, 1", "1"])
def test_a_reshape_to_a_scalar(target: str) -> None:
    nodes = (
        "s = Shape (x) b = Constant <value_ints = [2]> () e = Constant <value_ints = [9]> () t = Slice (s, b, e) "
        "u = Shape (x) v = Concat <axis = 0> (t, u) w = Expand (x, v) r = Reshape (w, t) y = Unsqueeze (r, zero)"
    )
    shortened(nodes, f"float[{target}] x", "float[A] y", sizes=[{"N": 1}])


def test_a_value_that_a_run_brings() -> None:
    inputs = "float[N, 4, M] x, int64 n, int64[3] v"
    nodes = (
        "u = Unsqueeze (n, zero) a = Concat <axis = 0> (u, v) b = Gather (a, i0) c = Unsqueeze (b, zero) "
        "d = Slice (a, one, end) s = Shape (x) e = Concat <axis = 0> (c, d, s) f = Slice (e, zero, four) "
        "y = Identity (f)"
    )
    assert shortened(nodes, inputs, "int64[4] y") == {"Unsqueeze": 1, "Concat": 1, "Identity": 1}


@pytest.mark.parametrize("index", ["three", "before"])
def test_what_fails_still_fails(index: str) -> None:
    """ONNX Runtime refuses an index beyond the rank when it runs."""
    nodes = (
        "three = Constant <value_int = 3> () before = Constant <value_int = -4> () s = Shape (x) "
        f"g = Gather (s, {index}) v = Unsqueeze (g, zero) t = Concat <axis = 0> (v, minus) y = Reshape (x, t)"
    )
    assert shortened(nodes)["Gather"] == 1


def test_outputs_and_captured_values_stay() -> None:
    nodes = (
        f"s = Shape (x) {extent(0)} {extent(1)} a = Add (v0, zero) t = Concat <axis = 0> (a, v1, minus) "
        "c = Equal (g1, i2) y = If (c) <then_branch = p () => (int64[1] q) { q = Neg (v0) }, "
        "else_branch = e () => (int64[1] r) { r = Abs (v1) }> z = Reshape (x, t)"
    )
    left = shortened(nodes, "float[N, M, 4] x", "int64[1] y, int64[1] a, float[A, B, C] z", sizes=[{"N": 3, "M": 2}])
    assert left["Concat"] == 0


def test_inside_bodies() -> None:
    inner = f"s = Shape (a) {extent(0)} t = Concat <axis = 0> (v0, minus) q = Reshape (a, t)"
    other = re.sub(r"\b(s|g0|v0|t|q)\b", r"\1k", inner)
    nodes = (
        f"a = Exp (x) y = If (c) <then_branch = p () => (float[A, B] q) {{ {inner} }}, "
        f"else_branch = e () => (float[C, D] qk) {{ {other} }}>"
    )
    left = shortened(nodes, "float[N, 4, M] x, bool c", sizes=[{"N": 2, "M": 3}])
    assert left == {"Exp": 1, "If": 1, "Reshape": 2}


def test_rounding_of_a_static_extent_is_that_of_float32() -> None:
    """3 / 0.1 is 30 there, where the exact quotient of both numbers is a little less."""
    graph = (
        "g (float[N, 3] x, float[N, 40] z) => (float[N, K] y) <int64 one = {1}, int64[1] begin = {0}, "
        "int64[1] axis = {1}, float tenth = {0.1}> { s = Shape (x) n = Gather (s, one) f = Cast <to = 1> (n) "
        "q = Div (f, tenth) h = Cast <to = 7> (q) u = Unsqueeze (h, begin) e = Exp (z) a = Slice (e, begin, u, axis) "
        "b = Neg (a) y = Abs (b) }"
    )
    nodes, model, _ = optimized(graph, sizes={"N": 3}, target="cuda")
    assert nodes == ["FusedElementwise"]
    (session,) = [make_session(model, threads=1)]
    feeds = {"x": np.zeros((2, 3), np.float32), "z": np.zeros((2, 40), np.float32)}
    assert session.run(None, feeds)[0].shape == (2, 30)


def test_fused_models_report_it() -> None:
    graph = text(
        f"a = Exp (x) b = Neg (a) s = Shape (x) {extent(0)} t = Concat <axis = 0> (v0, minus) y = Reshape (b, t)",
        "float[N, 4, M] x", "float[A, B] y",
    )  # fmt: skip
    for target in ("cpu", "cuda"):
        _, model, report = optimized(graph, sizes={"N": 2, "M": 3}, target=target)
        assert {n.op_type for n in model.graph.node} == {"FusedElementwise", "Reshape"}
        assert any("nodes that compute with shapes: 4 fewer" in note for note in report.notes)


def test_long_chains_take_linear_time() -> None:
    def seconds(count: int) -> float:
        nodes = ["s0 = Shape (x) g0 = Gather (s0, i0) n0 = Unsqueeze (g0, zero)"]
        for k in range(count):
            nodes.append(f"n{k + 1} = Add (n{k}, one) c{k} = Concat <axis = 0> (n{k}, one) f{k} = Identity (c{k})")
            nodes.append(f"z{k} = ConstantOfShape (f{k}) s{k + 1} = Shape (z{k})")
        inputs = ", ".join(f"s{k + 1}" for k in range(count))
        model = parse(text(f"{' '.join(nodes)} y = Concat <axis = 0> ({inputs})", "float[N, 4] x", "int64[K] y"))
        begin = time.process_time()
        _, saved = shorten_shape_arithmetic(model, 17)
        assert saved > 0
        return time.process_time() - begin

    assert seconds(1600) < 24 * max(seconds(200), 0.05)  # eight times as many; quadratic code takes 64 times as long


def test_random_models() -> None:
    saved = 0
    sizes = ({"N": 2, "M": 3, "K": 5}, {"N": 1, "M": 1, "K": 1}, {"N": 3, "M": 2, "K": 0})
    for seed in range(150):
        model, opset = random_shape_model(seed)
        saved += counted(model.graph).total()
        saved -= rewritten(model, shorten_shape_arithmetic, opset, sizes).total()
    assert saved > 300
