"""`bench`: is the optimized model faster here, by how much, and is that more than noise?"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxfuse.benchmark.account import Account, take_account
from onnxfuse.benchmark.driver import DriverError, driver
from onnxfuse.benchmark.launch_cost import LaunchCost, measure_launch_cost
from onnxfuse.benchmark.result import BenchCase, BenchResult, Figures, GraphCheck
from onnxfuse.benchmark.runner import NO_GRAPH, DeviceRunner, Runner, make_runner, plain_outputs
from onnxfuse.errors import ModelError, OnnxfuseError
from onnxfuse.external_data import external_tensors
from onnxfuse.files import load_model, save_model
from onnxfuse.measure import in_turn, paired_ratio, summarize
from onnxfuse.optimizer import optimize
from onnxfuse.runtime import PROVIDERS, make_session, provider_name, runtime
from onnxfuse.validate.inputs import Dims, combinations, free_dimensions, input_specs, load_npz, make_inputs

__all__ = ["bench"]

ModelLike = str | os.PathLike[str] | onnx.ModelProto
Progress = Callable[[str, float], object]

_BURST_SECONDS = 0.2  # of runs back to back, for the throughput
# The threads of a session that has just run wait for more work in a loop: they must not disturb the next one's run.
_CONFIG = {"session.force_spinning_stop": "1"}
_REPLAYS = 3  # sets of new data for each CUDA graph


@dataclass
class _Candidate:
    """One of the models that are measured, with its session."""

    model: ModelLike
    role: str
    session: Any = None
    creation: float = 0.0

    @property
    def label(self) -> str:
        return f"the {self.role} model" if isinstance(self.model, onnx.ModelProto) else os.fspath(self.model)


@dataclass(frozen=True)
class _How:
    """How to measure: the arguments of `bench` that hold for all models and cases; the provider by its full name."""

    provider: str
    threads: int | None
    options: dict[str, str]
    cuda_graph: bool
    seconds: float
    seed: int
    accounts: bool
    tell: Progress


def bench(
    original: ModelLike,
    optimized: ModelLike | None = None,
    *,
    provider: str = "cpu",
    dims: Dims | None = None,
    inputs: Mapping[str, np.ndarray] | str | os.PathLike[str] | None = None,
    threads: int | None = None,
    cuda_graph: bool = False,
    provider_options: Mapping[str, str] | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    noise: bool = True,
    accounts: bool = True,
    progress: Progress | None = None,
) -> BenchResult:
    """Runs both models in turn, in one process, and compares their latency.

    In each round every session runs once; the order changes from round to round. A second session of the original takes
    part as well: what it differs by from the first is noise, and a difference between the models counts only beyond it.

    Args:
        original: A path or a model in memory.
        optimized: Another with the same inputs; by default what `optimize` makes of the original for this provider.
        provider: An execution provider, or "cpu" or "cuda". On CUDA inputs and outputs lie in the GPU's memory.
        dims: Extents of free dimensions, by name or as `input.axis`; 2 where not given. Of several for one, each
            combination is measured.
        inputs: Arrays to use, by input name, or an .npz file of them; other inputs are made up.
        threads: Threads inside an operator; None leaves the number to ONNX Runtime.
        cuda_graph: Run both models on captured CUDA graphs, one for each case, and check what replays compute.
        provider_options: Options of the execution provider, for both models.
        seconds: Time to measure each case for.
        seed: Of the random inputs.
        noise: Measure the second session of the original.
        accounts: Count nodes, bytes, memory and launches.
        progress: Called with what is being done and the share of it that is done.

    Raises:
        MissingRuntimeError: ONNX Runtime is not installed.
        ModelError: ONNX Runtime cannot load or run one of the models, or cannot capture it.
        OnnxfuseError: The dims, inputs, seconds or threads do not fit.
    """
    _check(provider, seconds, threads, cuda_graph)
    shapes = combinations(dims)
    name = provider_name(provider)
    tell = progress or (lambda *_: None)
    if optimized is None:
        tell("optimizing", 0.0)
        target = "cuda" if name == PROVIDERS["cuda"] else "cpu"
        optimized = optimize(original, target=target).with_weights()
    proto = original if isinstance(original, onnx.ModelProto) else load_model(original).proto
    given = load_npz(inputs) if isinstance(inputs, (str, os.PathLike)) else dict(inputs or {})
    feeds = [make_inputs(proto, shape, given, seed) for shape in shapes]
    models = [_Candidate(original, "original"), _Candidate(optimized, "optimized")]
    models += [_Candidate(original, "original")] if noise else []
    how = _How(name, threads, dict(provider_options or {}), cuda_graph, seconds, seed, accounts, tell)
    _start_provider(name)
    session_ms = _create(models, how)
    cases = [
        _case(models, proto, how, shape, data, number)
        for number, (shape, data) in enumerate(zip(shapes, feeds, strict=True))
    ]
    return BenchResult(
        original=models[0].label,
        optimized=models[1].label,
        provider=name,
        device=_device(name),
        runtime=runtime().__version__,
        threads=threads,
        cuda_graph=cuda_graph,
        session_ms=session_ms,
        cases=tuple(cases),
        launch_cost=_launch_cost() if accounts and name == PROVIDERS["cuda"] else None,
    )


def _check(provider: str, seconds: float, threads: int | None, cuda_graph: bool) -> None:
    if not seconds > 0:
        raise OnnxfuseError(f"the time to measure must be more than 0 seconds, not {seconds}")
    if threads is not None and threads < 1:
        raise OnnxfuseError(f"threads must be at least 1, not {threads}")
    if cuda_graph and PROVIDERS.get(provider.lower(), provider) != PROVIDERS["cuda"]:
        raise OnnxfuseError("CUDA graphs need the CUDA provider (--provider cuda)")


def _start_provider(name: str) -> None:
    """Makes and drops a small session, so that no model's creation pays for the start of the provider."""
    value = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "start", value[:1], value[1:])
    opset = onnx.helper.make_opsetid("", 13)
    make_session(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), provider=name)


def _create(models: Sequence[_Candidate], how: _How) -> dict[str, tuple[float, float]]:
    """Sessions for all models; for the two roles the milliseconds of the first creation and of a second one."""
    options = how.options | ({"enable_cuda_graph": "1"} if how.cuda_graph else {})

    def timed(model: _Candidate, file: ModelLike) -> tuple[Any, float]:
        start = time.perf_counter()
        session = make_session(
            file, provider=how.provider, threads=how.threads, provider_options=options, config=_CONFIG
        )
        return session, (time.perf_counter() - start) * 1e3

    with tempfile.TemporaryDirectory() as folder:  # all from files: a model in memory would be copied first
        files: dict[int, ModelLike] = {}
        for done, model in enumerate(models):
            how.tell("creating sessions", done / (len(models) + 1))
            if id(model.model) not in files:
                files[id(model.model)] = _file(model.model, Path(folder, f"{done}.onnx"))
            file = files[id(model.model)]
            try:
                model.session, model.creation = timed(model, file)
            except ModelError as error:
                reason = str(error).replace(os.fspath(file), model.label) if file is not model.model else str(error)
                raise ModelError(reason if model.label in reason else f"{model.label}: {reason}") from error
        again = {model.role: timed(model, files[id(model.model)])[1] for model in models[:2]}
    return {model.role: (model.creation, again[model.role]) for model in models[:2]}


def _file(model: ModelLike, path: Path) -> ModelLike:
    if isinstance(model, onnx.ModelProto) and next(external_tensors(model), None) is None:
        save_model(model, path)
        return path
    return model


def _case(
    models: Sequence[_Candidate],
    proto: onnx.ModelProto,
    how: _How,
    dims: dict[str, int],
    feeds: dict[str, np.ndarray],
    number: int,
) -> BenchCase:
    outputs = plain_outputs(models[0].model, feeds, how.provider, how.options)
    runners: list[Runner] = []
    first_runs = []
    for model in models:
        graph = number if how.cuda_graph else NO_GRAPH
        runner = make_runner(model.session, feeds, how.provider, outputs, graph)
        start = time.perf_counter()
        try:
            runner()
        except Exception as error:
            where = " on a CUDA graph (`onnxfuse explain` says what prevents it)" if how.cuda_graph else ""
            raise ModelError(f"{model.label} does not run{where}: {error}") from error
        first_runs.append((time.perf_counter() - start) * 1e3)
        runners.append(runner)
    checks = [_check_graph(models[1], runners[1], proto, feeds, how, number)] if how.cuda_graph else []
    times = in_turn(runners, warmup=5, seconds=how.seconds, tick=lambda done: how.tell("measuring", done))
    figures = []
    for model, runner, first, series in zip(models[:2], runners, first_runs, times, strict=False):
        how.tell("counting", 0.0)
        account: Account | None = None
        if how.accounts:
            account = take_account(model.model, feeds, how.provider, outputs, how.threads, how.options)
        latency = summarize(series)
        figures.append(Figures(latency, _throughput(runner, latency.median), first, account))
    return BenchCase(
        dims=dims,
        inputs=tuple((n, v.dtype.name, v.shape) for n, v in feeds.items()),
        original=figures[0],
        optimized=figures[1],
        ratio=paired_ratio(times[0], times[1]),
        noise=paired_ratio(times[0], times[2]) if len(times) > 2 else None,
        graphs=tuple(checks),
    )


def _throughput(runner: Runner, median: float) -> float:
    """Runs a second of a burst, the better of two."""
    runs = max(3, min(2000, round(_BURST_SECONDS * 1e3 / median)))
    fastest = np.inf
    for _ in range(2):
        start = time.perf_counter()
        runner.burst(runs)
        fastest = min(fastest, time.perf_counter() - start)
    return runs / float(fastest)


def _check_graph(
    model: _Candidate, runner: Runner, proto: onnx.ModelProto, feeds: dict[str, np.ndarray], how: _How, graph: int
) -> GraphCheck:
    """Puts new data into the buffers of the captured graph and compares the replay with a plain run."""
    assert isinstance(runner, DeviceRunner)
    session = make_session(model.model, provider=how.provider, provider_options=how.options)
    plain = DeviceRunner(session, feeds, runner.outputs())
    equal, apart = True, 0.0
    for repeat in range(1, _REPLAYS + 1):
        dims = {f"{n}.{axis}": extent for n, v in feeds.items() for axis, extent in enumerate(v.shape)}
        fresh = _fresh(proto, feeds, dims, how.seed + 1000 * repeat)
        for each in (runner, plain):
            each.feed(fresh)
        for got, expected in zip(runner.outputs(), plain.outputs(), strict=True):
            equal &= got.tobytes() == expected.tobytes()
            if got.dtype.kind not in "SUO" and got.size:
                with np.errstate(invalid="ignore"):
                    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
                apart = max(apart, float(np.nanmax(difference, initial=0.0)))
    for each in (runner, plain):
        each.feed(feeds)
    return GraphCheck(graph, _REPLAYS, equal, apart)


def _fresh(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], places: Mapping[str, int], seed: int
) -> dict[str, np.ndarray]:
    """New data of the same shapes."""
    specs = input_specs(proto)
    free = set(free_dimensions(specs))
    dims: dict[str, int] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.dims or ()):
            if isinstance(dim, str) and dim in free:
                dims[dim] = places[f"{spec.name}.{axis}"]
    unknown = {s.name: feeds[s.name] for s in specs if s.dims is None}
    return make_inputs(proto, dims, unknown, seed)


def _launch_cost() -> LaunchCost | None:
    try:
        return measure_launch_cost()
    except DriverError:
        return None


def _device(name: str) -> str:
    if name == PROVIDERS["cuda"]:
        try:
            return driver().name
        except DriverError:
            return "CUDA device"
    return f"{_processor()}, {os.cpu_count()} logical cores"


def _processor() -> str:
    try:
        for text in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
