"""The whole path on a published model: fetch, optimize, run, validate, time.

    demo.py [--batch N] [--width N] [--seconds S] [--threads N]

The model is the text recognizer PP-OCRv4_rec of the Python package rapidocr-onnxruntime. Everything is written to the
folder demo/ of the repository. Exits with 1 where the optimized model does not compute what the original does.
"""

from __future__ import annotations

import argparse
import platform
import sys
from pathlib import Path

import onnxruntime

import onnxfuse
from onnxfuse.cli.console import line
from onnxfuse.cli.show import show_report
from onnxfuse.cli.validation import show_validation
from onnxfuse.files import load_model
from onnxfuse.measure import Latency, compare_latency
from onnxfuse.runtime import make_session
from onnxfuse.validate import make_inputs, validate

ROOT = Path(__file__).resolve().parent.parent
MODEL = "ch_PP-OCRv4_rec_infer"
HEIGHT = 48  # of the images that the model takes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1, help="images at once")
    parser.add_argument("--width", type=int, default=320, help="width of the images")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for the latency measurement")
    parser.add_argument("--threads", type=int, help="threads of ONNX Runtime (its own choice by default)")
    return parser.parse_args()


def fetch_model() -> Path:
    """The model's file; `models` is no part of the package, and lies in the tree."""
    sys.path.append(str(ROOT))  # at the end: onnxfuse is to be the installed one, which has the library
    from models.fetch import fetch

    return fetch(MODEL)


def shown(latency: Latency) -> str:
    return f"median {latency.median:8.2f} ms   p90 {latency.p90:8.2f} ms   ({latency.runs} runs)"


def main() -> int:
    args = arguments()
    folder = ROOT / "demo"
    folder.mkdir(exist_ok=True)
    original, fused = fetch_model(), folder / f"{MODEL}.fused.onnx"
    line(f"== {original.name} with onnxruntime {onnxruntime.__version__} on {platform.machine()}", "bold")

    line()
    line(f"== onnxfuse optimize {original.name} {fused.name} --target cpu", "bold")
    result = onnxfuse.optimize(original, target="cpu")
    result.save(fused)
    show_report(result.report, verbose=False)

    line()
    line(f"== onnxfuse validate {original.name} {fused.name}", "bold")
    dims = {"x.0": args.batch, "x.2": HEIGHT, "x.3": args.width}
    validation = validate(original, fused, dims=dims, seeds=3)
    show_validation(validation)

    line()
    line("== latency, both in turn", "bold")
    before, after = (make_session(path, threads=args.threads) for path in (original, fused))
    feeds = make_inputs(load_model(original).proto, dims)
    times = compare_latency(lambda: before.run(None, feeds), lambda: after.run(None, feeds), seconds=args.seconds)
    line(f"before {shown(times.a)}")
    line(f"after  {shown(times.b)}")
    line(f"{times.speedup:.2f} times as fast", "bold")
    return 0 if validation.ok else 1


if __name__ == "__main__":
    sys.exit(main())
