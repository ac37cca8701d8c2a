"""Prints the processor time that `optimize` takes on growing models: python bench/optimizer_scale.py [--nodes N]."""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxfuse


def chain(count: int) -> list[onnx.NodeProto]:
    """One long chain of element-wise operators: regions end at their limit only."""
    ops = ["Relu", "Sigmoid", "Tanh", "Neg", "Abs"]
    names = ["x", *(f"v{k}" for k in range(count - 1)), "y"]
    return [helper.make_node(ops[k % len(ops)], [names[k]], [names[k + 1]]) for k in range(count)]


def blocks(count: int) -> list[onnx.NodeProto]:
    """Pre-norm transformer layers without attention: LayerNorm spelled out, MatMul, GELU, MatMul, residual."""
    nodes, x = [], "x"
    for k in range(count // 15):
        p = f"b{k}_"
        steps = [
            ("ReduceMean", [x], "m"), ("Sub", [x, p + "m"], "c"), ("Mul", [p + "c", p + "c"], "q"),
            ("ReduceMean", [p + "q"], "v"), ("Add", [p + "v", "e"], "s"), ("Sqrt", [p + "s"], "r"),
            ("Div", [p + "c", p + "r"], "n"), ("MatMul", [p + "n", "w"], "h"), ("Mul", [p + "h", "k"], "d"),
            ("Erf", [p + "d"], "f"), ("Add", [p + "f", "one"], "g"), ("Mul", [p + "h", p + "g"], "a"),
            ("Mul", [p + "a", "half"], "b"), ("MatMul", [p + "b", "w"], "o"), ("Add", [x, p + "o"], "y"),
        ]  # fmt: skip
        for op, inputs, name in steps:
            axes = {"axes": [-1]} if op == "ReduceMean" else {}
            nodes.append(helper.make_node(op, inputs, [p + name], **axes))
        x = p + "y"
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    return nodes


def fan(count: int) -> list[onnx.NodeProto]:
    """Small chains side by side, all reading one value and joined in the end."""
    nodes = [helper.make_node("Relu", ["x"], ["r"])]
    ends = []
    for k in range(count // 4):
        nodes.append(helper.make_node("Exp", ["r"], [f"a{k}"]))
        nodes.append(helper.make_node("Add", [f"a{k}", "one"], [f"b{k}"]))
        nodes.append(helper.make_node("Tanh", [f"b{k}"], [f"c{k}"]))
        nodes.append(helper.make_node("MatMul", [f"c{k}", "w"], [f"d{k}"]))
        ends.append(f"d{k}")
    while len(ends) > 1:
        pairs = [ends[k : k + 2] for k in range(0, len(ends), 2)]
        ends = []
        for pair in pairs:
            name = f"s{len(nodes)}" if len(pair) > 1 else pair[0]
            if len(pair) > 1:
                nodes.append(helper.make_node("Add", pair, [name]))
            ends.append(name)
    nodes.append(helper.make_node("Identity", ends, ["y"]))
    return nodes


def model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    weights = {"e": 1e-5, "k": 0.7071, "one": 1.0, "half": 0.5}
    initializers = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in weights.items()]
    initializers.append(numpy_helper.from_array(np.eye(16, dtype=np.float32), "w"))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 16]) for n in "xy"]
    graph = helper.make_graph(nodes, "scale", values[:1], values[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    args = parser.parse_args()
    print(f"onnx {onnx.__version__}, Python {platform.python_version()}, {platform.processor() or platform.machine()}")
    print(f"{'graph':8} {'nodes':>8} {'fused':>7} {'seconds':>9} {'µs a node':>10}")
    for build in (chain, blocks, fan):
        for count in args.nodes:
            source = model(build(count))
            start = time.process_time()
            report = onnxfuse.optimize(source).report
            seconds = time.process_time() - start
            nodes = len(source.graph.node)
            print(f"{build.__name__:8} {nodes:8} {len(report.fusions):7} {seconds:9.2f} {seconds / nodes * 1e6:10.0f}")


if __name__ == "__main__":
    main()
