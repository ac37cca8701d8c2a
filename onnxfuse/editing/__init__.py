"""Lossless graph editing over onnx-graphsurgeon."""

from onnxfuse.editing.editor import ModelEditor, from_graphsurgeon
from onnxfuse.editing.order import label

__all__ = ["ModelEditor", "from_graphsurgeon", "label"]
