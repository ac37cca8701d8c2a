"""Where the library is absent, each fused node runs its own local function, or the model is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import parse
from onnx.reference import ReferenceEvaluator
from truth import knows_overloads, run

import onnxfuse
from onnxfuse.custom_ops.overloads import GUARD
from onnxfuse.validate.programs import wrong_functions

# What fuses into nodes of these op types, in the order in which they run.
BODIES = {
    "one": ("h = MatMul (x, w) a = Relu (h) y = Exp (a)", ["FusedElementwise"]),
    "one of each": (
        "a = Tanh (x) b = Abs (a) h = MatMul (b, w) e = Exp (h) m = ReduceMax <axes = [1]> (e) y = Sub (e, m)",
        ["FusedElementwise", "FusedReduction"],
    ),
    "one twice": (
        "a = Tanh (x) b = Abs (a) h = MatMul (b, w) c = Tanh (h) y = Abs (c)",
        ["FusedElementwise", "FusedElementwise"],
    ),
    "two": (
        "a = Tanh (x) b = Abs (a) h = MatMul (b, w) c = Exp (h) y = Neg (c)",
        ["FusedElementwise", "FusedElementwise"],
    ),
    "two of several inputs": (
        "a = Add (x, w) b = Abs (a) h = MatMul (b, w) c = Exp (h) y = Neg (c)",
        ["FusedElementwise", "FusedElementwise"],
    ),
}
TWO = ["two", "two of several inputs"]


def optimized(name: str, opset: int = 17) -> tuple[onnx.ModelProto, onnx.ModelProto, dict[str, np.ndarray]]:
    text, op_types = BODIES[name]
    model = parse(f"g (float[4, 4] x, float[4, 4] w) => (float[4, 4] y) {{ {text} }}", opset)
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal((4, 4)).astype(np.float32) for name in "xw"}
    result = onnxfuse.optimize(model, target="cpu").model
    assert [n.op_type for n in result.graph.node if n.domain == "onnxfuse"] == op_types
    return model, result, feeds


@pytest.mark.parametrize("opset", [7, 11, 12, 17])
@pytest.mark.parametrize("name", BODIES)
def test_without_the_library_it_is_right_or_refused(name: str, opset: int) -> None:
    model, fused, feeds = optimized(name, opset)
    onnx.checker.check_model(fused, full_check=True)
    expected = run(model, feeds, library=False)[0]
    np.testing.assert_allclose(run(fused, feeds, library=True)[0], expected, rtol=1e-6, atol=1e-6)
    if name in TWO and not knows_overloads():
        with pytest.raises(Exception, match=r"needs ONNX Runtime 1\.27 or later; `onnxfuse restore`"):
            run(fused, feeds, library=False)
    else:
        np.testing.assert_array_equal(run(fused, feeds, library=False)[0], expected)


@pytest.mark.parametrize("name", BODIES)
def test_a_guard_comes_last_where_a_name_alone_does_not_tell(name: str) -> None:
    _, fused, _ = optimized(name)
    overloads = [f.overload for f in fused.functions]
    assert (overloads[-1] == GUARD) == (name in TWO)
    assert overloads.count(GUARD) == (name in TWO)
    assert wrong_functions(fused) == []
    again = onnxfuse.optimize(fused, target="cpu").model
    assert again.SerializeToString(deterministic=True) == fused.SerializeToString(deterministic=True)


def test_a_guard_goes_with_its_reason() -> None:
    _, fused, _ = optimized("two")
    assert not onnxfuse.restore(fused).model.functions
    del fused.graph.node[1:]  # all behind the first fused node
    fused.graph.output[0].name = fused.graph.node[0].output[0]
    again = onnxfuse.optimize(fused, target="cpu").model
    assert [f.overload for f in again.functions] == [again.graph.node[0].overload]


@pytest.mark.parametrize("name", TWO)
def test_what_else_ignores_overloads_refuses(name: str) -> None:
    """onnx.reference of onnx 1.23 took the last function of a name, too."""
    _, fused, feeds = optimized(name)
    with pytest.raises(Exception, match=r"Mismatch|axis 9|MatMul"):
        ReferenceEvaluator(fused).run(None, feeds)
