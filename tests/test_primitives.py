"""The table of primitives: each one lowered, over types, opsets and special values."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from lowered import OPSETS, assert_agree, model_of, run, run_reference
from strategies import array

from onnxfuse.custom_ops.formulas import ARGUMENTS, FORMULAS, REDUCTIONS, SCANS
from onnxfuse.custom_ops.function import NoFunctionError, to_function
from onnxfuse.custom_ops.primitives import PRIMITIVES
from onnxfuse.custom_ops.program import Program
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.types import is_float


def primitive_program(op: str, type_: str) -> str:
    """A program that applies one primitive to inputs of a type, broadcast against each other."""
    primitive = PRIMITIVES[op]
    if primitive.reduces:
        return (
            f"onnxfuse 1\nspace d0 | d1 d2 | d3\n%0 = input 0 {type_} [d0, d1, d2, d3]\n%1 = {op} {type_} %0\n"
            f"output 0 {type_} [d0, d3] %1\noutput 1 {type_} [d0, 0, 0, d3] %1\n"
        )
    maps = ["[d0, d1]", "[d1]", "[d0, 0]"]
    operands = ["bool" if op == "where" and n == 0 else type_ for n in range(primitive.arity)]
    lines = [f"%{n} = input {n} {t} {maps[n]}" for n, t in enumerate(operands)]
    result = primitive.result_type(type_)
    apply = f"%{len(operands)} = {op} {result} " + " ".join(f"%{n}" for n in range(len(operands)))
    return "\n".join(["onnxfuse 1", "space d0 d1", *lines, apply, f"output 0 {result} [d0, d1] %{len(operands)}", ""])


def domain(op: str, x: np.ndarray) -> np.ndarray:
    """The array within the domain of a primitive."""
    if op == "acosh":
        return (np.abs(x) + 1).astype(x.dtype)
    if op in ("asin", "acos", "atanh"):
        return np.tanh(x).astype(x.dtype)
    if op in ("sqrt", "log", "log1p", "pow", "shift_left", "shift_right"):
        return np.abs(x)
    return x


def operands_of(op: str, program: Program, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if PRIMITIVES[op].reduces:
        x = array(program.inputs[0][0], (2, 3, 5, 2), rng)
        # ONNX Runtime's product of int32 does not wrap where it overflows.
        return [np.sign(x).astype(x.dtype) if op == "reduce_prod" and not is_float(program.inputs[0][0]) else x]
    inputs = []
    for n, ((type_, _), shape) in enumerate(zip(program.inputs, [(3, 7), (7,), (3, 1)], strict=False)):
        x = domain(op, array(type_, shape, rng))
        if n == 1 and op in ("div", "mod", "fmod") and not is_float(type_):
            x[x == 0] = 3
        if n == 1 and op in ("pow", "shift_left", "shift_right"):
            x = (np.abs(x) % 4).astype(x.dtype)
        inputs.append(x)
    return inputs


# Those that are one operator with the same attributes in all types; arguments and scans are in test_scans.py.
SIMPLE = [op for op, primitive in PRIMITIVES.items() if primitive.kind in ("element", "reduction")]


@pytest.mark.parametrize("op", SIMPLE)
def test_every_primitive_in_every_type_and_opset(op: str) -> None:
    tried = 0
    for type_ in PRIMITIVES[op].types:
        program = Program.parse(primitive_program(op, type_))
        inputs = operands_of(op, program)
        for opset in OPSETS:
            try:
                model = model_of(program, opset)
            except NoFunctionError:
                # The newest operators that the table needs came with opset 18; no type holds every power of a uint64.
                assert opset < 18 or (op, type_) == ("pow", "u64")
                continue
            try:
                found = run(model, inputs)
            except ort.capi.onnxruntime_pybind11_state.NotImplemented:
                assert opset < 13 or type_ not in PRIMITIVES[op].runtime
                found = run_reference(model, inputs)
                if op == "erf":  # which onnx's evaluator computes in float32
                    found = [evaluate(program, inputs)[0] if np.allclose(found, evaluate(program, inputs)) else found]
            assert_agree(program, found, inputs, (op, type_, opset))
            tried += 1
    assert tried >= 3


@pytest.mark.parametrize("op", [op for op in SIMPLE if "f32" in PRIMITIVES[op].types])
def test_special_values(op: str) -> None:
    """NaN, infinities, signed zeros, denormals, large and tiny numbers."""
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1e-7, -1e-7, 0.5, -0.5, 1.0, -1.0, 80.0, -80.0, 3e38]
    x = np.array(values, np.float32)
    program = Program.parse(primitive_program(op, "f32"))
    if PRIMITIVES[op].reduces:
        inputs = [np.stack([x, x[::-1]]).reshape(2, 16, 1, 1)[:, 3:13]]
    else:
        inputs = [np.repeat(x[:, None], 16, 1), x, x[:, None]][-PRIMITIVES[op].arity :]
        if PRIMITIVES[op].arity == 1:
            inputs = [np.repeat(x[:, None], 16, 1)]
        if op == "where":
            inputs = [np.isfinite(np.repeat(x[:, None], 16, 1)), x, x[:, None]]
        elif PRIMITIVES[op].arity == 2:
            inputs = [np.repeat(x[:, None], 16, 1), x]
    model = model_of(program, 20)
    (expected,) = evaluate(program, inputs)[:1]
    (found,) = run(model, inputs)[:1]
    with np.errstate(all="ignore"):
        # ONNX Runtime's Sigmoid gives 0 below -18 or so.
        np.testing.assert_allclose(found, expected, rtol=3e-6, atol=2e-8 if op == "sigmoid" else 1e-38)


@pytest.mark.parametrize(
    ("op", "type_", "opset", "message"),
    [
        ("where", "f32", 8, "Where of f32 does not exist in opset 8"),
        ("bitwise_and", "u8", 17, "BitwiseAnd of u8 does not exist in opset 17"),
        ("max", "f32", 7, "opset 7 has no broadcasting in Max"),
        ("round", "f32", 10, "Round of f32 does not exist in opset 10"),
        ("abs", "f32", 6, "opset 6 has no broadcasting"),
    ],
)
def test_what_an_opset_cannot_say(op: str, type_: str, opset: int, message: str) -> None:
    with pytest.raises(NoFunctionError, match=message):
        to_function(Program.parse(primitive_program(op, type_)), "FusedElementwise", opset)


def test_the_interpreter_knows_every_primitive() -> None:
    known = {"element": FORMULAS, "reduction": REDUCTIONS, "argument": ARGUMENTS, "scan": SCANS}
    for kind, table in known.items():
        assert {op for op, primitive in PRIMITIVES.items() if primitive.kind == kind} == set(table)
