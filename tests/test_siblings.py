"""Regions that only read the same tensor become one node that reads it once."""

from __future__ import annotations

import pytest
from graphs import fused, optimized


def graph(outputs: str, nodes: str, inputs: str = "float[N, 32] x", values: str = "") -> str:
    return f"g ({inputs}) => ({outputs}) {values} {{ {nodes} }}"


TWO = "float[N, 32] y, float[N, 32] z"


@pytest.mark.parametrize(("outputs", "nodes", "kind"), [
    (TWO, "a = Tanh (x) y = Neg (a) b = Sigmoid (x) c = Exp (b) z = Mul (b, c)", "FusedElementwise"),
    (TWO, "y = Tanh (x) z = Sigmoid (x)", "FusedElementwise"),
    ("float[N, 1] y, int64[N, 1] z", "y = ReduceMax <axes = [1]> (x) z = ArgMax <axis = 1> (x)", "FusedReduction"),
    ("float[N] y, float[N] z",
     "y = ReduceMean <axes = [-1], keepdims = 0> (x) z = ReduceSumSquare <axes = [1], keepdims = 0> (x)",
     "FusedReduction"),
    ("float[N, 1] y, float[N, 32] z", "y = ReduceLogSumExp <axes = [1]> (x) z = Tanh (x)", "FusedReduction"),
    (TWO, "y = Softmax <axis = 1> (x) a = Tanh (x) z = Mul (a, x)", "FusedSoftmax"),
])  # fmt: skip
def test_siblings_are_one_node(outputs: str, nodes: str, kind: str) -> None:
    kinds, model, report = optimized(graph(outputs, nodes), sizes={"N": 3})
    assert kinds == [kind]
    assert len(model.graph.node) == 1
    assert report.fusions[0].program.count("input 0") == 1


def test_more_siblings_and_what_each_reads_besides() -> None:
    nodes = "s = Sigmoid (a) y = Mul (x, s) t = Tanh (x) z = Add (t, b) r = Relu (x) w = Sub (r, a)"
    inputs = "float[N, 32] x, float[N, 32] a, float[32] b"
    kinds, model, _ = optimized(graph(f"{TWO}, float[N, 32] w", nodes, inputs), sizes={"N": 3})
    assert kinds == ["FusedElementwise"]
    assert len(model.graph.node) == 1


def test_a_path_between_siblings_keeps_them_apart() -> None:
    nodes = "a = Tanh (x) b = Neg (a) m = MatMul (b, w) c = Sigmoid (x) d = Mul (c, m) z = Exp (d)"
    inputs, values = "float[N, 32] x, float[32, 32] w", ""
    kinds, _, _ = optimized(graph("float[N, 32] z", nodes, inputs, values), sizes={"N": 3})
    assert kinds == ["FusedElementwise", "FusedElementwise"]


def test_two_pairs_of_siblings_that_would_need_each_other() -> None:
    """Each pair is convex for itself; joined, either would wait for the other."""
    nodes = (
        "a = Tanh (x) p = Neg (a) b = Tanh (w) q = Neg (b) m = MatMul (p, k) n = MatMul (q, k) "
        "c = Mul (w, m) y = Exp (c) d = Mul (x, n) z = Exp (d)"
    )
    inputs = "float[32, 32] x, float[32, 32] w, float[32, 32] k"
    kinds, _, _ = optimized(graph("float[32, 32] y, float[32, 32] z", nodes, inputs))
    assert 3 <= len(kinds) <= 4


@pytest.mark.parametrize(("nodes", "values"), [
    ("y = Transpose <perm = [1, 0]> (x) t = Tanh (y) z = Neg (t) u = Exp (x) v = Abs (u)", ""),
    ("s = ReduceSum <keepdims = 0> (x) z = Sqrt (s) u = Exp (x) v = Abs (u)", ""),
    ("s = Add (x, k) z = Tanh (s) u = Exp (x) v = Abs (u)", "<float[4, 1, 1] k = {1, 2, 3, 4}>"),
])  # fmt: skip
def test_what_is_not_joined(nodes: str, values: str) -> None:
    """A transposition, a long row beside element-wise work, another space."""
    model = graph("float[M, 32] v, Z z", nodes, "float[M, 32] x", values)
    shapes = {"Transpose": "float[32, M]", "ReduceSum": "float", "Add": "float[4, M, 32]"}
    shape = next(s for op, s in shapes.items() if op in nodes)
    kinds, _, report = optimized(model.replace("Z z", f"{shape} z"), sizes={"M": 3})
    assert len(kinds) == 2, report.fusions


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_rearranges_its_result_is_not_joined(target: str) -> None:
    """The other's results would be stored in the order that suits the transposition."""
    nodes = "a = Tanh (x) t = Transpose <perm = [1, 0]> (a) y = Neg (t) b = Exp (x) z = Abs (b)"
    text = graph("float[32, 64] y, float[64, 32] z", nodes, "float[64, 32] x")
    kinds = fused(text, target=target, skip=["horizontal"])
    assert kinds == ["FusedElementwise", "FusedElementwise"]


def test_siblings_that_cannot_be_one_node_are_two() -> None:
    """A rewrite that is switched off takes only its own part away."""
    nodes = "s = Softmax <axis = 1> (x) y = Neg (s) a = Tanh (x) z = Mul (a, x)"
    assert fused(graph(TWO, nodes), sizes={"N": 3}, skip=["softmax"]) == ["FusedElementwise"]
    assert fused(graph(TWO, nodes), sizes={"N": 3}) == ["FusedSoftmax"]


def test_siblings_far_from_each_other_stay_apart() -> None:
    chain = "".join(f"m{k + 1} = MatMul (m{k}, w) " for k in range(140))
    nodes = f"a = Tanh (x) y = Neg (a) m0 = Identity (w) {chain} s = Sub (x, m140) z = Exp (s)"
    kinds = fused(graph("float[4, 4] y, float[4, 4] z", nodes, "float[4, 4] x, float[4, 4] w"), runs=False)
    assert kinds == ["FusedElementwise", "FusedElementwise"]


@pytest.mark.parametrize(("first", "then", "count"), [
    ("m = MatMul (y, w)", "", 2),  # uses y before the second one would run, whose two results are large
    ("", "m = MatMul (y, w)", 1),
])  # fmt: skip
def test_large_results_do_not_wait_for_others(first: str, then: str, count: int) -> None:
    nodes = f"a = Tanh (x) y = Neg (a) {first} b = Sigmoid (x) z = Exp (b) c = Abs (z) v = Mul (c, b) {then}"
    inputs = "float[N, 32] x, float[32, 32] w"
    kinds, _, _ = optimized(graph(f"float[N, 32] m, {TWO}, float[N, 32] v", nodes, inputs), sizes={"N": 3})
    assert len(kinds) == count


def test_a_result_no_larger_than_what_is_read_once_may_wait() -> None:
    nodes = "a = Tanh (x) y = Neg (a) m = MatMul (y, w) b = Sigmoid (x) z = Exp (b)"
    inputs = "float[N, 32] x, float[32, 32] w"
    kinds, _, _ = optimized(graph(f"float[N, 32] m, {TWO}", nodes, inputs), sizes={"N": 3})
    assert len(kinds) == 1
