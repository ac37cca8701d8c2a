"""A fused node that a graph should have, before it is put in place."""

from __future__ import annotations

from dataclasses import dataclass

from onnxfuse.custom_ops.program import Program
from onnxfuse.outline import node_label, source_node
from onnxfuse.report import Fusion
from onnxfuse.rewrites.conv_epilogues import Epilogue
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.savings import described

__all__ = ["FusedNode"]


@dataclass
class FusedNode:
    """A fused node to be put in place of `nodes`, or what goes into a Conv in place of it."""

    op_type: str
    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: list[int]
    launches_saved: int
    bytes_saved: int | None
    notes: tuple[str, ...]
    epilogue: Epilogue | None = None
    inlined: frozenset[int] = frozenset()  # nodes that it computes again, which stay for others perhaps

    def fusion(self, view: GraphView, name: str) -> Fusion:
        """The report's line."""
        protos = [view.protos[i] for i in self.nodes]
        drawn = [view.protos[i] for i in sorted({*self.nodes, *self.inlined})]
        return Fusion(
            op_type=self.op_type,
            name=name,
            nodes=tuple(node_label(p) for p in protos),
            operators=tuple(p.op_type for p in protos),
            inputs=self.inputs,
            outputs=self.outputs,
            program=self.program.text(),
            launches_saved=self.launches_saved,
            bytes_saved=self.bytes_saved,
            graph=view.name,
            notes=self.notes,
            source=tuple(source_node(p, view.name) for p in drawn),
            tensors=described(view, drawn, (*self.inputs, *self.outputs)),
        )
