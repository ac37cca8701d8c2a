"""Integers that exporters compute from static dimensions are as good as constants."""

from __future__ import annotations

import pytest
from graphs import optimized

# What torch's tracing exporter makes of padding to a multiple of 7, and of the pads' order.
PADDING = """
g (float[N, {size}, 5] x) => (float[N, P, 5] y)
<int64 one = {{1}}, int64 seven = {{7}}, int64[1] zero = {{0}}, int64[3] none = {{0, 0, 0}}, int64[1] first = {{-1}},
 int64[1] last = {{-9223372036854775807}}, int64[2] pairs = {{-1, 2}}, int64 six = {{6}}, int64[1] three = {{3}}>
{{
    a = Abs (x)
    s = Shape (a)
    n = Gather <axis = 0> (s, one)
    r = Mod (n, seven)
    d = Sub (seven, r)
    m = Mod (d, seven)
    u = Unsqueeze (m, zero)
    c = Concat <axis = 0> (zero, zero, zero, u)
    l = Shape (c)
    g = Gather <axis = 0> (l, zero)
    h = Sub (six, g)
    f = ConstantOfShape <value = int64[1] {{0}}> (h)
    e = Concat <axis = 0> (c, f)
    q = Reshape (e, pairs)
    v = Slice (q, first, last, zero, first)
    t = Transpose <perm = [1, 0]> (v)
    k = Reshape (t, first)
    p = Pad (a, k)
    y = Neg (p)
}}
"""


@pytest.mark.parametrize(("size", "padded"), [(14, False), (7, False), (13, True)])
def test_pads_of_nothing(size: int, padded: bool) -> None:
    kinds, model, _ = optimized(PADDING.format(size=size), sizes={"N": 2}, target="cuda")
    assert ("Pad" in [n.op_type for n in model.graph.node]) == padded
    assert bool(kinds) == (not padded)


@pytest.mark.parametrize("divide", ["h = Div (n, two)", "f = Div (n, two) c = Add (f, zero) h = Sub (c, zero)"])
def test_halves(divide: str) -> None:
    """A rotary embedding whose halves are cut at what its shape says."""
    graph = f"""
    g (float[N, 8] x, float[N, 8] sin) => (float[N, 8] y)
    <int64 one = {{1}}, int64 two = {{2}}, int64 zero = {{0}}, int64[1] begin = {{0}}, int64[1] axis = {{1}},
     int64[1] end = {{9223372036854775807}}>
    {{
        s = Shape (x)
        n = Gather <axis = 0> (s, one)
        {divide}
        u = Unsqueeze (h, begin)
        a = Slice (x, begin, u, axis)
        b = Slice (x, u, end, axis)
        m = Neg (b)
        r = Concat <axis = 1> (m, a)
        y = Mul (r, sin)
    }}
    """
    kinds, _, _ = optimized(graph, sizes={"N": 3}, target="cuda")
    assert kinds == ["FusedElementwise"]


@pytest.mark.parametrize("bound", [
    "h = Gather <axis = 0> (given, zero)",  # what a run gives
    "k = Gather <axis = 0> (s, zero) h = Min (k, n)",  # a dimension that a run shows
])  # fmt: skip
def test_what_is_not_known_to_be_constant(bound: str) -> None:
    graph = f"""
    g (float[N, 8] x, int64[2] given) => (float[N, K] y)
    <int64 one = {{1}}, int64 zero = {{0}}, int64[1] begin = {{0}}, int64[1] axis = {{1}}>
    {{
        s = Shape (x)
        n = Gather <axis = 0> (s, one)
        {bound}
        u = Unsqueeze (h, begin)
        e = Exp (x)
        a = Slice (e, begin, u, axis)
        b = Neg (a)
        y = Abs (b)
    }}
    """
    _, model, report = optimized(graph, sizes={"N": 3}, target="cuda")
    assert "Slice" in [n.op_type for n in model.graph.node]
    assert any("is not constant" in r.reason for r in report.refusals if r.operator == "Slice")


@pytest.mark.parametrize(("pieces", "count"), [(4, 2), (3, 3)])
def test_rounding_up(pieces: int, count: int) -> None:
    """Ceil of a quotient of floats, as a shape: 8 / 3 is 3, rounded up."""
    graph = f"""
    g (float[8, N] x) => (float[{count}, M] y)
    <int64 zero = {{0}}, float pieces = {{{pieces}.0}}, int64[1] begin = {{0}}, int64[1] rest = {{-1}}>
    {{
        s = Shape (x)
        n = Gather <axis = 0> (s, zero)
        f = Cast <to = 1> (n)
        q = Div (f, pieces)
        c = Ceil (q)
        i = Cast <to = 7> (c)
        u = Unsqueeze (i, begin)
        w = Concat <axis = 0> (u, rest)
        a = Abs (x)
        r = Reshape (a, w)
        b = Neg (r)
        y = Exp (b)
    }}
    """
    optimized(graph, sizes={"N": 3}, target="cuda")
