"""Parts of cheap work are computed where they are used, and a Split is read through, whatever cuts the parts out."""

from __future__ import annotations

import pytest
from graphs import fused, optimized

# Packed queries, keys and values: 2 sequences of 5, 3 heads of 4.
HEAD = "g (float[2, 5, 12] x, float[12, 36] w) => (float[2, 3, 5, 4] q, float[2, 3, 5, 4] k, float[2, 3, 5, 4] v)"
BIAS = ", ".join(str(k / 7 - 2) for k in range(36))
SPLIT = (
    f"{HEAD} <float[36] b = {{{BIAS}}}, int64[4] heads = {{0, 0, 3, 4}}> "
    "{ m = MatMul (x, w) a = Add (m, b) p, r, s = Split <axis = -1, num_outputs = 3> (a) "
    "ph = Reshape (p, heads) rh = Reshape (r, heads) sh = Reshape (s, heads) "
    "q = Transpose <perm = [0, 2, 1, 3]> (ph) k = Transpose <perm = [0, 2, 1, 3]> (rh) "
    "v = Transpose <perm = [0, 2, 1, 3]> (sh) }"
)
STACKED = (
    f"{HEAD} <float[36] b = {{{BIAS}}}, int64[5] shape = {{2, 5, 3, 3, 4}}, CONSTANTS> "
    "{ m = MatMul (x, w) a = Add (b, m) h = Reshape (a, shape) t = Transpose <perm = [2, 0, 3, 1, 4]> (h) PARTS }"
)
GATHERED = STACKED.replace("CONSTANTS", "int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {-1}").replace(
    "PARTS", "q = Gather (t, i0) k = Gather (t, i1) v = Gather (t, i2)"
)
SLICED = STACKED.replace(
    "CONSTANTS",
    "int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] i3 = {3}, int64[1] axis = {0}",
).replace(
    "PARTS",
    "qs = Slice (t, i0, i1, axis) ks = Slice (t, i1, i2, axis) vs = Slice (t, i2, i3, axis) "
    "q = Squeeze (qs, axis) k = Squeeze (ks, axis) v = Squeeze (vs, axis)",
)
UNBOUND = STACKED.replace("CONSTANTS", "int64[1] axis = {0}").replace(
    "PARTS",
    "qs, ks, vs = Split <axis = 0, num_outputs = 3> (t) q = Squeeze (qs, axis) k = Squeeze (ks, axis) "
    "v = Squeeze (vs, axis)",
)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("graph", [SPLIT, GATHERED, SLICED, UNBOUND], ids=["split", "gather", "slice", "unbound"])
def test_the_bias_of_packed_queries_keys_and_values_goes_into_the_parts(graph: str, target: str) -> None:
    _, model, report = optimized(graph, opset=18, target=target)
    left = [n.op_type for n in model.graph.node if n.domain != "onnxfuse" and n.op_type not in ("Constant", "Squeeze")]
    assert left == ["MatMul"]
    assert (
        sorted(op for f in report.fusions for op in f.operators).count("Add") == 1
    )  # reported once, though used thrice


@pytest.mark.parametrize("name", ["a", "h", "t"])
def test_what_is_also_a_result_is_computed_whole(name: str) -> None:
    shape = {"a": "2, 5, 36", "h": "2, 5, 3, 3, 4", "t": "3, 2, 3, 5, 4"}[name]
    graph = SLICED.replace("float[2, 3, 5, 4] v)", f"float[2, 3, 5, 4] v, float[{shape}] {name})")
    _, _, report = optimized(graph, opset=18, target="cuda")
    assert not any("MatMul" in f.operators for f in report.fusions)


def test_a_part_that_something_else_takes_whole() -> None:
    """MatMul reads the value part as it is: a kernel of its own writes it."""
    graph = (
        "g (float[4, 6] x, float[6, 9] w, float[9] b, float[3, 5] u) => (float[4, 3] y, float[4, 5] z) "
        "<int64[1] i0 = {0}, int64[1] i3 = {3}, int64[1] i6 = {6}, int64[1] axis = {1}> "
        "{ m = MatMul (x, w) a = Add (m, b) p = Slice (a, i0, i3, axis) r = Slice (a, i3, i6, axis) "
        "y = Tanh (p) z = MatMul (r, u) }"
    )
    _, model, report = optimized(graph, opset=18, target="cuda")
    assert [f.op_type for f in report.fusions] == ["FusedElementwise", "FusedElementwise"]
    assert [len(group.members) for group in report.groups] == [2]  # they share a launch
    assert [n.op_type for n in model.graph.node if n.domain != "onnxfuse"] == ["MatMul", "MatMul"]


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        (("0", "3"), ("4", "9"), "1", "1"),  # overlapping
        (("0", "1"), ("9", "9"), "1", "2"),  # interleaved
        (("8", "7"), ("-10", "-10"), "1", "-2"),  # backwards
        (("0, 1", "2, 0"), ("2, 5", "4, 4"), "0, 1", "1, 1"),  # of both dimensions
    ],
)
def test_any_parts(starts: tuple[str, str], ends: tuple[str, str], axes: str, steps: str) -> None:
    n = len(axes.split(","))
    constants = ", ".join(
        f"int64[{n}] {name} = {{{values}}}"
        for name, values in zip(("s0", "s1", "e0", "e1", "ax", "st"), (*starts, *ends, axes, steps), strict=True)
    )
    graph = (
        f"g (float[4, 6] x, float[6, 9] w, float[4, 1] c, float[9] b) => (float[N, M] y, float[K, L] z) <{constants}> "
        "{ m = MatMul (x, w) d = Mul (m, c) a = Sub (b, d) p = Slice (a, s0, e0, ax, st) r = Slice (a, s1, e1, ax, st) "
        "y = Tanh (p) q = Exp (r) z = Neg (q) }"
    )
    for target in ("cpu", "cuda"):
        _, model, _ = optimized(graph, opset=18, target=target)
        assert [n.op_type for n in model.graph.node if n.domain != "onnxfuse"] == ["MatMul"]


def test_a_part_across_what_a_reshape_joins_stays() -> None:
    """Rows 1 to 3 of four that were two by two: no single index reads them."""
    graph = (
        "g (float[2, 6] x, float[6, 10] w, float[10] b) => (float[2, 5] y, float[1, 5] z) "
        "<int64[3] up = {2, 2, 5}, int64[2] flat = {4, 5}, int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i3 = {3}> "
        "{ m = MatMul (x, w) a = Add (m, b) u = Reshape (a, up) t = Transpose <perm = [1, 0, 2]> (u) "
        "f = Reshape (t, flat) p = Slice (f, i1, i3, i0) r = Slice (f, i0, i1, i0) y = Tanh (p) z = Exp (r) }"
    )
    for target in ("cpu", "cuda"):
        optimized(graph, opset=18, target=target)


@pytest.mark.parametrize("operator", ["Softmax", "LayerNormalization"])
def test_a_reduction_is_not_computed_in_parts(operator: str) -> None:
    inputs = "(m, b)" if operator == "LayerNormalization" else "(m)"
    graph = (
        "g (float[4, 6] x, float[6, 8] w, float[8] b) => (float[4, 4] y, float[4, 4] z) "
        f"{{ m = MatMul (x, w) a = {operator} {inputs} p, r = Split <axis = 1, num_outputs = 2> (a) "
        "c = Exp (p) y = Neg (c) d = Tanh (r) z = Abs (d) }"
    )
    _, _, report = optimized(graph, opset=18, target="cuda")
    assert sum(operator in f.operators for f in report.fusions) <= 1


def test_halves_of_a_product_read_through_the_split() -> None:
    graph = (
        "g (float[B, 6] x, float[6, 8] w) => (float[B, 4] y) "
        "{ m = MatMul (x, w) p, r = Split <axis = -1, num_outputs = 2> (m) s = Sigmoid (p) "
        "t = Mul (p, s) y = Mul (t, r) }"
    )
    for target in ("cpu", "cuda"):
        ops, model, _ = optimized(graph, opset=18, target=target, sizes={"B": 3})
        assert ops == ["FusedOutOfPlace"]
        assert [n.op_type for n in model.graph.node if n.domain != "onnxfuse"] == ["MatMul"]


def test_halves_that_go_separate_ways() -> None:
    graph = (
        "g (float[4, 6] x, float[6, 8] w, float[4, 3] u) => (float[4, 4] y, float[4, 3] z) "
        "{ m = MatMul (x, w) p, r = Split <axis = -1, num_outputs = 2> (m) s = Sigmoid (p) y = Mul (p, s) "
        "a = Exp (r) b = Neg (a) z = MatMul (b, u) }"
    )
    _, model, report = optimized(graph, opset=18, target="cuda")
    assert "Split" not in [n.op_type for n in model.graph.node]
    assert sum(f.operators.count("Split") for f in report.fusions) == 1


@pytest.mark.parametrize("indices", ["0, 1, 2", "3, 2, 1", "1, 3", "0, 2, 4", "-1", "-2, -1"])
def test_indices_at_equal_distances_are_a_slice(indices: str) -> None:
    count = len(indices.split(","))
    graph = (
        f"g (float[5, 3] x) => (float[{count}, 3] y) <int64[{count}] i = {{{indices}}}> "
        "{ p = Gather (x, i) q = Exp (p) y = Neg (q) }"
    )
    ops, model, _ = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"]
    assert len([n for n in model.graph.node if n.op_type != "Constant"]) == 1


@pytest.mark.parametrize("indices", ["0, 1, 3", "2, 2", "0, 1, 0"])
def test_other_indices_stay(indices: str) -> None:
    count = len(indices.split(","))
    graph = (
        f"g (float[5, 3] x) => (float[{count}, 3] y) <int64[{count}] i = {{{indices}}}> "
        "{ p = Gather (x, i) q = Exp (p) y = Neg (q) }"
    )
    _, model, report = optimized(graph, target="cuda")
    assert "Gather" in [n.op_type for n in model.graph.node]
    assert any("equal distances" in r.reason for r in report.refusals)


@pytest.mark.parametrize("pads", ["0, 0, 0, 0", "0, -1, 0, 0", "-1, 0, -2, -1"])
def test_pads_that_add_nothing_are_read_through(pads: str) -> None:
    graph = (
        f"g (float[5, 4] x) => (float[N, M] y) <int64[4] pads = {{{pads}}}> "
        "{ p = Pad (x, pads) q = Exp (p) y = Neg (q) }"
    )
    assert fused(graph, opset=18, target="cuda") == ["FusedElementwise"]


def test_pads_that_add_stay() -> None:
    graph = (
        "g (float[5, 4] x) => (float[6, 4] y) <int64[4] pads = {0, 0, 1, 0}> "
        "{ p = Pad (x, pads) q = Exp (p) y = Neg (q) }"
    )
    _, model, _ = optimized(graph, opset=18, target="cuda")
    assert "Pad" in [n.op_type for n in model.graph.node]


def test_a_slice_of_one_piece_of_a_dimension() -> None:
    """Heads 1 and 2 of four, of which each is five columns wide, after their bias."""
    graph = (
        "g (float[3, 6] x, float[6, 20] w, float[20] b) => (float[2, 3, 5] y, float[2, 3, 5] z) "
        "<int64[3] s = {3, 4, 5}, int64[1] i1 = {1}, int64[1] i3 = {3}, int64[1] i0 = {0}, int64[1] i2 = {2}> "
        "{ m = MatMul (x, w) a = Add (m, b) r = Reshape (a, s) t = Transpose <perm = [1, 0, 2]> (r) "
        "p = Slice (t, i1, i3, i0) q = Slice (t, i0, i2, i0) y = Exp (p) z = Neg (q) }"
    )
    for target in ("cpu", "cuda"):
        _, model, _ = optimized(graph, opset=18, target=target)
        assert [n.op_type for n in model.graph.node if n.domain != "onnxfuse"] == ["MatMul"]
