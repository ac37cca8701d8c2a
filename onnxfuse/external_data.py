"""Tensors whose data is in a file beside the model: finding them, checking where they point, reading them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import onnx

from onnxfuse.errors import ModelError

__all__ = [
    "ExternalRange",
    "all_tensors",
    "check_external",
    "external_range",
    "external_tensors",
    "read_external",
    "with_small_values",
]

_SMALL_BYTES = 1024


@dataclass(frozen=True)
class ExternalRange:
    """Where a tensor's bytes are; a length of None means to the end of the file."""

    location: str
    offset: int
    length: int | None


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model whose data is in another file."""
    return (tensor for tensor in all_tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL)


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: in initializers, attributes, bodies, functions and training."""
    stack: list[onnx.GraphProto | onnx.NodeProto] = [model.graph]
    for function in model.functions:
        stack.extend(function.node)
    for training in model.training_info:
        stack.extend((training.initialization, training.algorithm))
    while stack:
        item = stack.pop()
        tensors: list[onnx.TensorProto] = []
        if isinstance(item, onnx.GraphProto):
            stack.extend(item.node)
            tensors.extend(item.initializer)
            tensors.extend(part for sparse in item.sparse_initializer for part in (sparse.values, sparse.indices))
        else:
            for attribute in item.attribute:
                stack.extend(attribute.graphs)
                tensors.extend(attribute.tensors)
                sparse_tensors = list(attribute.sparse_tensors)
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                if attribute.HasField("t"):
                    tensors.append(attribute.t)
                if attribute.HasField("sparse_tensor"):
                    sparse_tensors.append(attribute.sparse_tensor)
                tensors.extend(part for sparse in sparse_tensors for part in (sparse.values, sparse.indices))
        yield from tensors


def read_external(tensor: onnx.TensorProto, base_dir: Path) -> bytes:
    """The bytes of a tensor with external data. Raises ModelError where they cannot be read."""
    part = external_range(tensor)
    try:
        with (base_dir / part.location).open("rb") as file:
            file.seek(part.offset)
            data = file.read(-1 if part.length is None else part.length)
    except OSError as error:
        raise ModelError(f"the data of '{tensor.name}', '{part.location}', cannot be read: {error.strerror}") from error
    if part.length is not None and len(data) != part.length:
        raise ModelError(f"the data of '{tensor.name}' reaches past the end of '{part.location}'")
    return data


def external_range(tensor: onnx.TensorProto) -> ExternalRange:
    """Where the data of a tensor is. Raises ModelError for a place that is malformed or outside of the folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    parts = PurePosixPath(location.replace("\\", "/"))
    if not location or parts.is_absolute() or ".." in parts.parts or Path(location).drive:
        raise ModelError(f"the data of '{tensor.name}' is at '{location}', which is not inside of the model's folder")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries["length"]) if "length" in entries else None
    except ValueError as error:
        raise ModelError(f"the place of the data of '{tensor.name}' is not a number: {error}") from error
    if offset < 0 or (length is not None and length < 0):
        raise ModelError(f"the place of the data of '{tensor.name}' is negative")
    return ExternalRange(location, offset, length)


def check_external(tensor: onnx.TensorProto, path: Path) -> None:
    """Raises ModelError where a tensor's data is not there, whole, in the folder of the model at `path`."""
    part = external_range(tensor)
    file = path.parent / part.location
    if not file.is_file():
        raise ModelError(f"the external data '{part.location}' of '{path}' is missing from the folder '{path.parent}'")
    # A cache that links both the model and its data to one place of its own is fine, a link to anywhere else is not.
    real = file.resolve()
    if not any(real.is_relative_to(folder) for folder in (path.parent.resolve(), path.resolve().parent)):
        raise ModelError(f"the external data '{part.location}' of '{path}' is a link that leads out of its folder")
    if part.offset + (part.length or 0) > file.stat().st_size:
        raise ModelError(f"the external data '{part.location}' of '{path}' is too short (truncated?)")


def with_small_values(model: onnx.ModelProto, base_dir: Path | None) -> onnx.ModelProto:
    """The model with the small tensors of its external data (axes, shapes, an epsilon) in it, for analysis.

    The model itself where there are none, or where the folder of the data is not known. Raises ModelError where they
    cannot be read.
    """
    if base_dir is None or not any(True for _ in external_tensors(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in external_tensors(copy):
        length = external_range(tensor).length
        if length is not None and length <= _SMALL_BYTES:
            data = read_external(tensor, base_dir)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = data
    return copy
