"""A HardSwish and affine maps behind a Conv, on the CPU: spelled so that ONNX Runtime computes them inside the Conv.

It does so for `HardSwish`, for `HardSigmoid` and `Mul`, and for BatchNormalization, but not for a HardSwish spelled as
x * clip(x + 3, 0, 6) / 6, as most exporters write it, nor for products and sums with one number, as between the
convolutions of PP-LCNet. These leave the Conv's layout of channels in blocks: a fused node takes a pass over the map
where ONNX Runtime takes four or more, but two more rearrange it, before and behind. Spelled as HardSigmoid and Mul they
go into the Conv; so does a BatchNormalization before, and one behind is a Conv of its own in that layout.

Seven convolutions of 1 x 1 with a HardSwish in each of six places between them, one thread of an EPYC, us (64x28x28 |
32x8x8 | 128x56x56): 631 | 38 | 8672 as it is, 457 | 20 | 7128 in the convolutions, 414 | 18 | 6798 without any. The
angle classifier of PP-OCR: 1.17 times as fast with fused nodes, 1.35 so. PP-OCRv4, whose convolutions stand between
affine maps and HardSwishes, one and two threads: recognition 1.24 and 1.42 with fused nodes, 1.33 and 1.61 so,
detection 1.18 and 1.25, 1.22 and 1.40.

Near -3, x / 6 + 1 / 2 is rounded where x + 3 is exact: results there may be 2e-7 from each other. A map that goes into
the weights is rounded with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfuse.custom_ops.program import Apply, Const, Input, Kernel, Program
from onnxfuse.rewrites.convolutions import activated_from, has_constant_weights, made_blocked, takes_blocks
from onnxfuse.rewrites.graph import GraphView

__all__ = ["RESPELLED", "Affine", "Epilogue", "epilogue_of"]

RESPELLED = "it is spelled now as ONNX Runtime computes it inside the Conv before it"

_NEAR = 2**-20
_OLDEST_BATCH_NORMALIZATION = 7  # without is_test


@dataclass(frozen=True)
class Affine:
    """x * scale + shift."""

    scale: float = 1.0
    shift: float = 0.0

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing."""
        return self == Affine()

    @property
    def is_ordinary(self) -> bool:
        """Whether float32 has its numbers, and a product with the scale is not nothing."""
        size = abs(np.float32(self.scale))
        return bool(np.isfinite(np.float32(self.shift)) and 2.0**-60 < size < 2.0**60)


@dataclass(frozen=True)
class Epilogue:
    """What a region computes of a Conv's result: `before`, a HardSwish if any, `after`, each of all `channels`."""

    before: Affine
    hard_swish: bool
    after: Affine
    channels: int


def epilogue_of(view: GraphView, program: Program, value: str, result: str, nodes: set[int]) -> Epilogue | None:
    """What the nodes compute as `result` of a value that a Conv makes for them alone, where it goes into the Conv."""
    found = _taken_apart(program)
    if (
        found is None
        or value in view.kept
        or result in view.kept  # of an output of the graph ONNX Runtime makes two passes all the same
        or not set(view.consumers.get(value, ())) <= nodes
    ):
        return None
    before, hard_swish, after = found
    if not made_blocked(view, value):  # perhaps with an activation, behind which no map goes into the Conv
        if hard_swish or not made_blocked(view, value := activated_from(view, value)):
            return None
        before, after = Affine(), before
    if before.is_identity and after.is_identity:
        return Epilogue(before, hard_swish, after, 0) if hard_swish else None
    shape = view.type_of(value).shape
    channels = shape[1] if shape is not None else None
    if not isinstance(channels, int) or view.opset < _OLDEST_BATCH_NORMALIZATION:
        return None
    if not (before.is_ordinary and after.is_ordinary and has_constant_weights(view, value)):
        return None
    # One behind an activation is a pass of its own, which should spare the next operator the other layout.
    if not after.is_identity and not any(takes_blocks(view, c) for c in view.consumers.get(result, ())):
        return None
    return Epilogue(before, hard_swish, after, channels)


def _taken_apart(program: Program) -> tuple[Affine, bool, Affine] | None:
    """A program of one float32 input, read as it is written, as an affine map, a HardSwish or none, and another map."""
    if len(program.kernels) != 1 or len(program.inputs) != 1 or len(program.kernels[0].outputs) != 1:
        return None
    kernel = program.kernels[0]
    (x, *more) = [k for k, s in enumerate(kernel.statements) if isinstance(s, Input)]
    given, output = kernel.statements[x], kernel.outputs[0]
    if more or not isinstance(given, Input) or given.map != output.map or {given.type, output.type} != {"f32"}:
        return None
    base, after = _affine(kernel, output.value)
    if base == x:
        return after, False, Affine()
    factors: list[int] = []
    _product(kernel, base, factors, None)
    for w in sorted({w for k in factors if (w := _clipped(kernel, k)) is not None}):
        factors.clear()
        scale = after.scale * 6 * _product(kernel, base, factors, w)
        others = [k for k in factors if k != w]
        start, before = _affine(kernel, w)
        if start == x and len(factors) == 2 and len(others) == 1 and _clipped(kernel, others[0]) == w:
            return before, True, Affine(1.0 if abs(scale - 1) < 6 * _NEAR else scale, after.shift)
    return None


def _affine(kernel: Kernel, k: int) -> tuple[int, Affine]:
    """The value of which another one is an affine map, and the map."""
    scale, shift = 1.0, 0.0
    while (step := _affine_step(kernel, k)) is not None:
        k, by, plus = step
        scale, shift = scale * by, shift + scale * plus
    return k, Affine(scale, shift)


def _affine_step(kernel: Kernel, k: int) -> tuple[int, float, float] | None:
    """Where a value is a product, quotient, sum or difference of x and a constant: x, a and b of x * a + b."""
    statement = kernel.statements[k]
    if not isinstance(statement, Apply) or statement.op not in ("mul", "div", "add", "sub"):
        return None
    first, second = (kernel.statements[operand] for operand in statement.operands)
    if isinstance(second, Const):
        c, x = float(second.value), statement.operands[0]
        if statement.op == "div":
            return (x, 1 / c, 0.0) if c != 0 else None
        return {"mul": (x, c, 0.0), "add": (x, 1.0, c), "sub": (x, 1.0, -c)}[statement.op]
    if isinstance(first, Const) and statement.op != "div":
        c, x = float(first.value), statement.operands[1]
        return {"mul": (x, c, 0.0), "add": (x, 1.0, c), "sub": (x, -1.0, c)}[statement.op]
    return None


def _product(kernel: Kernel, k: int, factors: list[int], whole: int | None) -> float:
    """Takes a product apart, all but `whole`: adds what is no constant to `factors`, returns the constants' product."""
    statement = kernel.statements[k]
    if isinstance(statement, Const):
        return float(statement.value)
    if isinstance(statement, Apply) and statement.op == "mul" and k != whole:
        a, b = statement.operands
        return _product(kernel, a, factors, whole) * _product(kernel, b, factors, whole)
    if isinstance(statement, Apply) and statement.op == "div" and k != whole:
        divisor = kernel.statements[statement.operands[1]]
        if isinstance(divisor, Const) and divisor.value != 0:
            return _product(kernel, statement.operands[0], factors, whole) / float(divisor.value)
    factors.append(k)
    return 1.0


def _clipped(kernel: Kernel, k: int) -> int | None:
    """The x of which a value is clip(x + 3, 0, 6), the bounds in any order."""
    bounds = {}
    for op in ("min", "max", "min"):
        if (found := _with_constant(kernel, k, op)) is not None and op not in bounds:
            k, bounds[op] = found
    shifted = _with_constant(kernel, k, "add") if bounds == {"max": 0.0, "min": 6.0} else None
    return shifted[0] if shifted is not None and shifted[1] == 3 else None


def _with_constant(kernel: Kernel, k: int, op: str) -> tuple[int, float] | None:
    """The other operand and the constant, where a value is this operation with one."""
    statement = kernel.statements[k]
    if isinstance(statement, Apply) and statement.op == op:
        for value, constant in (statement.operands, statement.operands[::-1]):
            found = kernel.statements[constant]
            if isinstance(found, Const):
                return value, float(found.value)
    return None
