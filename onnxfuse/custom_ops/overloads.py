"""Functions of one name, which a runtime must tell apart by their overloads.

ONNX Runtime does from 1.27 on. Versions before it, and some tools, take one function of the name for that of every
node, and so compute what another node means. So where several functions share a name, each needs an attribute that none
but its own nodes have: a constant in its body is what the attribute says, and without it the model does not load.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto

__all__ = ["is_mark", "mark", "mark_name", "marked", "unmarked"]

_PREFIX = "program_"
_VALUE = "mark"  # no other name in a function is like it (function.py)
_REASON = "needs_the_library_of_onnxfuse_or_ONNX_Runtime_1.27"  # a name that the error shows
_VALUE_INT = 12  # the first opset whose constants may be numbers


def mark_name(overload: str) -> str:
    """The attribute of the nodes of an overload, a program's digest."""
    return _PREFIX + overload[:16]


def is_mark(attribute: str) -> bool:
    """Whether an attribute of this name is one of these."""
    return attribute.startswith(_PREFIX)


def mark(opset: int) -> int | gs.Constant:
    """What the attribute holds, as graphsurgeon has it: something that a constant of that opset can be."""
    return 1 if opset >= _VALUE_INT else gs.Constant("", np.array(1, np.float32))


def marked(function: onnx.FunctionProto, opset: int) -> onnx.FunctionProto:
    """The function, for nodes with the attribute alone."""
    result = onnx.FunctionProto()
    result.CopyFrom(function)
    name = mark_name(function.overload)
    result.attribute.append(name)
    del result.node[:]
    constant = result.node.add(op_type="Constant", output=[_VALUE], name=_REASON)
    if opset >= _VALUE_INT:
        constant.attribute.add(name="value_int", ref_attr_name=name, type=AttributeProto.INT)
    else:
        constant.attribute.add(name="value", ref_attr_name=name, type=AttributeProto.TENSOR)
    result.node.extend(function.node)
    return result


def unmarked(function: onnx.FunctionProto) -> onnx.FunctionProto:
    """The function as it was before `marked`."""
    result = onnx.FunctionProto()
    result.CopyFrom(function)
    marks = [name for name in function.attribute if is_mark(name)]
    if marks and function.node and list(function.node[0].output) == [_VALUE]:
        result.attribute[:] = [name for name in function.attribute if name not in marks]
        del result.node[0]
    return result
