"""Data movement in random graphs."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from random_values import Values, Var


class Movement(Values):
    """Steps that rearrange elements."""

    def unsqueeze(self, x: Var, axes: list[int], rank: int) -> Var:
        rest = iter(x.shape)
        shape = [1 if k in axes else next(rest) for k in range(rank)]
        if self.opset >= 13:
            return self.add("Unsqueeze", [x, self.constant(np.array(axes, np.int64))], shape, x.bound, exact=x.exact)
        return self.add("Unsqueeze", [x], shape, x.bound, exact=x.exact, axes=axes)

    def movement(self) -> Var | None:
        x = self.pick(lambda v: v.type != TensorProto.BOOL)
        return None if x is None else self.movement_of(x)

    def movement_of(self, x: Var) -> Var:
        kinds = [self.transpose, self.reshape, self.reshape, self.squeeze, self.expand, self.slice, self.split]
        kinds += [self.gather, self.parts, self.roll, self.rejoin, self.append]
        return kinds[int(self.rng.integers(len(kinds)))](x)

    def transpose(self, x: Var) -> Var:
        perm = self.rng.permutation(len(x.shape)).tolist()
        shape = [x.shape[p] for p in perm]
        if not perm:
            return self.add("Transpose", [x], (), x.bound, exact=x.exact)
        return self.add("Transpose", [x], shape, x.bound, exact=x.exact, perm=perm)

    def reshape(self, x: Var) -> Var:
        dims = list(x.shape)
        for _ in range(int(self.rng.integers(1, 3))):
            k = int(self.rng.integers(len(dims) + 1))
            kind = self.rng.random()
            if kind < 0.4 and k + 1 < len(dims):
                dims[k : k + 2] = [dims[k] * dims[k + 1]]
            elif kind < 0.8 and k < len(dims) and dims[k] > 1 and len(dims) < 5:
                part = int(self.rng.choice([p for p in range(1, dims[k] + 1) if dims[k] % p == 0]))
                dims[k : k + 1] = [part, dims[k] // part]
            elif len(dims) < 5:
                dims.insert(k, 1)
        if self.rng.random() < 0.15 and len(x.shape) > 0:
            axis = int(self.rng.integers(0, len(x.shape) + 1))
            flat = [int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))]
            return self.add("Flatten", [x], flat, x.bound, exact=x.exact, axis=axis)
        target = list(dims)
        if 0 not in dims and target and self.rng.random() < 0.4:
            target[int(self.rng.integers(len(target)))] = -1
        elif 0 not in dims and self.rng.random() < 0.3:
            target = [0 if k < len(x.shape) and x.shape[k] == d else d for k, d in enumerate(dims)]
        if 0 in x.shape and any(d == 0 and (k >= len(x.shape) or x.shape[k] != 0) for k, d in enumerate(dims)):
            return x
        return self.add("Reshape", [x, self.constant(np.array(target, np.int64))], dims, x.bound, exact=x.exact)

    def squeeze(self, x: Var) -> Var:
        gone = [k for k, d in enumerate(x.shape) if d == 1 and self.rng.random() < 0.7]
        if not gone or self.rng.random() < 0.4:
            if len(x.shape) > 3:
                return x
            rank = len(x.shape) + int(self.rng.integers(1, 3))
            axes = sorted(self.rng.choice(rank, rank - len(x.shape), replace=False).tolist())
            return self.unsqueeze(x, axes, rank)
        shape = [d for k, d in enumerate(x.shape) if k not in gone]
        if self.opset >= 13:
            return self.add("Squeeze", [x, self.constant(np.array(gone, np.int64))], shape, x.bound, exact=x.exact)
        return self.add("Squeeze", [x], shape, x.bound, exact=x.exact, axes=gone)

    def expand(self, x: Var) -> Var:
        shape = [int(self.rng.integers(1, 4)) if d == 1 else d for d in x.shape]
        if len(shape) < 4 and self.rng.random() < 0.4:
            shape.insert(0, 2)
        given = (
            [
                1 if self.rng.random() < 0.3 and d == e else e
                for d, e in zip(x.shape, shape[-len(x.shape) :], strict=True)
            ]
            if x.shape
            else []
        )
        target = shape[: len(shape) - len(x.shape)] + given
        return self.add("Expand", [x, self.constant(np.array(target, np.int64))], shape, x.bound, exact=x.exact)

    def slice(self, x: Var) -> Var:
        axes = [k for k, d in enumerate(x.shape) if d > 1]
        if not axes:
            return x
        axis = int(self.rng.choice(axes))
        extent = x.shape[axis]
        start = int(self.rng.integers(0, extent - 1))
        end = int(self.rng.integers(start + 1, extent + 1))
        step = int(self.rng.choice([1, 1, 2])) if self.opset >= 10 else 1
        bounds = (start, 2**31 if end == extent and self.rng.random() < 0.5 else end)
        if self.opset >= 10 and self.rng.random() < 0.2:
            bounds, step = (extent - 1, -extent - 1), -int(self.rng.choice([1, 2]))
        count = len(range(*slice(*bounds, step).indices(extent)))
        shape = [count if k == axis else d for k, d in enumerate(x.shape)]
        signed = axis - len(x.shape) if self.rng.random() < 0.5 and self.opset >= 10 else axis
        if self.opset < 10:
            return self.add(
                "Slice", [x], shape, x.bound, exact=x.exact, starts=[bounds[0]], ends=[bounds[1]], axes=[axis]
            )
        numbers = [self.constant(np.array([n], np.int64)) for n in (*bounds, signed, step)]
        return self.add("Slice", [x, *numbers], shape, x.bound, exact=x.exact)

    def roll(self, x: Var) -> Var:
        """What is behind some element along an axis, then what is before it; perhaps with movement around it."""
        if self.rng.random() < 0.3:
            x = self.around_roll(x)
        hidden = len(self.values)
        y = self.bare_roll(x)
        if y is x:
            return x
        if self.rng.random() < 0.7:
            del self.values[hidden:-1]  # nothing else uses the parts
        for _ in range(int(self.rng.integers(0, 3))):
            y = self.around_roll(y)
        return y

    def around_roll(self, x: Var) -> Var:
        kinds = [self.slice, self.slice, self.gather, self.split, self.transpose, self.reshape, self.expand, self.pad]
        kinds += [self.bare_roll, self.doubled]
        return kinds[int(self.rng.integers(len(kinds)))](x)

    def doubled(self, x: Var) -> Var:
        return self.add("Add", [x, x], x.shape, 2 * x.bound, exact=x.exact)

    def pad(self, x: Var) -> Var:
        """Zeros around the tensor, or less of it."""
        if not x.shape or not x.floating or (self.opset < 11 and 0 in x.shape):
            return x
        least = -int(self.rng.random() < 0.2)
        pads = [int(self.rng.integers(least * (d > 2), 2)) for d in (*x.shape, *x.shape)]
        shape = [d + pads[k] + pads[k + len(x.shape)] for k, d in enumerate(x.shape)]
        if self.opset < 11:
            return self.add("Pad", [x], shape, x.bound, exact=x.exact, pads=pads)
        return self.add("Pad", [x, self.constant(np.array(pads, np.int64))], shape, x.bound, exact=x.exact)

    def bare_roll(self, x: Var) -> Var:
        axes = [k for k, d in enumerate(x.shape) if d > 1]
        if not axes:
            return x
        axis = int(self.rng.choice(axes))
        extent = x.shape[axis]
        shift = int(self.rng.integers(1, extent))
        parts = []
        middle = shift - extent if self.rng.random() < 0.4 else shift  # torch.roll counts from behind
        far = 2**31 - 1 if self.rng.random() < 0.5 else extent
        for start, end, count in ((middle, far, extent - shift), (0, middle, shift)):
            shape = [count if k == axis else d for k, d in enumerate(x.shape)]
            bounds = {"starts": [start], "ends": [end], "axes": [axis]}
            if self.opset < 10:
                parts.append(self.add("Slice", [x], shape, x.bound, exact=x.exact, **bounds))
            else:
                numbers = [self.constant(np.array(n, np.int64)) for n in bounds.values()]
                parts.append(self.add("Slice", [x, *numbers], shape, x.bound, exact=x.exact))
        signed = axis - len(x.shape) if self.rng.random() < 0.3 and self.opset >= 11 else axis
        return self.add("Concat", parts, x.shape, x.bound, exact=x.exact, axis=signed)

    def rejoin(self, x: Var) -> Var:
        """Parts of a tensor, some of them changed, put together in any order."""
        axes = [k for k, d in enumerate(x.shape) if d > 1]
        if not axes:
            return x
        axis = int(self.rng.choice(axes))
        hidden = len(self.values)
        parts = self.split_along(x, axis)
        changed = [self.doubled(p) if self.rng.random() < 0.3 else p for p in parts]
        if self.rng.random() < 0.5:
            del self.values[hidden:]
        order = self.rng.permutation(len(changed)) if self.rng.random() < 0.6 else range(len(changed))
        return self.concat([changed[k] for k in order], axis)

    def append(self, x: Var) -> Var:
        """The tensor with others beside it that differ along one axis."""
        if not x.shape or int(np.prod(x.shape)) > self.most_elements // 3:
            return x
        axis = int(self.rng.integers(len(x.shape)))

        def fits(v: Var) -> bool:
            rest = v.shape[:axis] + v.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]
            same = v.type == x.type and len(v.shape) == len(x.shape)
            return same and rest and int(np.prod(v.shape)) <= self.most_elements // 3

        others = []
        for _ in range(int(self.rng.integers(1, 3))):
            old = self.pick(fits) if self.rng.random() < 0.6 else None
            extent = int(self.rng.integers(1, 4))
            others.append(old or self.fresh((*x.shape[:axis], extent, *x.shape[axis + 1 :]), x.type))
        members = [x, *others]
        return self.concat([members[k] for k in self.rng.permutation(len(members))], axis)

    def concat(self, members: list[Var], axis: int) -> Var:
        first = members[0]
        total = sum(m.shape[axis] for m in members)
        shape = [total if k == axis else d for k, d in enumerate(first.shape)]
        exact, bound = all(m.exact for m in members), max(m.bound for m in members)
        return self.add("Concat", members, shape, bound, exact=exact, axis=axis)

    def split(self, x: Var) -> Var:
        axes = [k for k, d in enumerate(x.shape) if d > 1]
        return self.split_along(x, int(self.rng.choice(axes)))[0] if axes else x

    def split_along(self, x: Var, axis: int) -> list[Var]:
        """Two or three parts of any extents."""
        count = int(self.rng.integers(2, min(x.shape[axis], 3) + 1))
        marks = np.sort(self.rng.choice(np.arange(1, x.shape[axis]), count - 1, replace=False)).tolist()
        sizes = [end - start for start, end in zip([0, *marks], [*marks, x.shape[axis]], strict=True)]
        outputs = []
        for size in sizes:
            shape = tuple(size if k == axis else d for k, d in enumerate(x.shape))
            outputs.append(Var(self.name(), x.type, shape, x.bound, x.exact))
        names = [v.name for v in outputs]
        if self.opset >= 13:
            given = self.constant(np.array(sizes, np.int64))
            self.nodes.append(helper.make_node("Split", [x.name, given], names, axis=axis))
        else:
            self.nodes.append(helper.make_node("Split", [x.name], names, axis=axis, split=sizes))
        self.values += outputs
        return outputs

    def gather(self, x: Var) -> Var:
        """One index, indices at equal distances, or any."""
        axes = [k for k, d in enumerate(x.shape) if d > 0]
        if not axes:
            return x
        axis = int(self.rng.choice(axes))
        extent = x.shape[axis]
        index = np.array(int(self.rng.integers(-extent, extent)), np.int64)
        if self.rng.random() < 0.6:
            start, step = int(self.rng.integers(extent)), int(self.rng.choice([1, 1, 2, -1]))
            index = np.array(range(extent)[start::step], np.int64)
        if index.ndim and self.rng.random() < 0.2:
            index = self.rng.permutation(index)
        shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        return self.add("Gather", [x, self.constant(index)], shape, x.bound, exact=x.exact, axis=axis)

    def parts(self, x: Var) -> Var:
        """Cheap work on what no region computes, of which only parts are used."""
        outside = self.constant(np.ones(len(x.shape), np.int64))
        y = self.add("Tile", [x, outside], x.shape, x.bound, exact=x.exact)
        hidden = len(self.values) - 1
        if self.rng.random() < 0.7:
            y = self.add("Add", [y, y], x.shape, 2 * x.bound, exact=x.exact)
        for _ in range(int(self.rng.integers(0, 3))):
            y = (self.transpose, self.reshape, self.bare_roll)[int(self.rng.integers(3))](y)
        del self.values[hidden:]  # nothing else uses them
        cut = (self.slice, self.gather, self.split, self.roll)
        return [cut[int(self.rng.integers(4))](y) for _ in range(int(self.rng.integers(1, 4)))][-1]
