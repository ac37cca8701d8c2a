"""Which fusions pay on this machine: measured, by kind and by region, and those that do not are dropped."""

from __future__ import annotations

from onnxfuse.tuning.result import Decision, Tune, Tuning
from onnxfuse.tuning.search import tuned

__all__ = ["Decision", "Tune", "Tuning", "tuned"]
