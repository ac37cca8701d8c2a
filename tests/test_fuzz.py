"""A short run of random graphs; the long one is tests/fuzz.py."""

from __future__ import annotations

import collections
import math
import time

import fuzz
import graph_check
import numpy as np
import onnx
import pytest
from graph_check import NotRunError
from graphs import feeds_for, parse
from onnx import TensorProto, helper, numpy_helper
from random_graphs import random_model
from truth import in_wider_types, moved_by_rounding, run

SECONDS = 25.0  # for each of the targets; graphs that a slow machine does not reach are left out
SEEDS = {"cpu": range(400), "cuda": range(400, 800)}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_random_graphs(target: str) -> None:
    """Both targets run on the CPU here: they differ in what is fused."""
    counts: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for seed in SEEDS[target]:
        model, feeds = random_model(seed)
        try:
            wrong, fused = fuzz.failure(model, feeds, target=target, min_nodes=1 + seed % 2, beside=seed % 5 == 0)
        except NotRunError:
            continue
        assert not wrong, f"seed {seed}: {wrong}"
        counts["graphs"] += 1
        counts["fused"] += bool(fused)
        counts.update(fused)
        if time.monotonic() - start > SECONDS:
            break
    assert counts["fused"] > 0.6 * counts["graphs"] > 10
    kinds = {"FusedElementwise", "FusedReduction", "FusedSoftmax", "FusedLayerNorm", "FusedRMSNorm"}
    assert counts["graphs"] < 100 or kinds <= set(counts)


def test_the_same_seed_gives_the_same_model() -> None:
    first, second = random_model(7)[0], random_model(7)[0]
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_what_fails_becomes_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the failure, here any Erf, does not go away."""
    model = parse(
        "g (float[3] x, float[3] u) => (float[3] y, float[3] z) { a = Exp (x) b = Erf (a) y = Neg (b) z = Abs (u) }"
    )

    def fails(candidate: onnx.ModelProto, *_: object, **__: object) -> tuple[str, list[str]]:
        return "wrong: Erf" if any(n.op_type == "Erf" for n in candidate.graph.node) else "", []

    monkeypatch.setattr(fuzz, "failure", fails)
    small = fuzz.reduced(model, feeds_for(model))
    assert [n.op_type for n in small.graph.node] == ["Exp", "Erf"]
    assert [v.name for v in (*small.graph.input, *small.graph.output)] == ["x", "b"]


@pytest.mark.parametrize("beside", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_the_truth_of_float16_that_onnx_reference_cannot_follow(beside: int) -> None:
    """float16 alone would tell little. Inputs of another type change nothing of that."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Gelu", ["x"], ["g"], domain="com.microsoft"),
        helper.make_node("Mul", ["g", "k"], ["y"]),
        helper.make_node("Neg", ["b"], ["n"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT16, [100]), value("b", beside, [])],
        [value("y", TensorProto.FLOAT16, [100]), value("n", beside, [])],
        [numpy_helper.from_array(np.array(0.1, np.float16), "k")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    x = np.linspace(-2, 2, 100).astype(np.float16)
    feeds = {"x": x, "b": np.array(0.75, helper.tensor_dtype_to_np_dtype(beside))}
    truth = in_wider_types(model, feeds)
    assert truth is not None
    gelu = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x.astype(np.float64)])
    expected = gelu * float(np.float16(0.1))
    np.testing.assert_allclose(truth[0], expected, atol=1e-7)
    assert truth[1] == -0.75
    moved = in_wider_types(model, feeds, np.random.default_rng(0))
    assert moved is not None
    assert 1e-4 < np.abs(moved[0] / expected - 1).max() < 5e-3
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(10, np.float16), "k"))
    assert 1e-3 < moved_by_rounding(model, feeds, in_wider_types(model, feeds) or [])[0] < 0.1


RNG = np.random.default_rng(0)
MENDED = {
    "CumSum": ([(2, 3)], {"reverse": 1}, [np.array([1])], 11),
    "Softsign": ([()], {}, [], 17),
    "Mean": ([(1, 3), (4, 1), (2, 4, 3)], {}, [], 13),
    "Flatten of nothing": ([(2, 0, 3)], {"axis": -1}, [], 13),
    "Pad, old": ([(3, 4)], {"pads": [0, -1, 2, 1], "value": 0.5}, [], 10),
    "Pad": ([(3, 4)], {}, [np.array([-1, 2, 0, -2])], 13),
    "Pad along axes": ([(3, 4)], {}, [np.array([-1, 2]), np.array(2, np.float32), np.array([-1])], 18),
    "ConvTranspose": ([(2, 4, 5), (4, 3, 3), (3,)], {"strides": [2], "pads": [1, 0]}, [], 17),
    "ConvTranspose in groups": (
        [(1, 4, 3, 2), (4, 3, 3, 2), (6,)],
        {"group": 2, "strides": [1, 3], "dilations": [2, 1], "output_padding": [0, 2]},
        [],
        11,
    ),
}


@pytest.mark.parametrize("name", MENDED)
def test_operators_that_onnx_reference_cannot_follow(name: str) -> None:
    shapes, attributes, constants, opset = MENDED[name]
    floats = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    names = [f"i{k}" for k in range(len(shapes) + len(constants))]
    node = helper.make_node(name.partition(" ")[0].rstrip(","), names, ["y"], **attributes)
    given = names[: len(shapes)]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(given, floats, strict=True)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(c, n) for n, c in zip(names[len(shapes) :], constants, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    feeds = dict(zip(given, floats, strict=True))
    truth = in_wider_types(model, feeds)
    assert truth is not None
    assert np.asarray(truth[0]).dtype == np.float64
    (found,) = run(model, feeds, library=False)
    assert found.shape == np.shape(truth[0])
    np.testing.assert_allclose(found, truth[0], rtol=1e-5, atol=1e-6)


def test_what_one_rounding_more_in_front_of_a_product_makes_of_float16() -> None:
    """On a GPU a Conv rounds before it adds its bias; its consumers multiply that, whatever else the model has."""
    wrong, fused = fuzz.failure(*random_model(1023000715), target="cuda", min_nodes=2, beside=True)
    assert not wrong
    assert fused


def test_a_float16_value_is_as_unsure_in_a_wider_type() -> None:
    """ONNX Runtime rounds no float16 between operators on the CPU; what is folded is rounded."""
    model = parse(
        "g (float16[1] h) => (double[1] y) <int64[1] s = {1}, float16[1] k = {21504}> "  # the bits of 64
        "{ m = Mul (h, k) w = Cast <to = 11> (m) r = Reshape (w, s) y = Sub (w, r) }"
    )
    feeds = feeds_for(model)
    (moved,) = moved_by_rounding(model, feeds, [np.zeros(1)])
    assert 0.001 < moved < 0.1


def test_one_output_of_another_meaning_leaves_the_others_their_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse("g (float[4] x) => (float[4] y, float[4] z) { a = Exp (x) y = Neg (a) b = Tanh (x) z = Abs (b) }")
    feeds = feeds_for(model)
    right = in_wider_types(model, feeds)
    assert right is not None
    monkeypatch.setattr(graph_check, "in_wider_types", lambda *_: [right[0], right[1] + 1])
    seen = []
    plain = graph_check.difference
    monkeypatch.setattr(graph_check, "difference", lambda t, *a: seen.append(t) or plain(t, *a))
    graph_check.check(model, feeds)
    compared = [t for t in seen if len(t) == 2]
    assert compared
    for truth in compared:
        assert truth[0] is right[0]
        np.testing.assert_allclose(truth[1], right[1], rtol=1e-6)


def test_what_overflows_at_the_end_of_the_range_is_no_other_meaning() -> None:
    """65510 rounds to float16's largest number or to infinity, as an operand was rounded before."""
    truth, plain = np.array([65530.0, 2.0]), np.array([np.inf, 2], np.float16)
    allowed = {"float16": (1e-3, 1e-3)}
    assert not graph_check._disagree([truth], [plain], allowed)
    assert graph_check._disagree([truth / 2], [plain], allowed)
    assert not graph_check.difference([truth], [plain], [np.array([65504, 2], np.float16)], allowed)
    assert graph_check.difference([truth], [plain], [np.array([60000, 2], np.float16)], allowed)
