"""Local functions of one name, which only their overloads tell apart.

Up to 1.26, ONNX Runtime takes the last function of a name for all of its nodes, whatever their overloads, and so does
onnx.reference: silently wrong numbers where a model has several. So the last is one that cannot be run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import onnx
from onnx import helper

from onnxfuse.custom_ops import DOMAIN

__all__ = ["GUARD", "guards"]

# The overload of the function that a runtime runs which knows functions, but not their overloads.
GUARD = "none"
_ADVICE = (
    "onnxfuse: without its library, this model needs ONNX Runtime 1.27 or later; `onnxfuse restore` makes one of "
    "standard operators"
)


def guards(
    functions: Mapping[tuple[str, str], onnx.FunctionProto], opset: int
) -> dict[tuple[str, str], onnx.FunctionProto]:
    """For each op type of several functions one more, to be the last, by op type and overload.

    No node calls it. With the library, and from ONNX Runtime 1.27 on, nothing looks at it; where it is taken for the
    others, loading the model fails with the name of its node.
    """
    by_name = defaultdict(list)
    for (op_type, _), function in sorted(functions.items()):
        by_name[op_type].append(function)
    made = {}
    for op_type, alike in by_name.items():
        if len(alike) < 2:
            continue
        outputs = [f"y{k}" for k in range(max(len(f.output) for f in alike))]
        one = helper.make_tensor("one", onnx.TensorProto.FLOAT, [1], [1.0])
        nodes = [
            helper.make_node("Constant", [], ["c"], value=one),
            helper.make_node("Concat", ["c", "c"], ["none"], name=_ADVICE, axis=9),  # its rank is 1
            *(helper.make_node("Identity", ["none"], [name]) for name in outputs),
        ]
        made[op_type, GUARD] = helper.make_function(
            DOMAIN,
            op_type,
            [f"x{k}" for k in range(max(len(f.input) for f in alike))],
            outputs,
            nodes,
            [helper.make_opsetid("", opset)],
            attributes=["program"],
            overload=GUARD,
        )
    return made
