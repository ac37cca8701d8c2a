"""What keeps ONNX Runtime from capturing a model into a CUDA graph, and what a replay would get wrong.

ONNX Runtime captures a model where every node runs on the CUDA provider, or on the CPU without a copy between the two;
control flow it refuses, but for an If on a constant, whose branch it puts in its place. Where values live is followed
here through the graph as ONNX Runtime does: what is computed from shapes alone lives on the host, everything else on
the GPU, and some inputs of GPU operators are read on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxfuse.custom_ops import DOMAIN, REWRITES
from onnxfuse.errors import ModelError
from onnxfuse.runtime import make_session

__all__ = ["Obstacle", "capture_obstacles", "placement_obstacles", "shapes_follow_data"]

_CUDA = frozenset(
    line
    for line in Path(__file__).with_name("cuda_kernels.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
)
_CONTROL_FLOW = frozenset(("If", "Loop", "Scan", "SequenceMap"))
# The extent of a result hangs on the data: the GPU's count must come to the host before the result can be allocated.
_COUNTED = frozenset(("NonZero", "Compress", "Unique", "NonMaxSuppression", "StringSplit", "SplitToSequence"))
_RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
)
_ON_HOST = frozenset(("Shape", "Size"))
_AXES = frozenset(op for op in _CUDA if op.startswith("Reduce")) | {"Unsqueeze", "Squeeze", "Split", "CumSum", "Trilu"}
# Inputs that the CUDA kernels read on the host.
_HOST_INPUTS: dict[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "TopK": (1,), "OneHot": (1,),
    "Slice": (1, 2, 3, 4), "Pad": (1, 2, 3), "Resize": (1, 2, 3), "Upsample": (1,), "Range": (0, 1, 2), "Clip": (1, 2),
    "Dropout": (1, 2), **dict.fromkeys(_AXES, (1,)), REWRITES["runtime_axes"]: (0,),
}  # fmt: skip
_SIZED = {op: places for op, places in _HOST_INPUTS.items() if op not in ("Clip", "Dropout", "Trilu", "CumSum")}
_SMALL = 100  # elements of a constant up to which ONNX Runtime keeps a shape's arithmetic on the host
_HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Obstacle:
    """A node that stands in the way of a CUDA graph, and why.

    `prevents` is False where capture works, but replays would not do what plain runs do. `operand` numbers the input
    that is read on the other side, where it is one.
    """

    node: str
    operator: str
    reason: str
    prevents: bool = True
    operand: int | None = None


def capture_obstacles(model: onnx.ModelProto) -> list[Obstacle]:
    """What is known of a model without running it, in the order of its nodes; empty where nothing is in the way."""
    return list(_Placement(model).obstacles())


def shapes_follow_data(model: onnx.ModelProto) -> bool:
    """Whether the data decides how large something is that the main graph computes.

    Then two runs on the same inputs may give results of different shapes, where a GPU adds up in another order.
    """
    placement = _Placement(model)
    return any(
        o.operator in _COUNTED | {"Loop"} or (o.prevents and o.operator in _SIZED and o.operand in _SIZED[o.operator])
        for o in placement.obstacles()
    )


def _label(node: onnx.NodeProto) -> str:
    return node.name or next((name for name in node.output if name), node.op_type)


class _Placement:
    """Which values of the main graph live on the host."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.functions = {(f.domain, f.name) for f in model.functions}
        self.constants: dict[str, int] = {}
        self.flags: dict[str, bool] = {}  # boolean constants of one element
        self.types: dict[str, int] = {}
        self._enter(model.graph)
        self.inputs = {v.name for v in model.graph.input} - set(self.constants)
        self.host: set[str] = set()

    def _enter(self, graph: onnx.GraphProto) -> None:
        """Takes in what a graph says of its values."""
        for value in (*graph.input, *graph.value_info):
            self.types[value.name] = value.type.tensor_type.elem_type
        found = [(t.name, t) for t in graph.initializer]
        constants = [n for n in graph.node if n.op_type == "Constant"]
        found += [(n.output[0], a.t) for n in constants for a in n.attribute if a.name == "value"]
        for name, tensor in found:
            self.constants[name] = int(np.prod(tensor.dims))
            self.types[name] = tensor.data_type
            if tensor.data_type == onnx.TensorProto.BOOL and self.constants[name] == 1:
                self.flags[name] = bool(onnx.numpy_helper.to_array(tensor).reshape(()))
        for node in constants:
            self.constants.setdefault(node.output[0], _constant_size(node))

    def obstacles(self) -> Iterator[Obstacle]:
        yield from self._of_graph(self.graph)

    def _of_graph(self, graph: onnx.GraphProto) -> Iterator[Obstacle]:
        for node in graph.node:
            if self._is_constant(node):
                continue
            if node.op_type == "If" and node.input[0] in self.flags:
                yield from self._of_branch(node)
                continue
            on_host = self._on_host(node)
            if on_host:
                self.host.update(name for name in node.output if name)
            yield from self._of_node(node, on_host)

    def _of_branch(self, node: onnx.NodeProto) -> Iterator[Obstacle]:
        """The branch of an If on a constant, which ONNX Runtime puts in its place when it loads the model."""
        wanted = "then_branch" if self.flags[node.input[0]] else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == wanted)
        self._enter(branch)
        yield from self._of_graph(branch)
        for inner, name in zip(branch.output, node.output, strict=False):
            if inner.name in self.host:
                self.host.add(name)
            if inner.name in self.constants:
                self.constants[name] = self.constants[inner.name]

    def _is_constant(self, node: onnx.NodeProto) -> bool:
        """Whether ONNX Runtime computes the node when it loads the model."""
        if node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM | _CONTROL_FLOW:
            return False
        read = [name for name in node.input if name]
        if node.op_type != "Constant" and not (read and all(name in self.constants for name in read)):
            return False
        for name in node.output:
            self.constants.setdefault(name, max(self.constants[n] for n in read) if read else 1)
        return True

    def _on_host(self, node: onnx.NodeProto) -> bool:
        """Whether ONNX Runtime computes the node on the host because all that it reads is there."""
        if node.domain not in ("", "ai.onnx") or node.op_type in _CONTROL_FLOW:
            return False
        if node.op_type in _ON_HOST:
            return True
        read = [name for name in node.input if name]
        if not any(name in self.host for name in read) or any(self.types.get(n) in _HALF for n in read):
            return False
        reads_shapes = set(_HOST_INPUTS.get(node.op_type, ()))
        if all(i in reads_shapes for i, name in enumerate(node.input) if name in self.host):
            return False  # a GPU operator that takes a shape
        return all(name in self.host or self.constants.get(name, _SMALL + 1) <= _SMALL for name in read)

    def _of_node(self, node: onnx.NodeProto, on_host: bool) -> Iterator[Obstacle]:
        def found(reason: str, prevents: bool = True) -> Obstacle:
            return Obstacle(_label(node), node.op_type, reason, prevents)

        if node.op_type in _CONTROL_FLOW:
            yield found("control flow: ONNX Runtime refuses to capture a model with it")
            return
        if node.domain not in ("", "ai.onnx"):
            yield from self._copies(node, _HOST_INPUTS.get(node.op_type, ()) if node.domain == DOMAIN else ())
            return
        if node.op_type in _COUNTED:
            yield found("the shape of its result hangs on the data, which the host must wait for")
            return
        if node.op_type in _RANDOM:
            yield found("a replay repeats the random numbers of the capture", prevents=False)
        if on_host:
            return
        if node.op_type not in _CUDA and not self._is_function(node):
            yield found("ONNX Runtime's CUDA provider has no kernel for it: its inputs are copied to the host")
            return
        yield from self._copies(node, _HOST_INPUTS.get(node.op_type, ()))

    def _copies(self, node: onnx.NodeProto, read_on_host: tuple[int, ...]) -> Iterator[Obstacle]:
        for i, name in enumerate(node.input):
            if not name or name in self.constants:
                continue
            if i in read_on_host and name in self.inputs:
                reason = f"it reads the model's input {name!r} on the host, once, when it is captured"
                yield Obstacle(_label(node), node.op_type, reason, prevents=False, operand=i)
            elif i in read_on_host and name not in self.host:
                reason = f"it reads {name!r}, which the GPU computes, on the host: a copy that the host waits for"
                yield Obstacle(_label(node), node.op_type, reason, operand=i)
            elif i not in read_on_host and name in self.host:
                reason = f"it reads {name!r}, which is computed from shapes on the host: a copy to the GPU"
                yield Obstacle(_label(node), node.op_type, reason, operand=i)

    def _is_function(self, node: onnx.NodeProto) -> bool:
        """Whether ONNX Runtime can take the operator apart into others."""
        if (node.domain, node.op_type) in self.functions:
            return True
        if not onnx.defs.has(node.op_type):
            return False
        schema: Any = onnx.defs.get_schema(node.op_type)
        return bool(schema.has_function or schema.has_context_dependent_function)


def _constant_size(node: onnx.NodeProto) -> int:
    for attribute in node.attribute:
        if attribute.name in ("value_ints", "value_floats"):
            return max(len(attribute.ints), len(attribute.floats))
    return 1


def placement_obstacles(model: onnx.ModelProto) -> list[Obstacle]:
    """What ONNX Runtime itself says where a CUDA provider is at hand: nodes that it placed on the CPU, and its refusal.

    Empty where it would capture the model. Nodes on the CPU alone do no harm.

    Raises:
        MissingRuntimeError: ONNX Runtime is not installed.
        ModelError: it has no CUDA provider, or cannot load the model.
    """
    try:
        make_session(model, provider="cuda", provider_options={"enable_cuda_graph": "1"})
    except ModelError as error:
        session = make_session(model, provider="cuda", config={"session.record_ep_graph_assignment_info": "1"})
        refusal = Obstacle("", "", f"ONNX Runtime refuses: {error}")
        return [*_placed_on_cpu(session), refusal]
    return []


def _placed_on_cpu(session: Any) -> list[Obstacle]:
    if not hasattr(session, "get_provider_graph_assignment_info"):  # since ONNX Runtime 1.24
        return []
    nodes = [
        n for part in session.get_provider_graph_assignment_info() if "CPU" in part.ep_name for n in part.get_nodes()
    ]
    return [Obstacle(n.name, n.op_type, "ONNX Runtime placed it on the CPU", prevents=False) for n in nodes]
