"""bench: its statistics on times that are made up, and its counts on models of known cost."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_cli import folder, gate, invoke  # noqa: F401 (a fixture)
from test_validate import build

import onnxfuse
from onnxfuse.benchmark import BenchCase, Figures, bench
from onnxfuse.benchmark.account import cuda_failure, take_account
from onnxfuse.benchmark.driver import DriverError, driver
from onnxfuse.benchmark.runner import DeviceRunner, plain_outputs
from onnxfuse.errors import ModelError, OnnxfuseError
from onnxfuse.measure import Interval, in_turn, paired_ratio, summarize
from onnxfuse.runtime import make_session


def chain(links=4, size=100_000, free=False):
    """(x + 1) * 2 again and again."""
    nodes, name = [], "x"
    for i in range(links):
        nodes.append(helper.make_node(("Add", "Mul")[i % 2], [name, "c"], [f"v{i}" if i < links - 1 else "y"]))
        name = nodes[-1].output[0]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", size // 10] if free else [size]) for n in "xy"]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], [numpy_helper.from_array(np.float32(2), "c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


# Statistics


def test_percentiles_are_those_of_their_definitions():
    found = summarize(list(range(1, 102)))
    assert (found.median, found.p90, found.p99, found.mean, found.fastest, found.runs) == (51, 91, 100, 51, 1, 101)


def test_each_call_takes_every_place_of_the_round():
    calls = []
    times = in_turn([lambda c=c: calls.append(c) for c in "abc"], warmup=0, seconds=0, min_runs=3)
    assert "".join(calls) == "abcbcacab"
    assert [len(t) for t in times] == [3, 3, 3]


def test_progress_goes_from_nothing_to_nearly_all():
    shares = []
    in_turn([lambda: None], warmup=0, seconds=0, min_runs=4, tick=shares.append)
    assert shares == [0, 0.25, 0.5, 0.75]


def test_a_slow_spell_of_the_machine_cancels():
    rng = np.random.default_rng(0)
    spell = np.where(np.arange(200) < 90, 3.0, 1.0)  # it hits nearly half of the rounds
    a, b = 2 * spell * rng.normal(1, 0.01, 200), spell * rng.normal(1, 0.01, 200)
    found = paired_ratio(a, b)
    assert found.value == pytest.approx(2, rel=0.01)
    assert 1.98 < found.low <= found.value <= found.high < 2.02


def test_the_spread_covers_the_truth_of_dependent_rounds():
    """Of 100 series whose noise depends on the round before, 95 in 100 spreads should hold the true ratio."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(100):
        drift = np.zeros(300)
        for i in range(1, 300):
            drift[i] = 0.6 * drift[i - 1] + rng.normal(0, 0.05)
        found = paired_ratio(np.exp(drift) * 1.3, np.ones(300))
        held += found.low <= 1.3 <= found.high
    assert held >= 80


def case(ratio, noise):
    figures = Figures(summarize([1.0]), 1.0, 1.0, None)
    return BenchCase({}, (), figures, figures, Interval(*ratio), None if noise is None else Interval(*noise))


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        ((1.3, 1.2, 1.4), (1.0, 0.98, 1.02), "faster"),
        ((0.7, 0.6, 0.8), (1.0, 0.98, 1.02), "slower"),
        ((1.1, 0.9, 1.2), (1.0, 0.98, 1.02), "same"),  # the spread holds 1
        ((1.1, 1.05, 1.2), (1.0, 0.8, 1.1), "same"),  # equal sessions differ by more
        ((0.9, 0.85, 0.95), (1.2, 1.1, 1.3), "same"),
        ((1.1, 1.05, 1.2), None, "faster"),
        ((1.004, 1.002, 1.006), (1.0, 0.999, 1.001), "same"),  # less than one per cent
        ((1.004, 1.002, 1.006), None, "same"),
    ],
)
def test_a_verdict_needs_more_than_noise(ratio, noise, verdict):
    assert case(ratio, noise).verdict == verdict


# Counts


@pytest.mark.parametrize("links", [3, 12])
def test_the_account_of_a_chain(links):
    model, feeds = chain(links), {"x": np.ones(100_000, np.float32)}
    fused = onnxfuse.optimize(model, target="cpu").model
    before, after = (
        take_account(m, feeds, "CPUExecutionProvider", plain_outputs(m, feeds, "CPUExecutionProvider"))
        for m in (model, fused)
    )
    assert (before.nodes, before.fused) == (links, 0)
    assert (after.nodes, after.fused) == (1, 1)
    assert before.bytes_moved == links * (800_000 + 4)
    assert after.bytes_moved == 800_000
    assert before.elsewhere == before.host_copies == after.elsewhere == 0
    if before.peak_memory is not None:  # ONNX Runtime 1.31 and later
        # On the CPU the output lies in the arena; besides it, the chain takes turns between two tensors.
        assert before.peak_memory >= 3 * 400_000
        assert after.peak_memory == 400_000


def test_what_only_changes_a_shape_is_no_node():
    shape = numpy_helper.from_array(np.array([10, -1], np.int64), "shape")
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Reshape", ["n", "shape"], ["y"])]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [100])]
    values += [helper.make_tensor_value_info("y", TensorProto.FLOAT, [10, 10])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feeds = {"x": np.ones(100, np.float32)}
    account = take_account(model, feeds, "CPUExecutionProvider", [np.ones((10, 10), np.float32)])
    assert (account.nodes, account.bytes_moved) == (1, 800)


# The whole


def test_bench_measures_every_combination_of_extents():
    told = []
    result = bench(chain(free=True), dims={"n": (1, 10)}, seconds=0.1, progress=lambda *x: told.append(x))
    assert [c.inputs for c in result.cases] == [(("x", "float32", (n, 10_000)),) for n in (1, 10)]
    for found in result.cases:
        assert found.original.account.nodes == 4
        assert found.optimized.account.nodes == 1
        assert found.original.latency.runs == found.optimized.latency.runs >= 10
        assert found.original.throughput > 0
        assert found.ratio.low <= found.ratio.value <= found.ratio.high
        assert found.noise is not None
    assert {what for what, _ in told} >= {"optimizing", "creating sessions", "measuring", "counting"}
    assert json.loads(json.dumps(result.to_dict()))["cases"][0]["verdict"] in ("faster", "slower", "same")


def test_bench_finds_a_chain_of_forty_faster():
    """A model that passes over its data 40 times, against one pass."""
    result = bench(chain(40, 2_000_000), seconds=1, threads=1, accounts=False)
    assert result.cases[0].verdict == "faster"
    assert result.cases[0].original.account is None


def test_bench_without_the_noise_check_keeps_no_third_session():
    assert bench(chain(), chain(), seconds=0.1, noise=False, accounts=False).cases[0].noise is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0}, "more than 0 seconds"),
        ({"threads": 0}, "at least 1"),
        ({"cuda_graph": True}, "need the CUDA provider"),
        ({"dims": {"n": ()}}, "no extent"),
        ({"dims": {"m": 3}}, "no free dimension 'm'"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(OnnxfuseError, match=message):
        bench(chain(free=True), **options)


def test_a_model_that_does_not_load_is_named():
    broken = chain()
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelError, match="cannot load"):
        bench(chain(), broken, seconds=0.1)


def test_the_command_prints_figures_and_a_verdict(folder):  # noqa: F811
    result = invoke("bench", "model.onnx", "--dim", "n=3,5", "--seconds", "0.1", "--threads", "1")
    assert result.exit_code == 0, result.output
    assert "x float32 3x64" in result.output
    assert "x float32 5x64" in result.output
    assert "latency p99, ms" in result.output
    assert "times as fast (95 % of resampled rounds" in result.output
    assert result.stderr == ""


def test_the_command_writes_json(folder):  # noqa: F811
    onnx.save(gate(3.0), "other.onnx")
    result = invoke("bench", "model.onnx", "other.onnx", "--seconds", "0.1", "--no-noise-check", "--json")
    assert result.exit_code == 0, result.output
    parsed = json.loads(result.stdout)
    assert parsed["optimized"] == "other.onnx"
    assert parsed["cases"][0]["original"]["latency"]["runs"] >= 10


def test_without_a_driver_the_error_says_so():
    try:
        driver()
    except DriverError as error:
        assert "driver" in str(error)  # noqa: PT017 (machines differ)


# Outputs whose shapes follow from the data


def test_outputs_whose_shapes_follow_data_are_allocated_in_each_run():
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    model = build(nodes, [("x", TensorProto.FLOAT, [4])], [("y", TensorProto.INT64, [1, "n"])])
    session = make_session(model)  # on the CPU, where outputs are bound as well

    def feeds(*values):  # ONNX Runtime works in arrays that it is given on the CPU
        return {"x": np.array(values, np.float32)}

    runner = DeviceRunner(session, feeds(1, 0, 2, 0), [None])
    assert runner.outputs()[0].tolist() == [[0, 2]]
    runner.feed(feeds(1, 3, 2, 0))
    assert runner.outputs()[0].tolist() == [[0, 1, 2]]
    fixed = DeviceRunner(session, feeds(1, 0, 2, 0), [np.zeros((1, 2), np.int64)])
    assert fixed.outputs()[0].tolist() == [[0, 2]]
    fixed.feed(feeds(1, 3, 2, 0))
    with pytest.raises(RuntimeError, match="shape"):
        fixed.outputs()


def test_what_cuda_says_of_a_capture() -> None:
    where = "Error in execution: cuda_call.cc:154 std::conditional_t<THRW> CudaCall(ERRTYPE, const char*) "
    assert cuda_failure(f"{where}CUDA failure 900: operation not\npermitted ; GPU=0 ; hostname=x ; expr=y") == (
        "CUDA failure 900: operation not permitted"
    )
    assert cuda_failure("no words of CUDA's") == "no words of CUDA's"
