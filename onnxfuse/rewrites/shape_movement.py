"""How operators that rearrange elements carry shapes, with symbolic dimensions as expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxfuse.rewrites.dims import Dim, reaches_end
from onnxfuse.rewrites.products import quotient, scaled
from onnxfuse.rewrites.shape_site import Shapes, Site
from onnxfuse.rewrites.slice_bounds import means_otherwise

__all__ = ["MOVEMENT"]


def _transpose(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    perm = at.ints("perm", range(len(shape))[::-1])
    return [tuple(shape[p] for p in perm)]


def _concat(at: Site) -> Shapes:
    shapes = [i.shape for i in at.inputs]
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) for s in shapes):
        return None
    axis = int(str(at.attribute("axis", 0))) % max(len(first), 1)
    result: list[Dim] = []
    for k in range(len(first)):
        column = [s[k] for s in shapes if s is not None]
        if k == axis:
            result.append(
                sum(int(c) for c in column)
                if all(isinstance(c, int) for c in column)
                else "+".join(str(c) for c in column)
            )
        else:
            result.append(next((c for c in column if isinstance(c, int)), column[0]))
    return [tuple(result)]


def _unsqueeze(at: Site) -> Shapes:
    shape, axes = at.inputs[0].shape, at.ints("axes", [])
    if len(at.node.input) > 1:
        value, known = at.constant(1), at.inputs[1].shape
        if value is None and shape is not None and known is not None and len(known) == 1 and isinstance(known[0], int):
            return [tuple(at.symbols.fresh() for _ in range(len(shape) + known[0]))]  # which are new is unknown
        axes = [] if value is None else [int(a) for a in value.reshape(-1)]
    if shape is None or not axes:
        return None
    rank = len(shape) + len(axes)
    new, rest = {a % rank for a in axes}, iter(shape)
    return [tuple(1 if k in new else next(rest) for k in range(rank))]


def _squeeze(at: Site) -> Shapes:
    shape, axes = at.inputs[0].shape, at.axes()
    if shape is None or not axes:
        return None
    gone = {a % len(shape) for a in axes}
    return [tuple(d for k, d in enumerate(shape) if k not in gone)]


def _reshape(at: Site) -> Shapes:
    shape, wanted = at.inputs[0].shape, at.dims(1)
    if shape is None or wanted is None:
        return None if wanted is None or -1 in wanted or 0 in wanted else [tuple(wanted)]
    zero_is_zero = bool(at.attribute("allowzero", 0))
    # A difference may be 0, which stands for another extent then, or -1.
    wanted = [at.symbols.fresh() if isinstance(d, str) and ")-(" in d else d for d in wanted]
    result = [shape[k] if t == 0 and not zero_is_zero and k < len(shape) else t for k, t in enumerate(wanted)]
    if -1 in wanted:
        # The rest: what remains of the input's dimensions after those that the result names.
        k = wanted.index(-1)
        have, rest = list(shape), [d for j, d in enumerate(result) if j != k]
        for d in list(rest):
            if d in have:
                have.remove(d)
                rest.remove(d)
        result[k] = quotient(_product(at, have), _product(at, rest))
    return [tuple(result)]


def _product(at: Site, dims: Sequence[Dim]) -> Dim:
    product: Dim = 1
    for d in sorted(dims, key=str):
        product = scaled(product, d)
    return product


def _flatten(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    axis = int(str(at.attribute("axis", 1)))
    axis += len(shape) if axis < 0 else 0
    return [(_product(at, shape[:axis]), _product(at, shape[axis:]))]


def _expand(at: Site) -> Shapes:
    shape, wanted = at.inputs[0].shape, at.dims(1)
    return None if shape is None or wanted is None else [at.symbols.broadcast((shape, tuple(wanted)))]


def _tile(at: Site) -> Shapes:
    shape, repeats = at.inputs[0].shape, at.dims(1)
    if shape is None or repeats is None or len(repeats) != len(shape):
        return None
    return [tuple(scaled(d, r) for d, r in zip(shape, repeats, strict=True))]


def _blocks(at: Site) -> Shapes:
    """DepthToSpace and SpaceToDepth: blocks of positions become channels, or come from them."""
    shape, size = at.inputs[0].shape, at.attribute("blocksize")
    if shape is None or len(shape) != 4 or not isinstance(size, int):
        return None
    batch, channels, *spatial = shape
    if at.node.op_type == "DepthToSpace":
        return [(batch, quotient(channels, size * size), *(scaled(d, size) for d in spatial))]
    return [(batch, scaled(channels, size * size), *(quotient(d, size) for d in spatial))]


def _constant_of_shape(at: Site) -> Shapes:
    wanted = at.dims(0)
    return None if wanted is None else [tuple(wanted)]


def _gather(at: Site) -> Shapes:
    shape, indices = at.inputs[0].shape, at.inputs[1].shape
    if shape is None or indices is None or not shape:
        return None
    axis = int(str(at.attribute("axis", 0))) % len(shape)
    return [(*shape[:axis], *indices, *shape[axis + 1 :])]


def _gather_elements(at: Site) -> Shapes:
    return [at.inputs[1].shape]


def _gather_nd(at: Site) -> Shapes:
    shape, indices = at.inputs[0].shape, at.inputs[1].shape
    if shape is None or not indices or not isinstance(indices[-1], int):
        return None
    return [(*indices[:-1], *shape[int(str(at.attribute("batch_dims", 0))) + indices[-1] :])]


def _range(at: Site) -> Shapes:
    """Numbers of which there are as many as a dimension has elements, or a known number."""
    if at.inputs[0].type not in ("i32", "i64"):
        return None
    bounds = [at.dims(i) for i in range(3)]
    if any(b is None or len(b) != 1 for b in bounds):
        return None
    start, limit, step = (b[0] for b in bounds if b is not None)
    if isinstance(start, int) and isinstance(limit, int) and isinstance(step, int) and step != 0:
        return [(len(range(start, limit, step)),)]
    # A difference of dimensions may be below 0.
    return [(limit,)] if start == 0 and step == 1 and isinstance(limit, str) and "-" not in limit else None


def _slice(at: Site) -> Shapes:
    """Only the sliced axes change; their extents are expressions of the bounds."""
    shape = at.inputs[0].shape
    if shape is None or len(at.node.input) < 3:
        return None
    starts, ends = at.dims(1), at.dims(2)
    axes, steps = (at.dims(k) if len(at.node.input) > k and at.node.input[k] else None for k in (3, 4))
    given = [k for k in range(1, len(at.node.input)) if at.node.input[k]]
    if any(at.dims(k) is None for k in given) or starts is None or ends is None:
        return None  # a run brings some of them
    chosen = axes if axes is not None else list(range(len(starts)))
    if not all(isinstance(a, int) for a in chosen):
        return None
    result = list(shape)
    for k, axis in enumerate(chosen):
        a, step = int(axis) % len(shape), steps[k] if steps is not None else 1
        extent, start, end = shape[a], starts[k], ends[k]
        if all(isinstance(v, int) for v in (extent, start, end, step)):
            if means_otherwise(int(start), int(end), int(step), int(extent)):
                result[a] = at.symbols.fresh()
                continue
            result[a] = len(range(*slice(int(start), int(end), int(step)).indices(int(extent))))
        elif start == 0 and step == 1 and reaches_end(shape, a, end):
            continue
        elif (
            start == 0
            and step == 1
            and isinstance(extent, int)
            and extent > 0
            and isinstance(end, str)
            and "-" not in end
        ):
            result[a] = at.symbols.first(extent, end)
        else:
            result[a] = f"slice({extent},{start},{end},{step})"
    return [tuple(result)]


def _split(at: Site) -> Shapes:
    shape = at.inputs[0].shape
    if shape is None:
        return None
    axis = int(str(at.attribute("axis", 0))) % len(shape)
    sizes: list[Dim] = list(at.dims(1) or at.ints("split", []))
    count = len(at.node.output)
    extent = shape[axis]
    if not sizes and len(at.node.input) > 1 and at.node.input[1]:
        sizes = [at.symbols.fresh() for _ in range(count)]  # that a run brings
    if not sizes:
        if not isinstance(extent, int):
            return None
        part = -(-extent // count)
        sizes = [min(part, extent - k * part) for k in range(count)]
    return [(*shape[:axis], d, *shape[axis + 1 :]) for d in sizes]


MOVEMENT: dict[str, Callable[[Site], Shapes]] = {
    "Transpose": _transpose,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Expand": _expand,
    "Tile": _tile,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
    "ConstantOfShape": _constant_of_shape,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Range": _range,
    "Slice": _slice,
    "Split": _split,
}
