"""An If whose condition is known is opened, so that what its branch computes joins the regions around it."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from graphs import optimized, parse

import onnxfuse
from onnxfuse.rewrites.open_ifs import open_known_ifs
from onnxfuse.runtime import make_session

THEN = "then_branch = t () => (float[2, 3] p) { p = Exp (a) }"
ELSE = "else_branch = e () => (float[2, 3] q) { q = Neg (a) }"
BRANCHES = f"<{THEN}, {ELSE}>"


def graph(nodes: str, inputs: str = "float[2, 3] x", constants: str = "") -> str:
    return f"g ({inputs}) => (float[2, 3] y) <{constants}> {{ {nodes} }}"


def fused_operators(text: str, **how: object) -> list[str]:
    _, model, report = optimized(text, **{"target": "cpu"} | how)
    assert not any(n.op_type == "If" for n in model.graph.node)
    return [op for fusion in report.fusions for op in fusion.operators]


CONDITIONS = {
    "a constant": ("", "bool c = {1}"),
    "a vector of one": ("", "bool[1] c = {1}"),
    "an extent": ("s = Shape (x) g = Gather (s, zero) c = Equal (g, two)", "int64 zero = {0}, int64 two = {2}"),
    "an extent that is not 0": ("s = Shape (x) g = Gather (s, zero) c = Cast <to = 9> (g)", "int64[1] zero = {0}"),
    "a rank": ("s = Shape (x) n = Size (s) d = Equal (n, three) c = Not (d)", "int64 three = {3}"),
}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("taken", ["Exp", "Neg"])
@pytest.mark.parametrize(("nodes", "constants"), CONDITIONS.values(), ids=CONDITIONS)
def test_the_branch_joins_what_is_around_it(nodes: str, constants: str, taken: str, target: str) -> None:
    invert, name = ("", "c") if taken == "Exp" else ("n = Not (c)".replace("n ", "w "), "w")
    body = f"{nodes} {invert} a = Tanh (x) r = If ({name}) {BRANCHES} y = Abs (r)"
    text = f"g (float[2, 3] x) => (float[2, 3] y) <{constants}> {{ {body} }}"
    assert fused_operators(text, target=target) == ["Tanh", taken, "Abs"]


@pytest.mark.parametrize("second", ["two", "three"])
def test_conditions_computed_before_another_if(second: str) -> None:
    """Opening the second leaves its condition without a user, in front of the first."""
    nodes = (
        f"s = Shape (x) g = Gather (s, zero) c = Equal (g, two) d = Equal (g, {second}) a = Tanh (x) "
        f"r = If (c) {BRANCHES} a2 = Abs (r) t = If (d) {BRANCHES} y = Add (a2, t)"
    )
    expected = ["Tanh", "Exp", "Abs", "Exp" if second == "two" else "Neg", "Add"]
    constants = "int64 zero = {0}, int64 two = {2}, int64 three = {3}"
    _, model, report = optimized(graph(nodes, constants=constants), target="cpu")
    assert sorted(op for fusion in report.fusions for op in fusion.operators) == sorted(expected)
    assert {n.domain for n in model.graph.node} == {"onnxfuse"}


@pytest.mark.parametrize("condition", ["s = Shape (x) g = Gather (s, zero) c = Equal (g, two)", "c = Identity (given)"])
def test_what_only_a_run_shows_stays(condition: str) -> None:
    text = (
        "g (float[N, 3] x, bool given) => (float[N, 3] y) <int64 zero = {0}, int64 two = {2}> "
        f"{{ {condition} a = Tanh (x) r = If (c) {BRANCHES.replace('2, 3', 'N, 3')} e = Abs (r) y = Neg (e) }}"
    )
    _, model, _ = optimized(text, sizes={"N": 2}, target="cpu")
    assert [n.op_type for n in model.graph.node].count("If") == 1


def test_a_condition_that_the_caller_may_override_stays() -> None:
    model = parse(graph(f"a = Tanh (x) r = If (c) {BRANCHES} e = Abs (r) y = Neg (e)", "float[2, 3] x, bool c = {1}"))
    assert open_known_ifs(model, 17) == (model, 0)


def test_what_an_opened_branch_makes_known_is_opened_too() -> None:
    """The rank of r follows from the first If, the condition of the second from that."""
    first = "then_branch = t () => (float[N] p) { p = Squeeze (a, zeros) }"
    first += ", else_branch = e () => (float[N] q) { q = Identity (a) }"
    second = "then_branch = t () => (float[N] p) { p = Unsqueeze (r, zeros) }"
    second += ", else_branch = e () => (float[N] q) { q = Neg (r) }"
    text = (
        "g (float[1, 3] x) => (float[1, 3] y) <int64[1] zeros = {0}, int64 zero = {0}, int64 one = {1}> { "
        f"a = Tanh (x) s = Shape (a) g = Gather (s, zero) c = Equal (g, one) r = If (c) <{first}> "
        f"t = Shape (r) n = Size (t) d = Equal (n, one) u = If (d) <{second}> y = Abs (u) }}"
    )
    model = parse(text)
    for node in model.graph.node:
        for attribute in node.attribute:
            for output in attribute.g.output:
                output.type.tensor_type.ClearField("shape")
    opened, count = open_known_ifs(model, 17)
    assert count == 2
    assert [n.op_type for n in opened.graph.node] == ["Tanh", "Squeeze", "Unsqueeze", "Abs"]


def test_a_long_chain_is_opened_at_once() -> None:
    """The rank of each result is known only when its If is opened; what is left would be opened by a second call."""
    count = 20
    nodes = "r0 = Tanh (x) "
    for k in range(count):
        then = f"then_branch = t () => (float[N] p) {{ p = Exp (r{k}) }}"
        other = f"else_branch = e () => (float[N] q) {{ q = Squeeze (r{k}, zeros) }}"
        nodes += (
            f"s{k} = Shape (r{k}) n{k} = Size (s{k}) c{k} = Equal (n{k}, two) r{k + 1} = If (c{k}) <{then}, {other}> "
        )
    model = parse(graph(f"{nodes} y = Abs (r{count})", "float[1, 3] x", "int64 two = {2}, int64[1] zeros = {0}"))
    for node in model.graph.node:
        for attribute in node.attribute:
            for output in attribute.g.output:
                output.type.tensor_type.ClearField("shape")
    opened, found = open_known_ifs(model, 17)
    assert found == count
    assert [n.op_type for n in opened.graph.node] == ["Tanh", *["Exp"] * count, "Abs"]


def test_names_that_stand_elsewhere_too() -> None:
    """Branches of two Ifs use the same names, and a body inside of one has such a name of its own."""
    branches = (
        "<then_branch = t () => (float[2, 3] p) <float k = {2}> { v = Mul (a, k) p = Add (v, k) }, "
        "else_branch = e () => (float[2, 3] p) { p = Neg (a) }>"
    )
    inner = branches.replace("(a, k)", "(r, k)").replace("Neg (a)", "Neg (r)")
    text = graph(f"a = Tanh (x) r = If (c) {branches} o = If (c) {inner} w = If (b) {inner} z = Abs (w) y = Mul (z, o)",
                 "float[2, 3] x, bool b", "bool c = {1}")  # fmt: skip
    _, model, _ = optimized(text, target="cpu")
    onnx.checker.check_model(model, full_check=False)
    assert [n.op_type for n in model.graph.node].count("If") == 1


def test_a_body_inside_of_a_branch_may_have_a_value_that_is_called_as_the_result() -> None:
    """It does not see the result of the If that it is in."""
    inner = (
        "<then_branch = t () => (float[2, 3] w) { r = Neg (p) w = Add (r, p) }, "
        "else_branch = e () => (float[2, 3] v) { v = Add (p, p) }>"
    )
    branches = (
        f"<then_branch = t () => (float[2, 3] p, float[2, 3] z) {{ p = Exp (a) z = If (b) {inner} }}, "
        "else_branch = e () => (float[2, 3] p, float[2, 3] z) { p = Neg (a) z = Abs (a) }>"
    )
    nodes = f"a = Tanh (x) r, s = If (c) {branches} k = Abs (r) y = Sub (k, s)"
    for given in (True, False):
        _, model, _ = optimized(
            graph(nodes, "float[2, 3] x, bool b", "bool c = {1}"), target="cpu", feeds={"b": np.array(given)}
        )
        assert [n.op_type for n in model.graph.node].count("If") == 1


@pytest.mark.parametrize("condition", [
    "s = Shape (x) t = Shape (z) d = Sub (s, t) i = Cast <to = 9> (d) c = Not (i)",
    "s = Shape (x) t = Shape (z) d = Div (s, t) c = Equal (d, one)",
])  # fmt: skip
def test_a_symbol_is_no_extent_that_two_inputs_share(condition: str) -> None:
    """ONNX Runtime runs the model on inputs of 3 and of 5 elements, whatever the symbols say."""
    text = (
        f"g (float[N] x, float[N] z) => (float[M] y) <int64[1] one = {{1}}> {{ {condition} r = If (c) "
        "<then_branch = t () => (float[?] p) { p = Add (x, x) }, else_branch = e () => (float[?] q) { q = Exp (z) }> "
        "k = Abs (r) y = Neg (k) }"
    )
    feeds = {name: np.full(n, 0.5, np.float32) for name, n in (("x", 3), ("z", 5))}
    _, model, _ = optimized(text, feeds=feeds, target="cpu")
    assert [n.op_type for n in model.graph.node].count("If") == 1


@pytest.mark.parametrize(("condition", "known"), [
    ("l = Log (e) m = Log (t) d = Div (l, m) f = Floor (d) c = Equal (f, h)", False),
    ("l = Pow (t, h) c = Equal (l, e)", False),
    ("l = Cast <to = 10> (e) m = Add (l, l) f = Cast <to = 1> (m) c = Equal (f, h)", False),
    ("l = Div (e, t) m = Sqrt (l) c = Equal (m, t)", True),
    ("l = Exp (e) m = Shape (l) n = Size (m) c = Cast <to = 9> (n)", True),
])  # fmt: skip
def test_floats_that_the_runtime_may_round_otherwise_decide_nothing(condition: str, known: bool) -> None:
    """A logarithm that is off by its last bit makes another number of levels."""
    text = graph(f"{condition} a = Tanh (x) r = If (c) {BRANCHES} y = Abs (r)",
                 constants="float e = {8}, float t = {2}, float h = {3}")  # fmt: skip
    assert open_known_ifs(parse(text), 17)[1] == known


def test_quantization_annotations_go_with_the_names() -> None:
    branches = (
        "<then_branch = t () => (float[2, 3] p) <float k = {2}> { v = Mul (a, k) p = Add (v, k) }, "
        "else_branch = e () => (float[2, 3] p) { p = Neg (a) }>"
    )
    model = parse(graph(f"a = Tanh (x) v = Abs (a) r = If (c) {branches} y = Add (r, v)", constants="bool c = {1}"))
    then = next(a.g for n in model.graph.node for a in n.attribute if a.name == "then_branch")
    note = then.quantization_annotation.add(tensor_name="v")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="k")
    opened, count = open_known_ifs(model, 17)
    product = next(n for n in opened.graph.node if n.op_type == "Mul")
    assert count == 1
    assert product.output[0] != "v"
    (note,) = opened.graph.quantization_annotation
    assert [note.tensor_name, note.quant_parameter_tensor_names[0].value] == [product.output[0], product.input[1]]


def test_many_take_time_in_proportion() -> None:
    def seconds(count: int) -> float:
        nodes = ["r0 = Identity (x)"]
        for k in range(count):
            branches = BRANCHES.replace("(a)", f"(a{k})")
            nodes.append(f"s{k} = Shape (r{k}) g{k} = Gather (s{k}, zero) c{k} = Equal (g{k}, two) a{k} = Tanh (r{k})")
            nodes.append(f"r{k + 1} = If (c{k}) {branches}")
        model = parse(graph(f"{' '.join(nodes)} y = Abs (r{count})", constants="int64 zero = {0}, int64 two = {2}"))
        start = time.process_time()
        assert open_known_ifs(model, 17)[1] == count
        return time.process_time() - start

    few = min(seconds(30) for _ in range(3))
    assert seconds(240) < 24 * few  # in proportion 8 times, each against all others 64 times


def test_outputs_of_a_branch_that_are_equal_or_come_from_outside() -> None:
    branches = (
        "<then_branch = t () => (float[2, 3] p, float[2, 3] o, float[2, 3] i) "
        "<float[2, 3] i = {1, 2, 3, 4, 5, 6}> { p = Exp (a) o = Identity (p) }, "
        "else_branch = e () => (float[2, 3] p, float[2, 3] o, float[2, 3] i) "
        "{ p = Neg (a) o = Abs (a) i = Exp (a) }>"
    )
    model = parse(
        graph(f"a = Tanh (x) r, s, u = If (c) {branches} m = Add (r, s) y = Mul (m, u)", constants="bool c = {1}")
    )
    then = next(a.g for n in model.graph.node for a in n.attribute if a.name == "then_branch")
    del then.node[1]
    then.output[1].name = "p"  # twice the same
    result = onnxfuse.optimize(model, target="cpu")
    assert len(result.report.fusions) == 1
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    e = np.exp(np.tanh(x))
    got = make_session(result.model).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, 2 * e * np.arange(1, 7).reshape(2, 3), rtol=1e-5)


def test_a_body_in_the_branch_with_a_value_of_the_name_of_a_result() -> None:
    """It does not see that result, so that it may have the name; what it reads of the branch is another value."""
    inner = (
        "<then_branch = a () => (float[2, 3] z) { r = Neg (v) z = Add (r, v) }, "
        "else_branch = b () => (float[2, 3] z) { z = Abs (v) }>"
    )
    branches = (
        f"<then_branch = t () => (float[2, 3] v, float[2, 3] u) {{ v = Exp (a) u = If (given) {inner} }}, "
        "else_branch = e () => (float[2, 3] p, float[2, 3] q) { p = Neg (a) q = Abs (a) }>"
    )
    text = graph(f"a = Tanh (x) r, s = If (c) {branches} y = Add (r, s)", "float[2, 3] x, bool given", "bool c = {1}")
    for given in (False, True):
        _, model, _ = optimized(text, target="cpu", feeds={"given": np.array(given)})
        assert [n.op_type for n in model.graph.node].count("If") == 1


def test_quantization_annotations_follow_the_names() -> None:
    branches = (
        "<then_branch = t () => (float[2, 3] u) <float k = {2}> { v = Exp (a) u = Mul (v, k) }, "
        "else_branch = e () => (float[2, 3] v) { v = Neg (a) }>"
    )
    model = parse(graph(f"a = Mul (x, k) r = If (c) {branches} y = Abs (r)", constants="bool c = {1}, float k = {3}"))
    then = next(a.g for n in model.graph.node for a in n.attribute if a.name == "then_branch")
    for name in ("v", "u"):
        annotation = then.quantization_annotation.add(tensor_name=name)
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="k")
    opened, count = open_known_ifs(model, 17)
    assert count == 1
    exp = next(n for n in opened.graph.node if n.op_type == "Exp")
    factor = next(n.input[1] for n in opened.graph.node if n.op_type == "Mul" and n.output[0] == "r")
    found = [(q.tensor_name, q.quant_parameter_tensor_names[0].value) for q in opened.graph.quantization_annotation]
    assert factor != "k"
    assert found == [(exp.output[0], factor), ("r", factor)]


def test_a_branch_that_gives_another_number_of_results_stays() -> None:
    branches = "<then_branch = t () => (float[2, 3] p, float[2, 3] o) { p = Exp (a) o = Neg (p) }, " + ELSE + ">"
    model = parse(graph(f"a = Tanh (x) r = If (c) {branches} y = Abs (r)", constants="bool c = {1}"))
    assert open_known_ifs(model, 17) == (model, 0)


@pytest.mark.parametrize("opset", [13, 16])
def test_sequences_of_which_no_copy_can_be_made(opset: int) -> None:
    """Identity takes them from opset 14 on, optional values from 16 on."""
    text = (
        "g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) <bool c = {1}, int64 zero = {0}> { a = Tanh (x) "
        "q, r = If (c) "
        "<then_branch = t () => (seq(float[2, 3]) p, seq(float[2, 3]) p) { p = SequenceConstruct (a, a) }, "
        "else_branch = e () => (seq(float[2, 3]) p, seq(float[2, 3]) p) { p = SequenceConstruct (a) }> "
        "s = SequenceAt (q, zero) y = Abs (s) t = SequenceAt (r, zero) z = Neg (t) }"
    )
    assert open_known_ifs(parse(text, opset), opset)[1] == (opset >= 16)


@pytest.mark.parametrize("start", [-9, -4, -3, -1, 2, 9])
@pytest.mark.parametrize("step", [-2, -1, 1])
def test_a_condition_from_what_is_sliced_backwards(start: int, step: int) -> None:
    """A start in front of the tensor is its first element there: onnx.reference finds none, whose product is 1."""
    nodes = (
        "sliced = Slice (k, start, end, zero, step) n = ReduceProd <keepdims = 0> (sliced) c = Equal (n, one) "
        f"a = Tanh (x) r = If (c) {BRANCHES} y = Abs (r)"
    )
    constants = (
        f"float[3] k = {{5, 6, 7}}, int64[1] start = {{{start}}}, int64[1] end = {{-99}}, int64[1] zero = {{0}}, "
    )
    optimized(graph(nodes, constants=constants + f"int64[1] step = {{{step}}}, float one = {{1}}"), target="cpu")


def test_a_model_in_which_nothing_fuses_comes_back_as_it_was() -> None:
    model = parse(graph(f"a = MatMul (x, w) y = If (c) {BRANCHES}", "float[2, 3] x, float[3, 3] w", "bool c = {1}"))
    result = onnxfuse.optimize(model, target="cpu")
    assert [n.op_type for n in result.model.graph.node] == ["MatMul", "If"]
    assert not result.report.notes


def test_the_report_says_so() -> None:
    _, _, report = optimized(
        graph(f"a = Tanh (x) r = If (c) {BRANCHES} y = Abs (r)", constants="bool c = {0}"), target="cpu"
    )
    assert any("always taken" in note for note in report.notes)
