"""Random legal graphs of the operators that fuse, and inputs for them.

A graph is built forward from values whose extents at run time are known; what the model declares of them (static,
symbolic, unknown) is drawn apart, so that symbols are 1 at run time and different symbols are equal now and then.
Magnitudes are bounded, and operators that jump (Floor, comparisons, conversions to integers) see only values that no
rounding touched: then a difference between two results is a mistake and no noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import onnx
from onnx import TensorProto, helper
from random_bodies import Bodies
from random_values import FLOATS, LARGE, Var

OPSETS = (9, 10, 11, 12, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 22, 23, 24)


class RandomGraph(Bodies):
    """Grows one graph; `build` gives the model and inputs for it."""

    sizes = (1, 2, 3, 4, 6, 8, 5)

    def build(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        rng = self.rng
        self.opset = int(rng.choice(OPSETS))
        sizes = [*self.sizes] + ([0] if rng.random() < 0.08 else [])
        self.extents = {s: int(rng.choice(sizes)) for s in "ABCD"}
        for _ in range(int(rng.integers(1, 4))):
            rank = int(rng.integers(0, 5)) if rng.random() < 0.9 else int(rng.integers(5, 7))
            self.fresh(self.shape(rank), int(rng.choice(FLOATS)), external=True)
        for _ in range(int(rng.integers(2, 26))):
            self.step()
        made = [v for v in self.values if any(v.name in n.output for n in self.nodes)]
        if not made:
            made = [self.unary(self.values[0])]
        used = {n for node in self.nodes for n in node.input} | set(self.captured)
        given = {t.name for t in self.initializers}
        made += [v for v in self.values if v.name in given & used and rng.random() < 0.2]
        outputs = [v for v in made if v.name not in used or rng.random() < 0.12] or made[-1:]
        graph = helper.make_graph(
            self.nodes, "random", self.inputs, [self.declare(v) for v in outputs[:12]], self.initializers
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        if rng.random() < 0.1:
            order = rng.permutation(len(self.nodes))
            del model.graph.node[:]
            model.graph.node.extend(self.nodes[i] for i in order)
        return model, self.feeds

    def step(self) -> None:
        kinds: list[tuple[float, Callable[[], object]]] = [
            (5, lambda: self.unary(self.some())),
            (6, self.binary),
            (3, self.reduction),
            (3, self.movement),
            (0.8, self.scan),
            (0.5, self.argument),
            (1, self.softmax),
            (1, self.spelled_softmax),
            (1.5, self.spelled_norm),
            (1, self.norm_operator),
            (1, self.conversion),
            (1, self.choice),
            (0.7, self.integers),
            (0.7, self.barrier),
            (0.5, self.variadic),
            (0.8, self.rare_unary),
            (0.3, self.remainder),
            (0.5, self.bits),
            (0.3, self.integer_reduction),
            (0.3, self.rare_reduction),
            (0.5, self.image_norm),
            (0.3, self.rounded),
            (0.8, self.convolution),
            (0.7, self.product),
            (0.3, lambda: self.roll(self.some())),
            (0.4, self.windows),
            (2, self.quantized),
        ]
        kinds += [(0.4, self.branches), (0.3, self.loop)] if self.depth < 2 else []
        weights = np.array([w for w, _ in kinds])
        kinds[int(self.rng.choice(len(kinds), p=weights / weights.sum()))][1]()

    def barrier(self) -> Var | None:
        x = self.pick(lambda v: v.type == TensorProto.FLOAT and len(v.shape) >= 2 and v.bound <= LARGE)
        if x is None:
            return None
        if self.rng.random() < 0.5:
            weight = self.fresh((x.shape[-1], int(self.rng.integers(1, 6))), x.type, external=False)
            return self.add("MatMul", [x, weight], (*x.shape[:-1], weight.shape[-1]), x.bound * 5 * max(x.shape[-1], 1))
        axis = int(self.rng.integers(len(x.shape)))
        shape = [d * 2 if k == axis else d for k, d in enumerate(x.shape)]
        y = self.pick(lambda v: v.type == x.type and v.shape == x.shape) or x
        return self.add("Concat", [x, y], shape, max(x.bound, y.bound), exact=x.exact and y.exact, axis=axis)


class LargeGraph(RandomGraph):
    """With tensors that one tile, one task or one row in registers does not hold."""

    sizes = (1, 2, 3, 7, 40, 130, 1030, 20000)
    most_elements: ClassVar[int] = 1 << 16


def random_model(seed: int, large: bool = False) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model that belongs to a seed, and its inputs."""
    return (LargeGraph if large else RandomGraph)(np.random.default_rng(seed)).build()
