"""Programs fitted to tensors whose floating-point type another tool changed."""

from __future__ import annotations

import pytest

from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.retype import retyped

PROGRAM = """onnxfuse 1
space d0
%0 = input 0 f32 [d0]
%1 = input 1 f32 [d0]
%2 = mul f32 %0 %1
%3 = input 2 i32 [d0]
%4 = cast f32 %3
%5 = add f32 %2 %4
output 0 f32 [d0] %5
output 1 f32 [d0] %2
"""


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (("f32", "f32", "i32"), ("f32", "f32"), ("f32 f32 i32", "f32 f32")),
        ((None, None, None), (None, None), ("f32 f32 i32", "f32 f32")),
        (("f16", "f16", "i32"), ("f16", "f16"), ("f16 f16 i32", "f16 f16")),
        (("f16", "f32", "i32"), ("bf16", "f32"), ("f16 f32 i32", "bf16 f32")),
        (("f16", "f16", None), (None, "f32"), ("f16 f16 i32", "f16 f32")),
        (("f16", "bf16", None), (None, None), ("f16 bf16 i32", "f32 f32")),  # which, cannot be known
        (("f64", "f16", "i32"), (None, None), ("f32 f32 i32", "f32 f32")),  # computes in another type
        (("f16", "f16", "i64"), (None, None), ("f32 f32 i32", "f32 f32")),
    ],
)
def test_retyped(inputs, outputs, expected):
    program = Program.parse(PROGRAM)
    fitted = retyped(program, inputs, outputs)
    assert tuple(" ".join(t for t, _ in tensors) for tensors in (fitted.inputs, fitted.outputs)) == expected
    assert Program.parse(fitted.text()) == fitted
    assert (fitted is program) == (fitted.text() == PROGRAM)
