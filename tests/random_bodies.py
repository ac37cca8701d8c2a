"""If, Loop and Scan in random graphs: bodies that capture values, with convolutions that may be equal in several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper
from random_quantization import Quantization
from random_values import LARGE, Var


class Bodies(Quantization, ABC):
    """Steps whose operators have graphs of their own."""

    @abstractmethod
    def step(self) -> None:
        """Adds any step to the graph."""

    @property
    def captured(self) -> list[str]:
        """What bodies name, at any depth."""
        graphs = list(_bodies(self.nodes))
        return [n for g in graphs for node in g.node for n in node.input] + [o.name for g in graphs for o in g.output]

    def branches(self) -> Var:
        """An If whose branches capture values of this graph."""
        x = self.feature_map() if self.rng.random() < 0.4 else self.some()
        return self.choose(x, self.mixing(x))

    def mixing(self, x: Var) -> list[Var]:
        """Weight and bias of a convolution of one element that keeps the shape of `x`; nothing where it has none."""
        if not 3 <= len(x.shape) <= 5 or x.type not in (TensorProto.FLOAT, TensorProto.FLOAT16) or not self.is_small(x):
            return []
        channels = x.shape[1]
        return [self.weight((channels, channels, *(1 for _ in x.shape[2:])), x.type), self.weight((channels,), x.type)]

    def choose(self, x: Var, weights: Sequence[Var]) -> Var:
        condition = self.pick(lambda v: v.type == TensorProto.BOOL and v.shape == ())
        if condition is None or self.rng.random() < 0.5:
            condition = self.fresh((), TensorProto.BOOL, external=True)
        graphs, counters = [], [self.counter]
        same_names = self.rng.random() < 0.5
        for _ in range(2):
            self.counter = counters[0] if same_names else max(counters)
            body = self.inner(x)
            value = x
            if weights and self.rng.random() < 0.9:
                value = body.add("Conv", [x, *weights], x.shape, 2 * LARGE)
            if body.depth < 2 and self.rng.random() < 0.2:
                value = body.choose(value, weights)
            for _ in range(int(self.rng.integers(0, 3))):
                body.step()
            made = {o for n in body.nodes for o in n.output}
            value = body.joined(value, [v for v in body.values if v.name in made])
            for _ in range(int(self.rng.integers(0, 3)) or int(value is x)):
                value = body.simple(value, x)
            graphs.append(body.graph([], [body.described(value)]))
            counters.append(body.counter)
        self.counter = max(counters)
        return self.add("If", [condition], x.shape, 1e6, x.type, then_branch=graphs[0], else_branch=graphs[1])

    def inner(self, x: Var) -> Bodies:
        """What grows a body that sees this graph's values of the shape of `x`, or all of them."""
        body = type(self)(self.rng, self.opset, self.extents, counter=self.counter, depth=self.depth + 1)
        everything = self.rng.random() < 0.3
        body.values = [v for v in self.values if everything or (v.type == x.type and v.shape == x.shape)]
        return body

    def joined(self, value: Var, others: Sequence[Var]) -> Var:
        """The value plus the last of the others that broadcasts to its shape."""
        for other in reversed(others):
            fits = other.type == value.type and other.bound <= LARGE and len(other.shape) <= len(value.shape)
            if fits and all(d in (1, e) for d, e in zip(other.shape[::-1], value.shape[::-1], strict=False)):
                return self.add("Add", [value, other], value.shape, LARGE)
        return value

    def simple(self, last: Var, x: Var) -> Var:
        other = self.pick(lambda v: v.type == x.type and v.shape == x.shape) or x
        op = str(self.rng.choice(["Tanh", "Sigmoid", "Mul", "Sub", "Add", "Relu"]))
        if op in ("Tanh", "Sigmoid", "Relu"):
            return self.add(op, [last], x.shape, 1.0)
        return self.add(op, [self.add("Tanh", [last], x.shape, 1.0), other], x.shape, 1.0)

    def described(self, value: Var) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(value.name, value.type, [None] * len(value.shape))

    def graph(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.GraphProto:
        return helper.make_graph(self.nodes, f"body{self.counter}", inputs, outputs, self.initializers)

    def loop(self) -> Var | None:
        """A Loop that carries a value, or a Scan over the first dimension of one."""
        x = self.pick(lambda v: v.floating and v.bound <= LARGE and 0 not in v.shape)
        if x is None or self.opset < 11:
            return None
        scans = len(x.shape) > 0 and self.rng.random() < 0.5
        shape = x.shape[1:] if scans else x.shape
        state = Var(self.name(), x.type, shape, x.bound)
        weights = self.mixing(state) if self.rng.random() < 0.6 else []
        body = self.inner(state)
        last = state
        if weights:
            last = body.add("Conv", [body.add("Tanh", [last], shape, 1.0), *weights], shape, 2 * LARGE)
        for _ in range(int(self.rng.integers(1, 4))):
            last = body.simple(last, state)
        given = helper.make_tensor_value_info(state.name, x.type, list(shape))
        if scans:
            graph = body.graph([given], [body.described(last)])
            self.counter = body.counter
            return self.add("Scan", [x], x.shape, 1e6, x.type, body=graph, num_scan_inputs=1)
        turn, goes, went = body.name(), body.name(), body.name()
        body.nodes.append(helper.make_node("Identity", [goes], [went]))
        inputs = [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(goes, TensorProto.BOOL, []),
            given,
        ]
        outputs = [helper.make_tensor_value_info(went, TensorProto.BOOL, []), body.described(last)]
        graph = body.graph(inputs, outputs)
        self.counter = body.counter
        turns = self.constant(np.array(int(self.rng.integers(1, 4)), np.int64))
        return self.add("Loop", [turns, self.constant(np.array(True)), x], x.shape, 1e6, x.type, body=graph)


def _bodies(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
                yield from _bodies(attribute.g.node)
