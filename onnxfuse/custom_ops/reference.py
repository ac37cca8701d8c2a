"""A small interpreter of programs in numpy: what they mean, independent of the lowering and of both back ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onnxfuse.custom_ops.formulas import ARGUMENTS, FORMULAS, REDUCTIONS, SCANS, argument, scan
from onnxfuse.custom_ops.over_axes import named_dims, over
from onnxfuse.custom_ops.program import FIRST_ROLL, Apply, Const, Entry, Input, Kernel, Map, Output, Program, Roll
from onnxfuse.custom_ops.types import is_float, is_narrow, to_numpy, value_type

__all__ = ["evaluate"]

Array: TypeAlias = npt.NDArray[Any]


def evaluate(program: Program, inputs: Sequence[Array], float64: bool = False) -> list[Array]:
    """The program's outputs.

    Args:
        program: a verified program.
        inputs: arrays of the types and ranks of `program.inputs`; float32 may stand in for f16 and bf16, which makes
            the outputs of that type float32, rounded through it.
        float64: compute all floats in float64, and give all float outputs as float64, not rounded. `round_f16` and
            `round_bf16` still round.

    Raises:
        ValueError: shapes that do not fit the program; the message names the input.
    """
    arrays = [np.asarray(x) for x in inputs]
    results: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            if kernel.axes is not None:
                kernel = over(kernel, named_dims(kernel, arrays[0].reshape(-1).tolist()))  # noqa: PLW2901
            run = _Run(kernel, arrays, float64)
            values = run.values()
            for output in kernel.outputs:
                run.store(output, values[output.value], results)
    declared = [type_ for type_, _ in program.inputs]
    widened = {t for t, x in zip(declared, arrays, strict=True) if is_narrow(t) and x.dtype == np.float32}
    finished = []
    for number, (type_, _) in enumerate(program.outputs):
        result = results[number]
        if not (float64 and is_float(type_)):
            with np.errstate(all="ignore"):
                result = result.astype(to_numpy(type_))
            result = result.astype(np.float32) if type_ in widened else result
        finished.append(result)
    return finished


class _Run:
    """One kernel on actual inputs. Values are arrays of the space's rank, of extent 1 where they do not depend."""

    def __init__(self, kernel: Kernel, inputs: Sequence[Array], float64: bool) -> None:
        self.kernel = kernel
        self.inputs = inputs
        self.float64 = float64
        self.extents = [self.extent(k) for k in range(kernel.rank)]

    def dtype(self, type_: str) -> np.dtype[Any]:
        return np.dtype(np.float64) if self.float64 and is_float(type_) else to_numpy(value_type(type_))

    def extent(self, k: int) -> int:
        """The extent of dk: what the program says, or what its tensors show. An extent of 1 is broadcast."""
        extent = self.kernel.extents[k]
        for statement in self.kernel.statements:
            if not isinstance(statement, Input):
                continue
            for axis, entry in enumerate(statement.map):
                shown = self.inputs[statement.tensor].shape[axis]
                counted = self.kernel.counted(entry)
                if counted and counted[0] == k:
                    shown, rest = divmod(shown, counted[1])
                    if rest:
                        raise ValueError(f"input {statement.tensor} is no multiple of {counted[1]} along '{entry}'")
                elif entry.whole != k or shown == 1:
                    continue
                if extent not in (None, shown):
                    raise ValueError(f"input {statement.tensor} has extent {shown} along d{k}, expected {extent}")
                extent = shown
        return 1 if extent is None else extent

    def index(self, map_: Map, dims: Sequence[int]) -> tuple[Array, ...]:
        """For each entry, the indices as an array over the dimensions."""
        grid = dict(zip(dims, np.ogrid[tuple(slice(self.extents[k]) for k in dims)], strict=True)) if dims else {}

        def rolled(roll: Roll) -> Array:
            total = np.zeros((1,) * len(dims), np.int64)
            for k in roll.dims:
                total = total * self.extents[k] + grid[k]
            return (total + roll.shift) % math.prod(self.extents[k] for k in roll.dims)

        def affine(entry: Entry) -> Array:
            total = np.full((1,) * len(dims), entry.offset, np.int64)
            for k, scale in entry.terms:
                total = total + scale * (grid[k] if k < FIRST_ROLL else rolled(self.kernel.rolls[k - FIRST_ROLL]))
            return total

        return tuple(affine(entry) for entry in map_)

    def values(self) -> list[Array]:
        found: list[Array] = []
        for statement in self.kernel.statements:
            if isinstance(statement, Input):
                found.append(self.read(statement))
            elif isinstance(statement, Const):
                constant = np.array(statement.value, to_numpy(statement.type)).astype(self.dtype(statement.type))
                found.append(constant.reshape((1,) * self.kernel.rank))
            else:
                found.append(self.apply(statement, [found[operand] for operand in statement.operands]))
        return found

    def read(self, statement: Input) -> Array:
        x = self.inputs[statement.tensor].astype(self.dtype(statement.type))
        plain = [entry.whole for entry in statement.map if entry.whole is not None]
        if len(set(plain)) == len(statement.map):  # no index needed; large tensors are read this way
            missing = [k for k in range(self.kernel.rank) if k not in plain]
            return np.expand_dims(np.transpose(x, np.argsort(plain)), missing)
        index = []
        for axis, (entry, indices) in enumerate(
            zip(statement.map, self.index(statement.map, range(self.kernel.rank)), strict=True)
        ):
            extent = x.shape[axis]
            if entry.extent not in (None, extent):
                raise ValueError(f"input {statement.tensor}: dimension {axis} is {extent}, expected {entry.extent}")
            if entry.whole is not None and extent == 1:
                indices = np.zeros_like(indices)  # noqa: PLW2901 - broadcast
            if indices.size and not (indices.min() >= 0 and indices.max() < extent):
                raise ValueError(f"input {statement.tensor}: '{entry}' is out of extent {extent} of dimension {axis}")
            index.append(indices)
        return x[tuple(index)] if index else x.reshape((1,) * self.kernel.rank)

    def apply(self, statement: Apply, operands: list[Array]) -> Array:
        dtype = self.dtype(statement.type)
        if statement.op == "cast":
            return operands[0].astype(dtype)
        if statement.op in REDUCTIONS:
            x, dims = self.spread(operands[0]), tuple(sorted(self.kernel.reduced_dims))
            return REDUCTIONS[statement.op](x, dims).astype(dtype)
        if statement.op in ARGUMENTS or statement.op in SCANS:
            return self.along_block(statement, self.spread(operands[0])).astype(dtype)
        return np.asarray(FORMULAS[statement.op](*operands)).astype(dtype)

    def spread(self, x: Array) -> Array:
        """The value at all points of the reduced dimensions, also where it does not depend on one of them."""
        dims = self.kernel.reduced_dims
        return np.broadcast_to(x, [self.extents[k] if k in dims else n for k, n in enumerate(x.shape)])

    def along_block(self, statement: Apply, x: Array) -> Array:
        """A scan or an argument: along one axis that holds the points of the reduced dimensions in row-major order."""
        start, end = self.kernel.outer, self.kernel.outer + self.kernel.reduced
        block = x.reshape([*x.shape[:start], math.prod(x.shape[start:end]), *x.shape[end:]])
        if statement.op in SCANS:
            return scan(statement.op, block, start, statement.flags).reshape(x.shape)
        index = argument(statement.op, block, start, statement.flags)
        return index.reshape([*x.shape[:start], *[1] * (end - start), *x.shape[end:]])

    def store(self, output: Output, value: Array, results: dict[int, Array]) -> None:
        dims = sorted(self.kernel.dims(*output.map))
        shape = []
        for entry in output.map:
            natural = self.extents[entry.plain] if entry.plain is not None else 1
            if counted := self.kernel.counted(entry):
                natural = self.extents[counted[0]] * counted[1]
            shape.append(natural if entry.extent is None else entry.extent)
        if output.tensor not in results:
            results[output.tensor] = np.zeros(shape, value.dtype)
        target = results[output.tensor]
        if target.shape != tuple(shape):
            raise ValueError(f"output {output.tensor} has shape {target.shape} in one place, {tuple(shape)} in another")
        value = value.reshape([value.shape[k] for k in dims])
        target[self.index(output.map, dims)] = np.broadcast_to(value, [self.extents[k] for k in dims])
