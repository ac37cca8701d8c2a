"""Whose fault an unexpected error is: the model's, where ONNX's own checks refuse it, or onnxfuse's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import onnx

from onnxfuse.errors import ModelError, OnnxfuseError
from onnxfuse.external_data import external_tensors

__all__ = ["diagnosed"]


@contextlib.contextmanager
def diagnosed(model: onnx.ModelProto) -> Iterator[None]:
    """Turns an error that is not meant for the user into a ModelError where the model is not valid ONNX.

    To check every model before would cost more than all else that is done with a small one.
    """
    try:
        yield
    except (OnnxfuseError, MemoryError):
        raise
    except Exception as error:
        complaint = _complaint(model)
        if complaint:
            raise ModelError(f"the model is not valid ONNX: {complaint}") from error
        raise


def _complaint(model: onnx.ModelProto) -> str:
    """What ONNX's checks say against the model, on one line, or ""."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for output in copy.graph.output:  # without a shape ONNX Runtime takes them, the checker does not
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.shape.SetInParent()
    try:
        if next(external_tensors(model), None) is None:  # whose files the checker would look for in the current folder
            onnx.checker.check_model(copy)
        for output in copy.graph.output:
            output.type.tensor_type.ClearField("shape")
        onnx.shape_inference.infer_shapes(copy, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as complaint:
        return " ".join(str(complaint).split())
    except Exception:
        return ""
    return ""
