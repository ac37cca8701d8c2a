"""A model of many layers, results of measurements, and the check that a report is a good page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import html5lib
import numpy as np
from onnx import TensorProto, helper, numpy_helper


def layers(count, rows=4, name=""):
    """LayerNorms spelled out, each between two matrix products."""
    nodes, weights = [], {"two": np.float32(2), "eps": np.float32(1e-5)}
    x = "x"
    for i in range(count):
        p = f"{name}layer{i}/"
        weights[f"{p}w"] = np.eye(16, dtype=np.float32)
        weights[f"{p}gamma"] = np.ones(16, np.float32)
        steps = [
            ("MatMul", [x, f"{p}w"], "product"),
            ("ReduceMean", [f"{p}product"], "mean"),
            ("Sub", [f"{p}product", f"{p}mean"], "centred"),
            ("Pow", [f"{p}centred", "two"], "square"),
            ("ReduceMean", [f"{p}square"], "variance"),
            ("Add", [f"{p}variance", "eps"], "safe"),
            ("Sqrt", [f"{p}safe"], "deviation"),
            ("Div", [f"{p}centred", f"{p}deviation"], "normal"),
            ("Mul", [f"{p}normal", f"{p}gamma"], "scaled"),
        ]
        for op, inputs, output in steps:
            axes = {"axes": [-1]} if op == "ReduceMean" else {}
            nodes.append(helper.make_node(op, inputs, [p + output], p + op + output, **axes))
        x = f"{p}scaled"
    nodes.append(helper.make_node("MatMul", [x, "layer0/w" if not name else f"{name}layer0/w"], ["y"], "last"))
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 16])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


VALIDATION = {
    "ok": True,
    "provider": "CPUExecutionProvider",
    "seeds": [0, 1],
    "inputs": [{"name": "x", "dtype": "float32", "shape": [4, 16]}],
    "wrong_functions": [],
    "notes": ["a note"],
    "outputs": [
        {
            "name": "y",
            "dtype": "float32",
            "shape": [4, 16],
            "verdict": "close",
            "tolerance": 1e-4,
            "absolute": 3e-7,
            "relative": 1e-6,
            "ulp": 12,
            "cosine": 0.9999999,
            "mismatches": 0.0,
            "note": "",
        }
    ],
}


FIGURES = {"throughput": 100.0, "first_run": 12.0}
BENCH = {
    "provider": "CPUExecutionProvider",
    "device": "a machine, 4 logical cores",
    "runtime": "1.31.1",
    "threads": 4,
    "cuda_graph": False,
    "cases": [
        {
            "dims": {"rows": 4},
            "original": {
                **FIGURES,
                "latency": {"median": 4.0, "p90": 5.0, "p99": 9.0},
                "account": {"nodes": 25, "launches": None, "bytes_moved": 1 << 20, "peak_memory": 3 << 20},
            },
            "optimized": {
                **FIGURES,
                "latency": {"median": 2.0, "p90": 2.5, "p99": 3.0},
                "account": {"nodes": 5, "launches": 7, "bytes_moved": 1 << 10, "peak_memory": 2 << 20},
            },
            "ratio": {"value": 2.0, "low": 1.9, "high": 2.1},
            "noise_level": 1.05,
            "verdict": "faster",
        },
        {
            "dims": {},
            "original": {"latency": {"median": 4.0}, "account": None},
            "optimized": {"latency": {"median": 4.0}, "account": None},
            "ratio": {"value": 1.0, "low": 0.9, "high": 1.1},
            "verdict": "same",
        },
    ],
}

TUNING = {
    "dropped": ["a"],
    "decisions": [
        {
            "kind": "softmax",
            "regions": ["a", "b<", "c", "d"],
            "gain": {"value": 1.2, "low": 1.1, "high": 1.3},
            "dropped": True,
        }
    ],
    "noise": 1.02,
    "untuned": {"value": 1.1, "low": 1.0, "high": 1.2},
    "tuned": {"value": 1.31, "low": 1.2, "high": 1.4},
    "finished": False,
    "seconds": 12.3,
}


class Parsed(HTMLParser):
    """All tags with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def check(page):
    """That the page is valid, is whole in itself, and can be used without seeing it."""
    html5lib.HTMLParser(strict=True).parse(page)
    parsed = Parsed(page)
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in parsed.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "image", "use")
        assert "src" not in attrs
        assert not any(key.startswith("on") for key in attrs)
        if "href" in attrs:
            assert attrs["href"][1:] in ids
        for key in ("aria-labelledby", "for"):
            assert all(name in ids for name in attrs.get(key, "").split())
        if tag == "svg":
            assert attrs.get("aria-hidden") == "true" or attrs.get("aria-label") or attrs.get("aria-labelledby")
    assert not re.search(r"url\((?!#)|@import|https?:|//[a-z]", "".join(re.findall(r"<style>[^<]*</style>", page)))
    policy = next(m["content"] for m in parsed.named("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1]
    return parsed
