"""From a region to the program of a fused node.

Statements come in the order in which the outputs need them, equal ones once, and inputs are numbered as they appear, so
that equal regions give equal programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfuse.custom_ops.program import ONE, Apply, Const, Entry, Input, Kernel, Output, Program, Statement, dim
from onnxfuse.custom_ops.types import value_type
from onnxfuse.rewrites import cost
from onnxfuse.rewrites.fragment import RefusalError, Value
from onnxfuse.rewrites.layout import Entries, Layout

__all__ = ["Emitted", "emit"]


@dataclass(frozen=True)
class Emitted:
    """A program, and the tensors that are the fused node's inputs, in order."""

    program: Program
    inputs: tuple[str, ...]


def emit(layout: Layout, outputs: list[tuple[str, str]]) -> Emitted:
    """The program that computes `outputs` (names and element types). Raises RefusalError where it exceeds a limit."""
    return _Emission(layout).run(outputs)


class _Emission:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.position = {d: k for k, d in enumerate(layout.order)}
        self.statements: list[Statement] = []
        self.numbers: dict[Statement, int] = {}
        self.value_numbers: dict[tuple[Value, Entries | None], int] = {}
        self.tensors: dict[str, int] = {}

    def run(self, outputs: list[tuple[str, str]]) -> Emitted:
        results = []
        for k, (name, storage) in enumerate(outputs):
            value = self.layout.produced[name]
            entries = self.layout.laid_out(value)
            base, _ = self.layout.resolve(value)
            if entries is None:
                raise RefusalError("it only passes on a constant")
            number = self.number(base)
            if value_type(storage) != value.type:
                raise RefusalError(f"{name} has another element type than its computation gives")
            results.append(Output(k, storage, self.map(entries), number))
        order = self.layout.order
        reduced = [k for k, d in enumerate(order) if d in self.layout.reduced]
        if len(self.tensors) > cost.MAX_TENSORS or len(outputs) > cost.MAX_TENSORS:
            raise RefusalError(f"it would have more than {cost.MAX_TENSORS} inputs or outputs")
        if len(order) > 8:
            raise RefusalError("its iteration space has more than 8 dimensions")
        if not self.tensors:
            raise RefusalError("it reads no tensor")
        extents = tuple(e if isinstance(e, int) else None for e in (self.layout.extents[d] for d in order))
        kernel = Kernel(
            extents=extents,
            outer=reduced[0] if reduced else len(order),
            reduced=len(reduced),
            statements=tuple(self.statements),
            outputs=tuple(results),
        )
        self._check_extents(kernel)
        program = Program((kernel,))
        if len(program.text()) > 60000:
            raise RefusalError("its program would be too long")
        return Emitted(program, tuple(self.tensors))

    def _check_extents(self, kernel: Kernel) -> None:
        shown = {e.plain for s in kernel.statements if isinstance(s, Input) for e in s.map}
        if any(extent is None and k not in shown for k, extent in enumerate(kernel.extents)):
            raise RefusalError("the extent of one of its dimensions shows in none of its inputs")

    def map(self, entries: Entries) -> tuple[Entry, ...]:
        return tuple(ONE if e is None else dim(self.position[e]) for e in entries)

    def put(self, statement: Statement) -> int:
        if statement not in self.numbers:
            self.numbers[statement] = len(self.statements)
            self.statements.append(statement)
        return self.numbers[statement]

    def number(self, value: Value) -> int:
        """The number of a value that the region computes or, for an output that is one, reads; without recursion."""
        stack = [value]
        while stack:
            v = stack[-1]
            if (v, None) in self.value_numbers:
                stack.pop()
                continue
            if v.op == "tensor":
                self.value_numbers[v, None] = self.read(v, self.layout.reads[v, 0])
                continue
            waiting = []
            operands: list[tuple[Value, Entries | None]] = []
            for k, operand in enumerate(v.operands):
                base, _ = self.layout.resolve(operand)
                if base.op == "const":
                    operands.append((base, None))
                elif base in self.layout.entries:
                    operands.append((base, None))
                    if (base, None) not in self.value_numbers:
                        waiting.append(base)
                else:
                    operands.append((base, self.layout.reads[v, k]))
            if waiting:
                stack.extend(reversed(waiting))
                continue
            numbers = tuple(self.operand(base, entries) for base, entries in operands)
            same = v in self.layout.passed or self.is_rounded(v, numbers)
            self.value_numbers[v, None] = numbers[0] if same else self.put(Apply(v.op, v.type, numbers))
            stack.pop()
        return self.value_numbers[value, None]

    def is_rounded(self, value: Value, numbers: tuple[int, ...]) -> bool:
        """Whether a rounding step changes nothing, because its operand was just read from, or rounded to, that type."""
        before = self.statements[numbers[0]]
        if isinstance(before, Input):
            return value.op == f"round_{before.type}"
        return value.op in ("round_f16", "round_bf16") and isinstance(before, Apply) and before.op == value.op

    def operand(self, base: Value, entries: Entries | None) -> int:
        if base.op == "const":
            return self.put(Const(base.type, base.const))
        return self.value_numbers[base, None] if entries is None else self.read(base, entries)

    def read(self, tensor: Value, entries: Entries) -> int:
        number = self.tensors.setdefault(tensor.tensor, len(self.tensors))
        return self.put(Input(number, tensor.storage, self.map(entries)))
