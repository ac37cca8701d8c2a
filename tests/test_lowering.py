"""Every operator that fuses, alone, in all its versions and types: the fused node computes what ONNX says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from graph_check import check, fused_nodes
from graphs import optimized
from onnx import TensorProto, helper, numpy_helper

from onnxfuse.rewrites.lowering import LOWERINGS, NEWEST_OPSET
from onnxfuse.rewrites.lowering.data_movement import COPIES, FREE
from onnxfuse.rewrites.lowering.quantization import QUANTIZERS

F, F16, D = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
TYPES = {
    "tensor(float)": F,
    "tensor(float16)": F16,
    "tensor(double)": D,
    "tensor(int32)": TensorProto.INT32,
    "tensor(int64)": TensorProto.INT64,
    "tensor(uint8)": TensorProto.UINT8,
    "tensor(bool)": TensorProto.BOOL,
}
# Attributes to try besides none.
ATTRIBUTES: dict[str, list[dict[str, object]]] = {
    "LeakyRelu": [{"alpha": 0.25}],
    "ThresholdedRelu": [{"alpha": 0.5}],
    "Elu": [{"alpha": 2.0}],
    "Selu": [{"alpha": 1.5, "gamma": 2.0}],
    "Celu": [{"alpha": 0.5}],
    "HardSigmoid": [{"alpha": 0.5, "beta": 0.25}],
    "Shrink": [{"lambd": 1.0, "bias": 0.5}],
    "Gelu": [{"approximate": "tanh"}],
    "Swish": [{"alpha": 0.5}],
    "IsInf": [{"detect_negative": 0}, {"detect_positive": 0}, {"detect_positive": 0, "detect_negative": 0}],
    "Mod": [{"fmod": 1}],
    "BitShift": [{"direction": "LEFT"}, {"direction": "RIGHT"}],
}
REQUIRED = {"BitShift"}  # has no default
VARIADIC = {"Min", "Max", "Sum", "Mean"}
# Below, and in test_layout.py, test_scan_fusion.py and test_quantization.py.
APART = {"Clip", "Cast", "CastLike", "CumSum", "CumProd", "ArgMax", "ArgMin"} | FREE | COPIES | QUANTIZERS
# What ONNX Runtime makes of NaN and infinities here depends on the type and on the axes.
UNLIKE = {"LogSoftmax", "ReduceMax", "ReduceMin", "ReduceLogSumExp"}
NORMALIZING = {"Softmax", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "BatchNormalization"}
NORMALIZING |= {"LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization"}
ELEMENTWISE = sorted(
    op
    for domain, op in LOWERINGS
    if not domain and onnx.defs.has(op) and op not in APART | NORMALIZING and not op.startswith("Reduce")
)
REDUCTIONS = sorted(op for domain, op in LOWERINGS if not domain and op.startswith("Reduce"))


def versions(op: str) -> list[int]:
    """The first opset of each version of an operator that fusion knows, and the newest."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""]
    first = min(s.since_version for s in schemas)
    return sorted({max(s.since_version, 7) for s in schemas if s.since_version <= NEWEST_OPSET} | {max(first, 21)})


def types_of(op: str, opset: int, position: int = 0) -> list[int]:
    schema = onnx.defs.get_schema(op, opset)
    return [t for name, t in TYPES.items() if name in schema.inputs[min(position, len(schema.inputs) - 1)].types]


def data(type_: int, shape: tuple[int, ...], op: str, seed: int) -> np.ndarray:
    """Values in the operator's domain; floats with zeros, infinities and NaN among them."""
    rng, dtype = np.random.default_rng(seed), helper.tensor_dtype_to_np_dtype(type_)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind != "f":
        low = 1 if op in ("Div", "Mod", "Pow", "BitShift") or dtype.kind == "u" else -4
        return rng.integers(low, 5, shape).astype(dtype)
    x = rng.normal(size=shape)
    if op in ("Asin", "Acos", "Atanh"):
        x = np.tanh(x)
    if op in ("Sqrt", "Log", "Acosh", "Pow"):
        x = np.abs(x) + 1
    if x.size > 6 and op not in ("Mod", "Pow", "Atanh", *UNLIKE):
        x.reshape(-1)[:3] = [0.0, -0.0, np.nan if op != "Sign" else 1.0]  # which ONNX Runtime takes for 0 in float16
        x.reshape(-1)[3:5] = [np.inf, -np.inf]
    return x.astype(dtype)


def single(op: str, opset: int, arrays: list[np.ndarray], types: list[int], **attributes: object) -> onnx.ModelProto:
    names = [f"x{k}" for k in range(len(arrays))]
    inputs = [helper.make_tensor_value_info(n, t, a.shape) for n, t, a in zip(names, types, arrays, strict=True)]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if op.startswith("Reduce"):
        return model  # whose axes are to come
    output = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0]
    if not output.type.HasField("tensor_type"):  # some normalizations have no inference
        output = helper.make_tensor_value_info("y", types[0], arrays[0].shape)
    model.graph.output[0].CopyFrom(output)
    return model


def fuses(model: onnx.ModelProto, arrays: list[np.ndarray]) -> tuple[bool, str]:
    """Whether the only node was fused, after a check of the result, and else why not."""
    result, report = check(model, {f"x{k}": a for k, a in enumerate(arrays)}, runs=False, min_nodes=1)
    return bool(fused_nodes(result)), "; ".join(r.reason for r in report.refusals)


def arguments(op: str, opset: int) -> Iterator[tuple[list[int], dict[str, object]]]:
    schema = onnx.defs.get_schema(op, opset)
    arity = 3 if op in VARIADIC else len(schema.inputs)
    for type_, attributes in itertools.product(types_of(op, opset), [{}, *ATTRIBUTES.get(op, [])]):
        if op in REQUIRED and not attributes:
            continue
        if op == "Mod" and type_ in (F, F16, D) and not attributes:
            continue  # ONNX asks for fmod=1 with floats
        yield [type_] * arity, attributes


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_elementwise(op: str) -> None:
    for opset in versions(op):
        for given, attributes in arguments(op, opset):
            types = [TensorProto.BOOL, *given[1:]] if op == "Where" else given
            shapes = {"PRelu": [(2, 9), (9,)], "SwiGLU": [(2, 9), (2, 9)]}.get(op, [(2, 9), (9,), (2, 1)])
            arrays = [data(t, s, op, k) for k, (t, s) in enumerate(zip(types, shapes, strict=False))]
            model = single(op, opset, arrays, types, **attributes)
            done, reason = fuses(model, arrays)
            # Opset 7 cannot say everything, so that no local function could stand in.
            assert done or (reason and (F not in types or opset == 7)), (op, opset, types, attributes, reason)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op: str) -> None:
    axes_choices: list[list[int] | None] = [None, [0], [-1], [1, 2], [-1, 0], [0, 1, 2]]
    for opset in versions(op):
        for type_, axes, keepdims in itertools.product(types_of(op, opset), axes_choices, (0, 1)):
            array = data(type_, (3, 2, 4), op, 0)
            array = np.abs(array) if op == "ReduceLogSum" and array.dtype.kind == "f" else array
            model = single(op, opset, [array], [type_], keepdims=keepdims)
            if axes is not None and len(onnx.defs.get_schema(op, opset).inputs) > 1:
                model.graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), "axes"))
                model.graph.node[0].input.append("axes")
            elif axes is not None:
                model.graph.node[0].attribute.append(helper.make_attribute("axes", axes))
            shape = [1 if k in {a % 3 for a in axes or range(3)} else d for k, d in enumerate(array.shape)]
            kept = [d for k, d in enumerate(array.shape) if k not in {a % 3 for a in axes or range(3)}]
            model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", type_, shape if keepdims else kept))
            done, reason = fuses(model, [array])
            assert done or (reason and (type_ != F or opset == 7)), (op, opset, type_, axes, reason)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd"])
@pytest.mark.parametrize("empty", ["<int64[0] axes = {}>", ""])
def test_a_reduction_that_reduces_nothing_hands_on_what_it_reads(op: str, empty: str) -> None:
    axes = "" if empty else ", int64[0] axes"
    graph = (
        f"g (float[3, N] x{axes}) => (float[3, N] y) {empty} {{ a = Exp (x) "
        f"s = {op} <noop_with_empty_axes = 1> (a, axes) b = Neg (s) y = Tanh (b) }}"
    )
    kinds, model, _ = optimized(graph, opset=18, feeds={"axes": np.zeros(0, np.int64)} if axes else None)
    assert kinds == ["FusedElementwise"]
    assert len(model.graph.node) == 1


def test_a_reduction_that_changes_the_elements_without_reducing_is_left() -> None:
    graph = (
        "g (float[3, 4] x) => (float[3, 4] y) <int64[0] axes = {}> { a = Exp (x) "
        "s = ReduceL1 <noop_with_empty_axes = 1> (a, axes) b = Neg (s) y = Tanh (b) }"
    )
    _, model, report = optimized(graph, opset=18)
    assert "ReduceL1" in [node.op_type for node in model.graph.node]
    assert any("reduces nothing" in refusal.reason for refusal in report.refusals)


@pytest.mark.parametrize(
    ("x", "axes", "values", "keepdims", "y"),
    [
        ("3, 4", "0", [], 1, "[1, 1]"),
        ("3, 4", "0", [], 0, ""),
        ("N, 4", "0", [], 1, "[1, 1]"),
        ("N", "1", [0], 1, "[1]"),
        ("5", "1", [-1], 0, ""),
        ("1, 1", "1", [1], 1, "[1, 1]"),
        ("1, 1", "N", [0, 1], 1, "[1, 1]"),
    ],
)
def test_axes_that_follow_from_shapes(x: str, axes: str, values: list[int], keepdims: int, y: str) -> None:
    graph = (
        f"g (float[{x}] x, int64[{axes}] axes) => (float{y} y) "
        f"{{ a = Exp (x) y = ReduceSum <keepdims = {keepdims}> (a, axes) }}"
    )
    kinds, _, _ = optimized(graph, opset=18, feeds={"axes": np.array(values, np.int64)}, sizes={"N": 2})
    assert len(kinds) == 1


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
@pytest.mark.parametrize("opset", [7, 11, 13, 21])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op: str, opset: int, axis: int) -> None:
    if axis < 0 and opset < 11:
        pytest.skip("negative axes came with opset 11")
    for type_ in (F, F16, D):
        array = data(type_, (3, 2, 4), op, 0)
        done, reason = fuses(single(op, opset, [array], [type_], axis=axis), [array])
        assert done, reason


def test_softmax_before_opset_13_normalizes_all_axes_from_its_own_on() -> None:
    array = data(F, (2, 3, 4), "Sqrt", 0)
    model = single("Softmax", 11, [array], [F])
    assert fuses(model, [array])[0]


@pytest.mark.parametrize("type_", [F, F16, D])
@pytest.mark.parametrize("axis", [-1, 1, -2, 0])
def test_layer_and_rms_normalization(type_: int, axis: int) -> None:
    x = data(type_, (2, 3, 8), "Acos", 0) * np.array(3, helper.tensor_dtype_to_np_dtype(type_))
    x = np.nan_to_num(x, nan=1, posinf=2, neginf=-2)
    scale = data(type_, x.shape[axis % 3 :], "Sqrt", 1)
    for op, opset, extra in (("LayerNormalization", 17, 0), ("LayerNormalization", 17, 1), ("RMSNormalization", 23, 0)):
        arrays = [x, np.nan_to_num(scale, posinf=1, neginf=1)] + [np.nan_to_num(scale, posinf=1, neginf=1)] * extra
        done, reason = fuses(single(op, opset, arrays, [type_] * len(arrays), axis=axis, epsilon=1e-3), arrays)
        assert done, reason


def test_other_normalizations() -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 3, 5)).astype(np.float32)
    channels = [np.random.default_rng(k).uniform(0.5, 2, 4).astype(np.float32) for k in range(4)]
    for opset in (9, 15):
        assert fuses(single("BatchNormalization", opset, [x, *channels], [F] * 5, epsilon=1e-3), [x, *channels])[0]
    assert fuses(single("InstanceNormalization", 17, [x, *channels[:2]], [F] * 3), [x, *channels[:2]])[0]
    assert fuses(single("GroupNormalization", 21, [x, *channels[:2]], [F] * 3, num_groups=2), [x, *channels[:2]])[0]
    pairs = [c[:2] for c in channels[:2]]
    assert fuses(single("GroupNormalization", 18, [x, *pairs], [F] * 3, num_groups=2), [x, *pairs])[0]
    assert fuses(single("MeanVarianceNormalization", 13, [x], [F], axes=[2, 3]), [x])[0]
    for p, axis in itertools.product((1, 2), (-1, 1, 0)):
        assert fuses(single("LpNormalization", 17, [x], [F], p=p, axis=axis), [x])[0]


CONVERSIONS = [F, F16, D, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8, TensorProto.BOOL]


@pytest.mark.parametrize("target", CONVERSIONS)
def test_cast(target: int) -> None:
    for source in CONVERSIONS:
        array = np.array([[0, 1, 2, 3, 100]]).astype(helper.tensor_dtype_to_np_dtype(source))
        if source in (F, F16, D):
            array += np.array(0.5, array.dtype)
        for opset in (9, 13, 21):
            done, reason = fuses(single("Cast", opset, [array], [source], to=target), [array])
            # From float16 to float32 there is nothing to compute: kernels read float16 as float32.
            assert done or source == target or (source, target) == (F16, F), (source, opset, reason)


@pytest.mark.parametrize("type_", [F, F16, D, TensorProto.INT32, TensorProto.INT64])
@pytest.mark.parametrize("bounds", [(None, 2), (-1, None), (-1, 2), (None, None), (2, -1)])
def test_clip(type_: int, bounds: tuple[int | None, int | None]) -> None:
    x = data(type_, (2, 9), "Clip", 0)
    dtype = helper.tensor_dtype_to_np_dtype(type_)
    for opset in (7, 11, 12, 13, 21):
        if type_ not in (F, F16) and opset < 12:
            continue  # ONNX Runtime has no kernel
        if opset < 11:
            given = {n: float(b) for n, b in zip(("min", "max"), bounds, strict=True) if b is not None}
            model = single("Clip", opset, [x], [type_], **given)
        else:
            model = single("Clip", opset, [x], [type_])
            for name, bound in zip(("low", "high"), bounds, strict=True):
                model.graph.node[0].input.append("" if bound is None else name)
                if bound is not None:
                    model.graph.initializer.append(numpy_helper.from_array(np.array(bound, dtype), name))
        done, reason = fuses(model, [x])
        assert done or reason or bounds == (None, None), (opset, reason)
        assert done or type_ != F or bounds == (None, None), (opset, reason)
