"""Independent small fused nodes that become one node, whose kernels share a launch."""

from __future__ import annotations

import random

import onnx
import pytest
from graphs import fused, optimized

import onnxfuse
from onnxfuse.custom_ops.program import Program


def two_chains(first: str = "float[4, 8]", second: str = "float[3]") -> str:
    return f"""
    g ({first} x, {second} y) => ({first} u, {second} v)
    {{
        a = Exp (x)
        u = Neg (a)
        b = Tanh (y)
        v = Abs (b)
    }}
    """


# The projections of an attention block: each is a matrix product, a bias and an activation.
PROJECTIONS = """
g (float[2, 4, 8] x, float[8, 8] wq, float[8, 8] wk, float[8, 8] wv, float[8] b) => (float[2, 4, 8] y)
{
    p = MatMul (x, wq)
    p1 = Add (p, b)
    q = Tanh (p1)
    k0 = MatMul (x, wk)
    k1 = Add (k0, b)
    k = Tanh (k1)
    v0 = MatMul (x, wv)
    v1 = Add (v0, b)
    v2 = Relu (v1)
    v3 = Add (v2, x)
    v = Softmax <axis = -1> (v3)
    t = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul (q, t)
    y = MatMul (s, v)
}
"""


def test_independent_chains_share_a_node() -> None:
    ops, model, report = optimized(two_chains(), target="cuda")
    assert ops == ["FusedElementwise"]
    (node,) = model.graph.node
    assert list(node.input) == ["x", "y"]
    assert list(node.output) == ["u", "v"]
    assert len(Program.parse(node.attribute[0].s.decode()).kernels) == 2
    (group,) = report.groups
    assert group.name == node.name
    assert group.members == tuple(f.name for f in report.fusions)
    assert group.launches_saved == 1
    assert report.launches_saved == 3
    assert report.nodes_after == 1


def test_projections_of_an_attention_share_a_node() -> None:
    """Whatever lies between the stages; kinds of nodes mix."""
    ops, model, report = optimized(PROJECTIONS, target="cuda")
    assert ops == ["FusedReduction"]
    (group,) = report.groups
    assert len(group.members) == 3
    (node,) = [n for n in model.graph.node if n.domain == "onnxfuse"]
    assert len(node.input) == 5, "x and the bias are read through one input each"


@pytest.mark.parametrize("first", ["float[N, 8]", "float16[4, 8]", "double[2, 3, 4]", "float[1]"])
def test_shapes_and_types_mix(first: str) -> None:
    assert fused(two_chains(first), sizes={"N": 5}, target="cuda") == ["FusedElementwise"]


def test_the_cpu_has_no_launches_to_share() -> None:
    assert fused(two_chains(), target="cpu") == ["FusedElementwise"] * 2


@pytest.mark.parametrize(("argument", "name"), [("skip", "horizontal"), ("only", "elementwise")])
def test_sharing_can_be_switched_off(argument: str, name: str) -> None:
    assert fused(two_chains(), target="cuda", **{argument: [name]}) == ["FusedElementwise"] * 2


def test_nodes_with_a_way_between_them_stay_apart() -> None:
    graph = """
    g (float[4, 4] x) => (float[4, 4] y)
    {
        a = Exp (x)
        b = Neg (a)
        c = MatMul (b, x)
        d = Tanh (c)
        y = Abs (d)
    }
    """
    ops, _, report = optimized(graph, target="cuda")
    assert ops == ["FusedElementwise"] * 2
    assert not report.groups


def test_groups_of_crossing_ways_leave_no_cycle() -> None:
    """Two ways of two stages each, of different lengths, that cross between the stages and lead around a group."""
    graph = """
    g (float[4, 4] x, float[4, 4] w) => (float[4, 4] u, float[4, 4] v, float[4, 4] z)
    {
        a0 = Exp (x)
        a = Neg (a0)
        m = MatMul (x, w)
        n = MatMul (m, w)
        b0 = Tanh (n)
        b = Abs (b0)
        p = MatMul (a, w)
        q = MatMul (b, p)
        c0 = Sigmoid (q)
        u = Neg (c0)
        r = MatMul (p, a)
        d0 = Exp (r)
        v = Abs (d0)
        s = MatMul (u, b)
        e0 = Tanh (s)
        z = Neg (e0)
    }
    """
    ops, _, report = optimized(graph, target="cuda")
    assert [len(group.members) for group in report.groups] == [2, 2]
    # The tensor that a group reads from a matrix product is not what its first result is computed from.
    assert sorted(ops) == ["FusedElementwise", "FusedOutOfPlace", "FusedOutOfPlace"]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int) -> None:
    """Chains and matrix products that read what there is: no cycle, the same values, and nothing left to do."""
    choose = random.Random(seed)
    values, lines, used = ["x"], [], set()
    for k in range(choose.randint(8, 24)):
        read = [choose.choice(values[-6:]) for _ in range(2)]
        if choose.random() < 0.4:
            lines.append(f"m{k} = MatMul ({read[0]}, {read[1]})")
            values.append(f"m{k}")
        else:
            lines.append(f"a{k} = {choose.choice(['Tanh', 'Abs', 'Neg'])} ({read[0]})")
            lines.append(f"c{k} = Tanh (a{k})")
            values.append(f"c{k}")
        used |= set(read)
    results = [v for v in values if v not in used]
    graph = f"g (float[4, 4] x) => ({', '.join(f'float[4, 4] {v}' for v in results)}) {{\n" + "\n".join(lines) + "\n}"
    _, model, _ = optimized(graph, target="cuda")
    again = onnxfuse.optimize(model, target="cuda")
    assert not again.report.groups
    assert not again.report.fusions
    assert again.model.SerializeToString() == model.SerializeToString()


def test_a_program_has_16_kernels_at_most() -> None:
    chains = "\n".join(f"a{k} = Exp (x{k})\ny{k} = Neg (a{k})" for k in range(20))
    inputs = ", ".join(f"float[{k + 1}] x{k}" for k in range(20))
    outputs = ", ".join(f"float[{k + 1}] y{k}" for k in range(20))
    ops, _, report = optimized(f"g ({inputs}) => ({outputs}) {{\n{chains}\n}}", target="cuda")
    assert ops == ["FusedElementwise"] * 2
    assert [len(group.members) for group in report.groups] == [16, 4]


def test_what_moves_much_keeps_its_launch() -> None:
    large = "float[2048, 2048]"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {two_chains(large, large)}')
    report = onnxfuse.optimize(model, target="cuda").report
    assert not report.groups
    assert {r.reason for r in report.separate} == {"it moves 32.0 MiB: a launch of its own hardly matters"}
    assert [r.node for r in report.separate] == [f.name for f in report.fusions]


def test_what_may_be_large_keeps_its_launch() -> None:
    """A dimension of the inputs counts as a typical one; nobody knows the extent of what NonZero finds."""
    between = "\n".join(f"n{k + 1} = MatMul (n{k}, x)" for k in range(20))
    graph = f"""
    g (float[8, 8] x, bool[100] mask) => (float[8, 8] u, float[1, K] v, float[8, 8] n20)
    {{
        a = Exp (x)
        u = Neg (a)
        n0 = MatMul (x, x)
        {between}
        i = NonZero (mask)
        f = Cast <to = 1> (i)
        b = Tanh (f)
        v = Abs (b)
    }}
    """
    _, _, report = optimized(graph, target="cuda")
    assert not report.groups
    assert [r.reason for r in report.separate] == ["its size is not known, and no other node of its stage is near"]
    near = graph.replace(between, "n20 = Identity (n0)")
    _, _, report = optimized(near, target="cuda")
    assert len(report.groups) == 1
    # What v is computed from would wait in memory while the results of the first are used.
    used_at_once = near.replace("float[8, 8] n20)", "float[8, 8] n20, float[8, 8] w)").replace(
        "i = NonZero", "w = MatMul (u, u) i = NonZero"
    )
    _, _, report = optimized(used_at_once, target="cuda")
    assert not report.groups


def test_the_peak_of_memory_does_not_rise() -> None:
    """Two towers, each with a large activation that waits for the small node in it: together both would be alive."""

    def tower(k: int) -> str:
        return f"""
        big{k} = MatMul (x{k}, w)
        mean{k} = ReduceMean <axes = [0], keepdims = 1> (big{k})
        t{k} = MatMul (mean{k}, w)
        a{k} = Exp (t{k})
        s{k} = Neg (a{k})
        y{k} = MatMul (s{k}, big{k})
        """

    n = 1024
    inputs = f"float[{n}, {n}] x0, float[{n}, {n}] x1, float[{n}, {n}] w"
    text = f"g ({inputs}) => (float[1, {n}] y0, float[1, {n}] y1) {{ {tower(0)} {tower(1)} }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    report = onnxfuse.optimize(model, target="cuda").report
    assert len(report.fusions) == 2
    assert not report.groups
    assert [r.reason for r in report.separate] == [
        "nodes that wait for each other to share a launch would raise the peak of memory"
    ] * 2


def test_bodies_have_groups_of_their_own() -> None:
    graph = """
    g (bool c, float[4] x, float[3] y) => (float[4] u, float[3] v)
    {
        a = Exp (x)
        o = Neg (a)
        u, v = If (c) <
            then_branch = t () => (float[4] p, float[3] q)
            {
                p0 = Tanh (o)
                p = Abs (p0)
                q0 = Tanh (y)
                q = Abs (q0)
            },
            else_branch = e () => (float[4] r, float[3] s)
            {
                r = Identity (o)
                s = Identity (y)
            }
        >
    }
    """
    _, model, report = optimized(graph, target="cuda")
    (group,) = report.groups
    assert group.graph.endswith("then_branch")
    (branch,) = [a.g for n in model.graph.node for a in n.attribute if a.name == "then_branch"]
    assert [n.op_type for n in branch.node] == ["FusedElementwise"]


def test_a_group_is_restored() -> None:
    _, model, _ = optimized(PROJECTIONS, target="cuda")
    plain = onnxfuse.restore(model).model
    assert all(node.domain == "" for node in plain.graph.node)


def test_what_a_group_parts_is_fused_at_once() -> None:
    """A group may leave operators that did not fit into one region in two: the first call fuses them, not the next."""
    from random_graphs import random_model

    model, _ = random_model(4298)
    once = onnxfuse.optimize(model, target="cuda", min_nodes=1)
    assert once.report.groups
    again = onnxfuse.optimize(once.model, target="cuda", min_nodes=1)
    assert again.model.SerializeToString() == once.model.SerializeToString()
