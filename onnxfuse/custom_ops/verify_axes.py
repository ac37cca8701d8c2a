"""The rules of docs/program.md for axes that arrive with a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Apply, Output
from onnxfuse.custom_ops.runtime_axes import RuntimeAxes

if TYPE_CHECKING:
    from onnxfuse.custom_ops.verify import KernelCheck

__all__ = ["AxesCheck", "names_of"]


class AxesCheck:
    """What holds for a kernel whose axes arrive with a run: each of its dimensions may be reduced."""

    def __init__(self, check: KernelCheck, axes: RuntimeAxes) -> None:
        self.check, self.axes, self.kernel = check, axes, check.kernel
        self.dims = frozenset(range(check.kernel.rank))
        if axes.type not in ("i32", "i64"):
            check.fail(f"axes are i32 or i64, not {axes.type}")
        if check.kernel.reduced:
            check.fail("the space of a kernel with axes has no bars: the axes say what is reduced")
        if check.kernel.rolls:
            check.fail("a kernel with axes has no rolls")
        if sorted(axes.dims) != sorted(self.dims):
            check.fail("axes name each dimension of the space once, and no other")
        if axes.count is not None and not 1 <= axes.count <= check.kernel.rank:
            check.fail(f"{axes.count} axes, of a space of {check.kernel.rank} dimensions")
        if axes.count is not None and axes.noop:
            check.fail("'noop' says what no axes mean, and there always are some")

    def collective(self, apply: Apply, operand: int) -> None:
        """A reduction or a scan of a value."""
        primitive = PRIMITIVES[apply.op]
        if primitive.kind == "argument":
            self.check.fail(f"{apply.op} takes no axes from a run")
        if primitive.scans and self.axes.count != 1:
            self.check.fail(f"{apply.op} goes along one axis; there may be several")
        if missing := self.dims - self.check.varies[operand]:
            self.check.fail(
                f"the operand of {apply.op} must vary along each dimension of the space, %{operand} does not along "
                f"{names_of(missing)}"
            )
        if operand in self.check.scanned:
            self.check.fail(f"the operand of {apply.op} may not depend on a scan, %{operand} does")

    def output(self, output: Output) -> None:
        """A store."""
        plain = [entry.plain if entry.extent is None else None for entry in output.map]
        if len(plain) != len(self.dims) or None in plain:
            self.check.fail("an output of a kernel with axes has each dimension of the space alone in its map")
        if missing := self.dims - self.check.depends[output.value]:
            self.check.fail(
                f"an output of a kernel with axes depends on each dimension of the space, %{output.value} does not on "
                f"{names_of(missing)}"
            )
        if not output.squeezed:
            return
        if self.axes.count is None:
            self.check.fail("a squeezed output needs the number of axes; write it in place of '?'")
        if plain != list(self.axes.dims):
            self.check.fail("the dimensions of a squeezed output stand in the order of the axes")
        if along := self.check.varies[output.value]:
            self.check.fail(
                f"%{output.value} varies along {names_of(along)}, and cannot be stored without what is reduced"
            )


def names_of(dims: frozenset[int]) -> str:
    """Dimensions as messages name them."""
    return " and ".join(f"d{k}" for k in sorted(dims))
