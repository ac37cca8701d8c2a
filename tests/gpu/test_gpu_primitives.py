"""Every primitive of the table for every type that it has, on the GPU, against its value in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_runner import Array, ulps
from gpu_runner import run, run_all
from test_cpu_primitives import CASES, EXACT, FREE_ZEROS, integers, operands, program

from onnxfuse.custom_ops.formulas import FORMULAS
from onnxfuse.custom_ops.types import VALUE_TYPES, integer_range, is_float, to_numpy

LIMIT = 5.0  # units in the last place, of what is not rounded correctly


@pytest.mark.parametrize("type_", VALUE_TYPES)
def test_primitives(type_: str) -> None:
    names = [name for name, t in CASES if t == type_]
    inputs = [operands(name, type_) for name in names]
    results = run_all([program(name, type_) for name in names], inputs)
    wrong = []
    for name, xs, (actual,) in zip(names, inputs, results, strict=True):
        try:
            compare(name, xs, actual)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, f"{len(wrong)} of {len(names)}: " + "; ".join(wrong)


def compare(name: str, xs: list[Array], actual: Array) -> None:
    """Checks one primitive's results, zeros' signs included."""
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in xs]
        expected: Any = np.asarray(FORMULAS[name](*wide))
    if actual.dtype.kind != "f":
        if name in ("div", "mod", "fmod") and actual.dtype.kind in "iu":
            expected = np.where(xs[1] == 0, 0, expected).astype(actual.dtype)
        wrong = np.flatnonzero(actual != expected.astype(actual.dtype))
        assert wrong.size == 0, (
            f"{wrong.size} wrong, {name} of {[x[wrong[0]] for x in xs]}: "
            f"{actual[wrong[0]]!r} instead of {expected[wrong[0]]!r}"
        )
        return
    error = ulps(actual, expected.astype(np.float64))
    worst = int(error.argmax())
    assert error[worst] <= (0.5 if name in EXACT else LIMIT), (
        f"{name} of {[x[worst] for x in xs]}: {actual[worst]!r} instead of {expected[worst]!r}, {error[worst]} ulp"
    )
    if name not in FREE_ZEROS:
        zero = (actual == 0) & (expected == 0)
        wrong = np.flatnonzero(zero & (np.signbit(actual) != np.signbit(expected)))
        assert wrong.size == 0, f"{name} of {[x[wrong[0]] for x in xs]} is a zero of the wrong sign"


@pytest.mark.parametrize("source", VALUE_TYPES)
def test_casts(source: str) -> None:
    rng = np.random.default_rng(3)
    if source == "bool":
        x = rng.integers(0, 2, 1000).astype(bool)
    elif is_float(source):
        special = [0.0, -0.0, 0.25, 2.0**31, 1e18, 2.0**63, np.nan, np.inf, -1e30]
        x = np.concatenate([rng.uniform(-300, 300, 500), special]).astype(to_numpy(source))
    else:
        x = integers(source, rng)
    targets = [t for t in VALUE_TYPES if t != source]
    lines = ["onnxfuse 1", "space d0", f"%0 = input 0 {source} [d0]"]
    lines += [f"%{k + 1} = cast {target} %0" for k, target in enumerate(targets)]
    lines += [f"output {k} {target} [d0] %{k + 1}" for k, target in enumerate(targets)]
    for target, actual in zip(targets, run("\n".join(lines) + "\n", x), strict=True):
        fits = np.ones(x.size, bool)
        if is_float(source) and not is_float(target) and target != "bool":
            low, high = integer_range(target)
            with np.errstate(all="ignore"):
                whole = np.trunc(x.astype(np.float64))
            fits = (whole >= low) & (whole < float(high) + 1)  # the rest may become anything
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(actual[fits], x[fits].astype(to_numpy(target)), err_msg=target)


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_conversion_of_every_16_bit_value(type_: str) -> None:
    """Reading and storing keep each value; the extra addition keeps the compiler from copying bits."""
    x = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(type_))
    text = (
        f"onnxfuse 1\nspace d0\n%0 = input 0 {type_} [d0]\n%1 = input 1 {type_} [0]\n%2 = add f32 %0 %1\n"
        f"output 0 {type_} [d0] %2\n"
    )
    (actual,) = run(text, x, np.array([-0.0], to_numpy(type_)))
    number = ~np.isnan(x.astype(np.float32))
    np.testing.assert_array_equal(actual.view(np.uint16)[number], x.view(np.uint16)[number])
    assert np.isnan(actual.astype(np.float32)[~number]).all()


@pytest.mark.parametrize("type_", ["f16", "bf16"])
def test_stores_round_to_nearest_even(type_: str) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 100000, np.uint32).view(np.float32)
    exact = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(type_)).astype(np.float32)
    with np.errstate(all="ignore"):
        halfway = (exact[:-1].astype(np.float64) + exact[1:]) / 2
        x = np.concatenate([bits, halfway.astype(np.float32)])
        expected = x.astype(to_numpy(type_)).astype(np.float32)
    text = f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = abs f32 %0\noutput 0 {type_} [d0] %1\n"
    (actual,) = run(text, x)
    np.testing.assert_array_equal(actual.astype(np.float32), np.abs(expected))


@pytest.mark.parametrize("divisor", [3.0, 6.0, 7.0, 0.1, -1.4142135, 5e-20, 1e30, 1e-40, 16777215.0, 8.0, -0.25])
def test_division_by_a_constant_is_exact(divisor: float) -> None:
    rng = np.random.default_rng(2)
    some = rng.integers(0, 2**32, 1 << 20, np.uint32).view(np.float32)
    near = np.float32(1) + np.arange(1 << 20, dtype=np.float32) * np.float32(2.0**-20)
    x = np.concatenate([some, near, np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38], np.float32)])
    constant = np.float32(divisor)
    text = (
        f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = const f32 {float(str(constant))!r}\n"
        "%2 = div f32 %0 %1\noutput 0 f32 [d0] %2\n"
    )
    (actual,) = run(text, x)
    with np.errstate(all="ignore"):
        expected = x / constant
    same = (actual == expected) & (np.signbit(actual) == np.signbit(expected)) | (np.isnan(actual) & np.isnan(expected))
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, (
        f"{wrong.size} wrong: {x[wrong[0]]!r} / {constant!r} = {expected[wrong[0]]!r}, not {actual[wrong[0]]!r}"
    )
