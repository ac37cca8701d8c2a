"""Graph editing: without edits nothing changes, with edits nothing else changes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser
from random_models import models

from onnxfuse.editing import ModelEditor, from_graphsurgeon
from onnxfuse.errors import ModelError

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def data(proto: object) -> bytes:
    return proto.SerializeToString(deterministic=True)  # type: ignore[attr-defined]


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from all_graphs(body)


def read_by(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, with all that stands in its bodies."""
    names = set(node.input)
    for attribute in node.attribute:
        for body in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            names.update(output.name for output in body.output)
            for inner in body.node:
                names |= read_by(inner)
    return names


def is_sorted(graph: onnx.GraphProto) -> bool:
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if later & read_by(node):
            return False
        later.difference_update(node.output)
    return True


def text(source: str) -> onnx.ModelProto:
    return parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + source)


def node_named(editor: ModelEditor, name: str) -> gs.Node:
    return next(node for scope in editor.scopes for node in scope.nodes if node.name == name)


@QUICK
@given(models())
def test_without_edits_every_byte_stays(model: onnx.ModelProto) -> None:
    before = data(model)
    assert data(ModelEditor(model).to_model()) == before
    assert data(model) == before


@QUICK
@given(models(), st.integers(0, 1 << 30))
def test_unsorted_nodes_are_sorted_and_all_else_stays(model: onnx.ModelProto, seed: int) -> None:
    rng = random.Random(seed)
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(model)
    # Inner graphs first: their nodes move with the nodes that hold them.
    for graph in reversed(list(all_graphs(shuffled.graph))):
        nodes = list(graph.node)
        rng.shuffle(nodes)
        copies = [onnx.NodeProto.FromString(data(node)) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
    result = ModelEditor(shuffled).to_model()
    assert all(is_sorted(graph) for graph in all_graphs(result.graph))
    for proto in (result, model):
        for graph in reversed(list(all_graphs(proto.graph))):
            copies = sorted((onnx.NodeProto.FromString(data(node)) for node in graph.node), key=data)
            del graph.node[:]
            graph.node.extend(copies)
    assert data(result) == data(model)


@QUICK
@given(models(), st.integers(0, 1 << 30))
def test_replacing_a_node_leaves_all_others(model: onnx.ModelProto, seed: int) -> None:
    editor = ModelEditor(model)
    nodes = [node for scope in editor.scopes for node in scope.nodes if not list(node.subgraphs())]
    if not nodes:
        return
    old = nodes[seed % len(nodes)]
    proto = editor.node_proto(old)
    assert proto is not None
    if any(a.type == onnx.AttributeProto.GRAPHS for a in proto.attribute):
        return
    domain = proto.domain or None
    wanted = onnx.ModelProto()
    wanted.CopyFrom(model)
    (target,) = [
        node
        for graph, original in zip(all_graphs(wanted.graph), all_graphs(model.graph), strict=True)
        for node, source in zip(graph.node, original.node, strict=True)
        if source is proto
    ]
    target.CopyFrom(helper.make_node("Mish", list(proto.input), list(proto.output), name="new", domain=domain))
    new = gs.Node("Mish", "new", inputs=list(old.inputs), outputs=list(old.outputs), domain=domain)
    editor.replace([old], new)
    assert all(old is not node for tensor in new.inputs for node in tensor.outputs)
    assert all([new] == list(tensor.inputs) for tensor in new.outputs if tensor.name)
    result = editor.to_model()
    if proto.domain not in {o.domain for o in model.opset_import}:
        assert result.opset_import[-1].domain == proto.domain
        del result.opset_import[-1]
    assert data(result) == data(wanted)


def test_unknown_fields_survive() -> None:
    model = text("agraph (float[n] x) => (float[n] y) { y = Relu(x) }")
    raw = data(model) + b"\xba\x3e\x03abc"  # field 999 of a newer ONNX
    model = onnx.ModelProto.FromString(raw)
    assert data(ModelEditor(model).to_model()) == data(model)
    assert b"abc" in data(ModelEditor(model).to_model())


def test_a_chain_becomes_one_node_with_its_declaration_overload_and_function() -> None:
    model = text(
        """agraph (float[n] x) => (float[n] y) <float[1] one = {1}, float[1] spare = {2}, float[n] a, float[n] b> {
             a = Add(x, one)
             b = Relu(a)
             y = Neg(b)
           }"""
    )
    model.ir_version = 8
    model.doc_string = "kept"
    editor = ModelEditor(model)
    first, second, last = editor.graph.nodes
    fused = gs.Node(
        "FusedElementwise",
        editor.unique_name("fused"),
        {"program": "text"},
        [first.inputs[0]],
        [last.outputs[0]],
        domain="onnxfuse",
    )
    editor.replace([first, second, last], fused)
    editor.set_overload(fused, "h1")
    editor.set_metadata(fused, {"source": "a b y"})
    editor.functions.append(
        onnx.FunctionProto(name="FusedElementwise", domain="onnxfuse", overload="h1", input=["x"], output=["y"])
    )
    for name in ("gone", "y"):  # the second is an output, and declared as such
        editor.set_value_info(editor.graph, helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
    result = editor.to_model()
    (node,) = result.graph.node
    assert (node.overload, node.domain, node.metadata_props[0].value) == ("h1", "onnxfuse", "a b y")
    assert (node.input, node.output) == (["x"], ["y"])
    assert [t.name for t in result.graph.initializer] == ["spare"]  # unused before the edit
    assert not result.graph.value_info
    assert {o.domain: o.version for o in result.opset_import} == {"": 21, "onnxfuse": 1}
    assert (result.ir_version, len(result.functions), result.doc_string) == (10, 1, "kept")
    assert data(ModelEditor(result).to_model()) == data(result)


def test_ir_version_rises_only_for_what_needs_it() -> None:
    model = text("agraph (float[n] x) => (float[n] y) { y = Relu(x) }")
    model.ir_version = 6
    editor = ModelEditor(model)
    assert editor.to_model().ir_version == 6
    editor.functions.append(onnx.FunctionProto(name="F", domain="local"))
    result = editor.to_model()
    assert result.ir_version == 8
    assert [o.domain for o in result.opset_import] == ["", "local"]


def conditional() -> onnx.ModelProto:
    return text(
        """agraph (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] q = {3, 4}> {
             [used_in_bodies] t = Mul(x, w)
             [branch] y = If (c) <
               then_branch = yes () => (float[2] r) { [inner] s = Add(t, q)  r = Relu(s) },
               else_branch = no () => (float[2] r) { [other] s = Sub(t, q)  r = Neg(s) }
             >
           }"""
    )


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ort.InferenceSession(data(model), providers=["CPUExecutionProvider"]).run(None, feeds)


def test_bodies_capture_tensors_of_outer_graphs() -> None:
    editor = ModelEditor(conditional())
    outer = editor.graph.nodes[0].outputs[0]
    assert {node.name for node in outer.outputs} == {"inner", "other"}
    assert [editor.scope_name(scope) for scope in editor.scopes] == [
        "",
        "branch.then_branch",
        "branch.else_branch",
    ]
    assert {tensor.name for tensor in editor.required().values()} == {"y", "r"}


def test_an_edit_in_one_body_leaves_the_other() -> None:
    model = conditional()
    editor = ModelEditor(model)
    inner = node_named(editor, "inner")
    constant = gs.Constant(editor.unique_name("q"), np.array([5, 6], np.float32))
    new = gs.Node("Max", "new", inputs=[inner.inputs[0], constant], outputs=[inner.outputs[0]])
    editor.replace([inner], new)
    result = editor.to_model()
    onnx.checker.check_model(result, full_check=True)
    then_branch, else_branch = result.graph.node[1].attribute
    assert [t.name for t in then_branch.g.initializer] == ["q_1"]
    assert data(else_branch) == data(model.graph.node[1].attribute[1])
    x = np.array([1, 10], np.float32)
    np.testing.assert_array_equal(run(result, {"c": np.array(True), "x": x})[0], [5, 20])
    np.testing.assert_array_equal(run(result, {"c": np.array(False), "x": x})[0], [2, -16])


def test_a_new_constant_of_two_bodies_goes_to_the_outer_graph() -> None:
    editor = ModelEditor(conditional())
    shared = gs.Constant("shared", np.array([7, 8], np.float32))
    for name in ("inner", "other"):
        node_named(editor, name).inputs[1] = shared
    result = editor.to_model()
    onnx.checker.check_model(result, full_check=True)
    assert [t.name for t in result.graph.initializer] == ["w", "shared"]  # q has lost its last reader


def test_removing_a_node_with_bodies_frees_what_they_captured() -> None:
    editor = ModelEditor(conditional())
    multiply, branch = editor.graph.nodes
    (output,) = editor.graph.outputs
    new = gs.Node("Identity", "new", inputs=[multiply.outputs[0]], outputs=[output])
    editor.replace([branch], new)
    assert [node.name for node in multiply.outputs[0].outputs] == ["new"]
    assert [t.name for t in editor.to_model().graph.initializer] == ["w"]


def test_values_of_an_outer_graph_that_only_bodies_read_come_first() -> None:
    model = conditional()
    nodes = [onnx.NodeProto.FromString(data(node)) for node in reversed(model.graph.node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    result = ModelEditor(model).to_model()
    assert [node.name for node in result.graph.node] == ["used_in_bodies", "branch"]
    onnx.checker.check_model(result, full_check=True)


def test_names_of_bodies_may_repeat_and_shadow() -> None:
    model = conditional()
    for attribute in model.graph.node[1].attribute:
        attribute.g.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "q"))  # shadows the outer q
    editor = ModelEditor(model)
    assert node_named(editor, "inner").inputs[1] is not node_named(editor, "other").inputs[1]
    assert data(editor.to_model()) == data(model)
    inner = node_named(editor, "inner")
    replacement = gs.Node("Identity", "new", inputs=[inner.inputs[0]], outputs=[inner.outputs[0]])
    editor.replace([inner], replacement)
    result = editor.to_model()
    assert [len(a.g.initializer) for a in result.graph.node[1].attribute] == [0, 1]
    assert [t.name for t in result.graph.initializer] == ["w", "q"]


def test_a_cycle_is_named() -> None:
    model = text(
        "agraph (float[n] x) => (float[n] y) { [first] a = Add(x, b)  [second] b = Neg(a)  [last] y = Relu(b) }"
    )
    with pytest.raises(ModelError, match=r"cycle: 'second' \(Neg\) -> 'first' \(Add\) -> 'second'"):
        ModelEditor(model).to_model()


def test_a_cycle_through_a_body_is_found() -> None:
    model = conditional()
    model.graph.node[0].input[1] = "y"
    with pytest.raises(ModelError, match="cycle"):
        ModelEditor(model).to_model()


@pytest.mark.parametrize("other", ["x", "w", "y"])
def test_a_value_that_is_defined_twice_is_refused(other: str) -> None:
    model = text("agraph (float[n] x) => (float[n] y) <float[1] w = {1}> { y = Add(x, w)  z = Neg(y) }")
    model.graph.node[1].output[0] = other
    with pytest.raises(ModelError, match=f"'{other}'.*defined twice"):
        ModelEditor(model)


def test_a_missing_producer_is_named() -> None:
    editor = ModelEditor(text("agraph (float[n] x) => (float[n] y) { [first] a = Neg(x)  [second] y = Relu(a) }"))
    editor.remove_nodes([editor.graph.nodes[0]])
    with pytest.raises(ModelError, match=r"'a'.*'second' \(Relu\)"):
        editor.to_model()


def test_removing_what_is_not_there_is_refused() -> None:
    editor = ModelEditor(text("agraph (float[n] x) => (float[n] y) { y = Neg(x) }"))
    with pytest.raises(ModelError, match="not in the model"):
        editor.remove_nodes([gs.Node("Neg")])


def test_a_new_constant_may_not_take_the_name_of_another_value() -> None:
    editor = ModelEditor(conditional())
    node_named(editor, "inner").inputs[1] = gs.Constant("w", np.zeros(2, np.float32))
    with pytest.raises(ModelError, match="'w'"):
        editor.to_model()


def test_only_the_very_node_is_taken_from_a_tensors_consumers() -> None:
    # Equal by name, operator and tensors' names: graphsurgeon's own lists cannot tell these two apart.
    model = text("agraph (float[n] x) => (float[n] y) { a = Neg(x)  b = Neg(x)  y = Add(a, b) }")
    editor = ModelEditor(model)
    first, second, total = editor.graph.nodes
    for node in (first, second):
        node.outputs[0].name = "same"
    editor.remove_nodes([second])
    assert [node is first for node in first.inputs[0].outputs] == [True]
    assert total.inputs[1].inputs == []


def test_inputs_with_defaults_are_variables_except_in_old_models() -> None:
    model = text("agraph (float[n] x, float[1] w) => (float[n] y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "w"))
    assert isinstance(ModelEditor(model).graph.nodes[0].inputs[1], gs.Variable)
    model.ir_version = 3
    editor = ModelEditor(model)
    assert isinstance(editor.graph.nodes[0].inputs[1], gs.Constant)
    (add,) = editor.graph.nodes
    new = gs.Node("Add", inputs=[add.inputs[0], gs.Constant("c", np.ones(1, np.float32))], outputs=list(add.outputs))
    editor.replace([add], new)
    result = editor.to_model()
    # The default must stay with its input, and an old model can hold the new constant only as a node.
    assert ([v.name for v in result.graph.input], [t.name for t in result.graph.initializer]) == (["x", "w"], ["w"])
    assert [node.op_type for node in result.graph.node] == ["Constant", "Add"]
    onnx.checker.check_model(result)


def test_values_that_training_reads_are_kept() -> None:
    model = text("agraph (float[n] x) => (float[n] y) <float[1] w = {1}> { a = Add(x, w)  y = Relu(a) }")
    training = model.training_info.add()
    training.algorithm.node.append(helper.make_node("Sub", ["w", "a"], ["w_new"]))
    training.update_binding.add(key="w", value="w_new")
    editor = ModelEditor(model)
    assert {tensor.name for tensor in editor.required().values()} == {"w", "a", "y"}
    add = editor.graph.nodes[0]
    editor.replace([add], gs.Node("Neg", inputs=[add.inputs[0]], outputs=list(add.outputs)))
    assert [t.name for t in editor.to_model().graph.initializer] == ["w"]


def test_quantization_annotations_go_with_their_tensors() -> None:
    model = text(
        "agraph (float[n] x) => (float[n] y) <float s1 = {1}, float s2 = {2}> { a = Mul(x, s1)  y = Mul(a, s2) }"
    )
    for name, scale in (("a", "s1"), ("y", "s2")):
        annotation = model.graph.quantization_annotation.add(tensor_name=name)
        annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=scale)
    editor = ModelEditor(model)
    first, last = editor.graph.nodes
    editor.replace([first, last], gs.Node("Neg", inputs=[first.inputs[0]], outputs=[last.outputs[0]]))
    result = editor.to_model()
    assert [a.tensor_name for a in result.graph.quantization_annotation] == ["y"]
    assert [t.name for t in result.graph.initializer] == ["s2"]


def test_renaming_a_tensor_renames_it_everywhere() -> None:
    model = conditional()
    model.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [2]))
    editor = ModelEditor(model)
    editor.graph.nodes[0].outputs[0].name = "renamed"
    editor.graph.nodes[0].inputs[1].name = "weight"
    result = editor.to_model()
    onnx.checker.check_model(result, full_check=True)
    assert [v.name for v in result.graph.value_info] == ["renamed"]
    assert [t.name for t in result.graph.initializer] == ["weight", "q"]
    assert "renamed" in read_by(result.graph.node[1])


def test_changed_attributes_and_values_are_written_and_others_not_touched() -> None:
    model = text(
        "agraph (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = LeakyRelu<alpha = 0.5>(x)  y = Add(a, w) }"
    )
    model.graph.node[0].attribute[0].doc_string = "kept"
    editor = ModelEditor(model)
    weight = editor.graph.nodes[1].inputs[1]
    np.testing.assert_array_equal(weight.values, [1, 2])
    assert data(editor.to_model()) == data(model)
    with pytest.raises(ValueError, match="read-only"):
        weight.values[0] = 3
    weight.values = np.array([3, 4], np.float32)
    editor.graph.nodes[0].attrs["alpha"] = 0.25
    result = editor.to_model()
    np.testing.assert_array_equal(numpy_helper.to_array(result.graph.initializer[0]), [3, 4])
    assert result.graph.node[0].attribute[0].f == 0.25
    assert data(result.graph.node[1]) == data(model.graph.node[1])


@pytest.mark.parametrize(
    ("dtype", "values"), [(TensorProto.BFLOAT16, [1.5, -2]), (TensorProto.FLOAT16, [1, 2]), (TensorProto.INT4, [-8, 7])]
)
def test_constants_of_all_types_have_numpy_dtypes(dtype: int, values: list[float]) -> None:
    model = text("agraph (float[2] x) => (float[2] y) { y = Relu(x) }")
    tensor = helper.make_tensor("c", dtype, [2], values)
    model.graph.node[0].attribute.append(helper.make_attribute("value", tensor))
    constant = ModelEditor(model).graph.nodes[0].attrs["value"]
    assert constant.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    assert constant.shape == [2]
    assert constant.values.astype(float).tolist() == values
    new = gs.Constant("new", constant.values)
    editor = ModelEditor(model)
    editor.graph.nodes[0].inputs[0] = new
    assert editor.to_model().graph.initializer[0].data_type == dtype


def test_sparse_constants_load_in_their_own_type() -> None:
    model = text("agraph (float16[2,2] x) => (float16[2,2] y) { y = Add(x, s) }")
    sparse = model.graph.sparse_initializer.add(dims=[2, 2])
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([5], np.float16), "s"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([[1, 0]], np.int64)))
    editor = ModelEditor(model)
    constant = editor.graph.nodes[0].inputs[1]
    assert constant.values.dtype == np.float16
    assert constant.values.tolist() == [[0, 0], [5, 0]]
    assert data(editor.to_model()) == data(model)


def test_unknown_extents_share_no_name() -> None:
    model = text("agraph (float[n, n] x) => (float[n] y) { y = Relu(x) }")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims.add().dim_param = "?"
    dims.add().dim_value = -1
    dims.add()
    assert ModelEditor(model).graph.inputs[0].shape == ["n", "n", None, None, None]


def test_external_values_need_the_models_folder() -> None:
    model = text("agraph (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    model.graph.initializer[0].CopyFrom(onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=1))
    model.graph.initializer[0].external_data.add(key="location", value="w.bin")
    with pytest.raises(ModelError, match="folder"):
        _ = ModelEditor(model).graph.nodes[0].inputs[1].values


def test_empty_optional_inputs_and_outputs() -> None:
    model = text("agraph (float[n] x) => (float[n] y) <float hi = {6}> { y = Clip(x, , hi) }")
    editor = ModelEditor(model)
    (clip,) = editor.graph.nodes
    assert [tensor.is_empty() for tensor in clip.inputs] == [False, True, False]
    new = gs.Node("Clip", "new", inputs=list(clip.inputs), outputs=list(clip.outputs))
    editor.replace([clip], new)
    assert list(editor.to_model().graph.node[0].input) == ["x", "", "hi"]


def test_new_values_with_a_known_type_are_declared() -> None:
    editor = ModelEditor(text("agraph (float[n] x) => (float[n] y) { y = Relu(x) }"))
    (relu,) = editor.graph.nodes
    middle = gs.Variable(editor.unique_name("y"), np.float32, ["n"])
    relu_input = relu.inputs[0]
    relu.inputs[0] = middle
    editor.graph.nodes.append(gs.Node("Neg", inputs=[relu_input], outputs=[middle]))
    result = editor.to_model()
    assert [node.op_type for node in result.graph.node] == ["Neg", "Relu"]
    assert [v.name for v in result.graph.value_info] == ["y_1"]
    onnx.checker.check_model(result, full_check=True)


def test_unique_names_are_unique_everywhere() -> None:
    model = conditional()
    model.functions.append(
        onnx.FunctionProto(name="F", input=["f_in"], node=[helper.make_node("Neg", ["f_in"], ["f_out"], name="f_node")])
    )
    editor = ModelEditor(model)
    taken = {"x", "w", "q", "t", "r", "s", "inner", "branch", "f_in", "f_out", "f_node"}
    assert all(editor.unique_name(name) != name for name in taken)
    names = [editor.unique_name("fused") for _ in range(3)]
    assert names == ["fused", "fused_1", "fused_2"]


def test_graphsurgeon_graphs_become_models() -> None:
    graph = gs.import_onnx(conditional())
    result = from_graphsurgeon(graph)
    onnx.checker.check_model(result, full_check=True)
    feeds = {"c": np.array(True), "x": np.array([1, -10], np.float32)}
    np.testing.assert_array_equal(run(result, feeds)[0], run(conditional(), feeds)[0])
    bodies = [attribute.g for attribute in result.graph.node[1].attribute]
    assert [len(body.initializer) for body in bodies] == [0, 0]
    assert data(from_graphsurgeon(graph)) == data(result)


def test_graphsurgeon_graphs_keep_their_functions() -> None:
    model = text("agraph (float[2] x) => (float[2] y) { y = local.F(x) }")
    model.opset_import.append(helper.make_opsetid("local", 1))
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    model.functions.append(function)
    result = from_graphsurgeon(gs.import_onnx(model))
    onnx.checker.check_model(result, full_check=True)
    np.testing.assert_array_equal(run(result, {"x": np.array([1, -2], np.float32)})[0], [-1, 2])


def test_graphsurgeon_graphs_without_types_or_imports() -> None:
    x, y = gs.Variable("x", np.float32, [2]), gs.Variable("y", np.float32, [1])
    graph = gs.Graph(
        [gs.Node("ReduceSum", attrs={"axes": [], "keepdims": 1}, inputs=[x], outputs=[y])], [x], [y], opset=11
    )
    result = from_graphsurgeon(graph)
    onnx.checker.check_model(result, full_check=True)
    assert result.graph.node[0].attribute[0].type == onnx.AttributeProto.INTS


def test_a_hundred_thousand_nodes_take_seconds() -> None:
    count = 100_000
    nodes = [helper.make_node("Add", [f"x{i}", "c"], [f"x{i + 1}"], name=f"n{i}") for i in range(count)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes[::-1],
        "long",
        [value("x0", 1, [4])],
        [value(f"x{count}", 1, [4])],
        [helper.make_tensor("c", 1, [], [1.0])],
        value_info=[value(f"x{i}", 1, [4]) for i in range(1, count)],
    )
    start = time.process_time()
    editor = ModelEditor(helper.make_model(graph))
    ordered = list(reversed(editor.graph.nodes))
    groups = [ordered[i : i + 4] for i in range(0, count, 4)]
    editor.replace_all(
        (
            group,
            [gs.Node("Fused", editor.unique_name("f"), None, [group[0].inputs[0]], [group[-1].outputs[0]], "onnxfuse")],
        )
        for group in groups
    )
    result = editor.to_model()
    elapsed = time.process_time() - start
    assert len(result.graph.node) == count // 4
    assert [result.graph.node[i].input[0] for i in (0, 1)] == ["x0", "x4"]
    assert elapsed < 60, f"{elapsed:.1f} s"  # 6 s on a slow machine; quadratic code would need hours
