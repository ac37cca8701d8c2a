"""Scans and arguments in standard operators and in the interpreter: types, flags, ranks, opsets, special values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from lowered import OPSETS, assert_agree, model_of, run, run_reference
from strategies import array

from onnxfuse.custom_ops.function import NoFunctionError
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.types import integer_range, to_numpy

SCANS = [op for op, primitive in PRIMITIVES.items() if primitive.kind == "scan"]
ARGUMENTS = [op for op, primitive in PRIMITIVES.items() if primitive.kind == "argument"]
SPACES = {
    "| d0 |": (7,),
    "d0 | d1 |": (3, 5),
    "| d0 | d1": (5, 3),
    "d0 | d1 | d2": (2, 5, 3),
    "d0 | d1 d2 |": (2, 3, 4),
    "| d0 d1 | d2": (3, 2, 2),
    "d0 d1 | d2 d3 | d4 d5": (2, 2, 3, 2, 1, 2),
}


def program_of(op: str, type_: str, flags: tuple[str, ...] = (), space: str = "d0 | d1 | d2") -> Program:
    """One scan or argument of an input of the type that shows all dimensions."""
    rank = len(SPACES[space])
    dims = [f"d{k}" for k in range(rank)]
    result = PRIMITIVES[op].result_type(type_)
    _, reduced, _ = (part.split() for part in space.split("|"))
    kept = [d for d in dims if d not in reduced] if PRIMITIVES[op].reduces else dims
    ones = [d if d in kept else "0" for d in dims]
    return Program.parse(
        f"onnxfuse 1\nspace {space}\n%0 = input 0 {type_} [{', '.join(dims)}]\n"
        f"%1 = {' '.join([op, *flags, result])} %0\n"
        f"output 0 {result} [{', '.join(kept)}] %1\noutput 1 {result} [{', '.join(ones)}] %1\n"
    )


def flags_of(op: str) -> list[tuple[str, ...]]:
    """Every set of flags that the operation may have."""
    choices = [((), (flag,)) for flag in PRIMITIVES[op].flags]
    return [tuple(itertools.chain(*choice)) for choice in itertools.product(*choices)]


def operand(op: str, type_: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    x = array(type_, shape, np.random.default_rng(seed))
    if op == "scan_prod":
        x = np.clip(x, 0 if type_.startswith("u") else -3, 3).astype(x.dtype)
    return np.round(x).astype(x.dtype) if op in ARGUMENTS else x  # with equal elements


@pytest.mark.parametrize("op", [*SCANS, *ARGUMENTS])
def test_every_type_opset_and_flag(op: str) -> None:
    tried = set()
    for type_, flags, opset in itertools.product(PRIMITIVES[op].types, flags_of(op), OPSETS):
        program = program_of(op, type_, flags)
        try:
            model = model_of(program, opset, "FusedScan")
        except NoFunctionError:
            # Scan came with 9, Slice with steps with 10, Max and Min of int64 with 12, Constants of integers with 9.
            since = 12 if op in ("scan_max", "scan_min") and type_ in ("i64", "u64") else 9 if op in SCANS else 7
            assert opset < max(since, 10 if flags and op in ARGUMENTS else 7, 9 if type_ == "u64" else 7)
            continue
        x = operand(op, type_, (2, 5, 3))
        assert_agree(program, run(model, [x]), [x], (type_, flags, opset))
        tried.add(type_)
    assert tried == set(PRIMITIVES[op].types)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("op", [*SCANS, *ARGUMENTS])
def test_every_place_of_the_reduced_dimensions(op: str, space: str) -> None:
    for type_, flags in itertools.product(("f32", "i64"), flags_of(op)):
        program = program_of(op, type_, flags, space)
        x = operand(op, type_, SPACES[space])
        for opset in (13, 17, 26):
            assert_agree(program, run(model_of(program, opset), [x]), [x], (type_, flags, opset))


@pytest.mark.parametrize("op", [*SCANS, *ARGUMENTS])
def test_extents_of_1_and_0(op: str) -> None:
    for space, flags in itertools.product(("d0 | d1 | d2", "d0 | d1 d2 |"), flags_of(op)):
        program = program_of(op, "f32", flags, space)
        for shape in ((2, 1, 3), (1, 1, 1), (0, 2, 3), (2, 3, 0), (2, 0, 3)):
            x = operand(op, "f32", shape)
            expected = evaluate(program, [x])
            kept = shape if op in SCANS else shape[:1] if space.endswith("|") else (shape[0], shape[2])
            assert expected[0].shape == kept
            if op in ARGUMENTS and not shape[1] * (shape[2] if space.endswith("|") else 1):
                assert not expected[0].any()  # the index of nothing, which ONNX Runtime has not
            elif x.size or op not in ("scan_max", "scan_min"):  # ONNX Runtime's Scan takes no empty tensor
                assert_agree(program, run(model_of(program, 26), [x]), [x], (shape, flags))


@pytest.mark.parametrize("op", SCANS)
def test_special_values_in_scans(op: str) -> None:
    inf, nan = np.inf, np.nan
    rows = [
        [1, inf, -inf, 2],
        [nan, 1, 2, 3],
        [0.0, -0.0, inf, 0],
        [-inf, 1, nan, 5],
        [inf, 1, 2, 3],
    ]
    x = np.array(rows, np.float32)[:, :, None]
    for flags in flags_of(op):
        program = program_of(op, "f32", flags)
        expected = evaluate(program, [x])[0]
        for opset in (10, 18, 26):
            np.testing.assert_array_equal(run(model_of(program, opset), [x])[0], expected)
    # NaN stays from where it first appears.
    first = evaluate(program_of(op, "f32"), [x])[0][1:4, :, 0]
    assert np.isnan(first[0]).all()
    assert np.isnan(first[2, 2:]).all()


@pytest.mark.parametrize("op", ARGUMENTS)
def test_which_argument(op: str) -> None:
    """Of equal elements the first or the last; a NaN wins over every number."""
    nan, sign = np.nan, 1 if op == "reduce_argmax" else -1
    rows = [[3, 5, 5, 1], [1, 1, 1, 1], [-0.0, 0.0, -1, -1], [1, nan, np.inf, nan], [nan, 1, 2, 3]]
    x = sign * np.array(rows, np.float32)[:, :, None]
    assert evaluate(program_of(op, "f32"), [x])[0].ravel().tolist() == [1, 0, 0, 1, 0]
    assert evaluate(program_of(op, "f32", ("last",)), [x])[0].ravel().tolist() == [2, 3, 1, 3, 0]
    for flags in flags_of(op):
        program = program_of(op, "f32", flags)
        for opset in (11, 18):
            assert_agree(program, run(model_of(program, opset), [x[:3]]), [x[:3]], (flags, opset))


def test_an_argument_of_large_unsigned_integers() -> None:
    x = np.array([[1, 2**63 + 5, 2**64 - 1, 2**63]], np.uint64)[:, :, None]
    for op in ARGUMENTS:
        program = program_of(op, "u64")
        assert_agree(program, run(model_of(program, 18), [x]), [x], op)


@pytest.mark.parametrize("type_", ["i8", "u8", "i32", "u64"])
def test_integers_wrap(type_: str) -> None:
    x = np.full((1, 9, 1), integer_range(type_)[1] // 3, to_numpy(type_))
    for op in ("scan_sum", "scan_prod"):
        program = program_of(op, type_)
        for opset in (18, 26):
            assert_agree(program, run(model_of(program, opset), [x]), [x], (op, opset))


def test_a_scan_of_what_is_broadcast_along_a_reduced_dimension() -> None:
    text = (
        "onnxfuse 1\nspace d0 | d1=3 d2 |\n%0 = input 0 f32 [d0, d2]\n%1 = scan_sum f32 %0\n"
        "%2 = reduce_argmax last i64 %0\n"
        "output 0 f32 [d0, d1, d2] %1\noutput 1 i64 [d0, 0] %2\n"
    )
    program = Program.parse(text)
    x = operand("scan_sum", "f32", (2, 4))
    found = run(model_of(program, 17), [x])
    assert_agree(program, found, [x], "broadcast")
    np.testing.assert_allclose(found[0].reshape(2, 12), np.cumsum(np.tile(x, 3), 1), rtol=1e-6)


def test_onnx_evaluates_the_functions_alike() -> None:
    for op, space in itertools.product((*SCANS, *ARGUMENTS), ("d0 | d1 | d2", "| d0 | d1")):
        for flags in flags_of(op):
            if op in ("scan_max", "scan_min") and ("reverse" in flags or space != "| d0 | d1"):
                continue  # its Scan goes forwards along the first axis only
            program = program_of(op, "f32", flags, space)
            x = operand(op, "f32", SPACES[space])
            for opset in (13, 26) if op != "scan_prod" else (26,):
                assert_agree(program, run_reference(model_of(program, opset), [x]), [x], (op, flags))


def test_equal_scans_of_a_function_do_not_meet() -> None:
    """The bodies of two loops have names of their own."""
    text = (
        "onnxfuse 1\nspace d0 | d1 |\n%0 = input 0 f32 [d0, d1]\n%1 = scan_max f32 %0\n%2 = neg f32 %0\n"
        "%3 = scan_max f32 %2\n%4 = scan_max exclusive f32 %0\n%5 = add f32 %1 %3\n"
        "output 0 f32 [d0, d1] %5\noutput 1 f32 [d0, d1] %4\n"
    )
    program = Program.parse(text)
    x = operand("scan_max", "f32", (3, 4))
    assert_agree(program, run(model_of(program, 17), [x]), [x], "several loops")


def test_a_softmax_then_a_scan() -> None:
    text = (
        "onnxfuse 1\nspace d0 | d1 |\n%0 = input 0 f16 [d0, d1]\n%1 = reduce_max f32 %0\n%2 = sub f32 %0 %1\n"
        "%3 = exp f32 %2\n%4 = reduce_sum f32 %3\n%5 = div f32 %3 %4\n%6 = scan_sum exclusive f32 %5\n"
        "output 0 f16 [d0, d1] %6\n"
    )
    program = Program.parse(text)
    x = operand("scan_sum", "f16", (3, 9))
    assert_agree(program, run(model_of(program, 17), [x]), [x], "softmax")
