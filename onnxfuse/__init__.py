"""onnxfuse: fuses the memory-bound parts of ONNX models into custom ops for ONNX Runtime."""

from onnxfuse.benchmark import BenchResult, bench
from onnxfuse.custom_ops.library import library_path
from onnxfuse.errors import MissingRuntimeError, ModelError, OnnxfuseError, ProgramError
from onnxfuse.kernels import Compiled, compile_kernels
from onnxfuse.optimizer import REWRITES, Result, optimize
from onnxfuse.report import Fusion, Refusal, Report
from onnxfuse.restore import restore
from onnxfuse.tuning import Tune, Tuning
from onnxfuse.validate import validate

__all__ = [
    "REWRITES",
    "BenchResult",
    "Compiled",
    "Fusion",
    "MissingRuntimeError",
    "ModelError",
    "OnnxfuseError",
    "ProgramError",
    "Refusal",
    "Report",
    "Result",
    "Tune",
    "Tuning",
    "bench",
    "compile_kernels",
    "library_path",
    "optimize",
    "restore",
    "validate",
]
