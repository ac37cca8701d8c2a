"""Random models that compute with shapes: take them apart, put them together, use what comes out."""

from __future__ import annotations

import numpy as np
import onnx
from graphs import parse

__all__ = ["random_shape_model"]


class _Writer:
    """Writes nodes; `vectors` has the names of tensors of rank 1 and how long they are, `scalars` those of rank 0."""

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng, self.opset = rng, opset
        self.nodes: list[str] = []
        self.outputs: list[str] = []
        self.vectors: list[tuple[str, int]] = []
        self.scalars: list[str] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def add(self, expression: str) -> str:
        name = self.name()
        self.nodes.append(f"{name} = {expression}")
        return name

    def ints(self, values: list[int]) -> str:
        return self.add(f"Constant <value_ints = [{', '.join(map(str, values))}]> ()")

    def number(self, value: int) -> str:
        return self.add(f"Constant <value_int = {value}> ()")

    def with_axes(self, op: str, value: str, axes: list[int]) -> str:
        if self.opset < 13:
            return self.add(f"{op} <axes = [{', '.join(map(str, axes))}]> ({value})")
        return self.add(f"{op} ({value}, {self.ints(axes)})")

    def vector(self) -> tuple[str, int]:
        return self.vectors[int(self.rng.integers(len(self.vectors)))]

    def scalar(self) -> str:
        if not self.scalars or self.rng.random() < 0.2:
            return self.number(int(self.rng.integers(-2, 4)))
        return self.scalars[int(self.rng.integers(len(self.scalars)))]

    def step(self) -> None:
        """One more value."""
        rng = self.rng
        name, length = self.vector()
        kind = int(rng.integers(11))
        if kind in (0, 1):
            place = int(rng.integers(-length, length))
            self.scalars.append(self.add(f"Gather ({name}, {self.number(place)})"))
        elif kind == 2:
            places = [int(p) for p in rng.integers(-length, length, rng.integers(1, 4))]
            self.vectors.append((self.add(f"Gather <axis = 0> ({name}, {self.ints(places)})"), len(places)))
        elif kind == 3:
            self.vectors.append((self.with_axes("Unsqueeze", self.scalar(), [0]), 1))
        elif kind in (4, 5):
            parts = [self.vector() for _ in range(rng.integers(1, 4))]
            if (total := sum(k for _, k in parts)) <= 8:
                self.vectors.append((self.add(f"Concat <axis = 0> ({', '.join(n for n, _ in parts)})"), total))
        elif kind == 6:
            start, end, step = (
                int(rng.integers(-length, length)),
                int(rng.integers(-9, 9)),
                int(rng.choice([1, 1, -1, 2])),
            )
            if kept := len(range(*slice(start, end, step).indices(length))):
                bounds = ", ".join(self.ints([n]) for n in (start, end, 0, step))
                self.vectors.append((self.add(f"Slice ({name}, {bounds})"), kept))
        elif kind == 7:
            op = rng.choice(["Add", "Sub", "Mul", "Div"])
            other = self.ints(
                [int(n) for n in rng.choice([1, 2, 3] if op == "Div" else [-1, 0, 1, 2], rng.choice([1, length]))]
            )
            pair = (name, other) if op in ("Sub", "Div") or rng.random() < 0.5 else (other, name)
            self.vectors.append((self.add(f"{op} ({pair[0]}, {pair[1]})"), length))
        elif kind == 8:
            self.scalars.append(self.add(f"{rng.choice(['Add', 'Sub', 'Mul'])} ({self.scalar()}, {self.scalar()})"))
        elif kind == 9 and length == 1:
            self.scalars.append(self.with_axes("Squeeze", name, [0]))
        elif kind == 9 and length % 2 == 0:
            square = self.add(f"Reshape ({name}, {self.ints([-1, 2])})")
            turned = self.add(f"Transpose <perm = [1, 0]> ({square})")
            self.vectors.append((self.add(f"Reshape ({turned}, {self.ints([-1])})"), length))
        elif kind == 10:
            equal = self.add(f"Equal ({name}, {self.ints([int(rng.choice([-1, -1, 3]))])})")
            self.vectors.append((self.add(f"Where ({equal}, {self.ints([1] * length)}, {name})"), length))

    def use(self) -> None:
        """Something that reads a value and is no shape arithmetic."""
        rng, (name, length) = self.rng, self.vector()
        kind = int(rng.integers(6))
        if kind == 0:
            positive = self.add(f"Abs ({name})")
            small = self.add(f"Mod ({positive}, {self.ints([4])})")
            result, rank, dtype = self.add(f"ConstantOfShape ({small})"), length, "float"
        elif kind == 1:
            result, rank, dtype = self.add(f"Reshape (e, {name})"), length, "float"
        elif kind == 2:
            result, rank, dtype = self.add(f"Expand (x, {name})"), max(length, 3), "float"
        elif kind == 3:
            result, rank, dtype = self.add(f"Neg ({self.scalar()})"), 0, "int64"
        elif kind == 4:
            result, rank, dtype = self.add(f"Identity ({name})"), 1, "int64"
        else:
            result, rank, dtype = self.add(f"Neg ({name})"), 1, "int64"
        dims = f"[{', '.join(f'D{result}{k}' for k in range(rank))}]" if rank else ""
        self.outputs.append(f"{dtype}{dims} {result}")


def random_shape_model(seed: int) -> tuple[onnx.ModelProto, int]:
    """A model of three inputs whose extents are named N and M, or fixed, and its opset. Some runs of it may fail."""
    rng = np.random.default_rng(seed)
    opset = int(rng.choice([12, 13, 15, 17, 21]))
    writer = _Writer(rng, opset)
    writer.nodes.append("e = Exp (x)")
    for value, rank in (("x", 3), ("z", 2), ("e", 3)):
        writer.vectors.append((writer.add(f"Shape ({value})"), rank))
    writer.vectors.append(("n", 2))
    # The targets that exporters make of an input's extents.
    extents = [
        writer.with_axes("Unsqueeze", writer.add(f"Gather ({writer.vectors[0][0]}, {writer.number(k)})"), [0])
        for k in range(3)
    ]
    for parts in (
        [extents[0], writer.ints([-1])],
        [extents[0], extents[1], extents[2]],
        [extents[2], writer.ints([2, -1])],
    ):
        if rng.random() < 0.5:
            target = writer.add(f"Concat <axis = 0> ({', '.join(parts)})")
            writer.vectors.append((target, len(parts) + (len(parts) == 2 and parts[0] == extents[2])))
    for _ in range(int(rng.integers(4, 20))):
        writer.step()
    for _ in range(int(rng.integers(1, 5))):
        writer.use()
    inputs = "float[N, 4, M] x, float[M, K] z, int64[2] n"
    return parse(f"g ({inputs}) => ({', '.join(writer.outputs)}) {{ {' '.join(writer.nodes)} }}", opset), opset
