"""Random models for property tests: every field that ONNX has, names and order valid, numbers meaningless."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper

_TYPES = (TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.STRING, TensorProto.BOOL)
_DOMAINS = ("", "", "", "com.example", "onnxfuse")


def models() -> st.SearchStrategy[onnx.ModelProto]:
    """Models with sorted nodes."""
    return st.randoms(use_true_random=False).map(lambda rng: _Builder(rng).model())


class _Builder:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.counter = 0

    def chance(self, probability: float = 0.3) -> bool:
        return self.rng.random() < probability

    def name(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def entries(self, field: object) -> None:
        if self.chance():
            field.add(key=self.name("key"), value="text")  # type: ignore[attr-defined]

    def model(self) -> onnx.ModelProto:
        model = onnx.ModelProto(ir_version=self.rng.choice([3, 4, 8, 10, 13]))
        for domain in ("", "com.example", "onnxfuse")[: self.rng.randint(1, 3)]:
            model.opset_import.append(helper.make_opsetid(domain, 21 if not domain else 1))
        for field in ("producer_name", "producer_version", "domain", "doc_string"):
            if self.chance():
                setattr(model, field, self.rng.choice(["", "text"]))  # set to nothing is not the same as unset
        if self.chance():
            model.model_version = self.rng.randint(-5, 5)
        self.entries(model.metadata_props)
        self.graph(model.graph, [], 0)
        for _ in range(self.rng.randint(0, 2)):
            self.function(model.functions.add())
        if self.chance():
            training = model.training_info.add()
            self.graph(training.algorithm, [], 1)
            names = [t.name for t in model.graph.initializer]
            if names:
                training.update_binding.add(key=self.rng.choice(names), value=training.algorithm.output[0].name)
        return model

    def graph(self, graph: onnx.GraphProto, outer: Sequence[str], depth: int) -> None:
        rng = self.rng
        graph.name = self.name("graph")
        # Bodies next to each other may use the same names.
        stem = f"v{depth}_" if depth else "main_"
        number = 0
        local: list[str] = []

        def define(kind: str) -> str:
            nonlocal number
            number += 1
            local.append(f"{stem}{kind}{number}")
            return local[-1]

        for _ in range(rng.randint(0, 2)):
            self.value(graph.input.add(), define("in"))
        for _ in range(rng.randint(0, 3)):
            self.tensor(graph.initializer.add(), define("w"))
            if self.chance(0.2):
                self.value(graph.input.add(), graph.initializer[-1].name)
        if self.chance():
            sparse = graph.sparse_initializer.add(dims=[4])
            sparse.values.CopyFrom(helper.make_tensor(define("s"), TensorProto.FLOAT, [1], [2.0]))
            sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [3]))
        made: list[str] = []
        for _ in range(rng.randint(1, 6)):
            self.node(graph.node.add(), [*outer, *local], depth, lambda: made.append(define("y")) or made[-1])
        for name in rng.sample(made, rng.randint(0, len(made))):
            self.value(graph.output.add(), name)
        if local and self.chance(0.2):
            self.value(graph.output.add(), rng.choice(local))
        if not graph.output:
            self.value(graph.output.add(), rng.choice(local or list(outer) or ["nothing"]))
        for name in [n for n in (*local, *outer, "stale") if self.chance(0.2)]:
            self.value(graph.value_info.add(), name)
        for name in [n for n in (*local, "stale") if self.chance(0.1)]:
            annotation = graph.quantization_annotation.add(tensor_name=name)
            annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=rng.choice(local))
        if self.chance():
            graph.doc_string = rng.choice(["", "about the graph"])
        self.entries(graph.metadata_props)

    def value(self, value: onnx.ValueInfoProto, name: str) -> None:
        value.name = name
        shape = self.rng.choice([None, [], [2, "n", None], ["?", "?"], [0]])
        kind = self.rng.randint(0, 4)
        tensor = helper.make_tensor_type_proto(self.rng.choice(_TYPES), shape)
        if kind == 1:
            value.type.CopyFrom(helper.make_sequence_type_proto(tensor))
        elif kind == 2:
            value.type.CopyFrom(helper.make_optional_type_proto(tensor))
        elif kind > 2:
            value.type.CopyFrom(tensor)
        if self.chance():
            value.doc_string = "about the value"
        self.entries(value.metadata_props)

    def tensor(self, tensor: onnx.TensorProto, name: str) -> None:
        kind = self.rng.randint(0, 3)
        if kind == 0:
            tensor.CopyFrom(helper.make_tensor(name, TensorProto.FLOAT, [2], [np.nan, -0.0]))
        elif kind == 1:
            tensor.CopyFrom(helper.make_tensor(name, TensorProto.BFLOAT16, [1], b"\x80\x3f", raw=True))
        elif kind == 2:
            tensor.CopyFrom(helper.make_tensor(name, TensorProto.STRING, [1], [b"\xff"]))
        else:
            tensor.CopyFrom(onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[3]))
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="not there.data")
        if self.chance():
            tensor.doc_string = "about the tensor"
        self.entries(tensor.metadata_props)

    def node(self, node: onnx.NodeProto, visible: list[str], depth: int, define: object) -> None:
        rng = self.rng
        node.op_type = rng.choice(["Add", "Clip", "LSTM", "FusedElementwise"])
        if self.chance(0.7):
            node.name = rng.choice(["", "same", self.name("node")])
        if self.chance():
            node.domain = rng.choice(_DOMAINS)
        for field in ("overload", "doc_string"):
            if self.chance(0.15):
                setattr(node, field, "text")
        node.input.extend(rng.choice([*visible, ""]) for _ in range(rng.randint(0, 4)))
        bodies = 0
        if depth < 2 and self.chance(0.25):
            node.op_type, bodies = rng.choice([("If", 2), ("Loop", 1), ("Scan", 1)])
        for index in range(bodies):
            self.graph(node.attribute.add(name=f"body{index}", type=AttributeProto.GRAPH).g, visible, depth + 1)
        for _ in range(rng.randint(0, 3)):
            self.attribute(node.attribute.add(), visible, depth)
        for _ in range(rng.randint(1, 3)):
            node.output.append("" if node.output and self.chance() else define())  # type: ignore[operator]
        self.entries(node.metadata_props)

    def attribute(self, attribute: AttributeProto, visible: list[str], depth: int) -> None:
        name = self.name("attribute")
        values = [1.5, float("nan"), -3, "text", b"\xff\xfe", [1.0], [1, 2], ["a", b"\xff"]]
        kind = self.rng.randint(0, len(values) + 5)
        attribute.name = name
        if kind < len(values):
            attribute.CopyFrom(helper.make_attribute(name, values[kind]))
        elif kind == len(values):
            attribute.type = AttributeProto.TENSOR
            self.tensor(attribute.t, self.rng.choice(["", "value"]))
        elif kind == len(values) + 1:
            attribute.type = AttributeProto.SPARSE_TENSOR
            attribute.sparse_tensor.dims.append(3)
        elif kind == len(values) + 2:
            attribute.type = AttributeProto.TYPE_PROTO
            attribute.tp.tensor_type.elem_type = TensorProto.FLOAT
        elif kind == len(values) + 3:
            attribute.type = self.rng.choice([AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.TENSORS])
        elif kind == len(values) + 4 and depth < 2:
            attribute.type = AttributeProto.GRAPHS
            for _ in range(2):
                self.graph(attribute.graphs.add(), visible, depth + 1)
        else:
            attribute.type = AttributeProto.FLOAT
            attribute.ref_attr_name = "outer"
        if self.chance():
            attribute.doc_string = "about the attribute"

    def function(self, function: onnx.FunctionProto) -> None:
        function.name, function.domain = self.name("Function"), self.rng.choice(_DOMAINS)
        function.input.append("a")
        function.output.append("b")
        function.node.append(helper.make_node("Relu", ["a"], ["b"]))
        function.opset_import.append(helper.make_opsetid("", 21))
        for field in ("overload", "doc_string"):
            if self.chance():
                setattr(function, field, "text")
        if self.chance():
            function.attribute.append("alpha")
            function.attribute_proto.append(helper.make_attribute("beta", 1.0))
        self.entries(function.metadata_props)
