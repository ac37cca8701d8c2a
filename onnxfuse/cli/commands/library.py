"""The command `library`."""

from __future__ import annotations

from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.options import Debug

__all__ = ["library"]


@reports_errors
def library(debug: Debug = False) -> None:
    """Print the path of the library to register with ONNX Runtime.

    \b
    In Python:
      options = onnxruntime.SessionOptions()
      options.register_custom_ops_library(str(onnxfuse.library_path()))
    """
    import onnxfuse

    print(onnxfuse.library_path())
