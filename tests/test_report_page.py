"""The report as a page: valid HTML that loads nothing, and what it says of the fusions."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser

import html5lib
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnxfuse
from onnxfuse.cli.app import app
from onnxfuse.report import Fusion, Refusal, Report, SourceNode, Tensor
from onnxfuse.report_page import Measurements, read_measurements, render
from onnxfuse.report_page.cards import groups
from onnxfuse.report_page.markup import shape_text, shorten, with_unit


def layers(count, rows=4, name=""):
    """LayerNorms spelled out, each between two matrix products."""
    nodes, weights = [], {"two": np.float32(2), "eps": np.float32(1e-5)}
    x = "x"
    for i in range(count):
        p = f"{name}layer{i}/"
        weights[f"{p}w"] = np.eye(16, dtype=np.float32)
        weights[f"{p}gamma"] = np.ones(16, np.float32)
        steps = [
            ("MatMul", [x, f"{p}w"], "product"),
            ("ReduceMean", [f"{p}product"], "mean"),
            ("Sub", [f"{p}product", f"{p}mean"], "centred"),
            ("Pow", [f"{p}centred", "two"], "square"),
            ("ReduceMean", [f"{p}square"], "variance"),
            ("Add", [f"{p}variance", "eps"], "safe"),
            ("Sqrt", [f"{p}safe"], "deviation"),
            ("Div", [f"{p}centred", f"{p}deviation"], "normal"),
            ("Mul", [f"{p}normal", f"{p}gamma"], "scaled"),
        ]
        for op, inputs, output in steps:
            axes = {"axes": [-1]} if op == "ReduceMean" else {}
            nodes.append(helper.make_node(op, inputs, [p + output], p + op + output, **axes))
        x = f"{p}scaled"
    nodes.append(helper.make_node("MatMul", [x, "layer0/w" if not name else f"{name}layer0/w"], ["y"], "last"))
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 16])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


VALIDATION = {
    "ok": True,
    "provider": "CPUExecutionProvider",
    "seeds": [0, 1],
    "inputs": [{"name": "x", "dtype": "float32", "shape": [4, 16]}],
    "wrong_functions": [],
    "notes": ["a note"],
    "outputs": [
        {
            "name": "y",
            "dtype": "float32",
            "shape": [4, 16],
            "verdict": "close",
            "tolerance": 1e-4,
            "absolute": 3e-7,
            "relative": 1e-6,
            "ulp": 12,
            "cosine": 0.9999999,
            "mismatches": 0.0,
            "note": "",
        }
    ],
}


FIGURES = {"throughput": 100.0, "first_run": 12.0}
BENCH = {
    "provider": "CPUExecutionProvider",
    "device": "a machine, 4 logical cores",
    "runtime": "1.31.1",
    "threads": 4,
    "cuda_graph": False,
    "cases": [
        {
            "dims": {"rows": 4},
            "original": {
                **FIGURES,
                "latency": {"median": 4.0, "p90": 5.0, "p99": 9.0},
                "account": {"nodes": 25, "launches": None, "bytes_moved": 1 << 20, "peak_memory": 3 << 20},
            },
            "optimized": {
                **FIGURES,
                "latency": {"median": 2.0, "p90": 2.5, "p99": 3.0},
                "account": {"nodes": 5, "launches": 7, "bytes_moved": 1 << 10, "peak_memory": 2 << 20},
            },
            "ratio": {"value": 2.0, "low": 1.9, "high": 2.1},
            "noise_level": 1.05,
            "verdict": "faster",
        },
        {
            "dims": {},
            "original": {"latency": {"median": 4.0}, "account": None},
            "optimized": {"latency": {"median": 4.0}, "account": None},
            "ratio": {"value": 1.0, "low": 0.9, "high": 1.1},
            "verdict": "same",
        },
    ],
}

TUNING = {
    "dropped": ["a"],
    "decisions": [
        {
            "kind": "softmax",
            "regions": ["a", "b<", "c", "d"],
            "gain": {"value": 1.2, "low": 1.1, "high": 1.3},
            "dropped": True,
        }
    ],
    "noise": 1.02,
    "untuned": {"value": 1.1, "low": 1.0, "high": 1.2},
    "tuned": {"value": 1.31, "low": 1.2, "high": 1.4},
    "finished": False,
    "seconds": 12.3,
}


class Parsed(HTMLParser):
    """All tags with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def check(page):
    """That the page is valid, is whole in itself, and can be used without seeing it."""
    html5lib.HTMLParser(strict=True).parse(page)
    parsed = Parsed(page)
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in parsed.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "image", "use")
        assert "src" not in attrs
        assert not any(key.startswith("on") for key in attrs)
        if "href" in attrs:
            assert attrs["href"][1:] in ids
        for key in ("aria-labelledby", "for"):
            assert all(name in ids for name in attrs.get(key, "").split())
        if tag == "svg":
            assert attrs.get("aria-hidden") == "true" or attrs.get("aria-label") or attrs.get("aria-labelledby")
    assert not re.search(r"url\((?!#)|@import|https?:|//[a-z]", "".join(re.findall(r"<style>[^<]*</style>", page)))
    policy = next(m["content"] for m in parsed.named("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1]
    return parsed


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


# The commands


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(layers(2, rows="rows"), "model.onnx")
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_optimize_writes_the_page_beside_the_model(folder):
    result = invoke("optimize", "model.onnx", "fused.onnx", "--report", "page.html")
    assert result.exit_code == 0
    assert "wrote page.html" in result.output
    check((folder / "page.html").read_text("utf-8"))


def test_a_tuned_model_says_on_the_page_what_was_measured(folder):
    arguments = ("--target", "cpu", "--tune", "--tune-seconds", "1", "--dim", "rows=64", "--report", "page.html")
    result = invoke("optimize", "model.onnx", "fused.onnx", *arguments)
    assert result.exit_code == 0, result.output
    page = (folder / "page.html").read_text("utf-8")
    check(page)
    assert "Tuning: which fusions pay" in page


def test_optimize_checks_where_the_page_goes_before_it_works(folder):
    result = invoke("optimize", "model.onnx", "fused.onnx", "--report", "nowhere/page.html")
    assert result.exit_code == 2
    assert not (folder / "fused.onnx").exists()


def test_report_takes_what_the_other_commands_print(folder):
    assert invoke("optimize", "model.onnx", "fused.onnx", "--target", "cpu").exit_code == 0
    validated = invoke("validate", "model.onnx", "fused.onnx", "--dim", "rows=3", "--json")
    (folder / "errors.json").write_text(validated.output, "utf-8")
    result = invoke("report", "model.onnx", "page.html", "--target", "cpu", "--validation", "errors.json")
    assert result.exit_code == 0, result.output
    page = (folder / "page.html").read_text("utf-8")
    check(page)
    assert "1 of 1" in page
    assert "known for 0 of" in page


def test_report_knows_bytes_where_dimensions_are_set(folder):
    for name in ("rows", "x.0"):
        assert invoke("report", "model.onnx", "page.html", "--dim", f"{name}=1024").exit_code == 0
        page = (folder / "page.html").read_text("utf-8")
        assert "f32 1024×16" in page
        assert "space d0 " in page  # what is fused stays that of free dimensions
        assert "known for 0 of" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dim", "columns=3"), "no free dimension 'columns'; they are rows"),
        (("--validation", "model.onnx"), "not JSON"),
        (("--bench", "list.json"), "not the result of `onnxfuse bench --json`"),
        (("--bench", "absent.json"), "'absent.json' cannot be read"),
    ],
)
def test_bad_input_is_named(folder, arguments, message):
    (folder / "list.json").write_text(json.dumps([1]))
    result = invoke("report", "model.onnx", "page.html", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (folder / "page.html").exists()


def test_read_measurements_refuses_half_a_result(folder):
    (folder / "v.json").write_text(json.dumps({"ok": True}))
    with pytest.raises(onnxfuse.OnnxfuseError, match="it has no outputs"):
        read_measurements(validation="v.json")


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
