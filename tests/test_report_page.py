"""The report as a page: valid HTML that loads nothing, and what it says of the fusions."""

from __future__ import annotations

import time

from onnx import TensorProto, helper
from report_pages import BENCH, TUNING, VALIDATION, check, layers

import onnxfuse
from onnxfuse.report import Fusion, Refusal, Report, SourceNode, Tensor
from onnxfuse.report_page import Measurements, render
from onnxfuse.report_page.cards import groups
from onnxfuse.report_page.markup import shape_text, shorten, with_unit


def test_equal_regions_are_one_card_with_a_count():
    report = onnxfuse.optimize(layers(48), target="cuda").report
    page = report.to_html()
    parsed = check(page)
    assert len(report.fusions) == 48
    cards = [a for a in parsed.named("details") if a.get("class", "").startswith("card")]
    assert len(cards) == 1
    assert ">×48<" in page
    assert "All 48 places" in page
    for i in (0, 47):
        assert f"layer{i}/Sqrtdeviation" in page
    assert f"{report.nodes_before} → {report.nodes_after}" in page
    assert f"<b>{report.launches_saved}</b>" in page


def test_the_pictures_show_operators_constants_shapes_and_types():
    page = onnxfuse.optimize(layers(1, rows=7), target="cuda").report.to_html()
    for text in (">ReduceMean<", ">Pow 2<", ">Add 1e-05<", ">f32 7×16<", ">f32 7×1<", ">f32 16<", ">layer0/gamma<"):
        assert text in page
    assert "Before: 8 operators" in page
    assert "After: one FusedLayerNorm" in page
    assert "reduce_mean" in page


def test_regions_that_differ_in_shape_or_wiring_are_not_one():
    def fusion(name, shape=(4, 8), second="x", value="1.0"):
        source = (SourceNode("a", "Add", ("x", second), ("y",)),)
        tensors = {n: Tensor("f32", shape) for n in ("x", "z", "y")} | {"c": Tensor("f32", (), True, value)}
        program = f"onnxfuse 1\n%0 = const f32 {value}\n"
        return Fusion(
            "FusedElementwise", name, ("a",), ("Add",), ("x",), ("y",), program, 0, 8, source=source, tensors=tensors
        )

    found = groups(
        [fusion("f"), fusion("g"), fusion("h", (4, 9)), fusion("i", second="z"), fusion("j", second="c", value="2.0")]
    )
    assert sorted([f.name for f in g.fusions] for g in found) == [["f", "g"], ["h"], ["i"], ["j"]]
    alike = groups([fusion("k", second="c"), fusion("l", second="c", value="3.5")])
    assert len(alike) == 1
    report = Report("cpu", list(alike[0].fusions), nodes_before=2, nodes_after=2)
    assert "Their constants differ" in render(report)


def test_measurements_are_shown():
    page = onnxfuse.optimize(layers(2), target="cuda").report.to_html(Measurements(VALIDATION, BENCH, TUNING))
    check(page)
    assert "1.31×" in page
    assert "a, b&lt;, c and 1 more" in page
    assert "time ran out" in page
    assert "2.00×" in page
    assert "rows = 4" in page
    assert "up to 1.05 times apart" in page
    assert "kernel launches" not in page  # known on one side only
    assert "1.0 MiB" in page
    assert "before: p50 4 ms, p90 5 ms, p99 9 ms" in page
    assert "1 of 1" in page
    assert "3.00e-07" in page
    assert 'class="v-close"' in page
    assert "a note" in page


def test_infinite_errors_and_missing_figures_are_no_trouble():
    output = {**VALIDATION["outputs"][0], "absolute": "inf", "cosine": None, "ulp": None, "verdict": "different"}
    page = render(Report("cpu"), Measurements({**VALIDATION, "ok": False, "outputs": [output]}))
    check(page)
    assert "0 of 1" in page


def test_hostile_names_stay_text():
    evil = "</title><script>alert(1)</script>\"'&<svg onload=x>\x1b\x00"
    model = layers(1, name=evil)
    result = onnxfuse.optimize(model, target="cuda")
    result.report.model = evil
    result.report.refusals.append(Refusal(evil, evil, evil, evil))
    page = result.report.to_html()
    parsed = check(page)
    assert len(parsed.named("script")) == 1
    assert not any("onload" in attrs for _, attrs in parsed.tags)
    assert "\x00" not in page
    assert "\x1b" not in page


def test_nodes_that_share_a_launch_are_listed():
    nodes = [
        helper.make_node(op, [x], [y], y)
        for op, x, y in (("Exp", "x", "a"), ("Neg", "a", "u"), ("Tanh", "y", "b"), ("Abs", "b", "v"))
    ]
    info = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, k]) for k, n in enumerate("xyuv", 1)}
    for a, b in (("x", "u"), ("y", "v")):
        info[b].type.CopyFrom(info[a].type)
    graph = helper.make_graph(nodes, "g", [info["x"], info["y"]], [info["u"], info["v"]])
    result = onnxfuse.optimize(helper.make_model(graph, ir_version=9), target="cuda")
    page = result.report.to_html()
    check(page)
    assert "independent fused nodes share 1 launch<" in page
    (group,) = result.report.groups
    assert f"<b>{group.name}</b>: {', '.join(group.members)}" in page


def test_nothing_fused_is_a_page_too():
    node = helper.make_node("MatMul", ["x", "x"], ["y"], "product")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), ir_version=9)
    report = onnxfuse.optimize(model).report
    report.notes.append("a note on the model")
    page = report.to_html()
    check(page)
    assert "Nothing was fused" in page
    assert "a note on the model" in page


def test_bodies_are_counted_and_named():
    body = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["e"], "exp"),
            helper.make_node("Neg", ["e"], ["n"], "neg"),
            helper.make_node("Tanh", ["n"], ["t"], "tanh"),
        ],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [64, 64])],
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["o"], "abs")],
        "else",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [64, 64])],
    )
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=body, else_branch=other)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 64]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    report = onnxfuse.optimize(model, target="cuda").report
    assert [n.name for n in report.source] == ["choice", "exp", "neg", "tanh", "abs"] or len(report.source) == 5
    assert {n.graph for n in report.source} == {"", "choice.then_branch", "choice.else_branch"}
    page = report.to_html()
    check(page)
    assert " in choice.then_branch" in page


def test_thousands_of_nodes_make_a_page_of_a_size_that_opens():
    report = onnxfuse.optimize(layers(340), target="cuda").report
    assert report.nodes_before > 3000
    # As if every region were another.
    for number, fusion in enumerate(report.fusions):
        object.__setattr__(fusion, "program", fusion.program + f"{number}\n")
    start = time.process_time()
    page = report.to_html()
    assert time.process_time() - start < 5
    assert len(page) < 4_000_000
    assert page.count('<details class="card') == 340


# The pieces


def test_texts():
    assert shape_text(None) == "any shape"
    assert shape_text(()) == "scalar"
    assert shape_text((2, "batch", "?3", "(batch*4)")) == "2×batch×?×…"
    assert shorten("/model/layers.0/norm/Pow_output_0", 12) == "/mo…output_0"
    assert len(shorten("x" * 50, 12)) == 12
    assert [with_unit(v) for v in (0, 1023, 1536, 3 << 40, 200 << 20)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 TiB", "200 MiB"
    ]  # fmt: skip
