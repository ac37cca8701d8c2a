"""`restore`: fused nodes back to standard operators, and nothing else touched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered import model_of, run
from onnx import TensorProto, helper
from strategies import SCANNING, SMOOTH, arrays_for, programs

from onnxfuse.custom_ops.function import NoFunctionError, to_function
from onnxfuse.custom_ops.program import Program
from onnxfuse.errors import ModelError, ProgramError
from onnxfuse.restore import restore

SCALE = """\
onnxfuse 1
space d0 d1
%0 = input 0 f32 [d0, d1]
%1 = input 1 f32 [d1]
%2 = mul f32 %0 %1
%3 = relu f32 %2
output 0 f32 [d0, d1] %3
output 1 f32 [d0, d1] %2
"""


def fused(inputs: list[str], outputs: list[str], text: str = SCALE, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(
        "FusedElementwise", inputs, outputs, domain="onnxfuse", overload=Program.parse(text).digest(), program=text
    )


def tensor(name: str, shape: Any = ("n", 4), type_: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, shape)


def model(nodes: list[onnx.NodeProto], outputs: list[str], opset: int = 17, **more: Any) -> onnx.ModelProto:
    scale = onnx.numpy_helper.from_array(np.array([1, -2, 3, 4], np.float32), "s")
    graph = helper.make_graph(nodes, "main", [tensor("x")], [tensor(name) for name in outputs], [scale])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("onnxfuse", 1)]
    functions = [to_function(Program.parse(SCALE), "FusedElementwise", opset), *more.pop("functions", [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions, **more)


def results(proto: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def operators(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3


def test_a_model_computes_the_same_and_keeps_all_else() -> None:
    before = model(
        [
            helper.make_node("Neg", ["x"], ["a"], name="first", doc_string="kept"),
            fused(["a", "s"], ["b", "c"]),
            fused(["b", "s"], ["d", "e"]),
            helper.make_node("Add", ["d", "c"], ["y"], name="last"),
        ],
        ["y", "e"],
        doc_string="doc",
        producer_name="somebody",
    )
    before.metadata_props.add(key="k", value="v")
    before.graph.value_info.append(tensor("b"))
    copy = onnx.ModelProto.FromString(before.SerializeToString())
    after = restore(before).model
    assert before == copy, "the model given is not changed"
    assert operators(after) == ["Neg", "Mul", "Relu", "Mul", "Relu", "Add"]
    assert [(entry.domain, entry.version) for entry in after.opset_import] == [("", 17)]
    assert not after.functions
    for name in ("doc_string", "producer_name", "ir_version"):
        assert getattr(after, name) == getattr(before, name)
    assert after.metadata_props == before.metadata_props
    assert after.graph.value_info == before.graph.value_info
    assert after.graph.initializer == before.graph.initializer
    assert (after.graph.node[0], after.graph.node[-1]) == (before.graph.node[0], before.graph.node[-1])
    names = [name for node in after.graph.node for name in node.output]
    assert len(set(names)) == len(names)
    for found, expected in zip(results(after, x=X), results(before, x=X), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_model_without_fused_nodes_stays_as_it_is() -> None:
    plain = helper.make_model(
        helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [tensor("x")], [tensor("y")]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    assert restore(plain).model == plain


def test_new_names_are_new_everywhere() -> None:
    """Also where the model has names that the lowering would take, in a subgraph say."""
    taken = [f"b/{n}" for n in range(3)] + ["b/1/0"]
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b/0"], name="b/1"), helper.make_node("Neg", ["b/0"], ["r"])],
        "then",
        [],
        [tensor("r")],
    )
    swapped = SCALE.replace("] %3", "] %4").replace("] %2", "] %3").replace("] %4", "] %2")
    before = model(
        [
            helper.make_node("Identity", ["x"], [taken[1]], name="n0"),
            fused(["x", "s"], ["b", ""], swapped),
            helper.make_node("Identity", ["x"], [taken[3]], name="n1"),
            helper.make_node("If", ["flag"], ["c"], then_branch=branch, else_branch=branch),
            helper.make_node("Sum", ["b", "c", taken[1], taken[3]], ["y"]),
        ],
        ["y"],
    )
    before.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "flag"))
    del before.functions[:]
    after = restore(before).model
    names = [name for node in after.graph.node for name in node.output if name]
    assert len(set(names)) == len(names)
    assert not {"b/0", "b/1"} & (set(names) - {taken[1]})
    scale = np.array([1, -2, 3, 4], np.float32)
    np.testing.assert_array_equal(results(after, x=X)[0], X * scale - X + X + X)


def test_subgraphs_and_functions() -> None:
    def branch(name: str, output: str) -> onnx.GraphProto:
        inner = helper.make_graph([fused(["x", "s"], [f"{name}_i", f"{name}_j"])], "inner", [], [tensor(f"{name}_i")])
        nested = helper.make_node("If", ["flag"], [f"{name}_n"], then_branch=inner, else_branch=inner)
        nodes = [fused(["x", "s"], [f"{name}_0", f"{name}_1"]), nested]
        nodes.append(helper.make_node("Add", [f"{name}_{output}", f"{name}_n"], [f"{name}_y"]))
        return helper.make_graph(nodes, name, [], [tensor(f"{name}_y")])

    function = helper.make_function(
        "local",
        "Twice",
        ["u", "v"],
        ["w"],
        [
            helper.make_node("FusedElementwise", ["u", "v"], ["p", "q"], domain="onnxfuse", program=SCALE),
            helper.make_node("Add", ["p", "q"], ["w"]),
        ],
        [helper.make_opsetid("", 17), helper.make_opsetid("onnxfuse", 1)],
    )
    before = model(
        [
            helper.make_node("If", ["flag"], ["a"], then_branch=branch("t", "0"), else_branch=branch("e", "1")),
            helper.make_node("Twice", ["a", "s"], ["y"], domain="local"),
        ],
        ["y"],
        functions=[function],
    )
    before.opset_import.append(helper.make_opsetid("local", 1))
    before.graph.initializer.append(onnx.numpy_helper.from_array(np.array(False), "flag"))
    after = restore(before).model
    assert "onnxfuse" not in str(after)
    assert [f.name for f in after.functions] == ["Twice"]
    assert [(entry.domain, entry.version) for entry in after.functions[0].opset_import] == [("", 17)]
    scale = np.array([1, -2, 3, 4], np.float32)
    a = X * scale + np.maximum(X * scale, 0)
    np.testing.assert_array_equal(results(after, x=X)[0], np.maximum(a * scale, 0) + a * scale)


def test_a_model_of_fused_nodes_only_gets_an_import() -> None:
    before = model([fused(["x", "s"], ["y", "z"])], ["y", "z"])
    del before.opset_import[0]
    after = restore(before).model
    assert [entry.domain for entry in after.opset_import] == [""]
    np.testing.assert_array_equal(results(after, x=X)[0], np.maximum(X * np.array([1, -2, 3, 4], np.float32), 0))


def test_a_file_with_external_data(tmp_path: Path) -> None:
    before = model([fused(["x", "s"], ["y", "z"])], ["y"])
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "fused.onnx"
    expected = results(before, x=X)[0]
    onnx.save_model(before, path, save_as_external_data=True, location="weights", size_threshold=0)
    target = tmp_path / "plain.onnx"
    restore(path).save(target)
    assert operators(onnx.load(target)) == ["Mul", "Relu"]
    np.testing.assert_array_equal(results(onnx.load(target), x=X)[0], expected)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(operations=SMOOTH) | programs(operations=SCANNING), st.integers(0, 2**32))
def test_any_program_restored_is_its_function(program: Program, seed: int) -> None:
    inputs = arrays_for(program, np.random.default_rng(seed), broadcast=0.3)
    if inputs is None:
        return
    before = model_of(program, 21)
    after = restore(before).model
    assert not any(node.domain == "onnxfuse" for node in after.graph.node)
    onnx.checker.check_model(after, full_check=True)
    try:
        expected = run(before, inputs)
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        return
    for y, other in zip(run(after, inputs), expected, strict=True):
        np.testing.assert_array_equal(y, other)


SCAN = """\
onnxfuse 1
space d0 | d1 |
%0 = input 0 f32 [d0, d1]
%1 = scan_sum reverse f32 %0
%2 = {} f32 %0
%3 = reduce_argmax last i64 %0
%4 = cast f32 %3
%5 = add f32 %1 %4
%6 = mul f32 %5 %2
output 0 f32 [d0, d1] %6
"""


def test_scans_and_arguments_are_restored() -> None:
    """As the operators that they were, or, where there is none, as loops whose names do not meet."""
    nodes = [fused(["x"], ["y"], SCAN.format("abs")), fused(["y"], ["z"], SCAN.format("scan_max"))]
    nodes.append(fused(["z"], ["w"], SCAN.format("scan_max exclusive")))
    after = restore(model(nodes, ["z", "w"])).model
    kinds = operators(after)
    assert [kinds.count(kind) for kind in ("CumSum", "ArgMax", "Scan")] == [3, 3, 2]
    x = np.random.default_rng(0).integers(-3, 4, (3, 4)).astype(np.float32)
    last = 3 - x[:, ::-1].argmax(1)[:, None]
    y = (x[:, ::-1].cumsum(1)[:, ::-1] + last) * np.abs(x)
    last = 3 - y[:, ::-1].argmax(1)[:, None]
    z = (y[:, ::-1].cumsum(1)[:, ::-1] + last) * np.maximum.accumulate(y, 1)
    found, more = results(after, x=x)
    np.testing.assert_array_equal(found, z)
    assert np.isinf(more[:, 0]).all()  # before the first element there is no maximum


def broken(**changes: Any) -> onnx.ModelProto:
    node = fused(["x", "s"], ["y", "z"])
    node.name = "the node"
    for attribute in node.attribute:
        if "program" in changes:
            attribute.s = changes["program"].encode()
    if changes.get("remove"):
        del node.attribute[:]
    if "inputs" in changes:
        node.input[:] = changes["inputs"]
    if "outputs" in changes:
        node.output[:] = changes["outputs"]
    return model([node], ["y"], changes.get("opset", 17))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"remove": True}, "node 'the node': it has no program attribute"),
        ({"program": SCALE.replace("relu", "rely")}, "node 'the node': line 6: unknown operation 'rely'"),
        ({"program": ""}, "node 'the node': line 1: a program ends with a newline"),
        ({"inputs": ["x"]}, "node 'the node': its program has 2 inputs, the node 1"),
        ({"outputs": ["y"]}, "node 'the node': its program has 2 outputs, the node 1"),
    ],
)
def test_a_broken_program_names_the_node(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        restore(broken(**changes))


def test_an_unnamed_node_is_named_by_its_output() -> None:
    before = model([fused(["x"], ["y", "z"])], ["y"])
    with pytest.raises(ProgramError, match="FusedElementwise with output 'y': its program has 2 inputs"):
        restore(before)


def test_what_the_opset_cannot_say_names_the_node() -> None:
    text = SCALE.replace("%3 = relu f32 %2", "%3 = round f32 %2")
    node = fused(["x", "s"], ["y", "z"], text)
    node.name = "the node"
    with pytest.raises(NoFunctionError, match="node 'the node': Round of f32 does not exist in opset 10"):
        restore(model([node], ["y"], opset=10))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("y = Add (x, gone)", "the value 'gone', read by node 'y' (Add), is no input"),
        ("z = Neg (x)", "the value 'y', read by an output of graph 'g', is no input"),
        (
            "y = If (c) <then_branch = t () => (float p) {p = Neg (x)}, else_branch = e () => (float q) {q = Neg (p)}>",
            "the value 'p', read by node 'q' (Neg), is no input",
        ),
    ],
)
def test_a_value_that_nothing_makes_is_named(graph: str, message: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float x, bool c) => (float y) {{ {graph} }}'
    )
    with pytest.raises(ModelError, match=re.escape(message)):
        restore(model)


def test_bodies_read_what_is_around_them() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float x, bool c) => (float y) <float w = {2}> { a = Exp (x) y = If '
        "(c) <then_branch = t () => (float p) { p = Neg (a) }, else_branch = e () => (float q) { q = Mul (w, a) }> }"
    )
    assert restore(model).model == model


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        restore(tmp_path / "none.onnx")
