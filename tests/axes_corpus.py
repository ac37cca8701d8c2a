"""Programs whose axes arrive with a run, shapes for them, and all axes that they take."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st

from onnxfuse.custom_ops.over_axes import varying
from onnxfuse.custom_ops.program import Apply, Input, Kernel, Output, Program, Statement, dependencies, dim
from onnxfuse.custom_ops.runtime_axes import RuntimeAxes

SOFTMAX = """onnxfuse 1
space d0 d1 d2
axes 0 i64 [?] d0 d1 d2
%0 = input 1 f32 [d0, d1, d2]
%1 = reduce_max f32 %0
%2 = sub f32 %0 %1
%3 = exp f32 %2
%4 = reduce_sum f32 %3
%5 = div f32 %3 %4
%6 = log f32 %4
output 0 f32 [d0, d1, d2] %5
output 1 f32 [d0, d1, d2] %6
"""
SQUEEZED = """onnxfuse 1
space d0 d1=3 d2
axes 0 i64 [{count}] d0 d1 d2
%0 = input 1 f32 [d0, d1, d2]
%1 = mul f32 %0 %0
%2 = reduce_mean f32 %1
output 0 f32 squeezed [d0, d1, d2] %2
"""
TRANSPOSED = """onnxfuse 1
space d0 d1 d2
axes 0 i32 [2] d2 d0 d1
%0 = input 1 f16 [d0, d1, d2]
%1 = reduce_sum f32 %0
%2 = input 2 f16 [d1]
%3 = add f32 %1 %2
output 0 f16 [d2, d0, d1] %3
output 1 f16 squeezed [d2, d0, d1] %1
"""
NOOP = """onnxfuse 1
space d0 d1
axes 0 i64 [?] noop d0 d1
%0 = input 1 f32 [d0, d1]
%1 = abs f32 %0
%2 = reduce_sum f32 %1
output 0 f32 [d0, d1] %2
"""
SCAN = """onnxfuse 1
space d0 d1 d2
axes 0 i32 [] d0 d1 d2
%0 = input 1 f32 [d0, d1, d2]
%1 = scan_sum exclusive reverse f32 %0
output 0 f32 [d0, d1, d2] %1
"""
INTEGERS = """onnxfuse 1
space d0 d1
axes 0 i64 [1] d0 d1
%0 = input 1 i32 [d0, d1]
%1 = reduce_max i32 %0
%2 = reduce_prod i32 %0
output 0 i32 [d0, d1] %1
output 1 i32 squeezed [d0, d1] %2
"""
CASES = {
    "softmax": (SOFTMAX, [(3, 4, 5)], range(4)),
    "squeezed 1": (SQUEEZED.format(count=1), [(2, 3, 5)], [1]),
    "squeezed 2": (SQUEEZED.format(count=2), [(2, 3, 5)], [2]),
    "squeezed 3": (SQUEEZED.format(count=3), [(2, 3, 5)], [3]),
    "transposed": (TRANSPOSED, [(2, 3, 5), (3,)], [2]),
    "noop": (NOOP, [(4, 5)], range(3)),
    "scan": (SCAN, [(3, 4, 5)], [1]),
    "integers": (INTEGERS, [(4, 5)], [1]),
}


def spellings(rank: int, count: int) -> list[list[int]]:
    """All axes in all orders, with and without signs."""
    found = []
    for axes in itertools.permutations(range(rank), count):
        found += [list(axes), [a - rank for a in axes], [a - rank if k % 2 else a for k, a in enumerate(axes)]]
    return [list(axes) for axes in dict.fromkeys(map(tuple, found))]


def feeds(program: Program, axes: list[int], shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    numbers = np.array(axes, {"i32": np.int32, "i64": np.int64}[program.inputs[0][0]])
    data = []
    for (type_, _), shape in zip(program.inputs[1:], shapes, strict=True):
        x = rng.integers(-9, 9, shape).astype(np.int32) if type_ == "i32" else rng.normal(size=shape)
        data.append(x if type_ == "i32" else x.astype(np.float16 if type_ == "f16" else np.float32))
    return [numbers.reshape(()) if program.inputs[0][1] == 0 else numbers, *data]


@st.composite
def programs(draw: Any) -> Program:
    """Random ones: a tensor with all dimensions, one with some, and what is computed from them."""
    rank = draw(st.integers(1, 4))
    everything = frozenset(range(rank))
    order = draw(st.permutations(range(rank)))
    some = draw(st.lists(st.integers(0, rank - 1), unique=True))
    axes = RuntimeAxes(
        draw(st.sampled_from(("i32", "i64"))), draw(st.sampled_from((None, *range(1, rank + 1)))),
        tuple(draw(st.permutations(range(rank)))),
    )  # fmt: skip
    statements: list[Statement] = [Input(1, "f32", tuple(map(dim, order))), Input(2, "f32", tuple(map(dim, some)))]

    def kernel(outputs: list[Output]) -> Kernel:
        return Kernel((None,) * rank, rank, 0, tuple(statements), tuple(outputs), axes=axes)

    for _ in range(draw(st.integers(1, 8))):
        vary = varying(kernel([]))
        points = [n for n, own in enumerate(vary) if own == everything]
        if draw(st.booleans()):
            op = draw(st.sampled_from(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min")))
            statements.append(Apply(op, "f32", (draw(st.sampled_from(points)),)))
        else:
            op = draw(st.sampled_from(("add", "sub", "min", "max", "tanh", "neg")))
            operands = draw(st.lists(st.integers(0, len(statements) - 1), min_size=2, max_size=2))
            statements.append(Apply(op, "f32", tuple(operands[: 1 if op in ("tanh", "neg") else 2])))
    vary, depends = varying(kernel([])), dependencies(kernel([]))
    outputs: list[Output] = []
    for n in [n for n, own in enumerate(depends) if own == everything][-3:]:
        squeezed = not vary[n] and axes.count is not None and draw(st.booleans())
        map_ = axes.dims if squeezed else draw(st.permutations(range(rank)))
        outputs.append(Output(len(outputs), "f32", tuple(map(dim, map_)), n, squeezed))
    return Program((kernel(outputs),))
