"""Spellings that deserve better arithmetic than their own, recognized in a finished kernel.

1. E[x^2] - E[x]^2 cancels where the mean is large: it becomes the mean of (x - E[x])^2, in two passes.
2. log(1 + exp(x)) overflows: it becomes softplus.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from onnxfuse.custom_ops.program import Apply, Const, Kernel, Statement
from onnxfuse.custom_ops.types import is_float

__all__ = ["improve"]


def improve(kernel: Kernel) -> tuple[Kernel, tuple[str, ...]]:
    """The kernel with its idioms replaced, and what to tell the user about each kind that was."""
    rewriter = _Rewriter(kernel)
    for k in range(len(kernel.statements)):
        rewriter.copy(k)
    return rewriter.finish()


class _Rewriter:
    """Copies statements one by one, an idiom's last one in its new form; what nothing uses any more is left out."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.statements: list[Statement] = []
        self.numbers: dict[Statement, int] = {}
        self.moved: dict[int, int] = {}
        self.notes: dict[str, None] = {}

    def put(self, statement: Statement) -> int:
        if statement not in self.numbers:
            self.numbers[statement] = len(self.statements)
            self.statements.append(statement)
        return self.numbers[statement]

    def copy(self, k: int) -> None:
        statement = self.kernel.statements[k]
        if isinstance(statement, Apply):
            statement = replace(statement, operands=tuple(self.moved[o] for o in statement.operands))
            if (better := self.variance(statement)) is not None or (better := self.softplus(statement)) is not None:
                self.moved[k] = better
                return
        self.moved[k] = self.put(statement)

    def apply(self, k: int, op: str) -> Apply | None:
        statement = self.statements[k]
        return statement if isinstance(statement, Apply) and statement.op == op else None

    def square_of(self, k: int) -> int | None:
        found = self.apply(k, "mul")
        return found.operands[0] if found is not None and found.operands[0] == found.operands[1] else None

    def mean(self, k: int) -> int | None:
        """What `k` is the mean of: as a mean, or as a sum times 1/n or divided by n."""
        if (found := self.apply(k, "reduce_mean")) is not None:
            return found.operands[0]
        for op in ("mul", "div"):
            if (found := self.apply(k, op)) is None:
                continue
            for total, factor in (found.operands, found.operands[::-1]) if op == "mul" else (found.operands,):
                constant, summed = self.statements[factor], self.apply(total, "reduce_sum")
                extents = [self.kernel.extents[d] for d in self.kernel.reduced_dims]
                if summed is None or not isinstance(constant, Const) or None in extents or self.kernel.axes is not None:
                    continue
                n = prod(e or 0 for e in extents)
                if abs((constant.value * n if op == "mul" else constant.value / n if n else 0) - 1) < 2**-20:
                    return summed.operands[0]
        return None

    def variance(self, s: Apply) -> int | None:
        if s.op != "sub" or not is_float(s.type):
            return None
        mean = self.square_of(s.operands[1])
        square = self.mean(s.operands[0])
        x = self.square_of(square) if square is not None else None
        if mean is None or x is None or self.mean(mean) != x:
            return None
        self.notes["the variance E[x^2]-E[x]^2 is computed in two passes, so that a large mean cannot cancel it"] = None
        centred = self.put(Apply("sub", s.type, (x, mean)))
        square = self.put(Apply("mul", s.type, (centred, centred)))
        return self.put(Apply("reduce_mean", s.type, (square,)))

    def softplus(self, s: Apply) -> int | None:
        if s.op not in ("log", "log1p"):
            return None
        (inner,) = s.operands
        if s.op == "log":
            total = self.apply(inner, "add")
            one = [o for o in total.operands if self.statements[o] == Const(s.type, 1.0)] if total is not None else []
            if total is None or len(one) != 1:
                return None
            (inner,) = (o for o in total.operands if o != one[0])
        exponential = self.apply(inner, "exp")
        if exponential is None:
            return None
        self.notes["log(1 + exp(x)) is computed as softplus, which does not overflow"] = None
        return self.put(Apply("softplus", s.type, exponential.operands))

    def finish(self) -> tuple[Kernel, tuple[str, ...]]:
        if not self.notes:
            return self.kernel, ()
        used = {self.moved[o.value] for o in self.kernel.outputs}
        for k in reversed(range(len(self.statements))):
            statement = self.statements[k]
            if k in used and isinstance(statement, Apply):
                used.update(statement.operands)
        order = {old: new for new, old in enumerate(sorted(used))}
        statements = tuple(
            replace(s, operands=tuple(order[o] for o in s.operands)) if isinstance(s, Apply) else s
            for k, s in enumerate(self.statements)
            if k in used
        )
        outputs = tuple(replace(o, value=order[self.moved[o.value]]) for o in self.kernel.outputs)
        return replace(self.kernel, statements=statements, outputs=outputs), tuple(self.notes)
