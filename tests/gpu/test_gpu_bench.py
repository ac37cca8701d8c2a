"""bench, tune, validate and explain on a GPU: what is counted there, CUDA graphs, and what ONNX Runtime captures."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_bench import chain
from test_validate import build
from test_validate_search import node

import onnxfuse
from onnxfuse.benchmark import bench
from onnxfuse.benchmark.launch_cost import measure_launch_cost
from onnxfuse.capture import capture_obstacles, placement_obstacles
from onnxfuse.tuning import Tune
from onnxfuse.validate import validate

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def test_the_price_of_a_launch() -> None:
    cost = measure_launch_cost()
    assert 0.1 < cost.device < 100
    assert 0.1 < cost.host < 1000
    assert 0.1 < cost.graph_host < 1000
    assert 0.01 < cost.graph_device <= 1.5 * cost.device


def test_the_account_of_a_chain() -> None:
    (case,) = bench(chain(12, 1 << 22), provider="cuda", seconds=0.5).cases
    before, after = case.original.account, case.optimized.account
    assert before is not None
    assert after is not None
    assert (before.nodes, before.launches, before.note) == (12, 12, "")
    assert (after.nodes, after.launches, after.note) == (1, 1, "")
    assert after.device_copies == before.device_copies == 0
    ((count, kernel),) = after.fused_kernels
    assert count == 1
    assert kernel.registers > 0
    assert kernel.local == 0
    assert 0 < kernel.occupancy <= 1
    assert before.bytes_moved == 12 * (2 * (4 << 22) + 4)
    assert after.bytes_moved == 2 * (4 << 22)
    if before.peak_memory is not None:
        assert after.peak_memory <= 0.6 * before.peak_memory
    assert case.verdict == "faster"


def test_cuda_graphs_of_several_shapes() -> None:
    result = bench(chain(free=True), provider="cuda", cuda_graph=True, dims={"n": (1, 4, 64)}, seconds=0.3)
    assert [c.inputs[0][2][0] for c in result.cases] == [1, 4, 64]
    for case in result.cases:
        (check,) = case.graphs
        assert check.equal
        assert check.replays == 3


def networks() -> dict[str, tuple[onnx.ModelProto, bool]]:
    """Models, each with whether ONNX Runtime captures it."""
    value = helper.make_tensor_value_info("inner", FLOAT, None)
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["inner"])], "b", [], [value])
    shape = [node("Shape", "x", "s"), node("Gather", "s zero", "k")]
    positive = [node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m nought", "p")]
    cases: dict[str, tuple[list[Any], bool]] = {
        "plain": ([node("Relu", "x", "y")], True),
        "shape arithmetic": (
            [
                *shape,
                node("Unsqueeze", "k axis", "u"),
                node("Concat", "u rest", "t", axis=0),
                node("Reshape", "x t", "y"),
            ],
            True,
        ),
        "a number from a shape": ([*shape, node("Cast", "k", "f", to=FLOAT), node("Div", "x f", "y")], False),
        "no kernel": ([node("Relu", "x", "a"), node("Hardmax", "a", "b"), node("Neg", "b", "y")], False),
        "control flow": ([*positive, node("If", "p", "y", then_branch=body, else_branch=body)], False),
        "an If on a constant": ([node("If", "yes", "y", then_branch=body, else_branch=body)], True),
    }
    constants = {"zero": np.int64(0), "axis": np.array([0]), "rest": np.array([-1]), "yes": np.array(True)}
    constants |= {"nought": np.float32(0)}
    return {
        name: (build(nodes, [("x", FLOAT, ["n", 8])], [("y", FLOAT, None)], constants), captured)
        for name, (nodes, captured) in cases.items()
    }


@pytest.mark.parametrize("name", networks())
def test_what_is_known_of_capture_is_what_onnx_runtime_does(name: str) -> None:
    model, captured = networks()[name]
    placed = placement_obstacles(model)
    assert any(o.prevents for o in placed) != captured
    assert any(o.prevents for o in capture_obstacles(model)) != captured


def test_outputs_whose_shapes_follow_data() -> None:
    """The extent of y is what the data says: it cannot be bound in advance, and the run cannot be captured."""
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Cast", "m", "i", to=INT64),
        node("Unsqueeze", "i axis", "s"),
    ]
    nodes += [node("Expand", "one s", "e"), node("Add", "e one", "a"), node("Mul", "a a", "y")]
    constants = {"axis": np.array([0]), "one": np.float32(1)}
    model = build(nodes, [("x", FLOAT, [8])], [("y", FLOAT, ["n"])], constants)
    inputs = {"x": np.arange(8, dtype=np.float32)}
    (case,) = bench(model, provider="cuda", inputs=inputs, seconds=0.3).cases
    for figures in (case.original, case.optimized):
        assert figures.account is not None
        assert figures.account.nodes > 0
        assert figures.account.launches is None
        assert figures.account.note.startswith("launches not counted")


def test_two_providers_are_compared() -> None:
    model = chain(12, 1000)
    fused = onnxfuse.optimize(model).model
    result = validate(model, fused, provider="cuda", original_provider="cpu")
    assert result.ok
    assert (result.original_provider, result.provider) == ("CPUExecutionProvider", "CUDAExecutionProvider")


def test_tuning_keeps_what_pays() -> None:
    result = onnxfuse.optimize(chain(12, 1 << 22), tune=Tune(seconds=5))
    assert result.tuning is not None
    assert result.tuning.dropped == ()
    assert result.tuning.tuned.low > 1
