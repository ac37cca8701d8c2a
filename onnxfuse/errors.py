"""The errors that onnxfuse raises for a user to act on."""

from __future__ import annotations

__all__ = ["MissingRuntimeError", "ModelError", "OnnxfuseError", "ProgramError"]


class OnnxfuseError(Exception):
    """Something is wrong with what the user gave; the message says what and what to do. The CLI exits with 2."""


class ModelError(OnnxfuseError):
    """A model that is not valid ONNX, or that onnxfuse cannot read."""


class ProgramError(OnnxfuseError):
    """A fused node's program that does not parse or verify; the message names the line."""


class MissingRuntimeError(OnnxfuseError):
    """ONNX Runtime is needed and not installed; the message says which extra brings it."""
