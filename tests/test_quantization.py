"""QuantizeLinear and DequantizeLinear in fused nodes: to the bit what ONNX Runtime's own operators give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from graph_check import fused_nodes
from onnx import TensorProto, helper, numpy_helper
from truth import run

import onnxfuse

SHAPE = (3, 5, 4)
DEFAULT = 1  # the axis where there is no attribute
BYTES = [np.uint8, np.int8]
WORDS = [np.uint16, np.int16]


def type_of(dtype: type | np.dtype) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@dataclass(frozen=True)
class Spelling:
    """Of a scale and a zero point: `axis` None is one number in a tensor of `shape`; `zero` None is none."""

    opset: int
    axis: int | None = None
    zero: int | None = 3
    shape: tuple[int, ...] = ()
    runs: bool = False  # both are inputs of the graph
    domain: str = ""
    stated: bool = True  # the axis is an attribute

    def parameters(self, dtype: type, scale_type: type = np.float32) -> dict[str, np.ndarray]:
        if self.axis is None:
            scale, zero = np.full(self.shape, 0.037), np.full(self.shape, self.zero or 0)
        else:
            count = SHAPE[self.axis]
            scale, zero = np.linspace(0.02, 0.3, count), (self.zero or 0) * np.arange(1, count + 1)
        return {"s": scale.astype(scale_type)} | ({} if self.zero is None else {"z": zero.astype(dtype)})

    def along(self, values: np.ndarray) -> np.ndarray:
        """A scale or zero point as what broadcasts to SHAPE."""
        if self.axis is None:
            return values.reshape(())
        return values.reshape([-1 if k == self.axis % 3 else 1 for k in range(3)])

    def node(self, op: str, x: str, y: str, **attributes: int) -> onnx.NodeProto:
        if self.axis is not None and self.stated:
            attributes["axis"] = self.axis
        names = [x, "s"] + ([] if self.zero is None else ["z"])
        return helper.make_node(op, names, [y], domain=self.domain, **attributes)

    def model(
        self, nodes: list[onnx.NodeProto], x: np.ndarray, output: int, parameters: dict[str, np.ndarray]
    ) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """The model with input x and output y, and what to feed it."""
        given = {"x": x} | (parameters if self.runs else {})
        constants = {} if self.runs else parameters
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(n, type_of(a.dtype), a.shape) for n, a in given.items()],
            [helper.make_tensor_value_info("y", output, x.shape)],
            [numpy_helper.from_array(a, n) for n, a in constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10 if self.opset >= 21 else 8), given


SPELLINGS = [
    Spelling(10),
    Spelling(10, zero=None),
    Spelling(13, zero=0),
    Spelling(13, shape=(1,), zero=7),
    Spelling(13, runs=True),
    Spelling(13, axis=1),
    Spelling(13, axis=DEFAULT, stated=False),
    Spelling(13, axis=-1, zero=None),
    Spelling(13, axis=0, runs=True),
    Spelling(17, axis=-2, zero=0),
    Spelling(17, axis=2, zero=1, runs=True),
    Spelling(19, axis=0, zero=2),
    Spelling(19, shape=(1,), runs=True),
    Spelling(21),
    Spelling(21, axis=1, zero=None, runs=True),
    Spelling(23, axis=1, zero=4),
    Spelling(24),
    Spelling(17, domain="com.microsoft"),
    Spelling(17, axis=1, domain="com.microsoft"),
]


def cases(types: list[type]) -> list[tuple[Spelling, type]]:
    found = []
    for spelling in SPELLINGS:
        for dtype in types:
            exists = dtype not in WORDS or spelling.opset >= 21 or spelling.domain
            # A zero point of int32 is 0; and one that is left out is uint8's where something is quantized.
            possible = not spelling.zero or dtype != np.int32
            possible &= spelling.zero is not None or dtype == np.uint8 or np.int32 in types
            if exists and possible:
                found.append((spelling, dtype))
    return found


def check_alike(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[str]:
    """The operators fused, after a comparison to the bit: with the library, without it, and restored.

    For the target that leaves none of them because of the shape; the nodes run on the CPU.
    """
    onnx.checker.check_model(model, full_check=True)
    result = onnxfuse.optimize(model, target="cuda")
    (want,) = run(model, feeds, library=False)
    assert len(fused_nodes(result.model)) == 1, [r.reason for r in result.report.refusals]
    restored = onnxfuse.restore(result.model).model
    assert not fused_nodes(restored)
    for other, library in ((result.model, True), (result.model, False), (restored, False)):
        np.testing.assert_array_equal(run(other, feeds, library=library)[0], want)
    return list(result.report.fusions[0].operators)


def integers(dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(0).integers(info.min, info.max, SHAPE, dtype, endpoint=True)


def numbers(dtype: type, scale: np.ndarray, zero: float) -> np.ndarray:
    """What to quantize: the whole range and more, ties, the numbers next to them, and the largest."""
    rng = np.random.default_rng(0)
    size = int(np.prod(SHAPE))
    ties = rng.integers(-150, 280, size // 4) + 0.5
    steps = np.concatenate([rng.uniform(-200, 300, size // 4), ties, rng.integers(-32768, 70000, 8)])
    x = (np.resize(steps, SHAPE) - zero) * scale.astype(np.float64)
    x.reshape(-1)[-6:] = [np.inf, -np.inf, 6e4, -6e4, 0.0, -0.0]
    x = x.astype(dtype)
    x.reshape(-1)[: size // 2] = np.nextafter(x.reshape(-1)[: size // 2], dtype(rng.choice([-1, 1])))
    return x


@pytest.mark.parametrize(("spelling", "dtype"), cases([*BYTES, *WORDS, np.int32]), ids=str)
def test_dequantize(spelling: Spelling, dtype: type) -> None:
    nodes = [spelling.node("DequantizeLinear", "x", "d"), helper.make_node("Abs", ["d"], ["y"])]
    model, feeds = spelling.model(nodes, integers(dtype), TensorProto.FLOAT, spelling.parameters(dtype))
    assert check_alike(model, feeds) == ["DequantizeLinear", "Abs"]


@pytest.mark.parametrize(("spelling", "dtype"), cases([*BYTES, *WORDS]), ids=str)
def test_quantize(spelling: Spelling, dtype: type) -> None:
    parameters = spelling.parameters(dtype)
    scale, zero = (spelling.along(parameters.get(n, np.zeros_like(parameters["s"]))) for n in "sz")
    x = -numbers(np.float32, scale, float(zero.reshape(-1)[0]))
    nodes = [helper.make_node("Neg", ["x"], ["n"]), spelling.node("QuantizeLinear", "n", "y")]
    model, feeds = spelling.model(nodes, x, type_of(dtype), parameters)
    assert check_alike(model, feeds) == ["Neg", "QuantizeLinear"]
    want = np.clip(np.rint(-x / scale) + zero.astype(np.float32), np.iinfo(dtype).min, np.iinfo(dtype).max)
    np.testing.assert_array_equal(run(model, feeds, library=False)[0], want)


@pytest.mark.parametrize("spelling", [Spelling(19), Spelling(21, axis=1), Spelling(23, shape=(1,), runs=True)], ids=str)
@pytest.mark.parametrize("dtype", BYTES)
def test_float16(dtype: type, spelling: Spelling) -> None:
    """Scaled in float32, rounded to float16 where it is stored."""
    parameters = spelling.parameters(dtype, np.float16)
    nodes = [spelling.node("DequantizeLinear", "x", "d"), helper.make_node("Abs", ["d"], ["y"])]
    model = spelling.model(nodes, integers(dtype), TensorProto.FLOAT16, parameters)
    assert check_alike(*model) == ["DequantizeLinear", "Abs"]
    x = -numbers(np.float16, spelling.along(parameters["s"]), float(parameters["z"].reshape(-1)[0]))
    x[np.isinf(x)] = 0  # for infinity ONNX Runtime 1.31 gives the lowest byte
    precision = {"precision": TensorProto.FLOAT} if spelling.opset >= 23 else {}
    nodes = [helper.make_node("Neg", ["x"], ["n"]), spelling.node("QuantizeLinear", "n", "y", **precision)]
    model = spelling.model(nodes, x, type_of(dtype), parameters)
    assert check_alike(*model) == ["Neg", "QuantizeLinear"]


def test_float16_that_is_divided_in_float16() -> None:
    spelling = Spelling(23)
    parameters = spelling.parameters(np.uint8, np.float16)
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Abs", ["n"], ["m"])]
    nodes.append(spelling.node("QuantizeLinear", "m", "y"))
    model, _ = spelling.model(nodes, np.ones(SHAPE, np.float16), TensorProto.UINT8, parameters)
    report = onnxfuse.optimize(model, target="cuda").report
    assert [f.operators for f in report.fusions] == [("Neg", "Abs")]
    assert [r.reason for r in report.refusals] == ["it may divide in another type than float32"]


def test_attributes_of_newer_opsets() -> None:
    scale = np.array(0.1, np.float32)
    for dtype, opset, more in ((TensorProto.INT8, 21, {}), (TensorProto.UINT8, 23, {"precision": TensorProto.FLOAT})):
        spelling = Spelling(opset, zero=None)
        quantize = spelling.node("QuantizeLinear", "n", "y", output_dtype=dtype, saturate=0, **more)
        nodes = [helper.make_node("Neg", ["x"], ["n"]), quantize]
        model = spelling.model(nodes, numbers(np.float32, scale, 0), dtype, {"s": scale})
        assert check_alike(*model) == ["Neg", "QuantizeLinear"]
    dequantize = spelling.node("DequantizeLinear", "x", "d", output_dtype=TensorProto.FLOAT)
    nodes = [dequantize, helper.make_node("Abs", ["d"], ["y"])]
    model = spelling.model(nodes, integers(np.uint8), TensorProto.FLOAT, {"s": scale})
    assert check_alike(*model) == ["DequantizeLinear", "Abs"]


@pytest.mark.parametrize(
    ("parameters", "attributes", "type_", "reason"),
    [
        ("float s = {0.1}, float8e4m3fn z = {0}", "", "float8e4m3fn", "onnxfuse fuses"),
        ("float s = {0.1}, int4 z = {0}", "", "int4", "onnxfuse fuses"),
        ("float[3, 2] s = {1, 2, 3, 4, 5, 6}, int8[3, 2] z = {1, 2, 3, 4, 5, 6}", "<block_size = 2>", "int8", "blocks"),
        ("float s = {0.1}, int8 z = {1}", "<precision = 10>", "int8", "float32"),
    ],
)
def test_refused(parameters: str, attributes: str, type_: str, reason: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 23]> g (float[3, 4] x) => ({type_}[3, 4] y) <{parameters}> {{
        n = Exp (x) m = Neg (n) y = QuantizeLinear {attributes} (m, s, z)
    }}"""
    result = onnxfuse.optimize(onnx.parser.parse_model(text), target="cpu")
    assert [f.operators for f in result.report.fusions] == [("Exp", "Neg")]
    assert [r for r in result.report.refusals if r.operator == "QuantizeLinear" and reason in r.reason]


def test_restored_as_they_were() -> None:
    """Where scale and zero point are one number each."""
    spelling = Spelling(17)
    nodes = [
        spelling.node("DequantizeLinear", "x", "d"),
        helper.make_node("Tanh", ["d"], ["t"]),
        spelling.node("QuantizeLinear", "t", "y"),
    ]
    model, feeds = spelling.model(nodes, integers(np.uint8), TensorProto.UINT8, spelling.parameters(np.uint8))
    restored = onnxfuse.restore(onnxfuse.optimize(model, target="cpu").model).model
    assert [n.op_type for n in restored.graph.node if n.op_type != "Constant"] == [n.op_type for n in nodes]
    np.testing.assert_array_equal(run(restored, feeds, library=False)[0], run(model, feeds, library=False)[0])
