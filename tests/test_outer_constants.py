"""Shapes in bodies follow from constants of the graphs around them: axes, bounds and targets among the main weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from graph_check import check
from graphs import feeds_for, parse

from onnxfuse.bodies import graphs
from onnxfuse.rewrites.dims import Shape, Symbols
from onnxfuse.rewrites.known_conditions import KnownConditions
from onnxfuse.rewrites.shapes import infer, symbolic_scope
from onnxfuse.runtime import make_session

ELSE = "else_branch = e () => (float[?] q) { q = Identity (x) }"


def branch(nodes: str) -> str:
    """An If whose first branch computes `v` from x, and Exp and Neg of it."""
    return f"y = If (b) <then_branch = t () => (float[?] p) {{ {nodes} u = Exp (v) p = Neg (u) }}, {ELSE}>"


def text_of(nodes: str, constants: str, outside: str = "", inputs: str = "float[N, 4, 6] x, bool b") -> str:
    return f"g ({inputs}) => (float[A, B, C] y) <{constants}> {{ {outside} {nodes} }}"


def without_results(text: str, opset: int) -> onnx.ModelProto:
    """The model without the shapes that the text must declare for results."""
    model = parse(text, opset)
    for graph in graphs(model.graph):
        for output in graph.output:
            output.type.tensor_type.ClearField("shape")
    return model


def shapes_in_bodies(text: str, name: str) -> list[Shape | None]:
    """What is known of the values of that name."""
    seen = KnownConditions(without_results(text, 17), 17).seen.values()
    return [s.types[name].shape for s in seen if name in s.types]


def operators_in_bodies(text: str, opset: int = 17, **how: Any) -> list[str]:
    """The operators that are fused in bodies, after results were checked; nothing is copied into the bodies."""
    model = without_results(text, opset)
    feeds = {**feeds_for(model), "b": np.array(True)}
    rank = make_session(model).run(None, feeds)[0].ndim
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, [f"y{k}" for k in range(rank)]))
    result, report = check(model, feeds, **how)
    assert not any(body.initializer for body in list(graphs(result.graph))[1:])
    assert {t.name for t in result.graph.initializer} <= {t.name for t in model.graph.initializer}
    return sorted(op for fusion in report.fusions if fusion.graph for op in fusion.operators)


# What computes `v` from x, of shape [N, 4, 6], the constants that it reads, and the shape of `v` (None: of a run).
READERS: dict[str, tuple[str, str, list[int | None]]] = {
    "Unsqueeze": ("v = Unsqueeze (x, k)", "int64[1] k = {1}", [None, 1, 4, 6]),
    "Squeeze": ("w = Unsqueeze (x, k) v = Squeeze (w, k)", "int64[1] k = {1}", [None, 4, 6]),
    "Slice": ("v = Slice (x, k, l, k)", "int64[1] k = {1}, int64[1] l = {3}", [None, 2, 6]),
    "Pad": ("v = Pad (x, k)", "int64[6] k = {0, 0, 1, 0, 0, 1}", [None, 4, 8]),
    "Reshape": ("v = Reshape (x, k)", "int64[2] k = {-1, 24}", [None, 24]),
    "Tile": ("v = Tile (x, k)", "int64[3] k = {1, 2, 1}", [None, 8, 6]),
    "Expand": (
        "w = Unsqueeze (x, k) v = Expand (w, l)",
        "int64[1] k = {1}, int64[4] l = {1, 2, 1, 1}",
        [None, 2, 4, 6],
    ),
    "ReduceSum": ("v = ReduceSum <keepdims = 0> (x, k)", "int64[1] k = {1}", [None, 6]),
    "Split": ("w, v = Split <axis = 1> (x, k)", "int64[2] k = {1, 3}", [None, 3, 6]),
    "Resize": (
        'w = Unsqueeze (x, k) v = Resize <mode = "nearest"> (w, , l)',
        "int64[1] k = {1}, float[4] l = {1, 1, 2, 2}",
        [None, 1, 8, 12],
    ),
    "ConstantOfShape": ("w = ConstantOfShape (k) v = Add (w, x)", "int64[3] k = {2, 4, 6}", [2, 4, 6]),
    "OneHot": (
        "i = ArgMax <axis = 2, keepdims = 0> (x) v = OneHot (i, k, l)",
        "int64 k = {6}, float[2] l = {0, 1}",
        [None, 4, 6],
    ),
    "TopK": ("v, i = TopK (x, k)", "int64[1] k = {2}", [None, 4, 2]),
}


@pytest.mark.parametrize(("nodes", "constants", "shape"), READERS.values(), ids=READERS)
def test_whatever_reads_them(nodes: str, constants: str, shape: list[int | None]) -> None:
    """Exp and Neg are not fused where their rank is not known."""
    text = text_of(branch(nodes), constants)
    (found,) = shapes_in_bodies(text, "v")
    assert found is not None
    assert [d if isinstance(d, int) else None for d in found] == shape
    assert {"Exp", "Neg"} <= set(operators_in_bodies(text, target="cuda"))


SOURCES = {
    "a Constant": ("k = Constant <value = int64[1] {1}> ()", ""),
    "integers of a Constant": ("k = Constant <value_ints = [1]> ()", ""),
    "what is computed": ("a = Add (one, one) c = Sub (a, one) k = Unsqueeze (c, zeros)",
                         "int64 one = {1}, int64[1] zeros = {0}"),
}  # fmt: skip


@pytest.mark.parametrize(("outside", "constants"), SOURCES.values(), ids=SOURCES)
def test_wherever_they_come_from(outside: str, constants: str) -> None:
    text = text_of(branch("v = ReduceSum <keepdims = 0> (x, k)"), constants, outside)
    (found,) = shapes_in_bodies(text, "v")
    assert found is not None
    assert found[1:] == (6,)
    assert {"Exp", "Neg"} <= set(operators_in_bodies(text, target="cpu"))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_at_any_depth(target: str) -> None:
    inner = branch("v = Slice (x, k, l, k, m)").replace("y = If", "z = If")
    middle = f"then_branch = o () => (float[?] z) {{ m = Constant <value_ints = [1]> () {inner} }}, {ELSE}"
    text = text_of(f"y = If (b) <{middle}>", "int64[1] k = {1}, int64[1] l = {3}")
    assert operators_in_bodies(text, target=target)[-2:] == ["Neg", "Slice"] or target == "cpu"
    assert {"Exp", "Neg"} <= set(operators_in_bodies(text, target=target))


@pytest.mark.parametrize("opset", [10, 11, 13, 18])
def test_in_all_opsets(opset: int) -> None:
    nodes = "v = Slice (x, k, l, k)"
    text = text_of(branch(nodes), "int64[1] k = {1}, int64[1] l = {3}")
    model = without_results(text, opset)
    (then, _) = next(n for n in infer(model).graph.node if n.op_type == "If").attribute
    known = symbolic_scope(then.g, {}, Symbols())
    assert known["p"].shape is not None
    assert [known["p"].shape[k] for k in (1, 2)] == [2, 6]


def test_in_the_body_of_a_loop() -> None:
    body = (
        "y = Loop (n, b, x) <body = l (int64 i, bool go, float[?] s) => (bool h, float[?] r) "
        "{ h = Identity (go) v = Reshape (s, k) u = Exp (v) w = Neg (u) r = Reshape (w, full) }>"
    )
    constants = "int64 n = {2}, int64[2] k = {-1, 24}, int64[3] full = {-1, 4, 6}"
    assert {"Exp", "Neg"} <= set(operators_in_bodies(text_of(body, constants), target="cpu"))


def test_a_value_that_the_caller_may_override_says_nothing() -> None:
    text = text_of(branch("v = Reshape (x, k)"), "", inputs="float[N, 4, 6] x, bool b, int64[2] k = {-1, 24}")
    model = without_results(text, 17)
    assert not [t for n in infer(model).graph.node for a in n.attribute for t in a.g.initializer]


@pytest.mark.parametrize(
    ("state", "weight", "shape"),
    [
        ("m", "", ("?", 24)),
        ("m", "int64[3] k = {-1, 2, 12}", ("?", 2, 12)),
        ("k", "", ("?", "?", "?")),
    ],
)
def test_a_body_with_a_value_of_that_name(state: str, weight: str, shape: tuple[int | str, ...]) -> None:
    """It reads its own, and so does a body inside of it."""
    inner = f"r = If (go) <then_branch = t () => (float[?] p) {{ p = Reshape (x, k) }}, {ELSE}>"
    body = (
        f"z, y = Loop (n, b, start) <body = l (int64 i, bool go, int64[3] {state}) => (bool h, int64[3] c, float[?] r) "
        f"<{weight}> {{ h = Identity (go) {inner} c = Identity ({state}) }}>"
    )
    text = text_of(body, "int64 n = {1}, int64[3] start = {-1, 4, 6}, int64[2] k = {-1, 24}")
    (found,) = shapes_in_bodies(text, "p")
    assert found is not None
    assert tuple(d if isinstance(d, int) else "?" for d in found) == shape


def test_large_weights_are_not_copied() -> None:
    values = ", ".join(["1"] * 4096)
    constants = (
        f"float[4096] w = {{{values}}}, int64[4096] places = {{{values}}}, "
        "int64[1] k = {1}, int64[1] six = {7}, int64[1] zeros = {0}"
    )
    nodes = "l = Gather (w, places) r = Slice (l, k, six, zeros) m = Mul (x, r) v = Unsqueeze (m, k)"
    text = text_of(branch(nodes), constants)
    (then, _) = next(n for n in infer(parse(text)).graph.node if n.op_type == "If").attribute
    assert {t.name for t in then.g.initializer} == {"k", "six", "zeros"}
    assert {"Exp", "Neg"} <= set(operators_in_bodies(text, target="cpu"))
