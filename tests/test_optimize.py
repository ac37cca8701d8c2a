"""The arguments of `optimize`, what it may read, and what it must leave alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from graph_check import check, fused_nodes
from graphs import feeds_for, fused, optimized, parse
from onnx import helper, numpy_helper
from truth import run

import onnxfuse
from onnxfuse import OnnxfuseError, optimize

CHAIN = "g (float[3, 8] x) => (float[3, 8] y) { a = Exp (x) b = Neg (a) y = Tanh (b) }"
MIXED = (
    "g (float[3, 8] x, float[8, 8] w, float[8] s) => (float[3, 8] y, float[3, 8] z, float[3, 1] r) { a = Exp (x) "
    "b = Neg (a) m = MatMul (b, w) n = LayerNormalization (m, s) y = Tanh (n) k = MatMul (y, w) l = Abs (k) "
    "z = Softmax <axis = -1> (l) o = MatMul (z, w) p = Mul (o, o) r = ReduceMax <axes = [-1]> (p) }"
)
KINDS = {
    "elementwise": "FusedElementwise", "layer_norm": "FusedLayerNorm", "softmax": "FusedSoftmax",
    "reduction": "FusedReduction",
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_skip_and_only(name: str) -> None:
    everything = fused(MIXED)
    assert sorted(everything) == sorted(KINDS.values())
    assert set(fused(MIXED, only=[name])) == {KINDS[name]}
    assert KINDS[name] not in fused(MIXED, skip=[name])
    assert fused(MIXED, only=[name], skip=[name]) == []
    _, _, report = optimized(MIXED, skip=name)
    assert any("switched off" in r.reason for r in report.refusals)


def test_arguments_that_are_wrong() -> None:
    model = parse(CHAIN)
    for options in ({"skip": ["layernorm"]}, {"only": "x"}, {"target": "tpu"}, {"min_nodes": 0}):
        with pytest.raises(OnnxfuseError):
            optimize(model, **options)  # type: ignore[arg-type]
    with pytest.raises(OnnxfuseError):
        optimize(3)  # type: ignore[arg-type]


def test_min_nodes() -> None:
    for least, count in ((1, 1), (2, 1), (3, 1), (4, 0)):
        found, _, report = optimized(CHAIN, min_nodes=least)
        assert len(found) == count
    assert {r.reason for r in report.refusals} == {"fewer than 4 operators lie together"}
    assert fused("g (float[3] x) => (float[3] y) { y = Exp (x) }", min_nodes=1) == ["FusedElementwise"]
    assert fused("g (float[3] x) => (float[3] y) { y = Exp (x) }", min_nodes=2) == []


def test_fallback() -> None:
    model = parse(CHAIN)
    with_functions, without = optimize(model).model, optimize(model, fallback=False).model
    assert len(with_functions.functions) == 1
    assert not without.functions
    feeds = feeds_for(model)
    np.testing.assert_allclose(run(without, feeds, library=True)[0], run(model, feeds, library=False)[0], rtol=1e-5)
    with pytest.raises(Exception, match="FusedElementwise"):
        run(without, feeds, library=False)
    assert optimize(without).model.functions == with_functions.functions


def test_what_is_left_has_a_reason() -> None:
    _, _, report = optimized(
        "g (float[N, 3, 8, 8] x, float[3, 3, 1, 1] w, float[N, 3, 8, 8] z) => (float[N, 3, 8, 8] y, int64[4] s) { "
        "c = Conv (x, w) r = Relu (c) y = Add (r, z) h = Shape (y) s = Mul (h, h) }",
        sizes={"N": 2},
    )
    reasons = {r.operator: r.reason for r in report.refusals}
    assert reasons["Relu"] == "ONNX Runtime computes this activation inside the Conv before it"
    assert reasons["Mul"] == "it computes on shapes, which ONNX Runtime does on the CPU"
    assert reasons["Add"].startswith("no neighbour that can join it")


def test_intermediates_that_are_outputs() -> None:
    graph = "g (float[3] x) => (float[3] y, float[3] a, float[3] b) { a = Exp (x) b = Neg (a) y = Tanh (b) }"
    found, _, report = optimized(graph)
    assert found == ["FusedElementwise"]
    assert set(report.fusions[0].outputs) == {"a", "b", "y"}


def test_graph_output_that_is_an_input() -> None:
    assert fused("g (float[3] x) => (float[3] x, float[3] y) { a = Exp (x) y = Neg (a) }") == ["FusedElementwise"]


def test_overridable_initializers_and_ir_version_3() -> None:
    graph = "g (float[4] x, float[1] k) => (float[4] y) <float[1] k = {3.0}> { a = Mul (x, k) b = Exp (a) y = Neg (b) }"
    for value in (3.0, 0.5):
        feeds = {"k": np.array([value], np.float32)}
        _, _, report = optimized(graph, feeds=feeds)
        assert "k" in report.fusions[0].inputs  # the caller may give another value
    model = parse(graph, opset=8, ir_version=3)
    result, report = check(model, {"x": np.ones(4, np.float32)})
    assert fused_nodes(result) == ["FusedElementwise"]
    assert report.fusions[0].inputs == ("x",)
    assert [i.name for i in result.graph.input] == ["x", "k"]


def test_constants_of_every_spelling_go_into_the_program() -> None:
    for spelling in (
        "k = Constant <value_float = 2.5> ()",
        "k = Constant <value = float {2.5}> ()",
        "d = Constant <value = double {2.5}> () k = Cast <to = 1> (d)",
        "h = Constant <value_float = 1.25> () k = Add (h, h)",
        "s = Constant <value_ints = [1]> () k = ConstantOfShape <value = float[1] {2.5}> (s)",
    ):
        found, model, report = optimized(f"g (float[4] x) => (float[4] y) {{ {spelling} a = Mul (x, k) y = Exp (a) }}")
        assert found == ["FusedElementwise"]
        assert report.fusions[0].inputs == ("x",), spelling
        assert "const f32 2.5" in report.fusions[0].program
        assert len(model.graph.node) == 1, spelling  # what computed the constant is gone


def test_unsorted_nodes() -> None:
    model = parse(CHAIN)
    nodes = list(model.graph.node)[::-1]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    result, _ = check(model, feeds_for(model))
    assert fused_nodes(result) == ["FusedElementwise"]


def test_graphsurgeon_graph() -> None:
    model = parse(CHAIN)
    result = optimize(gs.import_onnx(model), target="cpu").model
    feeds = feeds_for(model)
    np.testing.assert_allclose(run(result, feeds, library=True)[0], run(model, feeds, library=False)[0], rtol=1e-5)


def test_path_with_external_data(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    nodes = [helper.make_node(*n) for n in (("Mul", ["x", "w"], ["a"]), ("Exp", ["a"], ["b"]), ("Neg", ["b"], ["y"]))]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [64, 64]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    source, target = tmp_path / "in" / "m.onnx", tmp_path / "out" / "m.onnx"
    source.parent.mkdir()
    target.parent.mkdir()
    onnx.save(model, source, save_as_external_data=True, location="weights.bin", size_threshold=0)
    result = optimize(source, target="cpu")
    assert [f.op_type for f in result.report.fusions] == ["FusedElementwise"]
    result.save(target)
    feeds = {"x": np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)}
    expected = run(onnx.load(source), feeds, library=False)[0]
    np.testing.assert_allclose(run(onnx.load(target), feeds, library=True)[0], expected, rtol=1e-5)


def test_old_opsets_are_left_alone() -> None:
    found = optimize(parse(CHAIN, opset=6))
    assert fused_nodes(found.model) == []
    assert all("before opset 7" in r.reason for r in found.report.refusals)


def test_nothing_to_fuse_leaves_the_model_as_it_is() -> None:
    model = parse("g (float[3, 8] x, float[8, 4] w) => (float[3, 4] y) { y = MatMul (x, w) }")
    assert optimize(model).model == model


def test_output_does_not_depend_on_hashing(root: Path) -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]; import hashlib, onnxfuse\n"
        "from random_graphs import random_model\n"
        "for seed in range(25):\n"
        "    model = onnxfuse.optimize(random_model(seed)[0]).model\n"
        "    print(hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest())"
    )
    folders = [str(root / "tests"), str(Path(onnxfuse.__file__).parent.parent)]
    outputs = [
        subprocess.run(
            [sys.executable, "-P", "-c", script, *folders],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 25


def test_equal_regions_give_equal_programs() -> None:
    graph = (
        "g (float[3] x, float[3] z) => (float[3] y, float[3] w) { a = Exp (x) b = Mul (a, z) y = Neg (b) "
        "k = MatMul (y, x) c = Exp (z) d = Mul (c, y) e = Neg (d) w = Add (e, k) }"
    )
    model = parse(graph)
    assert optimize(model).model == optimize(model).model


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda node: setattr(node, "op_type", "FusedFoo"), "there is no such op"),
        (lambda node: _edit_program(node, b"input 0 f32 [d0]", b"input 0 f32 [0, d0]"), "has rank 1"),
        (lambda node: _edit_program(node, b"exp", b"exq"), "line 4"),
    ],
)
def test_a_fused_node_edited_by_hand_is_refused(edit, message: str) -> None:
    _, model, _ = optimized("g (float[4] x) => (float[4] y) { a = Exp (x) y = Tanh (a) }")
    edit(model.graph.node[0])
    with pytest.raises(onnxfuse.ProgramError, match=message) as error:
        onnxfuse.optimize(model)
    assert "FusedElementwise_0" in str(error.value)


def _edit_program(node: onnx.NodeProto, old: bytes, new: bytes) -> None:
    (attribute,) = (a for a in node.attribute if a.name == "program")
    assert old in attribute.s
    attribute.s = attribute.s.replace(old, new)


def test_an_activation_that_is_several_kernels_on_cuda_is_fused_alone() -> None:
    model = parse("g (float[3, 4] x) => (float[3, 4] y) { y = HardSwish (x) }")
    assert fused_nodes(optimize(model, target="cuda").model) == ["FusedElementwise"]
    assert fused_nodes(optimize(model, target="cpu").model) == []


def test_nodes_are_counted_as_the_model_has_them() -> None:
    """A convolution whose bias is taken out for a kernel to add is one node all the same."""
    model = parse(
        """
        agraph (float[1, 4, 8, 8] x, float[4, 4, 1, 1] w) => (float[1, 4, 8, 8] y)
        <float[4] b = {1, 2, 3, 4}>
        { c = Conv(x, w, b)  s = Sigmoid(c)  y = Mul(c, s) }
        """
    )
    report = onnxfuse.optimize(model, target="cuda").report
    assert (report.nodes_before, report.nodes_after) == (3, 2)
