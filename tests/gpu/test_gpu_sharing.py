"""Kernels that several nodes share, with the constants and extents of each."""

from __future__ import annotations

import pytest
from constant_corpus import CHANNELS, bias, family, pooled
from cuda_corpus import Case
from gpu_runner import Check, check_all, random

from onnxfuse.custom_ops.parser import parse


def checks(cases: list[Case], floor: float) -> list[Check]:
    result = []
    for case in cases:
        types = [declared for declared, _ in parse(case.text).inputs]
        inputs = [random(shape, t, k) for k, (t, shape) in enumerate(zip(types, case.shapes, strict=True))]
        result.append(Check(case.text, inputs, floor=floor, name=case.name))
    return result


@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
def test_layers_of_a_network(type_: str, offset: int) -> None:
    """In one launch and each alone."""
    cases = [*family(type_), *(bias(type_, c, 12, 20) for c in CHANNELS), bias(type_, 7, 5, 3), bias(type_, 3, 400)]
    cases += [pooled(type_, c) for c in (72, 7)]
    floor = 1e-6 if type_ == "f32" else 1e-2
    check_all(checks(cases, floor), offset)
    for check in checks(cases, floor):
        check_all([check], offset)
