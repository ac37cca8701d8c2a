#!/usr/bin/env python3
"""What fusing saves besides time on a GPU: launches, bytes moved, memory; and what the fused kernels take.

    accounts.py [--only chain,bert,rec,piper,broadcast] [--model NAME=FILE] [--markdown FILE] [--seconds S]

Prints the price of a launch on this GPU, then for a chain of twelve, BERT-base (exported with random weights), the text
recognizer PP-OCRv4_rec and a Piper voice what one run costs before and after, and at last a case in which fusing more
does not pay, measured against the fusion that was made. FILE may be a model without its weights (models/seeded.py).
Memory is what a run asks of ONNX Runtime's arena at once; bound inputs and outputs lie outside of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxfuse
from onnxfuse.benchmark import BenchResult, bench
from onnxfuse.benchmark.driver import DriverError, driver
from onnxfuse.benchmark.launch_cost import measure_launch_cost
from onnxfuse.cli.bench import show_bench
from onnxfuse.cli.console import human_bytes, line
from onnxfuse.rewrites import cost
from onnxfuse.runtime import runtime

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

Case = tuple[onnx.ModelProto | Path, dict[str, Any]]
SHOWN_KERNELS = 8


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


def published(name: str, given: dict[str, Path], options: dict[str, Any]) -> Case:
    from models.fetch import fetch
    from models.seeded import fill

    return (fill(onnx.load(given[name])) if name in given else fetch(name)), options


def cases(given: dict[str, Path], folder: Path) -> dict[str, tuple[str, Callable[[], Case]]]:
    ids = np.random.default_rng(0).integers(0, 130, (1, 40))
    voice = {"input": ids, "input_lengths": np.array([40]), "scales": np.array([0, 1, 0], np.float32)}
    page = {"dims": {"x.0": 8, "x.2": 48, "x.3": 320}}
    return {
        "chain": ("chain of 12, 64 Mi float32", chain),
        "bert": ("BERT-base, float16, 8 x 128", lambda: bert(folder)),
        "rec": ("PP-OCRv4_rec, 8 x 3 x 48 x 320", lambda: published("ch_PP-OCRv4_rec_infer", given, page)),
        "piper": ("Piper voice, 40 phonemes", lambda: published("en_US-joe-medium", given, {"inputs": voice})),
    }


def row(title: str, result: BenchResult) -> str:
    case = result.cases[0]
    a, b = case.original.account, case.optimized.account
    if a is None or b is None:
        return f"| {title} | not counted |"
    pairs = (
        (a.nodes, b.nodes, str),
        (a.launches, b.launches, lambda n: "-" if n is None else str(n)),
        (a.bytes_moved, b.bytes_moved, human_bytes),
        (a.peak_memory, b.peak_memory, human_bytes),
    )
    cells = [f"{shown(x)} / {shown(y)}" for x, y, shown in pairs]  # type: ignore[operator]
    less = "-" if not a.peak_memory or b.peak_memory is None else f"{100 * (1 - b.peak_memory / a.peak_memory):.0f} %"
    latency = f"{case.original.latency.median:.3f} / {case.optimized.latency.median:.3f}"
    return f"| {title} | {' | '.join(cells)} | {less} | {latency} |"


def kernel_rows(title: str, result: BenchResult) -> Iterator[str]:
    account = result.cases[0].optimized.account
    for count, k in (account.fused_kernels if account else ())[:SHOWN_KERNELS]:
        sizes = ["x".join(str(n) for n in part).removesuffix("x1").removesuffix("x1") for part in (k.grid, k.block)]
        figures = (*sizes, k.registers, human_bytes(k.shared), k.local, f"{100 * k.occupancy:.0f} %")
        yield f"| {title} | {count} | {' | '.join(map(str, figures))} |"


@contextmanager
def repeated_work(limit: int) -> Iterator[None]:
    """The cost model with another limit for work that a broadcast repeats."""
    before, cost.REPEATED_WORK = cost.REPEATED_WORK, limit
    try:
        yield
    finally:
        cost.REPEATED_WORK = before


def too_much(seconds: float) -> str:
    """A scale of each column takes costly functions: a kernel that computes it for each row as well repeats them."""
    kinds = ("Exp", "Sin", "Tanh", "Erf", "Cos", "Tanh", "Sin", "Exp", "Erf", "Cos", "Tanh", "Sin")
    nodes = [helper.make_node(k, [f"s{i}"], [f"s{i + 1}"]) for i, k in enumerate(kinds)]
    nodes += [helper.make_node("Mul", ["x", f"s{len(kinds)}"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    model = graph(nodes, {"x": [65536, 1024], "s0": [1024]}, [65536, 1024], {})
    made = onnxfuse.optimize(model).model
    with repeated_work(10**9):
        forced = onnxfuse.optimize(model).model
    counts = [sum(n.domain == "onnxfuse" for n in m.graph.node) for m in (made, forced)]
    result = bench(forced, made, provider="cuda", seconds=seconds, accounts=False)
    case = result.cases[0]
    before, after = case.original.latency.median, case.optimized.latency.median
    return (
        f"{len(kinds)} costly functions of a row of 1024, multiplied into 65536 rows: fused into {counts[1]} kernel, "
        f"which computes them for every row, it takes {before:.3f} ms; onnxfuse makes {counts[0]}, and it takes "
        f"{after:.3f} ms ({case.verdict}, {case.ratio.value:.2f} times as fast)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of the names of what to account for")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=FILE", help="instead of a published model"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument("--seconds", type=float, default=2.0, help="to measure each model for")
    args = parser.parse_args()
    given = {name: Path(path) for name, _, path in (text.partition("=") for text in args.model)}
    try:
        price, gpu = measure_launch_cost(), driver()
    except DriverError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = [
        f"One {gpu.name}, {gpu.multiprocessors} multiprocessors, ONNX Runtime {runtime().__version__}; before / after:",
        "",
        "| model | nodes run | kernel launches | bytes moved | peak memory of a run | less | latency, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    kernels, failed = [], 0
    wanted = [part for part in args.only.split(",") if part]
    with tempfile.TemporaryDirectory() as folder:
        for name, (title, make) in cases(given, Path(folder)).items():
            if wanted and name not in wanted:
                continue
            try:
                model, options = make()
                search = {"cudnn_conv_algo_search": "HEURISTIC"}  # trying all takes each session seconds
                result = bench(model, provider="cuda", seconds=args.seconds, provider_options=search, **options)
            except Exception as error:  # the others still count
                traceback.print_exc()
                failed += 1
                text.append(f"| {title} | failed: {error} |")
                continue
            line(f"== {title}", "bold")
            show_bench(result)
            text.append(row(title, result))
            kernels += kernel_rows(title, result)
    launch = (
        f"An empty kernel takes {price.host:.2f} us of the host to launch, and {price.device:.2f} us of the GPU when "
        f"many are queued. Replaying a CUDA graph of one takes {price.graph_host:.2f} us of the host, and each kernel "
        f"of a graph of a hundred {price.graph_device:.2f} us of the GPU."
    )
    text += [
        "",
        launch,
        "",
        "| model | launches | blocks | threads | registers | shared memory | spilled, bytes | occupancy |",
        "|---|---|---|---|---|---|---|---|",
        *kernels,
    ]
    if not wanted or "broadcast" in wanted:
        try:
            text += ["", "Fusing more does not always pay: " + too_much(args.seconds) + "."]
        except Exception:
            traceback.print_exc()
            failed += 1
    print("\n".join(text))
    if args.markdown:
        args.markdown.write_text("\n".join(text) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
