#!/usr/bin/env python3
"""What the first runs of a model cost on a GPU: sessions created with an empty and with a full cache of kernels.

    startup.py [--only bert,rec] [--model NAME=FILE] [--json FILE] [--write FILE]
    startup.py --from FILE --write FILE      the same text of figures that --json wrote, here or elsewhere

For BERT-base (exported with random weights) and the text recognizer PP-OCRv4_rec, a process of its own creates a
session and runs it: the original, the optimized model with an empty cache of compiled kernels, and with the one that
this left behind. Then each process runs once with other shapes. Before it takes a time, a process runs a model of one
node, so that opening the GPU and its libraries is not counted. FILE of --model may be a model without its weights
(models/seeded.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from sections import table, write_section

import onnxfuse
from onnxfuse.benchmark.driver import DriverError, driver
from onnxfuse.runtime import fused_nodes, make_session, runtime
from onnxfuse.validate.inputs import make_inputs

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

# The dimensions of the first runs, and of a run afterwards.
MODELS = {
    "bert": ("BERT-base, float16, 8 x 128", {"batch": 8}, {"batch": 3}),
    "rec": ("PP-OCRv4_rec, 8 x 3 x 48 x 320", {"x.0": 8, "x.2": 48, "x.3": 320}, {"x.0": 3, "x.2": 48, "x.3": 500}),
}
SEARCH = {"cudnn_conv_algo_search": "HEURISTIC"}  # trying all algorithms takes each new shape seconds


def original(name: str, given: Mapping[str, Path]) -> onnx.ModelProto:
    from models.fetch import fetch
    from models.seeded import fill

    if name in given:
        return fill(onnx.load(given[name]))
    if name == "rec":
        return onnx.load(fetch("ch_PP-OCRv4_rec_infer"))
    from models.exports import export

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bert.onnx")
        export("bert", file, "dynamo", "newest", "fp16", full=True, batch=8)
        return onnx.load(file)


def timed(call: Any) -> tuple[float, Any]:
    """Milliseconds, and what the call returned."""
    begin = time.perf_counter()
    result = call()
    return 1000 * (time.perf_counter() - begin), result


def measure_session(file: str, shapes: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """What a session of this process takes; the runs with equal shapes are a first and a second one."""
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8]) for n in "xy"]
    node = helper.make_node("Relu", ["x"], ["y"])
    opsets = [helper.make_opsetid("", 17)]
    tiny = helper.make_model(helper.make_graph([node], "g", value[:1], value[1:]), opset_imports=opsets, ir_version=9)
    opened = make_session(tiny, provider="cuda", provider_options=SEARCH)
    opened.run(None, make_inputs(tiny))
    model = onnx.load(file, load_external_data=False)
    feeds = [make_inputs(model, dims) for dims in shapes]
    created, session = timed(lambda: make_session(file, provider="cuda", provider_options=SEARCH))
    runs = [timed(lambda feed=feed: session.run(None, feed))[0] for feed in (feeds[0], *feeds)]
    return {"created": created, "first": runs[0], "second": runs[1], "other": runs[2]}


def in_a_process(file: Path, shapes: Sequence[Mapping[str, int]], cache: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", str(file), json.dumps(shapes)]
    environment = os.environ | {"ONNXFUSE_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    kernels = sum(1 for f in cache.iterdir() if not f.name.startswith(".")) if cache.exists() else 0
    return json.loads(done.stdout.splitlines()[-1]) | {"kernels": kernels}


def measure(name: str, given: Mapping[str, Path], repeats: int) -> dict[str, Any]:
    """Sessions of the model, each the best of `repeats` by the sum of its times."""
    title, *shapes = MODELS[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        plain, fused = folder / "plain.onnx", folder / "fused.onnx"
        model = original(name, given)
        onnx.save(model, plain)
        optimized = onnxfuse.optimize(model, target="cuda")
        optimized.save(fused)
        found: dict[str, list[dict[str, Any]]] = {"plain": [], "cold": [], "warm": []}
        for k in range(repeats):
            cache = folder / f"cache{k}"
            found["plain"].append(in_a_process(plain, shapes, folder / "none"))
            found["cold"].append(in_a_process(fused, shapes, cache))
            found["warm"].append(in_a_process(fused, shapes, cache))
        best = {k: min(v, key=lambda r: r["created"] + r["first"] + r["other"]) for k, v in found.items()}
        nodes = sum(1 for _ in fused_nodes(optimized.model))
    return {"title": title, "nodes": nodes, "other": shapes[1], **best}


def page(data: Mapping[str, Any]) -> str:
    machine = data["machine"]
    rows = []
    for m in data["models"]:
        for key, label in (("plain", "original"), ("cold", "fused, empty cache"), ("warm", "fused, full cache")):
            figures = [f"{m[key][part]:.0f}" for part in ("created", "first", "other", "second")]
            rows.append([m["title"] if key == "plain" else "", label, *figures])
    header = ["ms", "", "session created", "first run", "first run of another shape", "a later run"]
    counts = "; ".join(
        f"{m['title'].split(',')[0]} has {m['nodes']} fused nodes and {m['warm']['kernels']} kernels"
        for m in data["models"]
    )
    other = "; ".join(f"{m['title'].split(',')[0]} {_dims(m['other'])}" for m in data["models"])
    return (
        f"One {machine['gpu']}, {machine['cores']} processor cores, ONNX Runtime {machine['runtime']}. Written by "
        f"`bench/startup.py --write docs/accounts.md`. {counts}, some for shapes that these runs do not bring. The "
        f"other shape: {other}.\n\n{table(header, rows)}"
    )


def _dims(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={extent}" for name, extent in dims.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MODELS), help=f"some of {','.join(MODELS)}")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME=FILE", help="instead of the published or exported model"
    )
    parser.add_argument("--repeats", type=int, default=1, help="of each session; the fastest counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--from", dest="given", type=Path, metavar="FILE", help="take figures of --json")
    parser.add_argument("--write", type=Path, metavar="FILE", help="Markdown file whose section `startup` takes them")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure_session(args.measure[0], json.loads(args.measure[1]))))
        return 0
    wanted = args.only.split(",")
    if unknown := [name for name in wanted if name not in MODELS]:
        parser.error(f"--only takes some of {', '.join(MODELS)}, not {', '.join(unknown)}")
    try:
        if args.given:
            data = json.loads(args.given.read_text(encoding="utf-8"))
        else:
            machine = {"gpu": driver().name, "cores": len(os.sched_getaffinity(0)), "runtime": runtime().__version__}
            given = {name: Path(path) for name, _, path in (text.partition("=") for text in args.model)}
            data = {"machine": machine, "models": [measure(name, given, args.repeats) for name in wanted]}
    except (DriverError, OSError, ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = page(data)
    print(text)
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if args.write:
        write_section(args.write, "startup", text)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # ONNX Runtime's CUDA teardown can abort the process at exit
