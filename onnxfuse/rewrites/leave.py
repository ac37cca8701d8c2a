"""What is left to ONNX Runtime: operators that it computes for less inside its own kernels, and shape arithmetic.

1. Constants: a node whose inputs are all constant is folded by ONNX Runtime when the session is created.
2. Shape arithmetic: what is computed from Shape and Size alone stays on the CPU, where ONNX Runtime keeps it.
3. What ONNX Runtime computes inside a Conv (convolutions.py).
4. On the CPU, an activation that it computes inside a Gemm (gemms.py).
5. A Transpose that ONNX Runtime computes inside the MatMul after it.
6. What ONNX Runtime computes on bytes on the CPU, between DequantizeLinear and QuantizeLinear (on_bytes.py), and a
   BatchNormalization there, which takes it 0.3 to 0.9 of the time of a fused node (cost.py). The two themselves stay
   where they are beside what is not fused (dequantizing.py, regions.py).
7. A Cast to the type that its input has goes, and makes no fused node of a single operator beside it; but for a
   reduction or a Softmax, which take less time fused than ONNX Runtime takes for them.
8. A graph with operators that ONNX Runtime cannot run on the target: it runs elsewhere, where custom ops do not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from onnxfuse.custom_ops.function import NoFunctionError, to_nodes
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply, Program
from onnxfuse.rewrites.convolutions import inside_convolutions
from onnxfuse.rewrites.cost import weight
from onnxfuse.rewrites.gemms import inside_gemms, is_free_bias
from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering import RUNNABLE_OPSET
from onnxfuse.rewrites.lowering.quantization import DEQUANTIZE, QUANTIZE
from onnxfuse.rewrites.on_bytes import on_bytes

__all__ = ["cannot_run", "count", "left_to_runtime", "shape_arithmetic", "without_function", "without_kernel"]


def shape_arithmetic(view: GraphView) -> set[int]:
    """The nodes that compute on shapes alone."""
    names: set[str] = set()
    nodes: set[int] = set()
    for i, proto in enumerate(view.protos):
        if proto.op_type in ("Shape", "Size"):
            names.update(proto.output)
            continue
        if i in view.captures:
            continue
        inputs = [n for n in proto.input if n and n not in view.constants.names]
        if (
            inputs
            and all(n in names for n in inputs)
            and proto.op_type not in ("ConstantOfShape", "Expand", "RandomNormal")
        ):
            nodes.add(i)
            names.update(proto.output)
    return nodes


def _inside_matmul(view: GraphView, i: int) -> bool:
    """Whether a Transpose swaps the last two dimensions for MatMuls alone: ONNX Runtime computes that inside them."""
    proto = view.protos[i]
    shape = view.type_of(proto.input[0]).shape
    users = [view.protos[c].op_type for c in view.consumers.get(proto.output[0], ())]
    if shape is None or not users or any(u != "MatMul" for u in users) or proto.output[0] in view.kept:
        return False
    rank = len(shape)
    perm = next((list(a.ints) for a in proto.attribute if a.name == "perm"), list(range(rank))[::-1])
    return perm == [*range(rank - 2), rank - 1, rank - 2]


# Random generators of opset 22 and later have no kernel in ONNX Runtime up to 1.32.
_WITHOUT_KERNELS = frozenset(("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli"))
# What may stand beside fused nodes on bfloat16 tensors on the CPU.
_PASSES_BFLOAT16 = frozenset(
    ("Constant", "Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "Size")
)

_WITHOUT_FLOAT64 = frozenset(p.onnx for p in PRIMITIVES.values() if "f64" in p.types and "f64" not in p.runtime)


def cannot_run(view: GraphView, target: str, fused: Collection[int]) -> str:
    """Why ONNX Runtime cannot run the graph on the target once the nodes `fused` are fused; "" where it can."""
    for i, proto in enumerate(view.protos):
        names = (*proto.input, *proto.output)
        if target == "cpu" and view.opset > RUNNABLE_OPSET and any(view.type_of(n).type == "bf16" for n in names):
            return "ONNX Runtime runs bfloat16 of so new an opset on no CPU; optimize for target cuda"
        if i in fused or proto.domain not in ("", "ai.onnx"):
            continue
        if proto.op_type in _WITHOUT_KERNELS and view.opset >= 22:
            return f"ONNX Runtime has no kernel for {proto.op_type} at opset {view.opset}, so it cannot run this graph"
        if target != "cpu":
            continue
        types = {view.type_of(n).type for n in (*proto.input, *proto.output) if n not in view.constants.names}
        if "bf16" in types and proto.op_type not in _PASSES_BFLOAT16:
            return f"ONNX Runtime has no CPU kernel for {proto.op_type} of bfloat16, so it cannot run this graph"
        if "f64" in types and proto.op_type in _WITHOUT_FLOAT64:
            return f"ONNX Runtime has no CPU kernel for {proto.op_type} of float64, so it cannot run this graph"
    return ""


def without_kernel(program: Program) -> str:
    """A primitive that the CPU provider does not have for float64, so that no local function is exact; or ""."""
    for kernel in program.kernels:
        for s in kernel.statements:
            if (
                isinstance(s, Apply)
                and s.type == "f64"
                and s.op in PRIMITIVES
                and "f64" not in PRIMITIVES[s.op].runtime
            ):
                return s.op
    return ""


@lru_cache(maxsize=1024)
def without_function(program: Program, opset: int) -> str:
    """What the standard operators of an opset lack to say the program, or "": without them it would be locked in."""
    inputs = [f"x{n}" for n in range(len(program.inputs))]
    outputs = [f"y{n}" for n in range(len(program.outputs))]
    try:
        to_nodes(program, inputs, outputs, opset, "v")
    except NoFunctionError as error:
        return str(error)
    return ""


def _normalizes_between_quantizers(view: GraphView, i: int) -> bool:
    proto = view.protos[i]
    if proto.op_type != "BatchNormalization" or not proto.input or not view.dequantized(proto.input[0]):
        return False
    users = view.consumers.get(proto.output[0], ())
    return bool(users) and all(view.protos[c].op_type == QUANTIZE for c in users) and proto.output[0] not in view.kept


def _idle_cast(view: GraphView, i: int) -> bool:
    """Whether a node is a Cast to the type that its input has: ONNX Runtime removes it (and no CastLike)."""
    proto = view.protos[i]
    if proto.op_type != "Cast" or not proto.input:
        return False
    before = view.type_of(proto.input[0]).type
    return bool(before) and before == view.type_of(proto.output[0]).type


def count(view: GraphView, nodes: Iterable[int], target: str, *, alone: bool, reducing: bool) -> int:
    """How many operators the nodes of a region are, where a least number of them makes a fused node.

    `alone`: that number is 1. `reducing`: there is a reduction, a Softmax or a scan among them.
    """
    if not alone and not reducing:
        nodes = [i for i in nodes if not _idle_cast(view, i)]
    return sum(_counts_for(view, i, target, alone=alone) for i in nodes)


def _counts_for(view: GraphView, i: int, target: str, *, alone: bool) -> int:
    if target == "cpu" and not alone and is_free_bias(view, i):
        return 0
    return weight(view.protos[i].op_type, target)


def left_to_runtime(view: GraphView, target: str, alone: bool) -> dict[int, str]:
    """Reasons, by node. `alone`: the user asks for single operators (min_nodes=1), so only what must stays is left."""
    reasons: dict[int, str] = {}
    for i in view.constants.nodes:
        if view.protos[i].op_type == DEQUANTIZE:
            continue  # which it does not fold: a fused node may read the bytes
        reasons[i] = "all its inputs are constant; ONNX Runtime folds it when the session is created"
    for i in shape_arithmetic(view):
        reasons.setdefault(i, "it computes on shapes, which ONNX Runtime does on the CPU")
    for i, proto in enumerate(view.protos):
        if proto.op_type == "Concat" and target == "cpu":
            reasons.setdefault(i, "copying its parts costs less on the CPU than choosing between them")
        if proto.op_type == "Transpose" and i not in reasons and _inside_matmul(view, i):
            reasons[i] = "ONNX Runtime computes it inside the MatMul after it"
    if alone:
        return reasons
    quantized = dict.fromkeys(
        on_bytes(view) if target == "cpu" else (),
        "it stands between DequantizeLinear and QuantizeLinear: ONNX Runtime computes it on bytes",
    )
    for i in range(len(view.protos) if target == "cpu" else 0):
        if _normalizes_between_quantizers(view, i):
            quantized[i] = "ONNX Runtime computes it between DequantizeLinear and QuantizeLinear in less time"
    inside = inside_convolutions(view, target) | (inside_gemms(view) if target == "cpu" else {})
    return quantized | inside | reasons
