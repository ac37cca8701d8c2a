"""Extents that only a collapsed dimension shows: windows of an image that lie in the batch's dimension."""

from __future__ import annotations

from pathlib import Path

import cpu_runner
import lowered
import numpy as np
import pytest
from graphs import optimized, parse

from onnxfuse import optimize, restore
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.errors import ProgramError
from onnxfuse.kernels import compile_kernels

WINDOWS = """onnxfuse 1
space d0 d1=2 d2=3 | d3 |
%0 = input 0 f32 [6*d0+3*d1+d2, d3]
%1 = input 1 f32 [d1, d2, d3]
%2 = add f32 %0 %1
%3 = reduce_max f32 %2
%4 = sub f32 %2 %3
output 0 f32 [6*d0+3*d1+d2, d3] %4
output 1 f32 [d0, 3*d1+d2:6] %3
"""


def arrays(batch: int, length: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(batch)
    shapes = ((6 * batch, length), (2, 3, length))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("batch", [0, 1, 2, 7])
def test_program(batch: int) -> None:
    """The engine, the local function and the interpreter."""
    inputs = arrays(batch)
    if batch:
        whole = inputs[0].reshape(batch, 2, 3, 5) + inputs[1]
        found = cpu_runner.check(WINDOWS, *inputs, floor=1e-6)
        np.testing.assert_array_equal(found[1], whole.max(-1).reshape(batch, 6))
    lowered.check(WINDOWS, inputs, opsets=(9, 11, 13, 14, 18, 21), reference=batch > 0)


def test_an_extent_that_is_no_multiple() -> None:
    inputs = arrays(2)
    with pytest.raises(Exception, match="extent 11 in dimension 0, which must be a multiple of 6"):
        cpu_runner.run(WINDOWS, inputs[0][:11], inputs[1])
    with pytest.raises(ValueError, match="no multiple of 6"):
        lowered.evaluate(Program.parse(WINDOWS), [inputs[0][:11], inputs[1]])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("6*d0+3*d1+d2, d3]", "6*d0+3*d1+d2+1, d3]"),
        ("6*d0+3*d1+d2, d3]", "7*d0+3*d1+d2, d3]"),  # element 6 of each window would be left out
        ("6*d0+3*d1+d2, d3]", "6*d0+d1+2*d2, d3]"),
        ("d1=2", "d1"),
        ("d2=3", "d2=0"),
    ],
)
def test_rules(old: str, new: str) -> None:
    """Where the entry does not count through the dimension, it shows no extent."""
    text = WINDOWS.replace(old, new)
    assert text != WINDOWS
    with pytest.raises(ProgramError):
        Program.parse(text)
    with pytest.raises(Exception, match="program line"):
        cpu_runner.session_of(text, Program.parse(WINDOWS))


# The product in between is no part of the region: what it gives has a dimension of all windows, 4 for each image.
MASK = """g (TYPE[batch, 4, 15, 5] x, TYPE[1, 3, 5, 5] bias, TYPE[1, 4, 1, 5, 5] mask) => (TYPE[a, 3, 5, 5] y)
<int64[4] windows = {-1, 3, 5, 5}, int64[5] apart = {-1, 4, 3, 5, 5}> {
    r = Reshape (x, windows) t = Transpose <perm = [0, 1, 3, 2]> (r) s = MatMul (r, t)
    a = Add (s, bias) b = Reshape (a, apart) c = Add (b, mask) d = Reshape (c, windows) y = Softmax <axis = -1> (d)
}"""


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("type_", ["float", "float16"])
def test_a_mask_for_each_window_of_a_batch(type_: str, target: str) -> None:
    for batch in (1, 3):
        kinds, model, report = optimized(MASK.replace("TYPE", type_), 17, sizes={"batch": batch}, target=target)
        assert kinds == ["FusedSoftmax"], report.refusals
        program = next(n for n in model.graph.node if n.domain == "onnxfuse").attribute[0].s.decode()
        assert "4*d0+d1" in program


def test_restored_and_compiled(tmp_path: Path, nvrtc: str) -> None:
    model = optimize(parse(MASK.replace("TYPE", "float"), 17), target="cuda").model
    assert [n.op_type for n in model.graph.node if n.domain == "onnxfuse"] == ["FusedSoftmax"]
    assert "Gather" not in [n.op_type for n in restore(model).model.graph.node]
    assert compile_kernels(model, tmp_path / "kernels", ["sm_90"], {"batch": [1, 16]}).ok


@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
def test_beside_axes_that_a_run_brings(axes: list[int]) -> None:
    """Dimensions change places with the axes; the one that counts still comes first."""
    text = (
        "onnxfuse 1\nspace d0 d1=3 d2\naxes 0 i64 [?] d0 d1 d2\n%0 = input 1 f32 [3*d0+d1, d2]\n"
        "%1 = reduce_sum f32 %0\n%2 = sub f32 %0 %1\noutput 0 f32 [d0, d1, d2] %2\n"
    )
    x, given = np.arange(24, dtype=np.float32).reshape(6, 4), np.array(axes, np.int64)
    expected = x.reshape(2, 3, 4) - x.reshape(2, 3, 4).sum(tuple(axes), keepdims=True)
    for (found,) in (cpu_runner.run(text, given, x), evaluate(Program.parse(text), [given, x])):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
