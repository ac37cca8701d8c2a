"""Nodes that only show a tensor in other shapes are one, or none, and every result stays what it was, to the bit."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from graphs import optimized, parse
from rewritten import rewritten

from onnxfuse.rewrites.merged_views import merge_views

OPSETS = [9, 11, 13, 18, 21]
SIZES = ({"N": 2, "M": 3}, {"N": 1, "M": 1}, {"N": 0, "M": 2})


def with_axes(op: str, axes: str, value: str, name: str, opset: int, more: str = "") -> str:
    """An operator with axes: an attribute, or from opset 13 on (of reductions, 18) an input."""
    if opset < 13 or (op.startswith("Reduce") and op != "ReduceSum" and opset < 18):
        return f"{name} = {op} <{more}axes = [{axes}]> ({value})"
    attributes = f"<{more.rstrip(', ')}> " if more else ""
    return f"a_{name} = Constant <value_ints = [{axes}]> () {name} = {op} {attributes}({value}, a_{name})"


def merged(
    nodes: str,
    inputs: str = "float[N, 1, M] x",
    outputs: str = "float[A, B, C] y",
    opset: int = 17,
    sizes: Sequence[Mapping[str, int]] = SIZES,
    values: str = "",
) -> Counter[str]:
    """How often each operator is left, once the results for all sizes have been compared."""
    model = parse(f"g ({inputs}) => ({outputs}) <{values}> {{ {nodes} }}", opset)
    return rewritten(model, merge_views, opset, sizes)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(("gone", "back"), [("1", "1"), ("-2", "1"), ("1", "-2"), ("-2", "-2")])
def test_an_axis_that_goes_and_comes_back(gone: str, back: str, opset: int) -> None:
    if opset < 11 and "-" in gone + back:
        return  # no axis may be negative there
    squeeze, unsqueeze = (with_axes(op, a, v, n, opset) for op, a, v, n in (
        ("Squeeze", gone, "e", "s"), ("Unsqueeze", back, "s", "u"),
    ))  # fmt: skip
    assert merged(f"e = Exp (x) {squeeze} {unsqueeze} y = Neg (u)", opset=opset) == {"Exp": 1, "Neg": 1}


@pytest.mark.parametrize("opset", OPSETS)
def test_an_axis_that_comes_and_goes(opset: int) -> None:
    unsqueeze, squeeze = with_axes("Unsqueeze", "0, 2", "e", "u", opset), with_axes("Squeeze", "0, 2", "u", "s", opset)
    assert merged(f"e = Exp (x) {unsqueeze} {squeeze} y = Neg (s)", opset=opset) == {"Exp": 1, "Neg": 1}


def test_an_output_keeps_its_name() -> None:
    nodes = "e = Exp (x) k = Constant <value_ints = [1]> () s = Squeeze (e, k) y = Unsqueeze (s, k)"
    assert merged(nodes) == {"Exp": 1, "Reshape": 1}
    assert merged(nodes, outputs="float[A, B, C] y, float[A, C] s") == {"Exp": 1, "Squeeze": 1, "Unsqueeze": 1}


def test_negative_axes_of_old_opsets_stay() -> None:
    """They are not valid there, and ONNX Runtime does with them what it likes."""
    model = parse(
        "g (float[N, 1, M] x) => (float[A, B, C] y) { e = Exp (x) s = Squeeze <axes = [-2]> (e) "
        "u = Unsqueeze <axes = [1]> (s) y = Neg (u) }",
        opset=9,
    )
    assert merge_views(model, 9) == (model, 0)


def test_what_may_fail_stays() -> None:
    """A Squeeze of an extent that only a run shows, a Reshape that may not fit."""
    nodes = "e = Exp (x) k = Constant <value_ints = [1]> () s = Squeeze (e, k) u = Unsqueeze (s, k) y = Neg (u)"
    sizes = [{"N": 2, "M": 3, "K": k} for k in (1, 2)]
    assert merged(nodes, "float[N, K, M] x", sizes=sizes)["Squeeze"] == 1
    nodes = (
        "e = Exp (x) t = Constant <value_ints = [6]> () s = Reshape (e, t) w = Constant <value_ints = [3, 1, -1]> () "
        "u = Reshape (s, w) y = Neg (u)"
    )
    assert merged(nodes, sizes=[{"N": 2, "M": 3}, {"N": 3, "M": 3}])["Reshape"] == 2


def test_an_outer_view_still_fails() -> None:
    """Two columns are no three: that does not depend on how they are shown in between."""
    nodes = (
        "e = Exp (x) k = Constant <value_ints = [1]> () s = Squeeze (e, k) w = Constant <value_ints = [3, -1, 1]> () "
        "u = Reshape (s, w) y = Neg (u)"
    )
    assert merged(nodes, sizes=[{"N": 2, "M": 2}, {"N": 3, "M": 2}]) == {"Exp": 1, "Reshape": 1, "Neg": 1}


@pytest.mark.parametrize("opset", OPSETS)
def test_several_of_one_kind(opset: int) -> None:
    first, second = with_axes("Unsqueeze", "0, 4", "e", "u", opset), with_axes("Unsqueeze", "1, 3", "u", "v", opset)
    nodes = f"e = Exp (x) {first} {second} y = Neg (v)"
    outputs = "float[A, B, C, D, E, F, G] y"
    assert merged(nodes, outputs=outputs, opset=opset) == {"Exp": 1, "Unsqueeze": 1, "Neg": 1}
    first, second = with_axes("Squeeze", "1, 4", "e", "u", opset), with_axes("Squeeze", "0", "u", "v", opset)
    nodes, inputs = f"e = Exp (x) {first} {second} y = Neg (v)", "float[1, 1, N, M, 1] x"
    assert merged(nodes, inputs, "float[A, B] y", opset) == {"Exp": 1, "Squeeze": 1, "Neg": 1}


@pytest.mark.parametrize("middle", ["0, -1", "-1, 3", "0, 0, 3", "-1"])
def test_reshapes_of_reshapes(middle: str) -> None:
    nodes = (
        f"e = Exp (x) t = Constant <value_ints = [{middle}]> () s = Reshape (e, t) w = Constant "
        "<value_ints = [-1, 1, 3]> () u = Reshape (s, w) y = Neg (u)"
    )
    assert merged(nodes, "float[N, 1, 3] x", sizes=[{"N": n} for n in (1, 2)]) == {"Exp": 1, "Neg": 1}
    assert merged(nodes, "float[N, 3] x", sizes=[{"N": n} for n in (1, 2)])["Reshape"] == (middle != "0, 0, 3") or 2


def test_a_zero_in_the_target_means_the_extent_in_between() -> None:
    nodes = (
        "e = Exp (x) t = Constant <value_ints = [6, 2]> () s = Reshape (e, t) w = Constant <value_ints = [0, 2, 1]> () "
        "u = Reshape (s, w) y = Neg (u)"
    )
    assert merged(nodes, "float[3, 4] x", sizes=[{}]) == {"Exp": 1, "Reshape": 1, "Neg": 1}


@pytest.mark.parametrize(
    ("extents", "axes", "back"), [("1, 0", "0", "-1"), ("2, 1, 0", "1", "0"), ("1, N, 0", "0", "1"), ("0, 1", "1", "0")]
)
def test_extents_of_zero_are_not_those_of_the_source(extents: str, axes: str, back: str) -> None:
    nodes = (
        f"e = Exp (x) k = Constant <value_ints = [{axes}]> () s = Squeeze (e, k) "
        f"l = Constant <value_ints = [{back}]> () u = Unsqueeze (s, l) y = Neg (u)"
    )
    outputs = f"float[{', '.join('ABC'[: extents.count(',') + 1])}] y"
    assert merged(nodes, f"float[{extents}] x", outputs, sizes=[{"N": n} for n in (0, 1, 3)])["Neg"] == 1


def test_a_transposition_that_moves_no_element() -> None:
    nodes = (
        "e = Exp (x) t = Transpose <perm = [0, 2, 1]> (e) k = Constant <value_ints = [2]> () s = Squeeze (t, k) "
        "l = Constant <value_ints = [0]> () u = Unsqueeze (s, l) y = Neg (u)"
    )
    assert merged(nodes, "float[N, 1, 5] x", sizes=[{"N": n} for n in (0, 1, 4)])["Transpose"] == 0
    moved = nodes.replace("[0, 2, 1]", "[1, 2, 0]").replace("value_ints = [2]", "value_ints = [0]")
    assert merged(moved, "float[N, 1, 5] x", sizes=[{"N": n} for n in (1, 4)])["Transpose"] == 1


def test_several_users() -> None:
    nodes = (
        "e = Exp (x) k = Constant <value_ints = [1]> () s = Squeeze (e, k) u = Unsqueeze (s, k) "
        "l = Constant <value_ints = [-1]> () v = Unsqueeze (s, l) y = Neg (u) z = Abs (v)"
    )
    outputs = "float[A, B, C] y, float[D, E, F] z"
    left = merged(nodes, "float[N, 1, 5] x", outputs, sizes=[{"N": n} for n in (0, 1, 4)])
    assert left == {"Exp": 1, "Neg": 1, "Abs": 1, "Reshape": 1}
    left = merged(f"{nodes} w = Sin (s)", "float[N, 1, 5] x", f"{outputs}, float[G, H] w", sizes=[{"N": 2}])
    assert left == {"Exp": 1, "Neg": 1, "Abs": 1, "Squeeze": 1, "Unsqueeze": 1, "Sin": 1}


@pytest.mark.parametrize(("axis", "new", "index"), [*itertools.product((1, -2), (1, -2), (0, 2, -1))])
@pytest.mark.parametrize("opset", [11, 17])
def test_one_element_taken_and_its_dimension_back(axis: int, new: int, index: int, opset: int) -> None:
    unsqueeze = with_axes("Unsqueeze", str(new), "g", "u", opset)
    nodes = f"e = Exp (x) g = Gather <axis = {axis}> (e, i) {unsqueeze} y = Neg (u)"
    left = merged(nodes, "float[N, 3, M] x", opset=opset, values=f"int64 i = {{{index}}}")
    assert left == {"Exp": 1, "Gather": 1, "Neg": 1}
    left = merged(nodes.replace(f"{new}]", "0]"), "float[N, 3, M] x", opset=opset, values=f"int64 i = {{{index}}}")
    assert left["Unsqueeze"] == 1


def test_an_element_that_is_not_there() -> None:
    nodes = (
        "e = Exp (x) g = Gather <axis = 1> (e, i) a = Constant <value_ints = [1]> () u = Unsqueeze (g, a) y = Neg (u)"
    )
    merged(nodes, "float[N, M, 2] x", values="int64 i = {2}", sizes=[{"N": 1, "M": m} for m in (1, 2, 3)])


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2"])
@pytest.mark.parametrize("axes", ["1", "-1", "0, 2"])
def test_reductions(axes: str, op: str, opset: int) -> None:
    axes = axes if opset >= 11 else axes.replace("-1", "2")
    reduction = with_axes(op, axes, "e", "r", opset, more="keepdims = 0, ")
    back = with_axes("Unsqueeze", axes, "r", "u", opset)
    sizes = [{"N": 2, "M": 3}]
    left = merged(f"e = Exp (x) {reduction} {back} y = Neg (u)", "float[N, 4, M] x", opset=opset, sizes=sizes)
    assert left == {"Exp": 1, op: 1, "Neg": 1}


def test_reductions_along_other_axes_or_of_several_users() -> None:
    nodes = (
        "e = Exp (x) r = ReduceMax <axes = [1], keepdims = 0> (e) k = Constant <value_ints = [2]> () "
        "u = Unsqueeze (r, k) "
    )
    sizes = [{"N": 2, "M": 3}]
    assert merged(f"{nodes} y = Neg (u)", "float[N, 4, M] x", sizes=sizes)["Unsqueeze"] == 1
    nodes = nodes.replace("[2]", "[1]")
    outputs = "float[A, B, C] y, float[D, E] z"
    assert merged(f"{nodes} y = Neg (u) z = Abs (r)", "float[N, 4, M] x", outputs, sizes=sizes)["Unsqueeze"] == 1
    outputs = "float[A, B, C] y, float[D, E] r"
    assert merged(f"{nodes} y = Neg (u)", "float[N, 4, M] x", outputs, sizes=sizes)["Unsqueeze"] == 1


def test_values_read_in_bodies() -> None:
    nodes = (
        "e = Exp (x) k = Constant <value_ints = [1]> () s = Squeeze (e, k) u = Unsqueeze (s, k) y = If (c) "
        "<then_branch = p () => (float[A, B, C] q) { i = Constant <value_ints = [1]> () h = Neg (u) "
        "l = Squeeze (h, i) q = Unsqueeze (l, i) }, "
        "else_branch = f () => (float[D, E, F] m) { n = Unsqueeze (s, k) m = Abs (n) }>"
    )
    left = merged(nodes, "float[N, 1, M] x, bool c", sizes=[{"N": 2, "M": 3}])
    assert left["Squeeze"] == 1
    assert left["Unsqueeze"] == 2  # of a value that a branch reads, and in the other one
    assert left["Reshape"] == 1  # the output of a branch


def test_the_operators_around_fused_nodes() -> None:
    graph = (
        "g (float[N, 1, 4] x, float[4, 4] w) => (float[N, 1, 4] y) { k = Constant <value_ints = [1]> () "
        "s = Squeeze (x, k) m = MatMul (s, w) u = Unsqueeze (m, k) t = Squeeze (u, k) n = MatMul (t, w) "
        "a = Exp (n) b = Neg (a) y = Unsqueeze (b, k) }"
    )
    for target in ("cpu", "cuda"):
        _, model, report = optimized(graph, sizes={"N": 3}, target=target)
        assert Counter(n.op_type for n in model.graph.node)["MatMul"] == 2
        assert sum(n.op_type in ("Squeeze", "Unsqueeze") for n in model.graph.node) <= 2
        assert any("in another shape: 2 fewer" in note for note in report.notes)


def test_random_chains() -> None:
    """Views of views of all kinds, some of them outputs."""
    saved = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        extents: list[int] = [int(n) for n in rng.choice([1, 1, 2, 3, 4], rng.integers(1, 4))]
        inputs = ", ".join("N" if rng.random() < 0.3 else str(n) for n in extents)
        sizes = [{"N": n} for n in (0, 1, 2)] if "N" in inputs else [{}]
        shape: list[int | str] = [d if d == "N" else int(d) for d in inputs.split(", ")]
        if shape.count("N") > 1:
            continue
        nodes, value, outputs = ["v0 = Abs (x)"], "v0", []
        for k in range(1, int(rng.integers(3, 8))):
            rank, name = len(shape), f"v{k}"
            kind = rng.choice(["Unsqueeze", "Squeeze", "Reshape", "Transpose", "Flatten"])
            ones = [a for a, d in enumerate(shape) if d == 1]
            if kind == "Squeeze" and ones and rank > 1:
                axis = int(rng.choice(ones))
                nodes.append(f"a{k} = Constant <value_ints = [{axis - rank * int(rng.integers(2))}]> ()")
                nodes.append(f"{name} = Squeeze ({value}, a{k})")
                del shape[axis]
            elif kind == "Reshape" and "N" in shape:
                rest = int(np.prod([d for d in shape if d != "N"]))
                nodes.append(f"a{k} = Constant <value_ints = [-1, 1, {rest}]> () {name} = Reshape ({value}, a{k})")
                shape = ["N", 1, rest]
            elif kind == "Transpose":
                perm = [int(p) for p in rng.permutation(rank)]
                nodes.append(f"{name} = Transpose <perm = {perm}> ({value})")
                shape = [shape[p] for p in perm]
            elif kind == "Flatten" and "N" not in shape:
                axis = int(rng.integers(0, rank + 1))
                nodes.append(f"{name} = Flatten <axis = {axis}> ({value})")
                shape = [int(np.prod([int(d) for d in part])) for part in (shape[:axis], shape[axis:])]
            else:
                axis = int(rng.integers(0, rank + 1))
                nodes.append(f"a{k} = Constant <value_ints = [{axis}]> () {name} = Unsqueeze ({value}, a{k})")
                shape.insert(axis, 1)
            if rng.random() < 0.2:
                outputs.append((f"o{k}", len(shape), f"o{k} = Neg ({name})"))
            value = name
        nodes += [text for _, _, text in outputs] + [f"y = Neg ({value})"]
        declared = [f"float[{', '.join(f'D{name}{k}' for k in range(r))}] {name}" for name, r, _ in outputs]
        declared.append(f"float[{', '.join(f'D{k}' for k in range(len(shape)))}] y")
        before = sum(" = " in n for n in nodes)
        left = merged(" ".join(nodes), f"float[{inputs}] x", ", ".join(declared), sizes=sizes)
        saved += before - left.total()
    assert saved > 200


def test_long_chains_take_linear_time() -> None:
    def seconds(count: int) -> float:
        nodes = ["v0 = Exp (x)"]
        for k in range(count):
            nodes.append(f"u{k} = Unsqueeze (v{k}, k) s{k} = Squeeze (u{k}, k) t{k} = Squeeze (u{k}, k)")
            nodes.append(f"v{k + 1} = Add (s{k}, t{k})")
        text = f"g (float[N, 4] x) => (float[A, B] y) <int64[1] k = {{0}}> {{ {' '.join(nodes)} y = Neg (v{count}) }}"
        model = parse(text)
        begin = time.process_time()
        _, saved = merge_views(model, 17)
        assert saved == 3 * count
        return time.process_time() - begin

    assert seconds(1600) < 16 * max(seconds(200), 0.05)
