"""Tuning: its search on machines that are made up, whose noise and costs are known, and the whole on a real one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from test_cli import folder, gate, invoke  # noqa: F401 (a fixture)
from test_validate import build
from test_validate_search import node

import onnxfuse
from onnxfuse import Tune
from onnxfuse.errors import OnnxfuseError
from onnxfuse.measure import Interval
from onnxfuse.runtime import fused_nodes
from onnxfuse.tuning.rig import Rig

FLOAT = TensorProto.FLOAT
PAIRS = (("Exp", "Neg"), ("Abs", "Tanh"), ("Sin", "Cos"), ("Neg", "Exp"), ("Tanh", "Abs"))


def chains():
    """Five chains of different programs with a matrix product between them, then a softmax."""
    nodes, name = [], "x"
    for i, (first, second) in enumerate(PAIRS):
        nodes += [node(first, name, f"a{i}"), node(second, f"a{i}", f"b{i}"), node("MatMul", f"b{i} w", f"c{i}")]
        name = f"c{i}"
    nodes += [node("Exp", name, "e"), node("ReduceSum", "e axis", "s"), node("Div", "e s", "y")]
    constants = {"w": np.eye(8, dtype=np.float32), "axis": np.array([-1])}
    return build(nodes, [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])], constants)


class Machine:
    """Takes a known time for each fused node, and a moment for each other."""

    def __init__(self, costs, default=1.0, noise=1.02, limit=10**9):
        self.costs, self.default, self.noise, self.limit = costs, default, noise, limit
        self.asked = 0
        self.seconds = self.passed = 1.0

    @property
    def over(self):
        return self.asked >= self.limit

    def runner(self, model):
        model = onnx.load(model) if not isinstance(model, onnx.ModelProto) else model
        time = 100.0
        for n in model.graph.node:
            if n.domain == "onnxfuse":
                time += self.costs.get(n.output[0], self.default)
            elif n.op_type not in ("MatMul", "Constant"):
                time += 2.0
        return time

    def compare(self, calls):
        self.asked += 1
        return [Interval(calls[0] / t, 0.999 * calls[0] / t, 1.001 * calls[0] / t) for t in calls[1:]]

    def measure_noise(self, model):
        pass


@pytest.fixture
def machine(monkeypatch):
    def use(costs, **options):
        found = Machine(costs, **options)
        monkeypatch.setattr(Rig, "around", classmethod(lambda *_: found))
        return found

    return use


def tuned(**options):
    return onnxfuse.optimize(chains(), target="cpu", tune=Tune(**options))


def regions(result):
    return {f.outputs[0] for f in result.report.fusions}


ALL = {"b0", "b1", "b2", "b3", "b4", "y"}


def test_where_all_pays_nothing_is_dropped(machine):
    machine({})
    result = tuned()
    assert regions(result) == ALL
    assert result.tuning.dropped == ()
    assert result.tuning.finished
    assert result.tuning.tuned.value > 1


def test_a_kind_that_does_not_pay_is_dropped_as_a_whole(machine):
    machine({"y": 50.0})
    result = tuned()
    assert regions(result) == ALL - {"y"}
    assert result.tuning.dropped == ("y",)
    (reason,) = {r.reason for r in result.report.refusals if r.node in ("make_e", "make_s", "make_y")}
    assert "measured: without it the model is" in reason


@pytest.mark.parametrize("bad", [{"b0"}, {"b3"}, {"b1", "b4"}, {"b0", "b1", "b2", "b3", "b4"}, {"b2", "y"}])
def test_the_regions_that_do_not_pay_are_found_within_their_kind(machine, bad):
    machine(dict.fromkeys(bad, 20.0))
    result = tuned()
    assert set(result.tuning.dropped) == bad
    assert regions(result) == ALL - bad


def test_what_pays_is_put_back_where_its_kind_was_dropped(machine):
    machine({"b0": 50.0, "b1": -5.0, "b2": -5.0, "b3": -5.0, "b4": -5.0})
    assert tuned().tuning.dropped == ("b0",)


def test_what_noise_explains_is_kept(machine):
    machine({"b0": 20.0}, noise=1.5)
    assert tuned().tuning.dropped == ()


def test_a_model_that_stays_slower_than_the_original_is_not_fused(machine):
    """Each kind costs less than noise explains, both together cost more."""
    machine({"y": 30.0}, default=8.8, noise=1.2)
    result = tuned()
    assert regions(result) == set()
    assert set(result.tuning.dropped) == ALL
    assert not list(fused_nodes(result.model))


def test_the_search_stops_when_time_is_up(machine):
    found = machine({"b3": 10.0}, limit=3)
    result = tuned()
    assert not result.tuning.finished
    assert regions(result) == ALL
    assert found.asked <= 5


def test_equal_programs_are_one_question(machine):
    nodes, name = [], "x"
    for i in range(4):
        nodes += [node("Exp", name, f"a{i}"), node("Neg", f"a{i}", f"b{i}"), node("MatMul", f"b{i} w", f"c{i}")]
        name = f"c{i}"
    model = build(nodes, [("x", FLOAT, [4, 8])], [(name, FLOAT, [4, 8])], {"w": np.eye(8, dtype=np.float32)})
    machine({f"b{i}": 20.0 for i in range(4)})
    result = onnxfuse.optimize(model, target="cpu", tune=Tune())
    assert result.tuning.dropped == ("b0", "b1", "b2", "b3")
    assert len(result.tuning.decisions) == 1


def test_equal_decisions_make_equal_models(machine):
    machine({"b1": 20.0, "y": 30.0})
    result = tuned()
    again = onnxfuse.optimize(chains(), target="cpu", drop=result.tuning.dropped)
    assert again.model.SerializeToString(deterministic=True) == result.model.SerializeToString(deterministic=True)
    assert tuned().model.SerializeToString(deterministic=True) == result.model.SerializeToString(deterministic=True)


def test_drop_leaves_out_a_region_with_its_reason():
    result = onnxfuse.optimize(chains(), target="cpu", drop={"b1": "it is in the way"})
    assert regions(result) == ALL - {"b1"}
    assert {r.node for r in result.report.refusals if r.reason == "it is in the way"} == {"make_a1", "make_b1"}


def test_drop_names_what_no_region_writes():
    with pytest.raises(OnnxfuseError, match="'nix', which no fused node writes first"):
        onnxfuse.optimize(chains(), target="cpu", drop=["b1", "nix"])


def test_on_a_real_machine(folder):  # noqa: F811
    told = []
    plan = Tune(dims={"n": (1, 3)}, threads=1, seconds=0.5, progress=lambda *x: told.append(x))
    result = onnxfuse.optimize("model.onnx", target="cpu", tune=plan)
    assert result.tuning.decisions
    assert result.tuning.noise >= 1
    assert told[0] == ("measuring noise", 0.0)
    assert all(0 <= share <= 1 for _, share in told)


def test_the_command_tunes(folder):  # noqa: F811
    result = invoke(
        "optimize", "model.onnx", "out.onnx", "--target", "cpu", "--tune", "--tune-seconds", "0.3", "--dim", "n=2"
    )
    assert result.exit_code == 0, result.output
    assert "against the original:" in result.stdout
    assert invoke("validate", "model.onnx", "out.onnx").exit_code == 0


def test_the_command_drops(folder):  # noqa: F811
    result = invoke("optimize", "model.onnx", "out.onnx", "--target", "cpu", "--drop", "d")
    assert result.exit_code == 0, result.output
    assert "switched off (drop)" in result.stdout


@pytest.mark.parametrize("options", [["--dim", "n=2"], ["--threads", "1"]])
def test_what_only_tuning_takes_is_refused_without_it(folder, options):  # noqa: F811
    result = invoke("optimize", "model.onnx", "out.onnx", *options)
    assert result.exit_code == 2
    assert "--tune" in result.stderr


def test_no_time_is_refused():
    with pytest.raises(OnnxfuseError, match="more than 0 seconds"):
        onnxfuse.optimize(gate(), target="cpu", tune=Tune(seconds=0))
