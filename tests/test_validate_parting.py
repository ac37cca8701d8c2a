"""Where models part: the node that validate names, the nodes that it stands for, and what outputs hide."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_cli import folder, gate, invoke  # noqa: F401 (a fixture)
from test_validate import build
from test_validate_search import node

import onnxfuse
from onnxfuse.runtime import fused_nodes
from onnxfuse.validate import validate

FLOAT = TensorProto.FLOAT


def two_chains():
    """Two chains with a matrix product between them."""
    nodes = [
        node("Add", "x one", "a"),
        node("Relu", "a", "b"),
        node("MatMul", "b w", "c"),
        node("Mul", "c two", "d"),
        node("Tanh", "d", "e"),
        node("MatMul", "e w", "y"),
    ]
    rng = np.random.default_rng(0)
    constants = {"one": np.float32(1), "two": np.float32(2), "w": rng.normal(size=(8, 8)).astype(np.float32)}
    return build(nodes, [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])], constants)


def broken(model, number, old, new):
    """The model optimized, with the program of one fused node changed."""
    fused = onnxfuse.optimize(model, target="cpu", fallback=False).model
    attribute = list(fused_nodes(fused))[number].attribute[0]
    assert old in attribute.s
    attribute.s = attribute.s.replace(old, new)
    return fused


@pytest.mark.parametrize(
    ("number", "old", "new", "sources"),
    [
        (0, b"relu", b"neg", ("make_a (Add)", "make_b (Relu)")),
        (1, b"tanh", b"sin", ("make_d (Mul)", "make_e (Tanh)")),
    ],
)
def test_the_fused_node_at_which_models_part_is_named_with_its_source_nodes(number, old, new, sources):
    model = two_chains()
    result = validate(model, broken(model, number, old, new))
    assert not result.ok
    assert result.parting is not None
    assert result.parting.fused
    assert result.parting.op_type == "FusedElementwise"
    assert result.parting.sources == sources
    assert not result.parting.outputs[0].ok
    assert result.to_dict()["parting"]["sources"] == list(sources)


def test_a_node_that_is_not_fused_is_named_as_well():
    model = two_chains()
    fused = onnxfuse.optimize(model, target="cpu").model
    changed = next(n for n in fused.graph.node if n.op_type == "MatMul")
    changed.op_type = "Gemm"
    changed.attribute.append(helper.make_attribute("alpha", 2.0))
    parting = validate(model, fused).parting
    assert parting is not None
    assert not parting.fused
    assert parting.node == "make_c"


def body(nodes, result):
    return helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info(result, FLOAT, None)])


def nested():
    """An If in an If; both branches of each use the same names."""
    deep = [node("Add", "a one", "b"), node("Relu", "b", "d"), node("Mul", "d two", "e")]
    other = [node("Sub", "a two", "b"), node("Exp", "b", "e")]
    inside = node("If", "c", "r", then_branch=body(deep, "e"), else_branch=body(other, "e"))
    then = [node("MatMul", "x w", "a"), inside]
    otherwise = [node("Identity", "x", "a"), inside]
    nodes = [node("If", "c", "z", then_branch=body(then, "r"), else_branch=body(otherwise, "r")), node("Neg", "z", "y")]
    constants = {"one": np.float32(1), "two": np.float32(2), "w": np.eye(4, dtype=np.float32)}
    return build(nodes, [("x", FLOAT, [4, 4]), ("c", TensorProto.BOOL, [])], [("y", FLOAT, [4, 4])], constants)


@pytest.mark.parametrize("condition", [True, False])
def test_the_fused_node_is_found_in_the_branch_that_is_taken(condition):
    model = nested()
    fused = onnxfuse.optimize(model, target="cpu", fallback=False).model
    assert len(list(fused_nodes(fused))) == 4
    for program in (n.attribute[0] for n in fused_nodes(fused)):
        program.s = program.s.replace(b"relu", b"abs").replace(b"exp", b"tanh")
    inputs = {"x": np.full((4, 4), -2, np.float32), "c": np.array(condition)}
    parting = validate(model, fused, inputs=inputs).parting
    assert parting is not None
    assert parting.fused
    chain = ("make_b (Add)", "make_d (Relu)", "make_e (Mul)") if condition else ("make_b (Sub)", "make_e (Exp)")
    assert parting.sources == chain


def test_a_loop_is_named_where_they_part():
    def typed(*values):
        return [helper.make_tensor_value_info(*value) for value in values]

    def model(factor):
        carried = typed(("i", 7, []), ("go", 9, []), ("v", FLOAT, [4]))
        inner = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["v", factor], ["w"])]
        turn = helper.make_graph(inner, "b", carried, typed(("on", 9, []), ("w", FLOAT, [4])))
        loop = helper.make_node("Loop", ["turns", "", "x"], ["z"], "loop", body=turn)
        constants = {"two": np.float32(2), "three": np.float32(3), "turns": np.int64(3)}
        return build([loop, node("Neg", "z", "y")], [("x", FLOAT, [4])], [("y", FLOAT, [4])], constants)

    parting = validate(model("two"), model("three")).parting
    assert parting is not None
    assert (parting.node, parting.op_type) == ("loop", "Loop")


def saturated():
    """A softmax that is sure of itself hides what is wrong before it."""
    nodes = [
        node("Add", "x one", "a"),
        node("Relu", "a", "b"),
        node("MatMul", "b w", "c"),
        node("Add", "c sure", "d"),
        node("Softmax", "d", "y"),
    ]
    rng = np.random.default_rng(0)
    constants = {"one": np.float32(1), "w": rng.normal(size=(8, 8)).astype(np.float32)}
    constants["sure"] = np.array([1e4] + [0] * 7, np.float32)
    return build(nodes, [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])], constants)


def test_what_outputs_hide_is_found_in_the_nodes():
    model = saturated()
    wrong = broken(model, 0, b"relu", b"neg")
    assert validate(model, wrong).ok
    assert validate(model, onnxfuse.optimize(model, target="cpu").model, nodes=True).ok
    result = validate(model, wrong, nodes=True)
    assert not result.ok
    assert all(c.ok for c in result.outputs)
    assert result.parting is not None
    assert result.parting.sources == ("make_a (Add)", "make_b (Relu)")


def test_the_command_compares_nodes(folder):  # noqa: F811
    onnx.save(saturated(), "model.onnx")
    onnx.save(broken(saturated(), 0, b"relu", b"neg"), "broken.onnx")
    assert invoke("validate", "model.onnx", "broken.onnx").exit_code == 0
    result = invoke("validate", "model.onnx", "broken.onnx", "--nodes")
    assert result.exit_code == 1
    assert "FAILED: 1 output within tolerance, but not what FusedElementwise_0 writes" in result.stdout


def test_of_programs_that_share_a_launch_the_wrong_one_is_named():
    nodes, constants = [], {"one": np.float32(1), "two": np.float32(2)}
    for i in range(3):
        nodes += [
            node("MatMul", f"x w{i}", f"m{i}"),
            node("Add", f"m{i} one", f"a{i}"),
            node("Mul", f"a{i} two", f"y{i}"),
        ]
        constants[f"w{i}"] = np.full((8, 8 + 8 * i), 0.5, np.float32)
    outputs = [(f"y{i}", FLOAT, [4, 8 + 8 * i]) for i in range(3)]
    model = build(nodes, [("x", FLOAT, [4, 8])], outputs, constants)
    result = onnxfuse.optimize(model, target="cuda", fallback=False)
    assert len(result.report.groups) == 1
    (grouped,) = fused_nodes(result.model)
    program = grouped.attribute[0].s.decode()
    second = program.index("space", program.index("space") + 1)
    at = program.index("mul", second)
    grouped.attribute[0].s = (program[:at] + "add" + program[at + 3 :]).encode()
    parting = validate(model, result.model).parting
    assert parting is not None
    assert parting.node == grouped.name
    assert parting.sources == ("make_a1 (Add)", "make_y1 (Mul)")


def test_models_that_agree_part_nowhere():
    model = two_chains()
    assert validate(model, onnxfuse.optimize(model, target="cpu").model).parting is None


def test_the_command_names_the_parting(folder):  # noqa: F811
    onnx.save(broken(gate(), 0, b"mul", b"add"), "broken.onnx")
    result = invoke("validate", "model.onnx", "broken.onnx")
    assert result.exit_code == 1
    assert "the models part at the fused node FusedElementwise_0" in result.stdout
    assert "stands for add (Add), clip (Clip), mul (Mul), div (Div)" in result.stdout
