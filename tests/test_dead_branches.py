"""An If whose condition only a run shows is opened where its other branch never comes to a result, and only there."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graphs import parse

import onnxfuse
from onnxfuse.rewrites.open_ifs import open_known_ifs
from onnxfuse.runtime import make_session

SQUEEZE = "then_branch = t () => (float[?] p) { p = Squeeze (a, last) }"
KEEP = "else_branch = e () => (float[?] q) { q = Identity (a) }"
BRANCHES = f"{SQUEEZE}, {KEEP}"
CONDITION = "s = Shape (a) g = Gather (s, last) c = Equal (g, one)"
INTEGERS = "int64[1] last = {-1}, int64[1] one = {1}, int64 two = {2}, int64[1] zeros = {0}"


def values(*shape: int) -> str:
    count = int(np.prod(shape))
    return ", ".join(f"{0.5 - (k * 7 % 11) / 11:.3f}" for k in range(count))


def weight(name: str, *shape: int) -> str:
    return f"float[{', '.join(map(str, shape))}] {name} = {{{values(*shape)}}}"


PRODUCT = "y = Gemm (k, w)"


def graph(
    condition: str = CONDITION,
    branches: str = BRANCHES,
    demand: str = PRODUCT,
    x: str = "float[N, 4, T] x",
    constants: str = "",
    outputs: str = "float[N, M] y",
) -> str:
    """`a` is Tanh (x) of a rank one above that which the demand takes, `r` the result of the If and `k` Abs (r)."""
    given = ", ".join(c for c in (INTEGERS, weight("w", 4, 3), constants) if c)
    return (
        f"g ({x}) => ({outputs}) <{given}> {{ a = Tanh (x) {condition} r = If (c) <{branches}> k = Abs (r) {demand} }}"
    )


def model_of(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model without the shapes that the text must declare for results of branches and of the graph."""
    model = parse(text, opset)
    forget_results(model.graph)
    return model


def forget_results(graph: onnx.GraphProto) -> None:
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                forget_results(attribute.g)


def count_ifs(graph: onnx.GraphProto) -> int:
    inner = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return sum(node.op_type == "If" for node in graph.node) + sum(map(count_ifs, inner))


def run(model: onnx.ModelProto, x: np.ndarray, library: bool) -> list[np.ndarray] | None:
    """The results, or None where the run fails."""
    feeds = {"x": x, "given": np.array(True)}
    try:
        if library:
            session = make_session(model)
        else:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
    except Exception:
        return None


def results_agree(model: onnx.ModelProto, opened: onnx.ModelProto, extents: dict[str, int], dims: list[str]) -> bool:
    """Whether both fail, or give the same; returns whether they give anything."""
    x = np.random.default_rng(0).normal(size=[extents.get(d) or int(d) for d in dims]).astype(np.float32)
    expected = run(model, x, library=False)
    for library in (True, False):
        found = run(opened, x, library)
        assert (found is None) == (expected is None), (extents, library)
        for a, b in zip(found or (), expected or (), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    return expected is not None


def check_opened(model: onnx.ModelProto, opset: int = 17, count: int = 1, left: int = 0) -> None:
    """The Ifs are opened, and what the model gives or refuses is the same, by optimize as well."""
    opened, found = open_known_ifs(model, opset)
    assert found == count
    assert count_ifs(opened.graph) == left
    dims = [d.dim_param or str(d.dim_value) for d in model.graph.input[0].type.tensor_type.shape.dim]
    candidates = [opened, *(onnxfuse.optimize(model, target=target).model for target in ("cpu", "cuda"))]
    for candidate in candidates:
        ran = {(n, t): results_agree(model, candidate, {"N": n, "T": t}, dims) for n in (1, 3) for t in (1, 2, 3)}
        assert any(ran[n, 1] for n in (1, 3))
        assert not any(ran[n, t] for n in (1, 3) for t in (2, 3))


def check_left(model: onnx.ModelProto, opset: int = 17) -> None:
    assert open_known_ifs(model, opset) == (model, 0)


DEMANDS = {
    "Gemm": PRODUCT,
    "Gemm, second input": "y = Gemm <transB = 1> (w2, k)",
    "Transpose": "u = Transpose <perm = [1, 0]> (k) y = Gemm <transA = 1> (u, w)",
    "LSTM": "u = Unsqueeze (k, zeros) y = LSTM <hidden_size = 2> (u, wx, wh)",
    "GRU": "u = Unsqueeze (k, zeros) y = GRU <hidden_size = 2> (u, gx, gh)",
    "RNN": "u = Unsqueeze (k, zeros) y = RNN <hidden_size = 3> (u, rx, rh)",
    "initial state": "u = Unsqueeze (k, zeros) v = Unsqueeze (k, zeros) y = LSTM <hidden_size = 4> (v, lx, lh, , , u)",
    "Conv": "u = Unsqueeze (k, last) y = Conv (u, cw)",
    "Conv in two dimensions": "u = Unsqueeze (k, both) y = Conv (u, cw2)",
    "ConvTranspose": "u = Unsqueeze (k, last) y = ConvTranspose (u, cw)",
    "MaxPool": "u = Unsqueeze (k, last) y = MaxPool <kernel_shape = [1]> (u)",
    "AveragePool": "u = Unsqueeze (k, last) y = AveragePool <kernel_shape = [1]> (u)",
    "LpPool": "u = Unsqueeze (k, last) y = LpPool <kernel_shape = [1]> (u)",
    "DepthToSpace": "u = Unsqueeze (k, both) y = DepthToSpace <blocksize = 2> (u)",
    "SpaceToDepth": "u = Unsqueeze (k, both) y = SpaceToDepth <blocksize = 1> (u)",
}
WEIGHTS = ", ".join((
    weight("w2", 3, 4), weight("wx", 1, 8, 4), weight("wh", 1, 8, 2), weight("gx", 1, 6, 4), weight("gh", 1, 6, 2),
    weight("rx", 1, 3, 4), weight("rh", 1, 3, 3), weight("lx", 1, 16, 4), weight("lh", 1, 16, 4), weight("cw", 4, 4, 1),
    weight("cw2", 4, 4, 1, 1), "int64[2] both = {-1, -2}",
))  # fmt: skip


@pytest.mark.parametrize("demand", DEMANDS.values(), ids=DEMANDS)
def test_an_operator_that_takes_one_rank_only_decides(demand: str) -> None:
    check_opened(model_of(graph(demand=demand, constants=WEIGHTS)))


CONDITIONS = {
    "the other order": "s = Shape (a) g = Gather (s, last) c = Equal (one, g)",
    "a scalar index": "s = Shape (a) g = Gather (s, two) c = Equal (g, scalar)",
    "an index from the front": "s = Shape (a) g = Gather (s, third) c = Equal (g, one)",
    "a Shape of one extent": "g = Shape <start = 2> (a) c = Equal (g, one)",
    "a Shape up to the end": "g = Shape <start = -1, end = 3> (a) c = Equal (g, one)",
    "a Slice": "s = Shape (a) g = Slice (s, third, three, zeros) c = Equal (g, one)",
    "a Slice from the end": "s = Shape (a) g = Slice (s, last, most) c = Equal (g, one)",
    "squeezed": "s = Shape (a) g = Gather (s, last) h = Squeeze (g, zeros) c = Equal (h, scalar)",
    "squeezed without axes": "s = Shape (a) g = Gather (s, last) h = Squeeze (g) c = Equal (h, scalar)",
    "reshaped": "s = Shape (a) g = Gather (s, last) d = Equal (g, one) c = Reshape (d, none)",
    "unsqueezed": "s = Shape (a) g = Gather (s, two) h = Unsqueeze (g, zeros) c = Equal (h, one)",
    "copied": "s = Shape (a) t = Identity (s) g = Gather (t, last) d = Equal (g, one) c = Identity (d)",
    "int32": "s = Shape (a) g = Gather (s, last) h = Cast <to = 6> (g) c = Equal (h, small)",
    "float": "s = Shape (a) g = Gather (s, last) h = Cast <to = 1> (g) c = Equal (h, real)",
    "a cast to bool": "s = Shape (a) g = Gather (s, last) d = Equal (g, one) i = Cast <to = 7> (d) "
    "c = Cast <to = 9> (i)",
    "twice not": "s = Shape (a) g = Gather (s, last) d = Equal (g, one) n = Not (d) c = Not (n)",
    "a difference": "s = Shape (a) g = Gather (s, last) d = Sub (g, one) n = Cast <to = 9> (d) c = Not (n)",
    "an order": "s = Shape (a) g = Gather (s, last) c = Less (g, pair)",
    "a Constant": "s = Shape (a) i = Constant <value_ints = [-1]> () g = Gather (s, i) "
    "o = Constant <value = int64[1] {1}> () c = Equal (g, o)",
    "of a value of the same shape": "s = Shape (x) g = Gather (s, last) c = Equal (g, one)",
    "of a value transposed": "v = Transpose <perm = [2, 0, 1]> (a) s = Shape (v) g = Gather (s, zeros) "
    "c = Equal (g, one)",
    "of a product of extents": "s = Shape (a) g = Gather (s, last) h = Mul (g, g) c = Equal (h, one)",
}
SPELLINGS = (
    "int64 scalar = {1}, int64[1] third = {2}, int64[1] three = {3}, int64[1] most = {9223372036854775807}, "
    "int64[0] none = {}, int32[1] small = {1}, float[1] real = {1}, int64[1] pair = {2}"
)


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_all_spellings_of_the_condition(condition: str) -> None:
    check_opened(model_of(graph(condition, constants=SPELLINGS)))


SPELLED_BRANCHES = {
    "swapped": (
        BRANCHES.replace("Squeeze (a, last)", "Identity (a)").replace("q = Identity (a)", "q = Squeeze (a, last)"),
        f"{CONDITION.replace('c =', 'd =')} c = Not (d)",
    ),
    "axes of the branch": (
        "then_branch = t () => (float[?] p) <int64[1] k = {2}> { p = Squeeze (a, k) }, " + KEEP, CONDITION,
    ),
    "a Constant of the branch": (
        "then_branch = t () => (float[?] p) { k = Constant <value = int64[1] {-1}> () p = Squeeze (a, k) }, " + KEEP,
        CONDITION,
    ),
    "operators around": (
        BRANCHES.replace("p = Squeeze (a, last)", "v = Exp (a) u = Squeeze (v, last) p = Neg (u)")
        .replace("Identity", "Tanh"),
        CONDITION,
    ),
    "the condition outside of the value": (
        "then_branch = t () => (float[?] p) { v = Transpose <perm = [2, 1, 0]> (a) o = Squeeze (v, zeros) "
        "p = Transpose <perm = [1, 0]> (o) }, " + KEEP,
        CONDITION,
    ),
    "another copy instead of the value": (
        SQUEEZE + ", else_branch = e () => (float[?] q) { v = Add (a, a) q = Sub (v, a) }", CONDITION,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("branches", "condition"), SPELLED_BRANCHES.values(), ids=SPELLED_BRANCHES)
def test_all_spellings_of_the_branches(branches: str, condition: str) -> None:
    check_opened(model_of(graph(condition, branches)))


@pytest.mark.parametrize("axis", [-1, 2])
@pytest.mark.parametrize("opset", [11, 12])
def test_axes_that_are_an_attribute(opset: int, axis: int) -> None:
    branches = BRANCHES.replace("Squeeze (a, last)", f"Squeeze <axes = [{axis}]> (a)")
    constants = "float b = {0}"
    check_opened(model_of(graph(branches=branches, demand="y = Gemm (k, w, b)", constants=constants), opset), opset)


def test_two_extents_at_once() -> None:
    branches = BRANCHES.replace("(a, last)", "(a, ends)")
    condition = "s = Shape (a) g = Gather (s, ends) h = ReduceProd <keepdims = 0> (g) c = Equal (h, scalar)"
    text = graph(condition, branches, x="float[T, N, 4, T] x", constants="int64[2] ends = {0, 3}, int64 scalar = {1}")
    check_opened(model_of(text))


def test_more_axes_than_the_condition_asks_for() -> None:
    branches = BRANCHES.replace("(a, last)", "(a, ends)")
    text = graph(branches=branches, x="float[T, N, 4, T] x", constants="int64[2] ends = {0, 3}")
    check_opened(model_of(text))


def test_several_results() -> None:
    branches = (
        "then_branch = t () => (float[?] p, float[?] o) { p = Squeeze (a, last) v = Exp (a) o = Squeeze (v, last) }, "
        "else_branch = e () => (float[?] p, float[?] o) { p = Identity (a) o = Exp (a) }"
    )
    text = graph(branches=branches, demand="m = Add (k, z) y = Gemm (m, w)").replace("r = If", "r, z = If")
    check_opened(model_of(text))


def test_several_ifs_in_turn() -> None:
    """What the first one leaves decides the second one."""
    second = BRANCHES.replace("(a", "(k2").replace("last", "zeros")
    demand = (
        "m = Gemm (k, w) k2 = Unsqueeze (m, zeros) s2 = Shape (k2) g2 = Gather (s2, zeros) c2 = Equal (g2, one) "
        f"r2 = If (c2) <{second}> y = Gemm <transB = 1> (r2, w3)"
    )
    check_opened(model_of(graph(demand=demand, constants=weight("w3", 2, 3))), count=2)


def test_several_ifs_side_by_side() -> None:
    second = BRANCHES.replace("(a", "(b")
    demand = (
        "b = Exp (x) s2 = Shape (b) g2 = Gather (s2, last) c2 = Equal (g2, one) "
        f"r2 = If (c2) <{second}> l = Gemm (k, w) m = Gemm (r2, w) y = Add (l, m)"
    )
    check_opened(model_of(graph(demand=demand)), count=2)


def test_ifs_whose_conditions_follow_are_opened_too() -> None:
    """As torch exports an LSTM: a dimension is added where the rank is not 2, and taken away again behind it."""
    added = (
        "then_branch = t () => (float[?] p) { p = Unsqueeze (k, zeros) }, "
        "else_branch = e () => (float[?] q) { q = Identity (k) }"
    )
    inner = (
        "then_branch = t () => (float[?] p) { "
        f"z = Shape (k) n = Size (z) d = Equal (n, two) i = Not (d) h = If (i) <{added}> "
        "u = Unsqueeze (h, zeros) p = LSTM <hidden_size = 2> (u, wx, wh) }, "
        "else_branch = e () => (float[?] q) { q = Exp (k) }"
    )
    model = model_of(graph(demand=f"always = Equal (two, two) y = If (always) <{inner}>", constants=WEIGHTS))
    check_opened(model, count=3)


def test_in_a_body() -> None:
    body = graph().split("{ a", 1)[1].rsplit("}", 1)[0]
    nested = (
        f"then_branch = b () => (float[?] y) <{INTEGERS}, {weight('w', 4, 3)}> {{ a{body} }}, "
        "else_branch = o () => (float[?] v) { v = Neg (x) }"
    )
    model = model_of(f"g (float[N, 4, T] x, bool given) => (float[N, M] z) {{ z = If (given) <{nested}> }}")
    check_opened(model, left=1)


def test_a_condition_from_outside_of_the_body() -> None:
    nested = (
        f"then_branch = b () => (float[?] y) {{ r = If (c) <{BRANCHES}> y = Gemm (r, w) }}, "
        "else_branch = o () => (float[?] v) { v = Neg (x) }"
    )
    text = (
        f"g (float[N, 4, T] x, bool given) => (float[N, M] z) <{INTEGERS}, {weight('w', 4, 3)}> "
        f"{{ a = Tanh (x) {CONDITION} z = If (given) <{nested}> }}"
    )
    check_opened(model_of(text), left=1)


LEFT = {
    "both branches run": graph(demand="y = Exp (k)"),
    "the rank is not demanded": graph(demand="y = MatMul (k, w)", branches=BRANCHES.replace("last", "last")),
    "it is demanded in a branch that may not run": graph(
        demand="z = ReduceSum <keepdims = 0> (k) t = Less (z, real) y = If (t) "
        "<then_branch = u () => (float[?] v) { v = Gemm (k, w) }, else_branch = o () => (float[?] v) { v = Exp (k) }>",
        constants="float real = {1}",
    ),
    "it is demanded in a Loop that may take no turn": graph(
        demand="z = Shape (x) n = Gather (z, zero) t = Equal (zero, zero) y = Loop (n, t, w) "
        "<body = b (int64 i, bool go, float[?] v) => (bool go2, float[?] v2) "
        "{ go2 = Identity (go) m = Gemm (k, w) v2 = Identity (v) }>",
        constants="int64 zero = {0}",
    ),
    "another result needs no rank": graph(demand="y = Gemm (k, w) z = Exp (r)", outputs="float[N, M] y, float[N, M] z"),
    "the result is an output itself": graph(demand="y = Gemm (k, w)", outputs="float[N, M] y, float[N, M] r"),
    "another axis": graph(branches=BRANCHES.replace("last", "zeros")),
    "fewer axes": graph("s = Shape (a) g = Gather (s, ends) h = ReduceProd <keepdims = 0> (g) c = Equal (h, scalar)",
                        constants="int64[2] ends = {0, 2}, int64 scalar = {1}"),
    "another value": graph("b = Exp (z) s = Shape (b) g = Gather (s, last) c = Equal (g, one)",
                           x="float[N, 4, T] x, float[N, 4, T] z"),
    "any extents of 1": graph(branches=BRANCHES.replace("(a, last)", "(a)")),
    "another extent": graph(CONDITION.replace("one", "two")),
    "the wrong way round": graph(f"{CONDITION.replace('c =', 'd =')} c = Not (d)"),
    "a result without a Squeeze": graph(
        branches="then_branch = t () => (float[?] p, float[?] o) { p = Squeeze (a, last) "
        "o = ReduceMean <axes = [2]> (a) }, "
        "else_branch = e () => (float[?] p, float[?] o) { p = Identity (a) o = Exp (a) }",
        demand="m = Add (k, z) y = Gemm (m, w)",
    ).replace("r = If", "r, z = If"),
    "a Squeeze without a user": graph(
        branches="then_branch = t () => (float[?] p) { v = Squeeze (a, last) p = ReduceMean <axes = [2], keepdims = 0> "
        "(a) }, " + KEEP
    ),
    "an axis that a run brings": graph(branches=BRANCHES.replace("last", "axis"), x="float[N, 4, T] x, int64[1] axis"),
    "a Squeeze of another domain": graph(branches=BRANCHES.replace("Squeeze", "local.Squeeze")),
    "a Gemm of another domain": graph(demand="y = local.Gemm (k, w)"),
    "a condition that a run brings": graph("d = Not (given) c = Not (d)", x="float[N, 4, T] x, bool given"),
    "a vector is as good to Gemm": graph(
        branches="then_branch = t () => (float[?] p) { p = Squeeze (a, last) }, "
        "else_branch = e () => (float[?] q) { q = ReduceMean <axes = [0, 2], keepdims = 0> (a) }"
    ),
    "a rank that is not known": graph("b = local.Any (x) s = Shape (b) g = Gather (s, last) c = Equal (g, one)",
                                      BRANCHES.replace("(a", "(b")),
}  # fmt: skip


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_stays(text: str) -> None:
    check_left(model_of(text))


def test_the_declared_rank_of_an_output_demands_nothing() -> None:
    """ONNX Runtime warns of it and goes on."""
    check_left(parse(graph(demand="y = Exp (k)", outputs="float[N, 4] y"), 17))


def test_a_demand_is_looked_for_not_far_from_the_if() -> None:
    """The time that is taken is in proportion to the model."""
    many = " ".join(f"k{j + 1} = Neg (k{j})" for j in range(400))
    check_left(model_of(graph(demand=f"k0 = Neg (k) {many} y = Gemm (k400, w)")))


@pytest.mark.parametrize(
    "demand",
    [
        "u = Unsqueeze (r, zeros) y = LSTM <hidden_size = 2> (u, wx, wh)",
        "u = Unsqueeze (r, last) y = Conv (u, cw)",
        "u = Unsqueeze (r, both) y = Conv (u, cw2)",
        "u = Reshape (r, [-1, 4]) y = Gemm (r, w)".replace("[-1, 4]", "flat"),
    ],
)
def test_what_makes_one_of_several_views_keeps_what_the_squeeze_refuses(demand: str) -> None:
    """A Squeeze and an Unsqueeze that undoes it are not nothing."""
    text = graph(demand=demand, constants=f"{WEIGHTS}, int64[2] flat = {{-1, 4}}").replace(" k = Abs (r)", "")
    check_opened(model_of(text))


def test_what_would_not_be_loaded_stays() -> None:
    """No run chooses what fails, and opened, the branch in it would say so where the model is loaded."""
    inner = (
        "d = Equal (one, one) p = If (d) <then_branch = u () => (float[?] i) { i = Squeeze (a, zeros) }, "
        "else_branch = v () => (float[?] j) { j = Identity (a) }> "
    )
    text = graph(
        "c = Not (given)",
        f"then_branch = t () => (float[?] q) {{ {inner} q = Squeeze (p, one) }}, "
        "else_branch = e () => (float[?] r) { r = Abs (a) }",
        demand="y = Exp (k)",
        x="float[1, 4, 2, T] x, bool given",
    )
    model = model_of(text)
    feeds = {"x": np.ones((1, 4, 2, 3), np.float32), "given": np.array(True)}
    for found in (model, open_known_ifs(model, 17)[0], onnxfuse.optimize(model).model):
        make_session(found, optimize=False).run(None, feeds)


def test_permutations_of_other_ranks() -> None:
    """Of an operator that fails in every run nothing is known."""
    text = graph(demand="y = Transpose <perm = [3, 0, 2, 1]> (k)", x="float[N, 4, 1] x")
    model = model_of(text)
    assert run(model, np.ones((2, 4, 1), np.float32), library=False) is None
    assert run(onnxfuse.optimize(model).model, np.ones((2, 4, 1), np.float32), library=False) is None
