"""Small graphs for tests, written in ONNX's text format, and inputs for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from graph_check import check, fused_nodes
from onnx import helper

from onnxfuse.report import Report


def parse(graph: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """A model from `name (inputs) => (outputs) <values> { nodes }`, and perhaps functions after it."""
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "local" : 1]> {graph}')


def feeds_for(
    model: onnx.ModelProto, sizes: Mapping[str, int] | None = None, unknown: int = 2, seed: int = 0, scale: float = 1
) -> dict[str, np.ndarray]:
    """Normally distributed inputs; `sizes` has the symbolic dimensions, `unknown` is the extent of the others."""
    rng, sizes = np.random.default_rng(seed), sizes or {}
    given = {t.name for t in model.graph.initializer} if model.ir_version < 4 else set()
    feeds = {}
    for value in model.graph.input:
        if value.name in given:
            continue
        dims = value.type.tensor_type.shape.dim
        shape = [d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, unknown) for d in dims]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind in "fV":
            feeds[value.name] = np.asarray(scale * rng.normal(size=shape), dtype)
        else:
            feeds[value.name] = np.asarray(rng.integers(0, 2 if dtype.kind == "b" else 9, shape), dtype)
    return feeds


def optimized(
    graph: str,
    opset: int = 17,
    sizes: Mapping[str, int] | None = None,
    feeds: Mapping[str, np.ndarray] | None = None,
    ir_version: int = 8,
    **options: object,
) -> tuple[list[str], onnx.ModelProto, Report]:
    """Checks a graph and gives the op types of its fused nodes, the optimized model and the report."""
    model = parse(graph, opset, ir_version)
    result, report = check(model, {**feeds_for(model, sizes), **(feeds or {})}, **options)  # type: ignore[arg-type]
    return fused_nodes(result), result, report


def fused(graph: str, opset: int = 17, **options: object) -> list[str]:
    """The op types of the fused nodes of a graph, after its results were checked."""
    return optimized(graph, opset, **options)[0]  # type: ignore[arg-type]
