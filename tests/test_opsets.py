"""Models of opsets that ONNX Runtime does not load: what is fused, and when they can declare an older one."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from graph_check import fused_nodes
from graphs import parse
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from truth import run

from onnxfuse import optimize
from onnxfuse.report import Report
from onnxfuse.rewrites.lowering import RUNNABLE_OPSET

CHAIN = "g (float[3, 4] x) => (float[3, 4] y) { a = Exp (x) b = Neg (a) y = Tanh (b) }"
KEPT = "g (float[3, 4] x) => (float[3, 4] y) { a = Exp (x) b = Neg (a) c = Tanh (b) y = Hardmax (c) }"


def opset_of(model: onnx.ModelProto) -> int:
    return next(o.version for o in model.opset_import if not o.domain)


def checked(model: onnx.ModelProto, feeds: dict[str, np.ndarray], **options: object) -> tuple[onnx.ModelProto, Report]:
    """Optimizes for the CPU; the result loads and computes what the reference makes of the model, in both ways."""
    result = optimize(model, target="cpu", **options)  # type: ignore[arg-type]
    onnx.checker.check_model(result.model, full_check=True)
    with np.errstate(all="ignore"):
        truth = ReferenceEvaluator(model).run(None, feeds)
    for library in (True, False):
        for expected, found in zip(truth, run(result.model, feeds, library), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=2e-3, atol=1e-6)
            if found.dtype.kind == "f":
                known = ~np.isnan(expected)
                np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])
    assert optimize(result.model, target="cpu", **options).model == result.model  # type: ignore[arg-type]
    return result.model, result.report


@pytest.mark.parametrize(("opset", "ir_version"), [(27, 13), (28, 14)])
@pytest.mark.parametrize("graph", [CHAIN, KEPT])
def test_a_model_whose_operators_all_mean_the_same_declares_an_opset_that_loads(
    graph: str, opset: int, ir_version: int
) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    model, report = checked(parse(graph, opset, ir_version), {"x": x})
    assert fused_nodes(model) == ["FusedElementwise"]
    assert (opset_of(model), model.ir_version) == (RUNNABLE_OPSET, 13)
    assert any(f"opset {RUNNABLE_OPSET} in place of {opset}" in note for note in report.notes)


def test_what_nothing_is_fused_in_stays_as_it_is() -> None:
    model = parse("g (float[3, 4] x) => (float[3, 4] y) { y = Hardmax (x) }", 28, 14)
    result = optimize(model)
    assert (opset_of(result.model), result.model.ir_version, result.report.notes) == (28, 14, [])


# DepthToSpace of opset 28 takes no more element types than before; SpaceToDepth has a mode besides, Range a stash type.
UNCHANGED = "b = DepthToSpace <blocksize = 2> (a)"
CHANGED = "b = SpaceToDepth <blocksize = 2> (a)"


def test_a_newer_version_that_only_adds_element_types_is_none() -> None:
    graph = (
        "g (float[1, 4, 2, 2] x) => (float[1, 1, 4, 4] y) "
        f"{{ c = Exp (x) a = Neg (c) {UNCHANGED} d = Abs (b) y = Tanh (d) }}"
    )
    x = np.random.default_rng(0).normal(size=(1, 4, 2, 2)).astype(np.float32)
    model, _ = checked(parse(graph, 28, 14), {"x": x})
    assert len(fused_nodes(model)) == 2
    assert opset_of(model) == RUNNABLE_OPSET


@pytest.mark.parametrize("scope", ["graph", "body"])
def test_an_operator_that_changed_keeps_the_model_as_it_was(scope: str) -> None:
    if scope == "graph":
        graph = f"g (float[1, 1, 4, 4] x) => (float[N, C, H, W] y) {{ c = Exp (x) a = Neg (c) {CHANGED} y = Abs (b) }}"
    else:
        graph = (
            "g (float[1, 1, 4, 4] x, bool c) => (float[N, C, H, W] y) { d = Exp (x) a = Neg (d) "
            f"y = If (c) <then_branch = t () => (float[N, C, H, W] b) {{ {CHANGED} }}, "
            "else_branch = e () => (float[N, C, H, W] f) { f = Identity (a) }> }"
        )
    model = parse(graph, 28, 14)
    result = optimize(model)
    assert fused_nodes(result.model) == []
    assert (opset_of(result.model), result.model.ir_version) == (28, 14)
    assert result.model.graph.node == model.graph.node
    assert any("SpaceToDepth (b) has another meaning" in r.reason for r in result.report.refusals)


def test_tensors_of_6_bit_floats_keep_the_ir_version() -> None:
    model = parse(CHAIN, 28, 14)
    model.graph.input.append(helper.make_tensor_value_info("unused", TensorProto.FLOAT6E2M3, [1]))
    result = optimize(model)
    assert (fused_nodes(result.model), result.model.ir_version) == ([], 14)


def test_an_opset_that_is_not_known_is_left_alone() -> None:
    model = parse(CHAIN, opset=29)
    result = optimize(model)
    assert fused_nodes(result.model) == []
    assert all("newer than what onnxfuse knows" in r.reason for r in result.report.refusals)
    assert result.model.graph.node == model.graph.node


INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_of_opset_28(dtype: str, direction: str) -> None:
    info, bits = np.iinfo(dtype), np.iinfo(dtype).bits
    values = [0, 1, 2, 5, info.max, info.max // 3, info.min, info.min // 3, info.min + 1]
    counts = [0, 1, 3, bits - 2, bits - 1, bits, bits + 1, min(2 * bits, info.max), info.max]
    if info.min:
        values, counts = [*values, -1, -2, -77], [*counts, -1, -bits, info.min]
    pairs = list(itertools.product(values, counts))
    a, count = (np.array([p[k] for p in pairs], dtype) for k in (0, 1))
    values = f"{dtype}[{len(pairs)}]"
    graph = f'g ({values} a, {values} n) => ({values} y) {{ y = BitShift <direction = "{direction}"> (a, n) }}'
    result = optimize(parse(graph, 28, 14), target="cpu", min_nodes=1).model
    assert fused_nodes(result) == ["FusedElementwise"]
    expected = []
    for value, by in pairs:
        moved = (value << by if direction == "LEFT" else value >> by) if 0 <= by < bits else 0
        beyond = -1 if value < 0 and direction == "RIGHT" else 0  # the sign alone
        expected.append((moved if 0 <= by < bits else beyond) % 2**bits)
    for library in (True, False):
        found = run(result, {"a": a, "n": count}, library)[0]
        np.testing.assert_array_equal(found.view(f"uint{bits}"), np.array(expected, f"uint{bits}"))


@pytest.mark.parametrize("dtype", ["float16", "float", "double", "int8", "int64", "uint32"])
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_opset_28(dtype: str, fmod: int) -> None:
    plain = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    values = [4.25, -4.25, 0.0, -0.0, 6, -6, 3, np.inf, -np.inf] if plain.startswith("f") else [7, 100, 3, 6, 0, 1]
    divisors = [2.5, -2.5, 3, -3, np.inf, -np.inf] if plain.startswith("f") else [3, 7, 2, 6]
    if plain.startswith("i"):
        values, divisors = [*values, -7, -100], [*divisors, -3, -7]
    a, b = (np.array(v, plain) for v in zip(*itertools.product(values, divisors), strict=True))
    n = len(a)
    graph = f"g ({dtype}[{n}] a, {dtype}[{n}] b) => ({dtype}[{n}] y) {{ y = Mod <fmod = {fmod}> (a, b) }}"
    model, _ = checked(parse(graph, 28, 14), {"a": a, "b": b}, min_nodes=1)
    assert fused_nodes(model) == ["FusedElementwise"]


@pytest.mark.parametrize("dtype", ["float16", "float", "double"])
def test_activations_of_opset_28(dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype({"float": "float32", "double": "float64"}.get(dtype, dtype))
    graph = f"g ({dtype}[3, 4] x) => ({dtype}[3, 4] y) {{ a = Celu <alpha = 0.5> (x) y = SwiGLU <alpha = 1.5> (x, a) }}"
    model, _ = checked(parse(graph, 28, 14), {"x": x})
    assert fused_nodes(model) == ["FusedElementwise"]


def test_a_swiglu_of_shapes_that_may_differ_is_left() -> None:
    graph = "g (float[N, 4] x, float[M, 4] z) => (float[N, 4] y) { y = SwiGLU (x, z) }"
    result = optimize(parse(graph, 28, 14), min_nodes=1)
    assert any("same shape" in r.reason for r in result.report.refusals)


def test_bfloat16_on_the_cpu_is_left() -> None:
    graph = "g (bfloat16[3, 4] x) => (bfloat16[3, 4] y) { a = Celu (x) y = Neg (a) }"
    assert fused_nodes(optimize(parse(graph, 28, 14), target="cpu").model) == []
    assert fused_nodes(optimize(parse(graph, 28, 14), target="cuda").model) == ["FusedElementwise"]
