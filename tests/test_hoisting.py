"""A bias before a Transpose that scatters goes into the region behind it."""

from __future__ import annotations

import pytest
from graphs import optimized

# 64 x 64 rows of 96 channels and back: too large to be read through a transposition.
BIAS = "float[96] b"
GRAPH = (
    "g (float[1, 32, 80, 24] x, float[24, 96] w, {bias}, float[1, 96, 32, 80] r, float[96, 1, 1] s) => "
    "(float[1, 96, 32, 80] y) "
    "{{ m = MatMul (x, w) a = {operation} t = Transpose <perm = [0, 3, 1, 2]> (a) c = Mul (t, s) y = Add (c, r) }}"
)


def constant(graph: str, values: str) -> str:
    """The graph with the bias as an initializer."""
    return graph.replace("float[96] b, ", "").replace(
        "=> (float[1, 96, 32, 80] y) ", f"=> (float[1, 96, 32, 80] y) <{values}> "
    )


VALUES = "float[96] b = {" + ", ".join(str(1 + k / 100) for k in range(96)) + "}"


@pytest.mark.parametrize("operation", ["Add (m, b)", "Add (b, m)", "Sub (b, m)", "Div (m, b)", "Mul (b, m)"])
def test_an_operation_with_a_vector_goes_behind(operation: str) -> None:
    graph = constant(GRAPH.format(bias=BIAS, operation=operation), VALUES)
    ops, model, report = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"]
    assert report.fusions[0].operators == (operation[:3], "Mul", "Add")
    assert [n.op_type for n in model.graph.node if n.op_type in ("MatMul", "Transpose")] == ["MatMul", "Transpose"]


def test_a_number_goes_behind() -> None:
    graph = constant(GRAPH.format(bias=BIAS, operation="Mul (m, b)"), "float b = {0.5}")
    _, _, report = optimized(graph, target="cuda")
    assert report.fusions[0].operators == ("Mul", "Mul", "Add")


def test_what_is_no_constant_stays() -> None:
    _, _, report = optimized(GRAPH.format(bias=BIAS, operation="Add (m, b)"), target="cuda")
    assert report.fusions[0].operators == ("Mul", "Add")


def test_what_a_region_computes_keeps_its_operation() -> None:
    graph = constant(
        GRAPH.format(bias=BIAS, operation="Add (e, b)").replace("m = MatMul (x, w)", "m = MatMul (x, w) e = Exp (m)"),
        VALUES,
    )
    _, _, report = optimized(graph, target="cuda")
    assert sorted(f.operators for f in report.fusions) == [("Exp", "Add"), ("Mul", "Add")]


@pytest.mark.parametrize("output", ["float[1, 32, 80, 96] a", "float[1, 96, 32, 80] t"])
def test_what_is_also_a_result_is_right(output: str) -> None:
    graph = constant(GRAPH.format(bias=BIAS, operation="Add (m, b)"), VALUES)
    graph = graph.replace("(float[1, 96, 32, 80] y)", f"(float[1, 96, 32, 80] y, {output})")
    optimized(graph, target="cuda")


def test_on_the_cpu_it_stays() -> None:
    graph = constant(GRAPH.format(bias=BIAS, operation="Add (m, b)"), VALUES)
    optimized(graph, target="cpu")
