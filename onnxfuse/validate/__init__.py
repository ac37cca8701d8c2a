"""Does an optimized model still compute what the original does? Both run in ONNX Runtime on the same inputs."""

from __future__ import annotations

from onnxfuse.validate.compare import TOLERANCES, OutputComparison
from onnxfuse.validate.inputs import make_inputs
from onnxfuse.validate.programs import check_programs
from onnxfuse.validate.validation import Validation, validate

__all__ = ["TOLERANCES", "OutputComparison", "Validation", "check_programs", "make_inputs", "validate"]
