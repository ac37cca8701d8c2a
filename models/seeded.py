#!/usr/bin/env python3
"""Models without their weights, for where the weights do not fit: numbers of the same spread take their place.

    seeded.py strip MODEL.onnx STRIPPED.onnx      leaves out the data of large float weights
    seeded.py fill STRIPPED.onnx MODEL.onnx       draws them anew: equal files give equal models

What a network costs to run hangs on its structure and on the shapes of its weights, and not on their values, as long as
they are neither NaN nor make it so. Mean and standard deviation of each tensor are kept; what has few numbers stays.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

__all__ = ["fill", "strip"]

_LEAST = 2048  # numbers; smaller tensors keep their data
_MARK = "seeded "
_FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
_INTEGERS = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def strip(model: onnx.ModelProto, keep: tuple[str, ...] = ()) -> onnx.ModelProto:
    """The model with the data of large weights replaced by what it takes to draw some like it.

    Args:
        model: With all its weights inside.
        keep: Parts of the names of tensors that keep their data.
    """
    stripped = onnx.ModelProto()
    stripped.CopyFrom(model)
    for tensor in _tensors(stripped.graph):
        count = int(np.prod(tensor.dims))
        if count < _LEAST or tensor.data_type not in _FLOATS | _INTEGERS or any(k in tensor.name for k in keep):
            continue
        values = numpy_helper.to_array(tensor).astype(np.float64)
        summary = {"mean": float(values.mean()), "deviation": float(values.std())}
        bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        bare.doc_string = _MARK + json.dumps(summary)
        tensor.CopyFrom(bare)
    return stripped


def fill(stripped: onnx.ModelProto) -> onnx.ModelProto:
    """The model with weights drawn from normal distributions, each seeded by its name and its place."""
    model = onnx.ModelProto()
    model.CopyFrom(stripped)
    for place, tensor in enumerate(_tensors(model.graph)):
        if not tensor.doc_string.startswith(_MARK):
            continue
        summary = json.loads(tensor.doc_string.removeprefix(_MARK))
        rng = np.random.default_rng([zlib.crc32(tensor.name.encode()), place])
        values = rng.normal(summary["mean"], summary["deviation"], tuple(tensor.dims))
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if dtype.kind in "iu":
            values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(dtype), tensor.name))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("strip", "fill"))
    parser.add_argument("source", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument(
        "--keep", action="append", default=[], metavar="TEXT", help="keep tensors with this in their name"
    )
    args = parser.parse_args()
    try:
        model = onnx.load(args.source)
    except OSError as error:
        parser.error(f"{args.source}: {error.strerror or error}")
    except DecodeError:
        parser.error(f"{args.source} is not an ONNX model")
    try:
        onnx.save(strip(model, tuple(args.keep)) if args.action == "strip" else fill(model), args.result)
    except OSError as error:
        parser.error(f"{args.result}: {error.strerror or error}")
    print(f"{args.source.stat().st_size:,} bytes -> {args.result.stat().st_size:,}")


if __name__ == "__main__":
    main()
