"""The nodes of a model as the report lists them, with the bodies of If, Loop and Scan in their places."""

from __future__ import annotations

import onnx

from onnxfuse.report import SourceNode

__all__ = ["body_path", "node_label", "same_order", "source_node", "source_nodes"]


def node_label(node: onnx.NodeProto) -> str:
    """A node's name; an unnamed one shows as its type and first output."""
    return node.name or f"{node.op_type}({next((o for o in node.output if o), '')})"


def body_path(path: str, node: onnx.NodeProto, attribute: onnx.AttributeProto) -> str:
    """What the report calls a body of a node in the graph `path` ("" for the model's own)."""
    step = f"{node.name or node.op_type}.{attribute.name}"
    return f"{path}/{step}" if path else step


def source_node(node: onnx.NodeProto, path: str) -> SourceNode:
    """The report's form of a node in the graph `path`."""
    return SourceNode(node_label(node), node.op_type, tuple(node.input), tuple(node.output), path)


def source_nodes(graph: onnx.GraphProto, path: str = "") -> list[SourceNode]:
    """All nodes of a graph in order, those of bodies after the node that holds them; Constant nodes are left out."""
    found: list[SourceNode] = []
    for node in graph.node:
        if node.op_type != "Constant":
            found.append(source_node(node, path))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += source_nodes(attribute.g, body_path(path, node, attribute))
    return found


def same_order(a: onnx.GraphProto, b: onnx.GraphProto) -> bool:
    """Whether two versions of a graph, bodies included, have their nodes in the same order."""
    if len(a.node) != len(b.node):
        return False
    for p, q in zip(a.node, b.node, strict=True):
        if p.op_type != q.op_type or p.output != q.output:
            return False
        bodies = [[x.g for x in n.attribute if x.type == onnx.AttributeProto.GRAPH] for n in (p, q)]
        if not all(same_order(g, h) for g, h in zip(*bodies, strict=True)):
            return False
    return True
