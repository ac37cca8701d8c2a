"""Which of the op types a finished program is: what a reader of the graph would want to know."""

from __future__ import annotations

from onnxfuse.custom_ops.program import Apply, Const, Kernel

__all__ = ["classify"]


def classify(kernel: Kernel) -> str:
    """The rewrite name of a kernel's program (a key of custom_ops.REWRITES).

    - runtime_axes: its axes arrive with a run, whatever it contains;
    - scan: it has a scan, whatever else it contains;
    - softmax: exponentials are divided by their sum (or, for LogSoftmax, the logarithm of their sum is subtracted);
    - layer_norm: what has its mean subtracted is scaled by the root of a mean or sum of its own square;
    - rms_norm: something is scaled by the root of the mean or sum of its square;
    - reduction, elementwise: with and without any other reduction.
    """
    if kernel.axes is not None:
        return "runtime_axes"
    program = _Reader(kernel)
    if program.scans:
        return "scan"
    if not program.reductions:
        return "elementwise"
    if any(program.normalizes_exponentials(s) for s in program.sums):
        return "softmax"
    roots = [k for k in range(len(kernel.statements)) if program.root(k)]
    squares = [k for k in program.sums if roots and program.square(k) is not None and program.reaches(k, roots)]
    if any(program.centred(program.square(k)) for k in squares):
        return "layer_norm"
    return "rms_norm" if squares else "reduction"


class _Reader:
    def __init__(self, kernel: Kernel) -> None:
        self.statements = kernel.statements
        self.users: dict[int, list[int]] = {}
        for k, statement in enumerate(kernel.statements):
            if isinstance(statement, Apply):
                for o in statement.operands:
                    self.users.setdefault(o, []).append(k)
        self.reductions = [k for k in range(len(self.statements)) if self.op(k).startswith("reduce_")]
        self.scans = [k for k in range(len(self.statements)) if self.op(k).startswith("scan_")]
        self.sums = [k for k in self.reductions if self.op(k) in ("reduce_sum", "reduce_mean")]

    def op(self, k: int) -> str:
        statement = self.statements[k]
        return statement.op if isinstance(statement, Apply) else ""

    def operands(self, k: int) -> tuple[int, ...]:
        statement = self.statements[k]
        return statement.operands if isinstance(statement, Apply) else ()

    def root(self, k: int) -> bool:
        """Whether this is a square root, or one over it."""
        if self.op(k) != "pow":
            return self.op(k) == "sqrt"
        exponent = self.statements[self.plain(self.operands(k)[1])]
        return isinstance(exponent, Const) and exponent.value in (0.5, -0.5)

    def plain(self, k: int) -> int:
        """The value behind conversions and rounding."""
        while self.op(k) in ("cast", "round_f16", "round_bf16"):
            (k,) = self.operands(k)
        return k

    def normalizes_exponentials(self, total: int) -> bool:
        (summand,) = self.operands(total)
        exponential = self.plain(summand)
        if self.op(exponential) != "exp":
            return False
        later = self.downstream(total)
        for user in later:
            operands = [self.plain(o) for o in self.operands(user)]
            if self.op(user) in ("div", "mul") and exponential in operands:
                return True
            if self.op(user) == "sub" and self.op(operands[1]) in ("log", "add"):
                return True
        return False

    def square(self, total: int) -> int | None:
        """What a sum or mean sums the square of."""
        (summand,) = self.operands(total)
        summand = self.plain(summand)
        if self.op(summand) == "mul" and len(set(map(self.plain, self.operands(summand)))) == 1:
            return self.plain(self.operands(summand)[0])
        return self.plain(self.operands(summand)[0]) if self.op(summand) == "pow" else None

    def centred(self, value: int | None) -> bool:
        if value is None or self.op(value) != "sub":
            return False
        mean = self.plain(self.operands(value)[1])
        return any(r in self.upstream(mean) for r in self.sums)

    def reaches(self, k: int, goals: list[int]) -> bool:
        return bool(self.downstream(k) & set(goals))

    def downstream(self, k: int) -> set[int]:
        return _closure(k, lambda j: self.users.get(j, []))

    def upstream(self, k: int) -> set[int]:
        return _closure(k, self.operands) | {k}


def _closure(start: int, step) -> set[int]:  # type: ignore[no-untyped-def]
    found: set[int] = set()
    stack = list(step(start))
    while stack:
        k = stack.pop()
        if k not in found:
            found.add(k)
            stack.extend(step(k))
    return found
