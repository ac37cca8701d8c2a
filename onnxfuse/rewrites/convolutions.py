"""What ONNX Runtime computes inside a Conv, so that a fused node after it would only cost.

1. BatchNormalization, and a Mul or Add of one constant a channel, go into the weights and the bias.
2. On the CPU, an activation after that goes into the kernel.
3. On the CPU the Conv also adds another feature map (a residual) of two spatial dimensions before its activation: in
   ONNX Runtime's own layout of channels in blocks (NCHWc), which a fused node in between would have to leave and enter
   again.

Each holds for a value that has no other user. On the GPU a bias and an activation cost a kernel each (biases.py has the
figures), so 1 is left alone there only where no region follows that could take it.

Two more on the CPU, for maps of two spatial dimensions:

4. BatchNormalization of what is in that layout becomes a Conv of its own there, and takes in what follows as a Conv
   does.
5. Activations and sums or products of equal shapes next to a Conv stay in that layout.
6. A HardSwish goes into the kernel: the operator, or HardSigmoid and Mul; not as Add, Clip, Mul and Div. Scales and
   shifts by one number go there as BatchNormalization alone (conv_epilogues.py spells them so and has the figures).
7. Nothing goes into the weights of the Conv that reads it (conv_prologues.py has it so).
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from onnxfuse.rewrites.graph import GraphView
from onnxfuse.rewrites.lowering import LOWERINGS

__all__ = [
    "CONVOLUTIONS",
    "activated_from",
    "among_byte_convolutions",
    "folds_before",
    "has_constant_weights",
    "inside_convolutions",
    "made_blocked",
    "stays_blocked",
    "takes_blocks",
]

CONVOLUTIONS = ("Conv", "ConvTranspose")

_ACTIVATIONS = frozenset(("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"))  # on the CPU
_TAKE_BLOCKS = frozenset(("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"))
_KEEP_BLOCKS = frozenset(
    (*_ACTIVATIONS, "HardSwish", "Add", "Sum", "Mul", "BatchNormalization", "Concat", "Resize", "Upsample")
)
_FAR = 8  # operators before a value that are looked at
_FOLDED = "ONNX Runtime folds it into the Conv before it"
_ACTIVATED = "ONNX Runtime computes this activation inside the Conv before it"


def inside_convolutions(view: GraphView, target: str) -> dict[int, str]:
    """The nodes that go into a Conv, with the reason."""
    return _inside_on_cpu(view) if target == "cpu" else _inside_on_gpu(view)


def _inside_on_gpu(view: GraphView) -> dict[int, str]:
    reasons: dict[int, str] = {}
    folded: dict[str, list[int]] = {}  # results of Conv: what went into it so far
    for i, proto in enumerate(view.protos):
        if proto.op_type == "Conv":
            folded[proto.output[0]] = []
            continue
        given = next((n for n in proto.input if n in folded and view.only_user(n)), None)
        if given is None or not _folds(view, i, given):
            continue
        folded[proto.output[0]] = [*folded[given], i]
        users = [view.protos[c] for c in view.consumers.get(proto.output[0], ())]
        if not any((u.domain, u.op_type) in LOWERINGS for u in users):
            reasons |= dict.fromkeys(folded[proto.output[0]], _FOLDED)
    return reasons


def _inside_on_cpu(view: GraphView) -> dict[int, str]:
    reasons: dict[int, str] = {}
    # Results of Conv, with what went into it so far; and sums, which only an activation may follow.
    foldable: set[str] = set()
    sums: set[str] = set()
    for i, proto in enumerate(view.protos):
        blocked = proto.op_type == "BatchNormalization" and _may_be_blocked(view, proto.input[0])
        if proto.op_type == "Conv" or blocked:
            foldable.add(proto.output[0])
            if blocked:
                reasons[i] = "ONNX Runtime computes it as a Conv in its own layout"
            continue
        given = [n for n in proto.input if n in foldable and view.only_user(n)]
        if not given:
            if proto.op_type in _ACTIVATIONS and proto.input[0] in sums and view.only_user(proto.input[0]):
                reasons[i] = _ACTIVATED
            continue
        if proto.op_type in _ACTIVATIONS or (proto.op_type == "HardSwish" and _is_map(view, proto.input[0])):
            reasons[i] = _ACTIVATED
        elif _folds(view, i, given[0]):
            reasons[i] = _FOLDED
            foldable.add(proto.output[0])
        elif proto.op_type in ("Add", "Sum") and _is_map(view, given[0]) and _same_shape(view, proto.input):
            reasons[i] = "ONNX Runtime adds it inside the Conv before it, in its own layout"
            sums.add(proto.output[0])
    return reasons


def _folds(view: GraphView, i: int, value: str) -> bool:
    """Whether a node scales or shifts the channels of a Conv's result by constants."""
    proto = view.protos[i]
    if proto.op_type == "BatchNormalization":
        return True
    # A sum with the constant in front is not seen; a product with it becomes a Conv of its own in the same layout.
    constants = proto.input[1:] if proto.op_type == "Add" else proto.input
    return proto.op_type in ("Mul", "Add") and any(_per_channel(view, n, value) for n in constants)


def folds_before(view: GraphView, i: int, value: str) -> bool:
    """Whether ONNX Runtime folds a node into the weights of the Conv that makes `value` for it."""
    maker = view.protos[view.producer[value]] if value in view.producer else None
    return maker is not None and maker.op_type == "Conv" and view.only_user(value) and _folds(view, i, value)


def stays_blocked(view: GraphView, nodes: Iterable[int]) -> bool:
    """Whether all of some nodes keep the CPU provider's layout of channels in blocks, and a Conv hands it to them."""
    members = set(nodes)
    for i in members:
        proto = view.protos[i]
        binary = proto.op_type in ("Add", "Sum", "Mul") and _same_shape(view, proto.input)
        if not _is_map(view, proto.output[0]) or not (binary or proto.op_type in _ACTIVATIONS):
            return False
    return any(
        made_blocked(view, n) for i in members for n in view.protos[i].input if view.producer.get(n) not in members
    )


def among_byte_convolutions(view: GraphView, i: int) -> bool:
    """Whether an element-wise operator between quantizers may lie among convolutions of bytes on the CPU.

    ONNX Runtime has their channels last, and hands that layout on through quantizers and such operators, though not
    through fused nodes: PP-OCRv4_det, quantized to uint8, took 24.1 ms with 34 of them fused, and 22.1 with none.
    """
    shape = view.type_of(view.protos[i].output[0]).shape
    kind = view.protos[i].op_type
    return kind not in ("Softmax", "Where") and len(shape or ()) in view.ranks_of_byte_convolutions


def made_blocked(view: GraphView, name: str) -> bool:
    """Whether a Conv makes a value in blocks of channels, perhaps with a scale and a shift that go into it."""
    return _maker(view, name) is not None


def has_constant_weights(view: GraphView, name: str) -> bool:
    """Whether the Conv that makes a value in blocks of channels has constant weights, to take in scales and shifts."""
    maker = _maker(view, name)
    return maker is not None and all(n in view.constants.names for n in maker.input[1:] if n)


def activated_from(view: GraphView, name: str) -> str:
    """The value of which another one is the activation that goes into a Conv; itself where it is none."""
    if not _is_map(view, name) or name not in view.producer:
        return name
    proto = view.protos[view.producer[name]]
    goes_in = proto.op_type in _ACTIVATIONS or proto.op_type == "HardSwish"
    return proto.input[0] if goes_in and not proto.domain and view.only_user(proto.input[0]) else name


def takes_blocks(view: GraphView, i: int) -> bool:
    """Whether a node reads a map in blocks of channels."""
    proto = view.protos[i]
    return proto.op_type in _TAKE_BLOCKS and not proto.domain and _is_map(view, proto.input[0])


def _maker(view: GraphView, name: str) -> onnx.NodeProto | None:
    """The Conv or BatchNormalization that makes a value in blocks of channels."""
    while _is_map(view, name) and name in view.producer:
        i = view.producer[name]
        proto = view.protos[i]
        if proto.op_type == "Conv" or (proto.op_type == "BatchNormalization" and _may_be_blocked(view, proto.input[0])):
            return proto
        operands = [n for n in proto.input if n not in view.constants.names]
        if len(operands) != 1 or not view.only_user(operands[0]) or not _folds(view, i, operands[0]):
            return None
        name = operands[0]
    return None


def _may_be_blocked(view: GraphView, name: str, far: int = _FAR) -> bool:
    """Whether a map may be in blocks of channels: of what lies far before it, that is taken for granted."""
    if not _is_map(view, name) or name not in view.producer or not far:
        return not far
    proto = view.protos[view.producer[name]]
    if proto.op_type in _TAKE_BLOCKS:
        return True
    operands = [n for n in proto.input if n and n not in view.constants.names]
    return proto.op_type in _KEEP_BLOCKS and all(_may_be_blocked(view, n, far - 1) for n in operands)


def _is_map(view: GraphView, name: str) -> bool:
    known = view.type_of(name)
    return known.type == "f32" and known.shape is not None and len(known.shape) == 4


def _per_channel(view: GraphView, constant: str, value: str) -> bool:
    """Whether a constant has one element a channel (dimension 1) of a value."""
    shape, own = view.type_of(value).shape, view.type_of(constant).shape
    if constant not in view.constants.names or shape is None or own is None or len(shape) < 3:
        return False
    padded = (1,) * (len(shape) - len(own)) + own
    return len(padded) == len(shape) and padded == (1, shape[1], *(1 for _ in shape[2:]))


def _same_shape(view: GraphView, names: Iterable[str]) -> bool:
    shapes = {view.type_of(n).shape for n in names}
    return len(shapes) == 1 and None not in shapes
