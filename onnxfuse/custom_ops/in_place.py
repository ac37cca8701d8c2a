"""Whether a result may lie where one of the tensors lies that it is computed from.

ONNX Runtime has the first output of a FusedElementwise written over one of its first inputs, when no other node needs
that input any more. It asks an op type for this and never a node, so every node of that name must bear it; others are
named FusedOutOfPlace.
"""

from __future__ import annotations

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import FIRST_ROLL, ONE, Apply, Input, Kernel, Output, Program

__all__ = ["OVERWRITTEN", "is_pointwise", "reads_before_storing"]

# Of the inputs of a FusedElementwise, the first so many are those that may be written over (cuda_ops/in_place.h).
OVERWRITTEN = 4


def is_pointwise(program: Program, tensor: int, output: int) -> bool:
    """Whether an element of an output is computed from that very element of an input, and no other is from it.

    Both tensors have the same shape.
    """
    for kernel in program.kernels:
        reads = [s for s in kernel.statements if isinstance(s, Input) and s.tensor == tensor]
        stores = [o for o in kernel.outputs if o.tensor == output]
        if not reads:
            continue
        if not stores or not _is_elementwise(kernel):
            return False
        if not all(_has_all_dims(kernel, o) and _same_places(s, o) for s in reads for o in stores):
            return False
    return True


def reads_before_storing(program: Program, tensor: int, output: int) -> bool:
    """Whether the CPU engine has read all of a point's elements of an input when it stores that of an output.

    A value is computed where it stands, or by the only statement that reads it (cuda_ops/cpu/engine.cc).
    """
    return all(_reads_before_storing(k, tensor, output) for k in program.kernels if len(k.outputs) > 1)


def _reads_before_storing(kernel: Kernel, tensor: int, output: int) -> bool:
    read = {v for v, s in enumerate(kernel.statements) if isinstance(s, Input) and s.tensor == tensor}
    readers: dict[int, set[int]] = {}
    for v, statement in enumerate(kernel.statements):
        for operand in statement.operands if isinstance(statement, Apply) else ():
            readers.setdefault(operand, set()).add(v)
    outputs = {o.value for o in kernel.outputs}
    stored = min((o.value for o in kernel.outputs if o.tensor == output), default=len(kernel.statements))
    computed = {v: max(users) for v, users in readers.items() if len(users) == 1 and v not in outputs}
    users = {user for v in read for user in readers.get(v, ())}
    return not outputs & read and all(computed.get(user, user) <= stored for user in users)


def _is_elementwise(kernel: Kernel) -> bool:
    primitives = [PRIMITIVES.get(s.op) for s in kernel.statements if isinstance(s, Apply)]
    return not any(p is not None and (p.reduces or p.scans) for p in primitives)


def _has_all_dims(kernel: Kernel, output: Output) -> bool:
    """Whether a point's element is no other point's."""
    stored = {k for entry in output.map for k, _ in entry.terms}
    return (
        all(k in stored for k, extent in enumerate(kernel.extents) if extent != 1)
        and max(stored, default=0) < FIRST_ROLL
    )


def _same_places(read: Input, output: Output) -> bool:
    """Whether a point reads where it stores. A dimension of which only index 0 is read has extent 1, in both."""
    return len(read.map) == len(output.map) and all(
        a == ONE or ((a.terms, a.offset) == (b.terms, b.offset) and a.extent in (None, b.extent))
        for a, b in zip(read.map, output.map, strict=True)
    )
