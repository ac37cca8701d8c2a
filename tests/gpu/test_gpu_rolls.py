"""Programs with rolls on the GPU, in every schedule, aligned or not, alone and in one launch."""

from __future__ import annotations

import pytest
import roll_corpus
from gpu_runner import Check, check_all, random

from onnxfuse.custom_ops.parser import parse


def checks(type_: str) -> list[Check]:
    result = []
    for case in roll_corpus.cases(type_):
        types = [declared for declared, _ in parse(case.text).inputs]
        inputs = [random(shape, t, k) for k, (t, shape) in enumerate(zip(types, case.shapes, strict=True))]
        result.append(Check(case.text, inputs, floor=1e-6 if type_ == "f32" else 1e-3, name=case.name))
    return result


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("type_", ["f32", "f16"])
def test_rolls(type_: str, offset: int) -> None:
    check_all(checks(type_), offset)


def test_each_alone() -> None:
    for check in checks("f32"):
        check_all([check])
