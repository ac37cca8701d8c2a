"""Numbers that a model computes from static shapes stand in programs; what computed them goes."""

from __future__ import annotations

import pytest
from graphs import fused, optimized, parse

import onnxfuse

# The scale as TorchScript's exporter spells it, of a result `q` of the region that multiplies by it.
SCALE = (
    "sh = Shape (q) head = Slice (sh, last, end) wide = Cast <to = 1> (head) root = Sqrt (wide) "
    "share = Div (one, root) scale = Sqrt (share) "
)
CONSTANTS = "<int64[1] last = {-1}, int64[1] end = {9223372036854775807}, float[1] one = {1}>"


@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("order", ["q, scale", "scale, q"])
def test_a_scale_that_follows_from_the_region_itself(order: str, target: str) -> None:
    graph = (
        f"g (float[N, 6, 16] x, float[16] b) => (float[N, 6, 16] y) {CONSTANTS} "
        f"{{ q = Add (x, b) {SCALE} s = Mul ({order}) y = Tanh (s) }}"
    )
    for n in (1, 3):
        nodes, model, report = optimized(graph, sizes={"N": n}, target=target)
        assert nodes == ["FusedElementwise"]
        assert [node.op_type for node in model.graph.node] == ["FusedElementwise"]
    assert {r.operator for r in report.refusals if "a constant stands in its place" in r.reason} == {
        "Cast",
        "Div",
        "Sqrt",
    }


def test_an_extent_that_only_a_run_shows_stays() -> None:
    graph = (
        f"g (float[N, 6, M] x, float[M] b) => (float[N, 6, M] y) {CONSTANTS} "
        f"{{ q = Add (x, b) {SCALE} s = Mul (q, scale) y = Tanh (s) }}"
    )
    for m in (1, 5):
        nodes, model, _ = optimized(graph, sizes={"N": 2, "M": m}, target="cuda")
        assert nodes
        assert "Shape" in [node.op_type for node in model.graph.node]


def test_a_number_that_is_also_an_output_stays_one() -> None:
    graph = (
        f"g (float[N, 6, 16] x, float[16] b) => (float[N, 6, 16] y, float[1] scale) {CONSTANTS} "
        f"{{ q = Add (x, b) {SCALE} s = Mul (q, scale) y = Tanh (s) }}"
    )
    assert fused(graph, sizes={"N": 2}, target="cuda") == ["FusedElementwise"]


def test_a_sum_over_a_static_extent_becomes_a_mean_of_known_length() -> None:
    graph = (
        "g (float[N, 12] x) => (float[N, 1] y) <int64[1] axis = {1}, int64 one = {1}> "
        "{ s = ReduceSum (x, axis) sh = Shape (x) n = Gather (sh, one) w = Cast <to = 1> (n) m = Div (s, w) "
        "y = Exp (m) }"
    )
    nodes, model, _ = optimized(graph, sizes={"N": 3}, target="cuda")
    assert nodes == ["FusedReduction"]
    assert len(model.graph.node) == 1


def test_a_model_in_which_nothing_else_is_fused_stays_as_it_was() -> None:
    model = parse(
        "g (float[4, 16] x) => (float[4, 16] y) <int64 one = {1}> "
        "{ sh = Shape (x) n = Gather (sh, one) w = Cast <to = 1> (n) y = Div (x, w) }"
    )
    result = onnxfuse.optimize(model, target="cuda", min_nodes=3)
    assert [n.op_type for n in result.model.graph.node] == ["Shape", "Gather", "Cast", "Div"]
