"""Programs whose axes arrive with a run, shapes for them, and all axes that they take."""

from __future__ import annotations

import itertools

import numpy as np

from onnxfuse.custom_ops.program import Program

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
