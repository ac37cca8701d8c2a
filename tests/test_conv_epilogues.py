"""On the CPU, what goes into a Conv, a HardSwish and affine maps, is spelled so that ONNX Runtime puts it there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import optimized, parse

import onnxfuse
from onnxfuse.runtime import make_session

MAP = "float[1, 16, 6, 6]"
CONSTANTS = (
    "float zero = {0}, float three = {3}, float six = {6}, float sixth = {0.16666667}, float[1] sixes = {6}, "
    f"float[16] ones = {{{', '.join(['1'] * 16)}}}, float[16, 1, 1] twos = {{{', '.join(['2'] * 16)}}}"
)
SPELLINGS = {
    "as exporters write it": "a = Add (c, three) k = Clip (a, zero, six) m = Mul (c, k) y = Div (m, six)",
    "the other way round": "a = Add (three, c) k = Clip (a, zero, six) m = Mul (k, c) y = Div (m, sixes)",
    "times a sixth": "a = Add (c, three) k = Clip (a, zero, six) m = Mul (c, k) y = Mul (sixth, m)",
    "the gate first": "a = Add (c, three) k = Clip (a, zero, six) m = Div (k, six) y = Mul (m, c)",
    "the value first": "a = Add (c, three) k = Clip (a, zero, six) m = Mul (c, sixth) y = Mul (k, m)",
    "Relu and Min": "a = Add (c, three) r = Max (a, zero) k = Min (six, r) m = Mul (c, k) y = Div (m, six)",
}
BEHIND = {
    "Conv": "c = Conv (x, w)",
    "BatchNormalization": "v = Conv (x, w) c = BatchNormalization (v, ones, ones, ones, ones)",
    "channels": "v = Conv (x, w) s = Mul (v, twos) c = Add (s, twos)",
}


def graph(nodes: str) -> str:
    """A graph from x over y to z, which lies behind a Conv, as what is computed inside of one must."""
    end = "" if " z = " in nodes else "z = Conv (y, w)"
    return f"g ({MAP} x, float[16, 16, 1, 1] w) => ({MAP} z) <{CONSTANTS}> {{ {nodes} {end} }}"


def left(nodes: str, **how: object) -> list[str]:
    """The operators of the optimized graph."""
    _, model, _ = optimized(graph(nodes), **{"target": "cpu"} | how)
    return [n.op_type for n in model.graph.node if n.op_type != "Constant"]


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_is_respelled_behind_a_conv(spelling: str, behind: str) -> None:
    _, model, report = optimized(graph(f"{behind} {spelling}"), target="cpu")
    ops = [n.op_type for n in model.graph.node if n.op_type != "Constant"]
    assert ops[-3:] == ["HardSigmoid", "Mul", "Conv"]
    assert "FusedElementwise" not in ops
    assert {r.operator for r in report.respelled} <= {"Add", "Clip", "Mul", "Div", "Max", "Min"}
    assert report.notes
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.normal(0, 3, (1, 16, 6, 6)).astype(np.float32),
        "w": np.eye(16, dtype=np.float32)[..., None, None],
    }
    want, got = (make_session(m).run(None, feeds)[0] for m in (parse(graph(f"{behind} {spelling}")), model))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())
    again = onnxfuse.optimize(model, target="cpu").report
    assert not again.respelled
    assert not again.fusions


@pytest.mark.parametrize("nodes", [
    "c = Conv (x, w) y = HardSwish (c)",
    "c = Conv (x, w) a = HardSigmoid <alpha = 0.16666667, beta = 0.5> (c) y = Mul (c, a)",
    BEHIND["BatchNormalization"] + " a = HardSigmoid <alpha = 0.2> (c) y = Mul (a, c)",
    "v = Conv (x, w) c = Add (v, twos) a = Sigmoid (c) y = Mul (a, c)",
])  # fmt: skip
def test_what_is_spelled_so_stays(nodes: str) -> None:
    assert "FusedElementwise" not in left(nodes)


@pytest.mark.parametrize("nodes", [
    "c = Exp (x) " + SPELLINGS["times a sixth"],
    "c = Conv (x, w) a = Add (c, three) k = Clip (a, zero, six) m = Mul (c, k) y = Div (m, three)",
    "c = Conv (x, w) a = Add (c, six) k = Clip (a, zero, six) m = Mul (c, k) y = Div (m, six)",
    "c = Conv (x, w) a = Add (c, three) k = Clip (a, zero, three) m = Mul (c, k) y = Div (m, six)",
    "c = Conv (x, w) a = Add (c, three) k = Clip (a, zero, six) m = Mul (k, k) y = Div (m, six)",
    "v = Conv (x, w) c = Mul (v, three) " + SPELLINGS["as exporters write it"],  # into weights that are no constant
    BEHIND["Conv"] + " e = Neg (c) " + SPELLINGS["times a sixth"] + " z = Add (y, e)",
    BEHIND["Conv"] + " " + SPELLINGS["times a sixth"].replace("y =", "z ="),  # an output of the graph
])  # fmt: skip
def test_others_are_fused(nodes: str) -> None:
    assert "FusedElementwise" in left(nodes)
    assert "HardSigmoid" not in left(nodes)


def test_only_on_the_cpu_and_where_asked_for() -> None:
    nodes = f"{BEHIND['Conv']} {SPELLINGS['as exporters write it']}"
    assert left(nodes, target="cuda") == ["Conv", "FusedElementwise", "Conv"]
    assert left(nodes, min_nodes=1) == ["Conv", "FusedElementwise", "Conv"]
    assert left(nodes, skip=["elementwise"]) == ["Conv", "Add", "Clip", "Mul", "Div", "Conv"]


def test_of_other_ranks_is_fused() -> None:
    """ONNX Runtime has the layout of channels in blocks for maps of two dimensions."""
    text = (
        f"g (float[1, 16, 9] x, float[16, 16, 1] w) => (float[1, 16, 9] y) <{CONSTANTS}> "
        f"{{ {BEHIND['Conv']} {SPELLINGS['as exporters write it']} }}"
    )
    assert optimized(text, target="cpu")[0] == ["FusedElementwise"]


def test_runtime_computes_it_inside_the_conv(tmp_path: Path) -> None:
    """The rule is ONNX Runtime's own: where it changes, so should ours."""
    body = f"{BEHIND['BatchNormalization']} {SPELLINGS['as exporters write it']} z = Conv (y, w)"
    text = f"g ({MAP} x) => ({MAP} z) <{CONSTANTS}> {{ {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}')
    weights = np.eye(16, dtype=np.float32)[..., None, None]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model = onnxfuse.optimize(model, target="cpu").model
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ops = [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert [op for op in ops if not op.startswith("Reorder")] == ["Conv", "Conv"]


AFFINE = {
    "scale and shift": "{1} = Mul ({0}, two) {2} = Add ({1}, third)",
    "constants in front": "{1} = Mul (two, {0}) {2} = Add (third, {1})",
    "shift and scale": "{1} = Sub ({0}, third) {2} = Div ({1}, two)",
    "turned round": "{1} = Div ({0}, two) {2} = Sub (third, {1})",
}
NUMBERS = "float two = {2}, float[1] third = {0.33333}, float[1, 1, 1, 1] zeros = {0}"


def of_constants(nodes: str, opset: int = 17, end: str = "z = Conv (y, w)") -> onnx.ModelProto:
    """A model from x to z, whose weights are constants; it pads, so that no shift may move through a Conv."""
    text = f"g ({MAP} x) => ({MAP} z) <{CONSTANTS}, {NUMBERS}> {{ {nodes} {end} }}".replace(
        "(x, w)", "<pads = [1, 1, 1, 1]> (x, w)"
    ).replace("(y, w)", "<pads = [1, 1, 1, 1]> (y, w)")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    weights = np.random.default_rng(3).normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def operators_run(model: onnx.ModelProto, folder: Path) -> list[str]:
    """What ONNX Runtime makes of a model on the CPU, without changes of layout."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.register_custom_ops_library(str(onnxfuse.library_path()))
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ops = [n.op_type for n in onnx.load(folder / "optimized.onnx").graph.node]
    return [op for op in ops if not op.startswith("Reorder")]


def check_values(model: onnx.ModelProto, changed: onnx.ModelProto) -> None:
    feeds = {"x": np.random.default_rng(4).normal(0, 3, (1, 16, 6, 6)).astype(np.float32)}
    want, got = (make_session(m).run(None, feeds)[0] for m in (model, changed))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("opset", [8, 11, 13, 17])
@pytest.mark.parametrize("affine", AFFINE.values(), ids=AFFINE)
def test_affine_maps_around_a_hard_swish(affine: str, opset: int, tmp_path: Path) -> None:
    gate = (
        "Add (c, three) r = Max (a, zero) k = Min (six, r)" if opset < 12 else "Add (c, three) k = Clip (a, zero, six)"
    )
    spelled = f"a = {gate} m = Mul (c, k) h = Div (m, six)"
    nodes = f"v = Conv (x, w) {affine.format('v', 's', 'c')} {spelled} {affine.format('h', 't', 'y')}"
    model = of_constants(nodes, opset)
    result = onnxfuse.optimize(model, target="cpu")
    assert not result.report.fusions
    assert {r.operator for r in result.report.respelled} >= {"Mul", "Div", "Add"}
    assert operators_run(result.model, tmp_path) == ["Conv", "Conv", "Conv"]
    check_values(model, result.model)
    again = onnxfuse.optimize(result.model, target="cpu").report
    assert not again.respelled
    assert not again.fusions


@pytest.mark.parametrize(("nodes", "count"), [
    ("v = Conv (x, w) s = Mul (v, two) y = Add (s, third)", 2),
    ("v = Conv (x, w) s = Add (v, third) c = Div (s, two) h = Add (c, third) y = Mul (h, h)", 2),
    ("v = Conv (x, w) s = Mul (v, two) c = Add (s, third) y = HardSwish (c)", 2),
    ("v = Conv (x, w) h = HardSwish (v) s = Mul (h, two) y = Add (s, third)", 3),
    ("v = Conv (x, w) h = Relu (v) s = Mul (h, two) y = Add (s, third)", 3),
    ("v = Conv (x, w) u = Mul (v, twos) s = Mul (u, two) y = Add (s, third)", 2),
])  # fmt: skip
def test_parts_of_it(nodes: str, count: int, tmp_path: Path) -> None:
    model = of_constants(nodes)
    result = onnxfuse.optimize(model, target="cpu")
    assert operators_run(result.model, tmp_path).count("Conv") == count
    check_values(model, result.model)


@pytest.mark.parametrize(("nodes", "end"), [
    ("v = Conv (x, w) s = Mul (v, two) z = Add (s, third)", ""),  # an output of the graph
    ("v = Conv (x, w) s = Mul (v, zeros) y = Add (s, third)", "z = Conv (y, w)"),
    ("v = Conv (x, w) e = Exp (v) s = Mul (v, two) y = Add (s, third)", "u = Conv (y, w) z = Add (u, e)"),
    ("v = Conv (x, w) h = HardSwish (v) s = Mul (h, two) y = Add (s, third)", "z = Softmax (y)"),
    ("v = Exp (x) s = Mul (v, two) y = Add (s, third)", "z = Conv (y, w)"),
])  # fmt: skip
def test_where_it_would_not_pay(nodes: str, end: str) -> None:
    model = of_constants(nodes, end=end)
    result = onnxfuse.optimize(model, target="cpu")
    assert "BatchNormalization" not in [n.op_type for n in result.model.graph.node]
    check_values(model, result.model)
    on_gpu = onnxfuse.optimize(model, target="cuda")
    assert not on_gpu.report.respelled
