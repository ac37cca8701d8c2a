"""On the CPU, affine maps before convolutions go into their weights and biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_check import check
from graphs import parse
from onnx import helper, numpy_helper
from truth import in_wider_types, run

import onnxfuse
from onnxfuse.rewrites.conv_prologues import IN_WEIGHTS

LEVELS = onnxruntime.GraphOptimizationLevel
STEPS = ("Mul", "Add", "Sub", "Div", "BatchNormalization")
NUMBERS = np.array([0.7, -1.3, 2.1, 0.4, 1.9, -0.6, 1.1, 0.9], np.float32)
# Of maps of 8 channels, by rank; `c` is one number, or one a channel in any shape that broadcasts so.
SHAPES = {3: [(8, 1), (1, 8, 1)], 4: [(8, 1, 1), (1, 8, 1, 1)], 5: [(8, 1, 1, 1)]}
ONE = [(), (1,), (1, 1, 1)]
SPELLINGS = {
    "scale": "y = Mul (x, c)",
    "scale in front": "y = Mul (c, x)",
    "quotient": "y = Div (x, c)",
    "shift": "y = Add (x, d)",
    "shift in front": "y = Add (d, x)",
    "difference": "y = Sub (x, d)",
    "difference in front": "y = Sub (d, x)",
    "scale and shift": "s = Mul (x, c) y = Add (d, s)",
    "normalization": "s = Sub (x, d) y = Div (s, c)",
    "four": "s = Mul (x, c) t = Sub (d, s) u = Div (t, c) y = Add (u, d)",
}
NORMALIZED = "y = BatchNormalization <epsilon = 0.01> (x, c, d, mean, variance)"


def model_of(
    nodes: str,
    weights: tuple[int, ...] = (4, 8, 1, 1),
    constants: tuple[int, ...] = (),
    opset: int = 17,
    ends: str = "z = Conv (y, w, b)",
    x: str = "float[2, 8, 6, 5]",
    outputs: str = "float[] z",
    as_nodes: bool = False,
) -> onnx.ModelProto:
    """A model from x to z: `c`, `d`, `mean` and `variance` have one shape, `w` are weights, `b` a bias for them."""
    rng = np.random.default_rng(1)
    count = int(np.prod(constants))
    values = {
        "c": NUMBERS[:count].reshape(constants),
        "d": (NUMBERS[::-1][:count] * 3).reshape(constants),
        "mean": NUMBERS[:count].reshape(constants),
        "variance": np.abs(NUMBERS)[:count].reshape(constants),
        "w": rng.normal(0, 0.3, weights).astype(np.float32),
        "v": rng.normal(0, 0.3, weights).astype(np.float32),
        "b": rng.normal(0, 1, weights[0]).astype(np.float32),
        "huge": np.float32(1e30),
        "tiny": np.float32(1e-30),
        "large": np.float32(1000),
        "zero": np.float32(0),
        "infinite": np.float32(np.inf),
        "heavy": np.full(weights, 1e28, np.float32),
    }
    model = parse(f"g ({x} x) => ({outputs}) {{ {nodes} {ends} }}", opset)
    used = {name for node in model.graph.node for name in node.input}
    tensors = [numpy_helper.from_array(v, n) for n, v in values.items() if n in used]
    if as_nodes:
        made = [helper.make_node("Constant", [], [t.name], value=t) for t in tensors]
        given = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend([*made, *given])
    else:
        model.graph.initializer.extend(tensors)
    return with_shapes(model)


def with_shapes(model: onnx.ModelProto, *more: onnx.TensorProto) -> onnx.ModelProto:
    """The model with more initializers, and the shape of its first output as it follows."""
    model.graph.initializer.extend(more)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    output = onnx.shape_inference.infer_shapes(model).graph.output[0]
    model.graph.output[0].CopyFrom(output)
    if not output.type.tensor_type.HasField("shape"):
        model.graph.output[0].type.tensor_type.shape.SetInParent()
    return model


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    shape = [d.dim_value or 6 for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(2).normal(0, 2, shape).astype(np.float32)}


def moved(model: onnx.ModelProto, **options: object) -> tuple[onnx.ModelProto, list[str]]:
    """The checked result, against the model in float64 too, and the operators that went into weights."""
    result, report = check(model, feeds_of(model), optimizations=True, **options)
    return result, [r.operator for r in report.respelled if r.reason == IN_WEIGHTS]


def operators_run(model: onnx.ModelProto, folder: Path, level: LEVELS = LEVELS.ORT_ENABLE_ALL) -> list[str]:
    """What ONNX Runtime runs on the CPU, changes of layout left out."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.register_custom_ops_library(str(onnxfuse.library_path()))
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ops = [n.op_type for n in onnx.load(folder / "optimized.onnx").graph.node]
    return [op for op in ops if not op.startswith("Reorder")]


def check_accuracy(model: onnx.ModelProto, result: onnx.ModelProto) -> None:
    """Against float64: within some units of what the sizes of a sum's terms add up to."""
    sizes = onnx.ModelProto()
    sizes.CopyFrom(model)
    for tensor in sizes.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(np.abs(numpy_helper.to_array(tensor)), tensor.name))
    for node in sizes.graph.node:
        node.op_type = {"Sub": "Add"}.get(node.op_type, node.op_type)
    feeds = feeds_of(model)
    truth, size = in_wider_types(model, feeds), in_wider_types(sizes, {"x": np.abs(feeds["x"])})
    assert truth is not None
    assert size is not None
    assert truth[0].dtype == np.float64
    (got,) = run(result, feeds, library=True)
    assert np.all(np.abs(got - truth[0]) <= 4 * 2.0**-24 * size[0])


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling(spelling: str, rank: int, tmp_path: Path) -> None:
    for shape in (*ONE, *SHAPES[rank]):
        extents = ", ".join("6543"[: rank - 2])
        weights = (4, 8, *((1,) if len(shape) % 2 else (2,)) * (rank - 2))
        if len(shape) > rank:
            continue
        model = model_of(spelling, weights, shape, x=f"float[2, 8, {extents}]")
        result, operators = moved(model)
        assert operators == [n.op_type for n in model.graph.node[:-1]]
        assert operators_run(result, tmp_path) == ["Conv"]
        check_accuracy(model, result)


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 21, 22, 24])
@pytest.mark.parametrize("as_nodes", [False, True])
def test_every_opset_at_every_level(opset: int, as_nodes: bool, tmp_path: Path) -> None:
    """The rule is ONNX Runtime's own: it folds what computes the weights before it puts anything into a Conv."""
    nodes = f"f = Conv (x, v) r = Relu (f) {SPELLINGS['scale and shift']}".replace("Mul (x", "Mul (r")
    model = model_of(nodes, (8, 8, 1, 1), (8, 1, 1), opset, "a = Conv (y, w) z = Relu (a)", as_nodes=as_nodes)
    result, operators = moved(model)
    assert operators == ["Mul", "Add"]
    assert operators_run(result, tmp_path, LEVELS.ORT_ENABLE_BASIC) == ["Conv", "Relu"] * 2
    assert operators_run(result, tmp_path, LEVELS.ORT_ENABLE_EXTENDED) == ["FusedConv"] * 2
    assert operators_run(result, tmp_path) == ["Conv"] * 2
    names = {name for node in result.graph.node for name in (*node.input, *node.output)}
    assert not names & {"c", "d"}
    assert {t.name for t in result.graph.initializer}.isdisjoint({"c", "d"})


@pytest.mark.parametrize("opset", [7, 9, 14, 17])
@pytest.mark.parametrize("rank", [3, 4])
def test_batch_normalization(opset: int, rank: int, tmp_path: Path) -> None:
    extents = ", ".join("65"[: rank - 2])
    model = model_of(NORMALIZED, (4, 8, *(1,) * (rank - 2)), (8,), opset, x=f"float[2, 8, {extents}]")
    result, operators = moved(model)
    assert operators == ["BatchNormalization"]
    assert operators_run(result, tmp_path) == ["Conv"]


@pytest.mark.parametrize("constants", [(), (8, 1, 1)])
@pytest.mark.parametrize(
    ("group", "weights"), [(2, (6, 4, 2, 2)), (8, (8, 1, 3, 3)), (8, (16, 1, 1, 1)), (4, (4, 2, 1, 1))]
)
def test_groups(group: int, weights: tuple[int, ...], constants: tuple[int, ...], tmp_path: Path) -> None:
    ends = f"z = Conv <group = {group}> (y, w)"
    model = model_of(SPELLINGS["scale and shift"], weights, constants, ends=ends)
    result, operators = moved(model)
    assert operators == ["Mul", "Add"]
    assert operators_run(result, tmp_path) == ["Conv"]
    check_accuracy(model, result)


PADDED = [
    "<pads = [1, 1, 1, 1]>", "<pads = [0, 0, 0, 1]>", '<auto_pad = "SAME_UPPER">', '<auto_pad = "SAME_LOWER">',
]  # fmt: skip


@pytest.mark.parametrize("how", PADDED)
def test_padding_takes_scales_alone(how: str) -> None:
    ends = f"z = Conv {how} (y, w, b)"
    _, operators = moved(model_of(SPELLINGS["scale"], (4, 8, 2, 3), (8, 1, 1), ends=ends))
    assert operators == ["Mul"]
    _, operators = moved(model_of("s = Add (x, zero) y = Div (s, c)", (4, 8, 2, 3), ends=ends))
    assert operators == ["Add", "Div"]
    for spelling in ("shift", "scale and shift", "normalization"):
        assert moved(model_of(SPELLINGS[spelling], (4, 8, 2, 3), (8, 1, 1), ends=ends))[1] == []


@pytest.mark.parametrize(("how", "weights"), [
    ('<auto_pad = "VALID", strides = [2, 1], dilations = [2, 1]>', (4, 8, 2, 3)),
    ('<auto_pad = "NOTSET", pads = [0, 0, 0, 0]>', (4, 8, 2, 3)),
    ('<auto_pad = "SAME_UPPER", strides = [2, 2]>', (4, 8, 1, 1)),
    ("<kernel_shape = [1, 1], pads = [0, 0, 0, 0], strides = [3, 2]>", (4, 8, 1, 1)),
])  # fmt: skip
def test_what_does_not_pad(how: str, weights: tuple[int, ...], tmp_path: Path) -> None:
    result, operators = moved(model_of(SPELLINGS["normalization"], weights, ends=f"z = Conv {how} (y, w, b)"))
    assert operators == ["Sub", "Div"]
    assert operators_run(result, tmp_path) == ["Conv"]


def test_several_readers_and_shared_weights(tmp_path: Path) -> None:
    ends = "p = Conv (y, w, b) q = Conv (y, v) r = Conv (y, w) u = Conv (x, w, b) z = Concat <axis = 1> (p, q, r, u)"
    result, operators = moved(model_of(SPELLINGS["scale and shift"], constants=(8, 1, 1), ends=ends))
    assert operators == ["Mul", "Add"]
    assert operators_run(result, tmp_path) == ["Conv"] * 4 + ["Concat"]
    given = {t.name: t for t in result.graph.initializer}
    original = {t.name: t for t in model_of("y = Mul (x, c)", constants=(8, 1, 1)).graph.initializer}
    assert given["w"] == original["w"]


def test_one_part_of_a_chain_has_other_readers() -> None:
    ends = "p = Conv (y, w, b) q = Conv (s, w) h = Tanh (s) r = ReduceMax (h) t = Add (p, q) z = Add (t, r)"
    _, operators = moved(model_of(SPELLINGS["scale and shift"], ends=ends))
    assert operators == []  # the rest of the chain would be a pass all the same


@pytest.mark.parametrize("ends", [
    "p = Conv (y, w, b) e = Exp (y) r = ReduceMax (e) z = Add (p, r)",
    "p = Conv (y, w, b) q = Conv <pads = [1, 1, 1, 1]> (y, w) r = ReduceMax (q) z = Add (p, r)",
    "p = Conv (y, w, b) q = GlobalMaxPool (y) r = ReduceMax (q) z = Add (p, r)",
])  # fmt: skip
def test_all_readers_or_none(ends: str) -> None:
    assert moved(model_of(SPELLINGS["scale and shift"], ends=ends))[1] == []
    assert moved(model_of(SPELLINGS["scale and shift"], ends="p = Conv (y, w, b) z = Tanh (p)"))[1] == ["Mul", "Add"]


def test_outputs_stay() -> None:
    for name in ("y", "s"):
        model = model_of(SPELLINGS["scale and shift"], outputs=f"float[] z, float[2, 8, 6, 5] {name}")
        assert moved(model)[1] == []


def test_weights_that_are_scaled_stay(tmp_path: Path) -> None:
    """ONNX Runtime folds them; the map has other readers."""
    model = model_of("y = Mul (x, c)", ends="m = Mul (w, d) z = Conv (y, m) ")
    result, operators = moved(model)
    assert operators == ["Mul"]
    assert operators_run(result, tmp_path) == ["Conv"]
    model = model_of(
        "y = Mul (x, c)", ends="m = Mul (w, d) p = Conv (x, m) t = Tanh (y) r = ReduceMax (t) z = Add (p, r)"
    )
    assert moved(model)[1] == []


def test_a_constant_map_stays() -> None:
    """Found by random graphs: what made the map was taken away with the rest."""
    model = model_of(
        "k = ConstantOfShape (extents) y = Mul (k, c)", ends="p = Conv (y, w) z = Add (p, x)", x="float[4, 1, 1]"
    )
    with_shapes(model, numpy_helper.from_array(np.array([2, 8, 6, 5]), "extents"))
    _, report = check(model, {"x": np.ones((4, 1, 1), np.float32)})
    assert report.respelled == []


def test_a_constant_that_makes_the_map_wider_unseen() -> None:
    """Its elements are too many for the analysis, and the one that its node names is all of them."""
    nodes = "k = ConstantOfShape <value = float[1] {2}> (extents) y = Mul (x, k)"
    ends = "q = Mul (x, c) p = Conv (q, w) o = Conv (y, w) z = Add (o, p)"
    model = model_of(nodes, ends=ends, x="float[2, 8, 1, 1]")
    with_shapes(model, numpy_helper.from_array(np.array([8, 6, 5]), "extents"))
    assert moved(model)[1] == ["Mul"]


def test_maps_of_maps_settle() -> None:
    """Found by random graphs: once one was in weights, the next could follow, at a second call."""
    model = model_of(SPELLINGS["scale and shift"], ends="p = Conv (y, w, b) q = Conv (s, w) z = Add (p, q)")
    report = onnxfuse.optimize(model, target="cpu", drop=("s",)).report
    assert not report.fusions
    assert not report.respelled


def test_what_nothing_uses_stays() -> None:
    assert moved(model_of("y = Mul (x, c)", ends="k = Conv (y, w) z = Tanh (x)"))[1] == []


@pytest.mark.parametrize("nodes", [
    "y = Mul (x, huge)", "y = Div (x, huge)", "y = Mul (x, tiny)", "y = Add (x, large)", "y = Add (x, infinite)",
    "y = Mul (x, zero)", "s = Mul (x, huge) y = Mul (s, tiny)", "y = Div (d, x)",
])  # fmt: skip
def test_numbers_that_are_not_ordinary(nodes: str) -> None:
    model = model_of(nodes)
    report = onnxfuse.optimize(model, target="cpu").report
    expected = ["Mul", "Mul"] if "s =" in nodes else []  # their product is ordinary
    assert [r.operator for r in report.respelled] == expected


def test_weights_that_overflow() -> None:
    model = model_of("y = Mul (x, c)", ends="s = Conv (y, heavy) z = Mul (s, tiny)")
    assert moved(model)[1] == ["Mul"]
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(2**29), "c"))
    assert onnxfuse.optimize(model, target="cpu").report.respelled == []


@pytest.mark.parametrize(("nodes", "ends"), [
    ("y = Mul (x, c)", "n = ReduceMean (x) m = Mul (n, w) z = Conv (y, m)"),  # weights of a run
    ("y = Mul (x, c)", "m = ReduceMean <axes = [1, 2, 3], keepdims = 0> (x) z = Conv (y, w, m)"),
    ("n = ReduceMax (x) y = Mul (x, n)", "z = Conv (y, w)"),
])  # fmt: skip
def test_what_a_run_brings(nodes: str, ends: str) -> None:
    model = model_of(nodes, (2, 8, 1, 1), ends=ends)
    assert moved(model)[1] == []


def test_constants_that_a_caller_may_override() -> None:
    model = model_of("y = Mul (x, c)")
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, []))
    assert onnxfuse.optimize(model, target="cpu").report.respelled == []
    model = model_of("y = Mul (x, c)")
    model.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4, 8, 1, 1]))
    assert onnxfuse.optimize(model, target="cpu").report.respelled == []


def test_quantized_weights_stay() -> None:
    ends = "q = QuantizeLinear (w, c) m = DequantizeLinear (q, c) k = Identity (m) z = Conv (y, k)"
    assert onnxfuse.optimize(model_of("y = Mul (x, d)", ends=ends), target="cpu").report.respelled == []


def test_other_types_stay() -> None:
    model = model_of("h = Cast <to = 10> (x) k = Cast <to = 10> (c) y = Mul (h, k)",
                     ends="m = Cast <to = 10> (w) o = Conv (y, m) z = Cast <to = 1> (o)")  # fmt: skip
    assert onnxfuse.optimize(model, target="cpu").report.respelled == []


@pytest.mark.parametrize("options", [{"target": "cuda"}, {"skip": ("elementwise",)}, {"min_nodes": 1}])
def test_where_it_is_not_wanted(options: dict[str, Any]) -> None:
    model = model_of(SPELLINGS["scale and shift"])
    assert onnxfuse.optimize(model, **{"target": "cpu"} | options).report.respelled == []


@pytest.mark.parametrize("nodes", [
    "f = Conv (x, u) y = Mul (f, c)", "f = Conv (x, u) s = Mul (f, c) y = Add (s, d)",
    "f = Conv (x, u) y = BatchNormalization (f, c, d, mean, variance)",
])  # fmt: skip
def test_what_goes_into_the_conv_before_does(nodes: str, tmp_path: Path) -> None:
    model = model_of(nodes, constants=(8,) if "Batch" in nodes else (8, 1, 1))
    weights = np.random.default_rng(5).normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32)
    with_shapes(model, numpy_helper.from_array(weights, "u"))
    result, operators = moved(model)
    assert operators == []
    assert operators_run(result, tmp_path) == ["Conv", "Conv"]


def test_what_a_fused_node_computes_stays_there() -> None:
    result, operators = moved(model_of("e = Exp (x) s = Mul (e, c) y = Add (s, d)"))
    assert operators == []
    assert [n.op_type for n in result.graph.node] == ["FusedElementwise", "Conv"]


def test_behind_an_activation(tmp_path: Path) -> None:
    """Where fusion spells the map as BatchNormalization, and where it would be fused alone."""
    u = numpy_helper.from_array(np.random.default_rng(5).normal(0, 0.3, (8, 8, 3, 3)).astype(np.float32), "u")
    swish = "a = Add (f, three) k = Clip (a, zero, six) m = Mul (f, k) h = Div (m, six)"
    for activation in ("h = Relu (f)", swish, "g = HardSigmoid (f) h = Mul (f, g)"):
        for spelling in ("scale", "scale and shift"):
            nodes = f"f = Conv <pads = [1, 1, 1, 1]> (x, u) {activation} {SPELLINGS[spelling].replace('(x', '(h')}"
            model = model_of(nodes)
            numbers = {"three": np.float32(3), "six": np.float32(6)} if "six" in activation else {}
            with_shapes(model, u, *(numpy_helper.from_array(v, n) for n, v in numbers.items()))
            result, operators = moved(model)
            inside = [op for op in operators_run(result, tmp_path) if op != "Conv"]
            assert operators_run(result, tmp_path).count("Conv") == 2
            assert inside in ([], ["HardSigmoid", "Mul"])
            assert all("six" in activation or op in STEPS for op in operators)


@pytest.mark.parametrize("rank", [3, 4])
def test_normalization_behind_an_activation(rank: int, tmp_path: Path) -> None:
    """As in networks for speech: Conv, Relu, BatchNormalization, and so on."""
    nodes = f"f = Conv (x, v) r = Relu (f) {NORMALIZED.replace('(x', '(r')}"
    extents = ", ".join("65"[: rank - 2])
    model = model_of(nodes, (8, 8, *(2,) * (rank - 2)), (8,), x=f"float[2, 8, {extents}]")
    result, operators = moved(model)
    assert operators == ["BatchNormalization"]
    assert operators_run(result, tmp_path) == (["Conv", "Conv"] if rank == 4 else ["FusedConv", "Conv"])


def test_in_a_body() -> None:
    """Weights and constants of the outer graph, a map of its own."""
    body = "t () => (float[] z) { s = Mul (x, c) y = Add (s, d) z = Conv (y, w, b) }"
    model = parse(
        f"g (float[2, 8, 6, 5] x, bool q) => (float[] z) {{ z = If (q) <then_branch = {body}, else_branch = "
        "e () => (float[] o) { o = Conv (x, w) }> }"
    )
    plain = model_of(SPELLINGS["scale and shift"], constants=(8, 1, 1))
    model.graph.initializer.extend(plain.graph.initializer)
    for value in (model.graph.output[0], *(a.g.output[0] for a in model.graph.node[0].attribute)):
        value.CopyFrom(helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, [2, 4, 6, 5]))
    _, report = check(model, {**feeds_of(plain), "q": np.array(True)}, optimizations=True)
    assert [r.operator for r in report.respelled] == ["Mul", "Add"]


def test_weights_beside_the_model(tmp_path: Path) -> None:
    model = model_of(SPELLINGS["scale and shift"], (64, 8, 1, 1), (8, 1, 1))
    beside = onnx.ModelProto()
    beside.CopyFrom(model)
    onnx.save(beside, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=256)
    result = onnxfuse.optimize(tmp_path / "m.onnx", target="cpu")
    assert [r.operator for r in result.report.respelled] == ["Mul", "Add"]
    weights = next(t for t in result.model.graph.initializer if t.name == "w")
    assert weights.data_location == onnx.TensorProto.EXTERNAL
    result.save(tmp_path / "o.onnx")
    feeds = feeds_of(model)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    got = onnxruntime.InferenceSession(tmp_path / "o.onnx").run(None, feeds)[0]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_constants_of_many_channels(tmp_path: Path) -> None:
    """Constants whose values the analysis does not keep, as initializers and as nodes."""
    for as_nodes in (False, True):
        model = model_of("y = Mul (x, c)", (4, 160, 1, 1), x="float[1, 160, 3, 3]", as_nodes=as_nodes)
        wide = numpy_helper.from_array(np.linspace(0.5, 2, 160, dtype=np.float32).reshape(160, 1, 1), "c")
        if as_nodes:
            model.graph.node[0].attribute[0].t.CopyFrom(wide)
        else:
            model.graph.initializer[0].CopyFrom(wide)
        result, operators = moved(model)
        assert operators == ["Mul"]
        assert operators_run(result, tmp_path) == ["Conv"]


@pytest.mark.parametrize("x", ["float[2, n, 6, 5]", "float[n, 8, h, w]"])
def test_extents_of_a_run(x: str) -> None:
    assert moved(model_of(SPELLINGS["scale and shift"], x=x.replace("n, 6", "8, 6")))[1] == ["Mul", "Add"]


def test_a_map_that_its_constant_makes_wider_stays() -> None:
    for x, constants in (
        ("float[2, 1, 6, 5]", (8, 1, 1)),
        ("float[2, 8, 6, 5]", (8, 6, 5)),
        ("float[8, 6, 5]", (1, 8, 1, 1)),
    ):
        model = model_of("y = Mul (x, c)", x=x)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full(constants, 2, np.float32), "c"))
        assert onnxfuse.optimize(model, target="cpu").report.respelled == []
