"""Types and shapes of every value of a model: ONNX's own inference, and what it leaves open, symbolically.

ONNX's inference drops a dimension that it cannot compute; here it becomes an expression of the dimensions that it
depends on, so that two branches that treat a symbolic size alike are known to agree.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from onnxfuse.custom_ops.types import from_onnx
from onnxfuse.custom_ops.verify import MAX_MAGNITUDE
from onnxfuse.rewrites.constants import Constants
from onnxfuse.rewrites.dims import INVENTED, Dim, Shape, Symbols
from onnxfuse.rewrites.loop_states import forget_changing
from onnxfuse.rewrites.misjudged import hide, import_hidden, show
from onnxfuse.rewrites.misnamed import MISNAMING_OPSET, misnames, part_names
from onnxfuse.rewrites.outer_constants import constants_for_bodies, give_constants
from onnxfuse.rewrites.shape_rules import RULES
from onnxfuse.rewrites.shape_site import Scope, Shapes, Site, TensorType
from onnxfuse.rewrites.shape_values import SymbolicValue, propagate, rounded_to

__all__ = ["UNKNOWN", "Scope", "TensorType", "infer", "is_refused", "symbolic_scope"]

# Vectors above this length are no shapes.
LONG_VECTOR = 1 << 16
# Initializers above this size say nothing about shapes; inference runs without their data.
SMALL = 1024

UNKNOWN = TensorType("", None)

# The opset from which on ONNX's inference takes the axes of a Squeeze in any order.
_ANY_ORDER_OF_AXES = 11


def infer(model: onnx.ModelProto, distinct: bool = False) -> onnx.ModelProto:
    """A copy of the model, without large weights, whose value_info holds what ONNX's shape inference finds.

    Declared value_info is used only for values that inference cannot type (outputs of operators that ONNX does not
    know): a stale declaration must not decide a fusion. `distinct`: a symbol that is declared more than once is another
    each time, since ONNX Runtime takes inputs of other extents than each other's all the same.
    """
    skeleton = _skeleton(model)
    if distinct:
        _part_symbols(skeleton.graph, set())
    inferred = _inferred(skeleton)
    while forget_changing(skeleton.graph, inferred.graph):
        inferred = _inferred(skeleton)
    again = False
    if hidden := hide(skeleton.graph, inferred.graph):
        import_hidden(skeleton)
    if any(o.domain in ("", "ai.onnx") and o.version == MISNAMING_OPSET for o in model.opset_import):
        again |= part_names(skeleton.graph, inferred.graph) > 0
    if not again and not hidden:
        return inferred
    inferred = _inferred(skeleton)
    show(inferred.graph)
    return inferred


def is_refused(model: onnx.ModelProto) -> bool:
    """Whether ONNX's inference finds an operator that cannot be: ONNX Runtime loads no such model."""
    try:
        onnx.shape_inference.infer_shapes(_skeleton(model), strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return True
    return False


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    skeleton = onnx.ModelProto()
    skeleton.ir_version = max(model.ir_version, 4)
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(f for f in model.functions if not f.overload and not misnames(f))
    known_domains = {"", "ai.onnx", "ai.onnx.ml"} | {f.domain for f in skeleton.functions}
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    _Copier(known_domains, model.ir_version, opset).graph(model.graph, skeleton.graph, Constants())
    return skeleton


def _part_symbols(graph: onnx.GraphProto, met: set[str]) -> None:
    """Leaves only the first of the dimensions, bodies included, that are declared with the same symbol."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in met:
                dim.Clear()
            elif dim.dim_param:
                met.add(dim.dim_param)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _part_symbols(attribute.g, met)


def _inferred(skeleton: onnx.ModelProto) -> onnx.ModelProto:
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton)
    except Exception:
        inferred = skeleton
    # ONNX's propagation of data holds a dimension for each element of whatever vector might be a shape: gigabytes where
    # a vector is long, although nothing that long is a shape.
    if any(_has_long_vector(graph) for graph in (inferred.graph, skeleton.graph)):
        return inferred
    try:
        return onnx.shape_inference.infer_shapes(skeleton, data_prop=True)
    except Exception:
        return inferred


def _has_long_vector(graph: onnx.GraphProto) -> bool:
    for value in (*graph.input, *graph.output, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_value > LONG_VECTOR:
            return True
    bodies = (a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
    return any(_has_long_vector(body) for body in bodies)


# Operators that ONNX's inference does not know, whose outputs are like their first input.
_LIKE_INPUT = frozenset(
    ("com.microsoft", name)
    for name in (
        "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    )
) | {("", "SimplifiedLayerNormalization")}  # fmt: skip

# Those whose outputs are like those of the standard operators of the same name.
_LIKE_STANDARD = frozenset(("com.microsoft", name) for name in ("QuantizeLinear", "DequantizeLinear"))
_SINCE = 10  # the opset that brought these


class _Copier:
    """Copies graphs without large weights and what is declared; bodies get the constants that they take from outside.

    An initializer that is also an input is only what that is where the caller gives nothing, from IR version 4 on.
    """

    def __init__(self, known_domains: set[str], ir_version: int, opset: int) -> None:
        self.known_domains, self.ir_version, self.opset = known_domains, ir_version, opset

    def graph(self, source: onnx.GraphProto, target: onnx.GraphProto, outer: Constants) -> None:
        opaque: set[str] = set()
        constants: Constants | None = None
        for node in source.node:
            if (node.domain, node.op_type) in _LIKE_INPUT:
                for i, name in enumerate(node.output):
                    if name and i in (0, 3):  # the result, and of the Skip operators the sum
                        target.node.append(onnx.helper.make_node("Identity", [node.input[0]], [name]))
                continue
            copy = target.node.add()
            standard = (node.domain, node.op_type) in _LIKE_STANDARD and self.opset >= _SINCE
            copy.op_type, copy.overload = node.op_type, node.overload
            copy.domain = "" if standard else node.domain
            copy.input.extend(node.input)
            copy.output.extend(node.output)
            by_old_rule = self.opset < _ANY_ORDER_OF_AXES and node.op_type == "Squeeze"
            if copy.domain not in self.known_domains:
                opaque.update(node.output)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    if constants is None:
                        constants = constants_for_bodies(source, outer, self.ir_version, self.opset)
                    new = copy.attribute.add()
                    new.name, new.type = attribute.name, attribute.type
                    self.graph(attribute.g, new.g, constants)
                    give_constants(new.g, attribute.g, constants)
                elif by_old_rule and attribute.name == "axes":
                    copy.attribute.append(onnx.helper.make_attribute("axes", sorted(attribute.ints)))
                elif attribute.type != onnx.AttributeProto.TENSOR or attribute.t.ByteSize() < 16 * SMALL:
                    copy.attribute.add().CopyFrom(attribute)
                else:
                    new = copy.attribute.add()
                    new.CopyFrom(_zeros(attribute.name, attribute.t))
        self.values(source, target, opaque)

    def values(self, source: onnx.GraphProto, target: onnx.GraphProto, opaque: set[str]) -> None:
        """Copies inputs, outputs and initializers; of declarations those of the values that inference cannot type."""
        declared = {i.name for i in source.input}
        target.name = source.name or "graph"
        target.input.extend(source.input)
        target.output.extend(source.output)
        given = {i.name for i in source.input} | opaque
        for output in target.output:
            # ONNX Runtime only warns where the declared shape of an output is not the one that comes out.
            if output.name not in given and output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")
        for tensor in source.initializer:
            if self.ir_version >= 4 and tensor.name in declared:
                continue
            if tensor.data_location != onnx.TensorProto.EXTERNAL and int(np.prod(tensor.dims)) <= SMALL:
                target.initializer.add().CopyFrom(tensor)
            elif tensor.name not in declared:
                target.input.append(
                    onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
                )
        for sparse in source.sparse_initializer:
            target.input.append(
                onnx.helper.make_tensor_value_info(sparse.values.name, sparse.values.data_type, list(sparse.dims))
            )
        target.value_info.extend(v for v in source.value_info if v.name in opaque)


def _zeros(name: str, tensor: onnx.TensorProto) -> onnx.AttributeProto:
    """A stand-in for a large Constant: inference reads the type and dims alone, so the data can go."""
    new = onnx.AttributeProto(name=name, type=onnx.AttributeProto.TENSOR)
    new.t.data_type = tensor.data_type
    new.t.dims.extend(tensor.dims)
    return new


# Floats in which a result of arithmetic is that of float64, rounded.
_NARROW: dict[str, type[np.floating]] = {"f32": np.float32, "f16": np.float16}
# Numbers below this are far from what an int64 holds.
_LARGE = 2**62


def symbolic_scope(
    graph: onnx.GraphProto,
    outer: Scope,
    symbols: Symbols,
    declared: onnx.GraphProto | None = None,
    derived: dict[str, np.ndarray] | None = None,
    runs: bool = False,
) -> Scope:
    """Types and shapes of the values that `graph` (from `infer`) defines, on top of those it captures from `outer`.

    `declared` is the model's own graph: its value_info types what inference could not. `derived` takes integers that
    follow from shapes. `runs`: every operator does, so that one that cannot be raises IndexError or ValueError.
    """
    scope: Scope = {}
    constants: dict[str, np.ndarray] = {}
    values: dict[str, SymbolicValue] = {}
    whole: set[str] = set()  # values that were integers all the way
    for tensor in graph.initializer:
        scope[tensor.name] = TensorType(from_onnx(tensor.data_type) or "", tuple(tensor.dims))
        _remember(tensor.name, numpy_helper.to_array(tensor), constants, values)
    for value in graph.input:
        scope.setdefault(value.name, _declared_type(value, symbols))
    hints = {v.name: v for v in declared.value_info} if declared is not None else {}
    hints |= {v.name: v for v in (*graph.value_info, *graph.output)}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain == "":
            for attribute in node.attribute:
                if attribute.name == "value" and (
                    attribute.t.raw_data or attribute.t.int64_data or attribute.t.int32_data
                ):
                    _remember(node.output[0], numpy_helper.to_array(attribute.t), constants, values)
                elif attribute.name in ("value_int", "value_ints"):
                    value = np.asarray(onnx.helper.get_attribute_value(attribute), np.int64)
                    _remember(node.output[0], value, constants, values)
        inputs = [(scope.get(n) or outer.get(n) or UNKNOWN) if n else UNKNOWN for n in node.input]
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        standard = node.domain in ("", "ai.onnx")
        if standard and inputs and (value := propagate(node, values, inputs[0].shape, axis)) is not None:
            values[node.output[0]] = value
        rule = RULES.get(node.op_type) if standard else None
        shapes = _ruled(rule, Site(node, inputs, constants, values, symbols), runs) if rule is not None else None
        for i, name in enumerate(node.output):
            if not name:
                continue
            hinted = _declared_type(hints[name], symbols) if name in hints else UNKNOWN
            shape = shapes[i] if shapes is not None and i < len(shapes) else None
            scope[name] = TensorType(hinted.type, symbols.shortened(_possible(_combine(hinted.shape, shape))))
        found = values.get(node.output[0]) if node.output else None
        if found is not None and (narrow := _NARROW.get(scope[node.output[0]].type)) is not None:
            found = values[node.output[0]] = rounded_to(narrow, found)
        if derived is None or found is None or scope[node.output[0]].type != "i64":
            continue
        if node.op_type in ("Shape", "Size") or all(_is_whole(n, whole, constants) for n in node.input if n):
            whole.add(node.output[0])
            if all(type(n) is int and abs(n) < _LARGE for n in found.reshape(-1)):
                derived[node.output[0]] = found.astype(np.int64)
    return scope


def _ruled(rule: Callable[[Site], Shapes], site: Site, runs: bool) -> Shapes:
    """What a rule says of a node; nothing of one that no run succeeds in: it may never be run."""
    try:
        return rule(site)
    except (IndexError, ValueError, ZeroDivisionError):
        if runs:
            raise
        return None


def _is_whole(name: str, whole: set[str], constants: dict[str, np.ndarray]) -> bool:
    return name in whole or (name in constants and constants[name].dtype.kind in "iu")


def _possible(shape: Shape | None) -> Shape | None:
    """The shape, or None where no program can have it: nothing so large is to be computed."""
    if shape is None or all(d <= MAX_MAGNITUDE for d in shape if isinstance(d, int)):
        return shape
    return None


def _remember(name: str, value: np.ndarray, constants: dict[str, np.ndarray], values: dict[str, SymbolicValue]) -> None:
    constants[name] = value
    if value.ndim <= 1 and value.size <= 64 and value.dtype.kind in "iuf":
        values[name] = value.astype(object)


def _combine(inferred: Shape | None, derived: Shape | None) -> Shape | None:
    """What ONNX inferred, with the dimensions that it left open taken from our own rule."""
    if derived is None or inferred is None or len(inferred) != len(derived):
        return inferred if inferred is not None else derived
    return tuple(
        d if isinstance(i, str) and (i.startswith(("?", INVENTED)) or isinstance(d, int)) else i
        for i, d in zip(inferred, derived, strict=True)
    )


def _declared_type(value: onnx.ValueInfoProto, symbols: Symbols) -> TensorType:
    if not value.type.HasField("tensor_type"):
        return UNKNOWN
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return TensorType(from_onnx(tensor.elem_type) or "", None)
    shape: list[Dim] = []
    for d in tensor.shape.dim:
        if d.HasField("dim_value") and d.dim_value >= 0:
            shape.append(d.dim_value)
        else:
            # "?" says nothing, though several dimensions are called so.
            shape.append(symbols.fresh() if d.dim_param[:1] in ("", "?", "!") else symbols.named(d.dim_param))
    return TensorType(from_onnx(tensor.elem_type) or "", _possible(tuple(shape)))
