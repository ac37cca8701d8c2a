"""The element types of the program language, and what ONNX and numpy call them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

__all__ = [
    "FLOAT_TYPES",
    "INTEGER_TYPES",
    "TYPES",
    "UNSIGNED_TYPES",
    "VALUE_TYPES",
    "from_numpy",
    "from_onnx",
    "integer_range",
    "is_float",
    "is_integer",
    "is_narrow",
    "size",
    "to_numpy",
    "to_onnx",
    "value_type",
]

_ONNX: dict[str, int] = {
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8,
    "i16": TensorProto.INT16,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8,
    "u16": TensorProto.UINT16,
    "u32": TensorProto.UINT32,
    "u64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}
_NUMPY: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}
_FROM_ONNX = {number: name for name, number in _ONNX.items()}
_FROM_NUMPY = {dtype: name for name, dtype in _NUMPY.items()}

TYPES: tuple[str, ...] = tuple(_ONNX)
FLOAT_TYPES: tuple[str, ...] = ("f32", "f64")
INTEGER_TYPES: tuple[str, ...] = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
UNSIGNED_TYPES: tuple[str, ...] = ("u8", "u16", "u32", "u64")
# The types that a value of a program may have.
VALUE_TYPES: tuple[str, ...] = (*FLOAT_TYPES, *INTEGER_TYPES, "bool")


def to_onnx(type_: str) -> int:
    """The onnx.TensorProto data type of a type of the language."""
    return _ONNX[type_]


def from_onnx(data_type: int) -> str | None:
    """The language's type for an onnx.TensorProto data type, or None where it has none."""
    return _FROM_ONNX.get(data_type)


def to_numpy(type_: str) -> np.dtype[Any]:
    """The numpy dtype of a type of the language (ml_dtypes.bfloat16 for bf16)."""
    return _NUMPY[type_]


def from_numpy(dtype: np.dtype[Any] | type) -> str | None:
    """The language's type for a numpy dtype, or None where it has none."""
    return _FROM_NUMPY.get(np.dtype(dtype))


def size(type_: str) -> int:
    """Bytes of one element."""
    return _NUMPY[type_].itemsize


def value_type(storage: str) -> str:
    """The type of a value read from a tensor of this type: f32 for f16 and bf16, else the same."""
    return "f32" if is_narrow(storage) else storage


def is_float(type_: str) -> bool:
    """True for f16, bf16, f32 and f64."""
    return type_ in FLOAT_TYPES or is_narrow(type_)


def is_integer(type_: str) -> bool:
    """True for the signed and unsigned integers; bool is none of them."""
    return type_ in INTEGER_TYPES


def is_narrow(type_: str) -> bool:
    """True for f16 and bf16, the types of tensors only."""
    return type_ in ("f16", "bf16")


def integer_range(type_: str) -> tuple[int, int]:
    """The lowest and the highest value of an integer type."""
    info = np.iinfo(_NUMPY[type_])
    return int(info.min), int(info.max)
