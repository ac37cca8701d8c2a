"""Fuzzes the program parser, verifier and engines with libFuzzer: python scripts/fuzz_programs.py TARGET --seconds N.

TARGET is the executable onnxfuse-fuzz-program (`make fuzz-programs` builds it and comes here). The corpus in --corpus
starts from the programs of random graphs, of the published models that models/cache holds and of the tests' corpora of
CUDA kernels, scans, rolls and axes, and keeps what the fuzzer finds from run to run. A finding is left beside that
folder as crash-* (or timeout-*, oom-*), and the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import axes_corpus
import cuda_corpus
import roll_corpus
import scan_corpus
from random_graphs import random_model

import onnxfuse
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.types import TYPES
from onnxfuse.errors import OnnxfuseError
from onnxfuse.runtime import fused_nodes

ROOT = Path(__file__).resolve().parent.parent


def programs(graphs: int) -> Iterator[str]:
    """The program texts to start from."""
    cases = (cuda_corpus.primitives, cuda_corpus.reductions, cuda_corpus.schedules, cuda_corpus.groups)
    for corpus in (*cases, scan_corpus.operations, scan_corpus.schedules):
        for case in corpus():
            yield case.text
    for type_ in ("f32", "f16", "i64"):
        yield from (case.text for case in roll_corpus.cases(type_))
    yield from (text for text, _, _ in axes_corpus.CASES.values())
    sources = [random_model(seed)[0] for seed in range(graphs)]
    sources += sorted((ROOT / "models" / "cache").glob("*.onnx"))
    for source in sources:
        for target in ("cpu", "cuda"):
            try:
                model = onnxfuse.optimize(source, target=target, min_nodes=1, fallback=False).model
            except OnnxfuseError:
                continue
            for node in fused_nodes(model):
                yield next(a.s for a in node.attribute if a.name == "program").decode()


def dictionary() -> str:
    """libFuzzer's dictionary: the words of the language."""
    words = [f" = {name} " for name in (*PRIMITIVES, "input", "const", "cast")]
    words += [f" {t} " for t in TYPES] + [
        "space ",
        "\noutput ",
        " [",
        "]",
        ", ",
        "\n%",
        " %",
        " d",
        "=",
        ":",
        "*d",
        "+d",
    ]
    words += ["-1*d", "0", "281474976710655", "4294967296", "2147483648", "inf", "-inf", "nan", "-0.0", "1e-45", "true"]
    words += ["onnxfuse 1\n", " |", " exclusive", " reverse", " last", "\nr0 = roll ", "+r0", "+2*r1"]
    words += ["\naxes 0 i64 [1] d0", "[?]", "[]", " noop", " squeezed"]
    return "".join('"' + w.replace("\n", "\\x0a") + '"\n' for w in words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--corpus", type=Path, default=ROOT / "build" / "fuzz-corpus")
    parser.add_argument("--graphs", type=int, default=200, help="random graphs to take programs from")
    args = parser.parse_args()
    args.corpus.mkdir(parents=True, exist_ok=True)
    if not any(args.corpus.iterdir()):
        for text in programs(args.graphs):
            (args.corpus / hashlib.sha256(text.encode()).hexdigest()[:16]).write_text(text)
    words = args.corpus.parent / "fuzz-programs.dict"
    words.write_text(dictionary())
    command = [
        str(args.target), str(args.corpus), f"-dict={words}", f"-max_total_time={args.seconds}", "-max_len=8192",
        "-timeout=20", "-rss_limit_mb=3000", "-print_final_stats=1", f"-artifact_prefix={args.corpus.parent}/",
    ]  # fmt: skip
    done = subprocess.run(command, check=False, env=os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"})
    sys.exit(done.returncode != 0)


if __name__ == "__main__":
    main()
