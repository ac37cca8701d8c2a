#!/usr/bin/env python3
"""What fusing saves besides time on a GPU: launches, bytes moved, memory; and what the fused kernels take.

    accounts.py [--only chain,bert,rec,piper,broadcast] [--model NAME=FILE] [--seconds S] [--json FILE] [--write FILE]
    accounts.py --from FILE... --write FILE      the same text of figures that --json wrote, here or elsewhere

Prints the price of a launch on this GPU, then for a chain of twelve, BERT-base (exported with random weights), the text
recognizer PP-OCRv4_rec and a Piper voice what one run costs before and after, and at last a case in which fusing more
does not pay, measured against the fusion that was made. FILE of --model may be a model without its weights
(models/seeded.py). Memory is what a run asks of ONNX Runtime's arena at once; bound inputs and outputs lie outside.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from accounts_page import page
from onnx import TensorProto, helper, numpy_helper
from sections import write_section

import onnxfuse
from onnxfuse.benchmark import bench
from onnxfuse.benchmark.driver import DriverError, driver
from onnxfuse.benchmark.launch_cost import measure_launch_cost
from onnxfuse.benchmark.runner import make_runner, plain_outputs
from onnxfuse.cli.bench import show_bench
from onnxfuse.cli.console import line
from onnxfuse.rewrites import cost
from onnxfuse.runtime import PROVIDERS, make_session, runtime
from onnxfuse.validate.inputs import make_inputs

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

Case = tuple[onnx.ModelProto | Path, dict[str, Any]]
PARTS = ("chain", "bert", "rec", "piper", "broadcast")
PUBLISHED = ("rec", "piper")
ROWS, ROW = 65536, 1024


def chain(size: int = 1 << 26) -> Case:
    """Add, Relu, Mul, four times over, on 64 Mi numbers."""
    nodes, name = [], "x"
    for i in range(12):
        inputs = [name] if i % 3 == 1 else [name, ("tenth", "", "share")[i % 3]]
        nodes.append(helper.make_node(("Add", "Relu", "Mul")[i % 3], inputs, ["y" if i == 11 else f"v{i}"]))
        name = nodes[-1].output[0]
    return graph(nodes, {"x": [size]}, [size], {"tenth": np.float32(0.1), "share": np.float32(0.9)}), {}


def graph(nodes: list[Any], inputs: dict[str, list[int]], output: list[int], constants: dict[str, Any]) -> Any:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)]
    weights = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(helper.make_graph(nodes, "g", values, result, weights), opset_imports=opsets, ir_version=9)


def bert(folder: Path) -> Case:
    from models.exports import export

    export("bert", folder / "bert.onnx", "dynamo", "newest", "fp16", full=True, batch=8)
    return folder / "bert.onnx", {"dims": {"batch": 8}}


def published(name: str, given: Path | None, options: dict[str, Any]) -> Case:
    from models.fetch import fetch
    from models.seeded import fill

    return (fill(onnx.load(given)) if given else fetch(name)), options


def cases(given: dict[str, Path], folder: Path) -> dict[str, tuple[str, Callable[[], Case]]]:
    ids = np.random.default_rng(0).integers(0, 130, (1, 40))
    voice = {"input": ids, "input_lengths": np.array([40]), "scales": np.array([0, 1, 0], np.float32)}
    page = {"dims": {"x.0": 8, "x.2": 48, "x.3": 320}}
    return {
        "chain": ("chain of 12, 64 Mi float32", chain),
        "bert": ("BERT-base, float16, 8 x 128", lambda: bert(folder)),
        "rec": ("PP-OCRv4_rec, 8 x 3 x 48 x 320", lambda: published("ch_PP-OCRv4_rec_infer", given.get("rec"), page)),
        "piper": (
            "Piper voice, 40 phonemes",
            lambda: published("en_US-joe-medium", given.get("piper"), {"inputs": voice}),
        ),
    }


def account_of(title: str, model: onnx.ModelProto | Path, options: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a run of the model costs before and after, as `accounts_page` takes it."""
    optimized = onnxfuse.optimize(model, target="cuda").with_weights()
    search = {"cudnn_conv_algo_search": "HEURISTIC"}  # trying all takes each session seconds
    result = bench(model, optimized, provider="cuda", seconds=seconds, provider_options=search, **options)
    line(f"== {title}", "bold")
    show_bench(result)
    figures = result.cases[0].original, result.cases[0].optimized
    accounts = [f.account for f in figures if f.account is not None]
    launches, note = [a.launches for a in accounts], " ".join(dict.fromkeys(a.note for a in accounts if a.note))
    if None in launches:
        launches, how = _profiled((model, optimized), search, options)
        note = f"{note}; {how}" if note else how
    return {
        "title": title,
        "nodes": [a.nodes for a in accounts],
        "launches": launches,
        "bytes": [a.bytes_moved for a in accounts],
        "memory": [a.peak_memory for a in accounts],
        "latency": [f.latency.median for f in figures],
        "kernels": [{"launches": n, **asdict(k)} for n, k in accounts[1].fused_kernels],
        "note": note,
    }


def _profiled(
    models: Sequence[onnx.ModelProto | Path], search: dict[str, str], options: dict[str, Any]
) -> tuple[list[int | None], str]:
    """The launches of models that cannot be captured, as torch.profiler sees them; and how they were counted."""
    if importlib.util.find_spec("torch") is None:
        return [None] * len(models), "there is no PyTorch here whose profiler would count them"
    from networks import RUNS, profile_of

    counts: list[int | None] = []
    proto = models[0] if isinstance(models[0], onnx.ModelProto) else onnx.load(models[0])
    feeds = make_inputs(proto, options.get("dims"), options.get("inputs"))
    for model in models:
        session = make_session(model, provider="cuda", provider_options=search)
        name = PROVIDERS["cuda"]
        runner = make_runner(session, feeds, name, plain_outputs(model, feeds, name, search))
        counts.append(round(profile_of(runner).launches))
    return counts, f"counted by torch.profiler, on average over {RUNS} runs"


@contextmanager
def repeated_work(limit: int) -> Iterator[None]:
    """The cost model with another limit for work that a broadcast repeats."""
    before, cost.REPEATED_WORK = cost.REPEATED_WORK, limit
    try:
        yield
    finally:
        cost.REPEATED_WORK = before


def too_much(seconds: float) -> dict[str, Any]:
    """A scale of each column takes costly functions: a kernel that computes it for each row as well repeats them."""
    kinds = ("Exp", "Sin", "Tanh", "Erf", "Cos", "Tanh", "Sin", "Exp", "Erf", "Cos", "Tanh", "Sin")
    nodes = [helper.make_node(k, [f"s{i}"], [f"s{i + 1}"]) for i, k in enumerate(kinds)]
    nodes += [helper.make_node("Mul", ["x", f"s{len(kinds)}"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    model = graph(nodes, {"x": [ROWS, ROW], "s0": [ROW]}, [ROWS, ROW], {})
    made = onnxfuse.optimize(model).model
    with repeated_work(10**9):
        forced = onnxfuse.optimize(model).model
    case = bench(forced, made, provider="cuda", seconds=seconds, accounts=False).cases[0]
    return {
        "functions": len(kinds),
        "row": ROW,
        "rows": ROWS,
        "kernels": [sum(n.domain == "onnxfuse" for n in m.graph.node) for m in (forced, made)],
        "latency": [case.original.latency.median, case.optimized.latency.median],
        "verdict": case.verdict,
        "ratio": case.ratio.value,
    }


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """All figures that were asked for, and how many could not be had."""
    gpu = driver()
    major, minor = divmod(gpu.cuda_version // 10, 100)
    machine = {"gpu": gpu.name, "multiprocessors": gpu.multiprocessors, "cuda": f"{major}.{minor}"}
    data: dict[str, Any] = {"machine": machine | {"runtime": runtime().__version__}}
    data |= {"launch": asdict(measure_launch_cost()), "models": [], "broadcast": None}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (title, make) in cases(dict(args.model), Path(folder)).items():
            if name not in args.only:
                continue
            try:
                model, options = make()
                data["models"].append(account_of(title, model, options, args.seconds))
            except Exception:  # the others still count
                traceback.print_exc()
                failed += 1
    if "broadcast" in args.only:
        try:
            data["broadcast"] = too_much(args.seconds)
        except Exception:
            traceback.print_exc()
            failed += 1
    return data, failed


def merged(files: Sequence[Path]) -> dict[str, Any]:
    """What several runs on one machine measured, the later ones in place of the earlier ones."""
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    models = {m["title"]: m for run in runs for m in run["models"]}
    data = {"machine": runs[-1]["machine"], "models": list(models.values())}
    for part in ("launch", "broadcast"):
        data[part] = next((run[part] for run in reversed(runs) if run.get(part)), None)
    return data


def parts(text: str) -> list[str]:
    """What `--only` names."""
    wanted = [part for part in text.split(",") if part]
    unknown = [part for part in wanted if part not in PARTS]
    if unknown or not wanted:
        raise argparse.ArgumentTypeError(f"{text!r}: takes some of {', '.join(PARTS)}, separated by commas")
    return wanted


def given_model(text: str) -> tuple[str, Path]:
    """What `--model` names."""
    name, _, path = text.partition("=")
    if name not in PUBLISHED or not path:
        raise argparse.ArgumentTypeError(f"{text!r}: takes NAME=FILE, and NAME is one of {', '.join(PUBLISHED)}")
    return name, Path(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=parts, default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--model",
        type=given_model,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help=f"instead of a published model: NAME is one of {','.join(PUBLISHED)}",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="to measure each model for")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument(
        "--from", dest="given", type=Path, nargs="+", metavar="FILE", help="take figures of --json; measure nothing"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="Markdown file whose section `accounts` takes them")
    args = parser.parse_args()
    failed = 0
    try:
        if args.given:
            data = merged(args.given)
        else:
            data, failed = measure(args)
    except (DriverError, OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = page(data, "bench/accounts.py --write docs/accounts.md")
    print(text)
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if args.write:
        write_section(args.write, "accounts", text)
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # ONNX Runtime's CUDA teardown can abort the process at exit
