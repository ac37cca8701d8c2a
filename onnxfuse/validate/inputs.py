"""Random inputs for a model, that respect its types, its shapes and what its integers mean."""

from __future__ import annotations

import itertools
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from onnxfuse.errors import OnnxfuseError
from onnxfuse.validate.domains import draw_floats, is_mask
from onnxfuse.validate.ranges import integer_range

__all__ = [
    "DEFAULT_EXTENT",
    "Dims",
    "InputSpec",
    "combinations",
    "free_dimensions",
    "input_specs",
    "load_npz",
    "make_inputs",
]

# Extents of free dimensions by name, one or several each.
Dims = Mapping[str, int | Sequence[int]]

DEFAULT_EXTENT = 2
_MAX_ELEMENTS = 2**31


@dataclass(frozen=True)
class InputSpec:
    """An input that a caller must give: dimensions are extents, or the names of what is free.

    `dims` is None where the model does not state the rank.
    """

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str, ...] | None


def input_specs(model: onnx.ModelProto) -> list[InputSpec]:
    """The model's inputs that have no default value, in order. A dimension without a name is called `input.axis`.

    So is one named "?", as some exporters call all that they do not know.

    Raises:
        OnnxfuseError: an input is no tensor (a sequence, a map, an optional).
    """
    defaults = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    specs = []
    for value in model.graph.input:
        if value.name in defaults:
            continue
        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value") or "value of no type"
            raise OnnxfuseError(f"input {value.name!r} is a {kind.removesuffix('_type')}; only tensors can be made up")
        tensor = value.type.tensor_type
        dtype = _dtype(value.name, tensor.elem_type)
        dims: list[int | str] = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                dims.append(dim.dim_value)
            else:
                dims.append(dim.dim_param if dim.dim_param not in ("", "?") else f"{value.name}.{axis}")
        specs.append(InputSpec(value.name, dtype, tuple(dims) if tensor.HasField("shape") else None))
    return specs


def _dtype(name: str, data_type: int) -> np.dtype[Any]:
    dtype: np.dtype[Any]
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(data_type))
    except KeyError:
        raise OnnxfuseError(f"input {name!r} has an unknown element type ({data_type})") from None
    if data_type == onnx.TensorProto.BFLOAT16:  # float32 to onnx before 1.18
        dtype = np.dtype(ml_dtypes.bfloat16)
    return dtype


def free_dimensions(specs: list[InputSpec]) -> list[str]:
    """The names of all dimensions that `dims` can set, in order, each once."""
    return list(dict.fromkeys(d for s in specs for d in s.dims or () if isinstance(d, str)))


def combinations(dims: Dims | None) -> list[dict[str, int]]:
    """Every combination of the extents, in order; one empty set where there are none."""
    several = {name: (sizes,) if isinstance(sizes, int) else tuple(sizes) for name, sizes in (dims or {}).items()}
    empty = [name for name, sizes in several.items() if not sizes]
    if empty:
        raise OnnxfuseError(f"dimension {empty[0]!r} is given no extent")
    return [dict(zip(several, sizes, strict=True)) for sizes in itertools.product(*several.values())]


def load_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file.

    Raises:
        OnnxfuseError: it cannot be read, or is no .npz of plain arrays.
    """
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise OnnxfuseError(f"{os.fspath(path)} holds one array without a name; an .npz has names")
        with file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise OnnxfuseError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise OnnxfuseError(
            f"{os.fspath(path)} is not an .npz file of plain arrays, as numpy.savez writes it"
        ) from error


def make_inputs(
    model: onnx.ModelProto,
    dims: Mapping[str, int] | None = None,
    given: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Inputs for one run, by name.

    Floats are drawn from the standard normal distribution, or from what the functions that they feed are defined for
    (`domains.draw_floats`), booleans and masks evenly, other integers as `ranges.integer_range` says.

    Args:
        model: The model; the data of its initializers is not needed.
        dims: Extents of free dimensions, by name or as `input.axis`; those left out are DEFAULT_EXTENT, or what
            `given` shows.
        given: Arrays to use as they are.
        seed: Equal seeds give equal inputs.

    Raises:
        OnnxfuseError: an unknown name in dims or given, an array of another type or shape, an input without a rank.
    """
    specs = input_specs(model)
    given = dict(given or {})
    sizes = _sizes(specs, dims or {}, given)
    rng = np.random.default_rng(seed)
    return {s.name: given[s.name] if s.name in given else _draw(model, s, sizes, rng) for s in specs}


def _sizes(specs: list[InputSpec], dims: Mapping[str, int], given: Mapping[str, np.ndarray]) -> dict[str, int]:
    free = free_dimensions(specs)
    places = {f"{s.name}.{axis}": d for s in specs for axis, d in enumerate(s.dims or ()) if isinstance(d, str)}
    sizes: dict[str, int] = {}
    for given_name, size in dims.items():
        name = given_name if given_name in free else places.get(given_name)
        if name is None:
            known = ", ".join(free) if free else "none: all its dimensions are fixed"
            raise OnnxfuseError(f"the model has no free dimension {given_name!r}; it has {known}")
        if size < 0:
            raise OnnxfuseError(f"dimension {given_name!r} cannot be {size}")
        if sizes.setdefault(name, size) != size:
            raise OnnxfuseError(f"dimension {name!r} cannot be {sizes[name]} and {size} at once")
    names = {s.name: s for s in specs}
    for name, array in given.items():
        if name not in names:
            raise OnnxfuseError(f"the model has no input {name!r}; it has {', '.join(names) or 'none'}")
        _check(names[name], array, sizes)
    return {name: sizes.get(name, DEFAULT_EXTENT) for name in free}


def _check(spec: InputSpec, array: np.ndarray, sizes: dict[str, int]) -> None:
    """That the array fits the input; takes free dimensions from its shape."""
    if array.dtype != spec.dtype and not (spec.dtype == object and array.dtype.kind in "US"):
        raise OnnxfuseError(f"input {spec.name!r} is {spec.dtype}, the array given for it {array.dtype}")
    if spec.dims is None:
        return
    if array.ndim != len(spec.dims):
        raise OnnxfuseError(f"input {spec.name!r} has rank {len(spec.dims)}, the array given for it {array.ndim}")
    for dim, extent in zip(spec.dims, array.shape, strict=True):
        expected = sizes.setdefault(dim, extent) if isinstance(dim, str) else dim
        if expected != extent:
            shown = f"{dim} = {expected}" if isinstance(dim, str) else str(expected)
            raise OnnxfuseError(f"input {spec.name!r}: the array given for it has extent {extent} where {shown} is due")


def _draw(model: onnx.ModelProto, spec: InputSpec, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    if spec.dims is None:
        raise OnnxfuseError(f"the model does not state the rank of input {spec.name!r}: give it in an .npz (--inputs)")
    shape = tuple(sizes[d] if isinstance(d, str) else d for d in spec.dims)
    if np.prod(shape, dtype=object) > _MAX_ELEMENTS:
        raise OnnxfuseError(f"input {spec.name!r} would have the shape {shape}, too large to make up")
    dtype = spec.dtype
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.kind == "O":
        return np.array([f"text {i}" for i in range(int(np.prod(shape)))], dtype=object).reshape(shape)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype.kind in "iu":
        if is_mask(model, spec.name):
            return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
        allowed = integer_range(model, spec.name, dtype)
        if allowed.axes and np.prod(shape, dtype=object) <= allowed.high:
            axes = rng.permutation(allowed.high)[: int(np.prod(shape))]
            return np.asarray(axes - allowed.high * rng.integers(0, 2, axes.shape)).astype(dtype).reshape(shape)
        if allowed.choices:
            return np.asarray(rng.choice(np.array(allowed.choices), shape)).astype(dtype)
        return np.asarray(rng.integers(allowed.low, allowed.high, shape)).astype(dtype)
    return np.asarray(draw_floats(model, spec.name, shape, rng)).astype(dtype)
