"""Kernels of fused nodes, made ahead of time."""

from onnxfuse.kernels.compile import Compiled, compile_kernels

__all__ = ["Compiled", "compile_kernels"]
