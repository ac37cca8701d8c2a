"""validate on published models: it agrees with what optimize makes, and finds each program that somebody broke."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx
import pytest

import onnxfuse
from models.fetch import FetchError, feeds, fetch
from onnxfuse.report import Report
from onnxfuse.runtime import fused_nodes
from onnxfuse.validate import validate

# Each with the operation whose last use in a program is replaced, and by what; all change what the model computes.
MODELS = {
    "ch_PP-OCRv4_det_infer": ("mul", "add"),
    "magika": ("div", "mul"),
    "silero_vad_16k_op15": ("sqrt", "neg"),
    "silero_vad": ("sqrt", "neg"),  # in the branches of its Ifs, of which it takes those for its sampling rate
}


def published(name: str) -> str:
    try:
        return str(fetch(name))
    except FetchError as error:
        pytest.skip(str(error))


def optimized(path: str) -> tuple[onnx.ModelProto, Report]:
    result = onnxfuse.optimize(path, target="cpu", fallback=False)
    return result.with_weights(), result.report


def broken(model: onnx.ModelProto, old: str, new: str) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The model with one program changed at a time, and the name of its node."""
    for place in range(len(list(fused_nodes(model)))):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        node = list(fused_nodes(changed))[place]
        attribute = next(a for a in node.attribute if a.name == "program")
        program = attribute.s.decode()
        uses = list(re.finditer(rf"= ({old}) ", program))
        if uses:
            attribute.s = (program[: uses[-1].start(1)] + new + program[uses[-1].end(1) :]).encode()
            yield node.name, changed


@pytest.mark.parametrize("name", MODELS)
def test_a_broken_program_is_found_with_its_source_nodes(name: str) -> None:
    path, inputs = published(name), feeds(name)[0]
    model, report = optimized(path)
    assert validate(path, model, inputs=inputs).ok
    sources = {f.name: list(f.nodes) for f in report.fusions}
    found = 0
    for node, changed in broken(model, *MODELS[name]):
        result = validate(path, changed, inputs=inputs)
        if result.ok and name == "silero_vad":
            continue
        assert not result.ok, node
        assert result.parting is not None, node
        assert result.parting.node == node
        assert [s.rsplit(" (", 1)[0] for s in result.parting.sources] == sources[node]
        found += 1
        if found == 2:
            break
    assert found
