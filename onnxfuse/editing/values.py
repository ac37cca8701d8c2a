"""Tensors between ONNX protos and onnx-graphsurgeon: types, shapes, and values that load only when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import dtype_to_onnx
from onnx_graphsurgeon.ir.tensor import LazyValues, SparseValues

from onnxfuse.errors import ModelError
from onnxfuse.external_data import read_external

__all__ = [
    "DenseValues",
    "SparseDenseValues",
    "constant_to_proto",
    "describe_variable",
    "has_original_values",
    "numpy_dtype",
    "value_info_of",
]


def numpy_dtype(elem_type: int) -> np.dtype[Any] | None:
    """The numpy dtype (ml_dtypes' for bfloat16 and the like) of a TensorProto data type; None where there is none."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)) if elem_type else None
    except KeyError:
        return None


class DenseValues(LazyValues):  # type: ignore[misc]
    """The values of a TensorProto, read-only once loaded, so that an array seen again is known to be unchanged."""

    def __init__(self, tensor: onnx.TensorProto, base_dir: Path | None) -> None:
        # Not graphsurgeon's own: that one warns about bfloat16, reports it as an integer and fails on newer types.
        self.tensor = tensor
        self.shape = list(tensor.dims)
        self.dtype = numpy_dtype(tensor.data_type)
        self.base_dir = base_dir
        self.array: np.ndarray[Any, Any] | None = None

    @property
    def nbytes(self) -> int:
        """Size of the values in memory, in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * (self.dtype.itemsize if self.dtype is not None else 0)

    def load(self) -> np.ndarray[Any, Any]:
        """The values. Raises ModelError where they cannot be read (external data that is missing, a broken tensor)."""
        if self.array is None:
            if self.tensor.data_location == onnx.TensorProto.EXTERNAL and self.base_dir is None:
                raise ModelError(
                    f"the values of '{self.tensor.name}' are in another file, and the model came without its folder: "
                    "pass the model's path, or load its external data first"
                )
            try:
                array = numpy_helper.to_array(self._inline())
            except Exception as error:  # onnx raises whatever the parsing of the bytes happens to raise
                raise ModelError(f"the values of '{self.tensor.name}' cannot be read: {error}") from error
            array = array.view()
            array.flags.writeable = False
            self.array = array
        return self.array

    def _inline(self) -> onnx.TensorProto:
        """The tensor with its data in it (not by onnx, which refuses every link to a data file)."""
        if self.tensor.data_location != onnx.TensorProto.EXTERNAL or self.base_dir is None:
            return self.tensor
        return onnx.TensorProto(
            data_type=self.tensor.data_type, dims=self.tensor.dims, raw_data=read_external(self.tensor, self.base_dir)
        )


class SparseDenseValues(SparseValues):  # type: ignore[misc]
    """The values of a SparseTensorProto, loaded as a dense array."""

    def __init__(self, tensor: onnx.SparseTensorProto, base_dir: Path | None) -> None:
        self.tensor = tensor
        self.shape = list(tensor.dims)
        self.dtype = numpy_dtype(tensor.values.data_type)
        self.base_dir = base_dir
        self.array: np.ndarray[Any, Any] | None = None

    def load(self) -> np.ndarray[Any, Any]:
        """The dense values. Raises ModelError where they cannot be read."""
        if self.array is None:
            values = DenseValues(self.tensor.values, self.base_dir).load()
            indices = DenseValues(self.tensor.indices, self.base_dir).load()
            array = np.zeros(self.shape, values.dtype)
            try:
                if indices.ndim == 1:  # indices into the flattened tensor
                    array.reshape(-1)[indices] = values
                else:
                    array[tuple(indices.T)] = values
            except (IndexError, ValueError) as error:
                raise ModelError(f"the sparse tensor '{self.tensor.values.name}' is broken: {error}") from error
            array.flags.writeable = False
            self.array = array
        return self.array


def has_original_values(constant: Any, original: DenseValues | SparseDenseValues) -> bool:
    """Whether a gs.Constant still has the values that it was read with."""
    values = constant._values
    return values is original or (original.array is not None and values is original.array)


def constant_to_proto(constant: Any) -> onnx.TensorProto:
    """A TensorProto with the name and values of a gs.Constant; never shares or changes a proto of the model."""
    values = constant._values
    proto = onnx.TensorProto()
    if isinstance(values, SparseValues):
        proto.CopyFrom(numpy_helper.from_array(constant.values))
    elif isinstance(values, LazyValues):
        proto.CopyFrom(values.tensor)
    else:
        if constant.export_dtype != values.dtype:
            values = values.astype(numpy_dtype(dtype_to_onnx(constant.export_dtype)))
        proto.CopyFrom(numpy_helper.from_array(np.asarray(values)))
    proto.name = constant.name
    return proto


def describe_variable(variable: Any, value_info: onnx.ValueInfoProto) -> None:
    """Fills in dtype and shape of a gs.Variable, as far as they are unknown yet, from its declaration.

    dtype is a numpy dtype, or None where it is unknown or the value is no dense tensor (then `type` says what it is).
    shape is a list of int, str (symbolic) and None (unknown), or None where even the rank is unknown.
    """
    kind = value_info.type.WhichOneof("value")
    if kind is None:
        return
    variable.type = kind
    if kind != "tensor_type":
        return
    declared = value_info.type.tensor_type
    if variable.dtype is None:
        variable.dtype = numpy_dtype(declared.elem_type)
    if variable.shape is None and declared.HasField("shape"):
        variable.shape = [_dimension(dim) for dim in declared.shape.dim]


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    # Some exporters write "?" or -1 for every unknown extent: no name that two dimensions could share.
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param if dim.dim_param not in ("", "?") else None


def value_info_of(tensor: gs.Tensor) -> onnx.ValueInfoProto | None:
    """The declaration of a tensor that came from no proto, or None where its dtype is unknown."""
    if tensor.dtype is None:
        return None
    elem_type = dtype_to_onnx(tensor.dtype)
    kind = getattr(tensor, "type", "tensor_type")
    if kind == "tensor_type":
        return onnx.helper.make_tensor_value_info(tensor.name, elem_type, tensor.shape)
    if kind == "sequence_type":
        return onnx.helper.make_tensor_sequence_value_info(tensor.name, elem_type, tensor.shape)
    if kind == "sparse_tensor_type":
        return onnx.helper.make_sparse_tensor_value_info(tensor.name, elem_type, tensor.shape)
    raise ModelError(
        f"graphsurgeon does not keep what is needed to write '{tensor.name}', a {kind}: pass the model itself"
    )
