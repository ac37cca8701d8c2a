"""Statements that quantize or dequantize by one scale and zero point: in a local function they are one operator."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxfuse.custom_ops.emit import Emitter
from onnxfuse.custom_ops.program import Apply, Const, Kernel, Statement
from onnxfuse.custom_ops.types import integer_range, to_numpy

__all__ = ["Quantizer", "find_quantizer"]

# The opset from which on QuantizeLinear and DequantizeLinear take an integer type.
_SINCE = {"u8": 10, "i8": 10, "u16": 21, "i16": 21}


@dataclass(frozen=True)
class Quantizer:
    """A QuantizeLinear or DequantizeLinear (`op`) of the value of a statement; `zero` None: of int32, without one."""

    op: str
    operand: int
    scale: float
    zero: int | None
    type: str  # what the zero point is

    def emit(self, emitter: Emitter, x: str) -> str:
        """The operator, on a value of the name `x`."""
        inputs = [x, emitter.scalar(self.scale, "f32")]
        if self.zero is not None:
            inputs.append(emitter.constant(np.array(self.zero, to_numpy(self.type))))
        return emitter.node(self.op, inputs)


def find_quantizer(kernel: Kernel, number: int, opset: int) -> Quantizer | None:
    """What the statement of that number gives, where that is the result of such an operator of the opset.

    These are `(f32(x) - zero) * scale` and `T(round(min(max(x / scale, low), high)) + zero)`, in which a zero point of
    0 is left out, and low and high are the ends of T's range less the zero point.
    """
    reader = _Reader(kernel)
    return reader.dequantizer(number, opset) or reader.quantizer(number, opset)


class _Reader:
    def __init__(self, kernel: Kernel) -> None:
        self.statements = kernel.statements

    def apply(self, number: int, op: str, type_: str = "f32") -> Apply | None:
        """The statement of that number where it is this operation."""
        found = self.statements[number]
        return found if isinstance(found, Apply) and (found.op, found.type) == (op, type_) else None

    def with_constant(self, number: int, op: str, *, either_way: bool = False) -> tuple[int, float] | None:
        """The other operand of an operation, and the constant that is its second one (or its first)."""
        found = self.apply(number, op)
        if found is None:
            return None
        for operand, constant in ((0, 1), (1, 0)) if either_way else ((0, 1),):
            value: Statement = self.statements[found.operands[constant]]
            if isinstance(value, Const):
                return found.operands[operand], float(value.value)
        return None

    def type_of(self, number: int) -> str:
        return self.statements[number].type

    def dequantizer(self, number: int, opset: int) -> Quantizer | None:
        product = self.with_constant(number, "mul", either_way=True)
        if product is None or not _is_scale(product[1]):
            return None
        x, scale = product
        centred = self.with_constant(x, "sub")
        converted = self.apply(x if centred is None else centred[0], "cast")
        if converted is None:
            return None
        (source,) = converted.operands
        type_, zero = self.type_of(source), 0.0 if centred is None else centred[1]
        if type_ == "i32" and centred is None and opset >= _SINCE["u8"]:
            return Quantizer("DequantizeLinear", source, scale, None, type_)
        if not _is_zero(zero, type_, opset):
            return None
        return Quantizer("DequantizeLinear", source, scale, int(zero), type_)

    def quantizer(self, number: int, opset: int) -> Quantizer | None:
        type_ = self.type_of(number)
        converted = self.apply(number, "cast", type_)
        if type_ not in _SINCE or converted is None or self.type_of(converted.operands[0]) != "f32":
            return None
        (x,) = converted.operands
        shifted = self.with_constant(x, "add", either_way=True)
        x, zero = shifted or (x, 0.0)
        rounded = self.apply(x, "round")
        below = None if rounded is None else self.with_constant(rounded.operands[0], "min", either_way=True)
        above = None if below is None else self.with_constant(below[0], "max", either_way=True)
        quotient = None if above is None else self.with_constant(above[0], "div")
        if below is None or above is None or quotient is None or not _is_zero(zero, type_, opset):
            return None
        if (above[1] + zero, below[1] + zero) != integer_range(type_) or not _is_scale(quotient[1]):
            return None
        return Quantizer("QuantizeLinear", quotient[0], quotient[1], int(zero), type_)


def _is_scale(value: float) -> bool:
    return 0 < value < math.inf


def _is_zero(value: float, type_: str, opset: int) -> bool:
    """Whether a zero point is one of the type, which the opset quantizes to."""
    if opset < _SINCE.get(type_, opset + 1):
        return False
    low, high = integer_range(type_)
    return low <= value <= high and value == int(value)
