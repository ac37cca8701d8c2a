"""Is a model faster optimized? Both run in ONNX Runtime in turn, and what a run costs is counted."""

from __future__ import annotations

from onnxfuse.benchmark.account import Account
from onnxfuse.benchmark.bench import bench
from onnxfuse.benchmark.result import BenchCase, BenchResult, Figures, GraphCheck

__all__ = ["Account", "BenchCase", "BenchResult", "Figures", "GraphCheck", "bench"]
