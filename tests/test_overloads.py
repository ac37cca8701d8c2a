"""Functions of one name: a runtime that does not tell them apart by their overloads refuses the model."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import parse
from truth import run

from onnxfuse import optimize
from onnxfuse.custom_ops.overloads import is_mark
from onnxfuse.runtime import fused_nodes
from onnxfuse.validate.programs import wrong_functions

TWO = "g (float[8, 8] x) => (float[8, 8] y) { a = Relu (x) b = Exp (a) c = MatMul (b, x) d = Abs (c) y = Sqrt (d) }"
ONE = "g (float[8, 8] x) => (float[8, 8] y) { a = Relu (x) b = Exp (a) c = MatMul (b, x) d = Relu (c) y = Exp (d) }"
BRANCH = """g (float[8, 8] x, bool p) => (float[8, 8] y) {
    a = Relu (x) b = Exp (a)
    y = If (p) <then_branch = t () => (float[8, 8] u) { c = Abs (b) u = Sqrt (c) },
                else_branch = e () => (float[8, 8] v) { v = MatMul (b, b) }>
}"""
FEEDS = {"x": (np.random.default_rng(1).standard_normal((8, 8)) / 4).astype(np.float32)}
TELLS_APART = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 27)


def marks(model: onnx.ModelProto) -> list[str]:
    return [a.name for node in fused_nodes(model) for a in node.attribute if is_mark(a.name)]


@pytest.mark.parametrize("opset", [7, 11, 12, 17])
def test_each_is_for_its_own_nodes(opset: int) -> None:
    model = parse(TWO, opset)
    optimized = optimize(model, target="cpu").model
    assert len(set(marks(optimized))) == 2
    assert [[a for a in f.attribute if is_mark(a)] for f in optimized.functions] == [
        [m] for m in sorted(marks(optimized))
    ]
    assert not wrong_functions(optimized)
    expected = run(model, FEEDS, library=False)[0]
    np.testing.assert_allclose(run(optimized, FEEDS, library=True)[0], expected, rtol=1e-5)
    if TELLS_APART:
        np.testing.assert_allclose(run(optimized, FEEDS, library=False)[0], expected, rtol=1e-5)
    else:
        with pytest.raises(Exception, match="needs_the_library"):
            run(optimized, FEEDS, library=False)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("kept", [0, 1])
def test_one_function_for_all(opset: int, kept: int) -> None:
    """As ONNX Runtime before 1.27 sees the model."""
    model = optimize(parse(TWO, opset), target="cpu").model
    function = model.functions[kept]
    function.overload = ""
    del model.functions[:]
    model.functions.append(function)
    for node in fused_nodes(model):
        node.overload = ""
    with pytest.raises(Exception, match="needs_the_library"):
        run(model, FEEDS, library=False)
    run(model, FEEDS, library=True)


def test_branches() -> None:
    optimized = optimize(parse(BRANCH), target="cpu").model
    assert len(set(marks(optimized))) == 2


def test_nothing_is_marked_where_a_name_has_one_function() -> None:
    optimized = optimize(parse(ONE), target="cpu").model
    assert len(list(fused_nodes(optimized))) == 2
    assert not marks(optimized)
    expected = run(parse(ONE), FEEDS, library=False)[0]
    np.testing.assert_allclose(run(optimized, FEEDS, library=False)[0], expected, rtol=1e-5)


def test_a_second_run() -> None:
    """Changes nothing; marks what lost its mark; and takes marks away that nothing needs any more."""
    optimized = optimize(parse(TWO), target="cpu").model
    text = optimized.SerializeToString(deterministic=True)
    assert optimize(optimized, target="cpu").model.SerializeToString(deterministic=True) == text

    bare = onnx.ModelProto.FromString(text)
    for node in fused_nodes(bare):
        del node.attribute[1:]
        assert not is_mark(node.attribute[0].name)
    assert optimize(bare, target="cpu").model.SerializeToString(deterministic=True) == text

    left = onnx.ModelProto.FromString(text)
    del left.graph.node[-1]
    left.graph.node[-1].output[0] = "y"
    alone = optimize(left, target="cpu").model
    assert len(alone.functions) == 1
    assert not marks(alone)
    assert not any(is_mark(a) for a in alone.functions[0].attribute)
