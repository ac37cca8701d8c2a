"""What validate tries: several shapes, what inputs hold, and the float64 reference."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_cli import folder, gate, invoke  # noqa: F401 (a fixture)
from test_validate import build, scaled

from onnxfuse.errors import ModelError, OnnxfuseError
from onnxfuse.validate import make_inputs, validate
from onnxfuse.validate.compare import compare

FLOAT = TensorProto.FLOAT


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs.split(), [output], name=f"make_{output}", **attributes)


# Several shapes


def test_every_combination_of_extents_is_tried():
    result = validate(scaled(shape=("n", "m")), scaled(shape=("n", "m")), dims={"n": (1, 2, 7), "m": [3, 4]}, seeds=2)
    assert [case[0][2] for case in result.shapes] == [(1, 3), (1, 4), (2, 3), (2, 4), (7, 3), (7, 4)]


def test_a_mistake_for_one_extent_alone_is_found():
    """Both agree unless there are 7 rows: the other model adds a table that is not 0 in its last row."""
    table = np.zeros((7, 5), np.float32)
    table[6] = 1
    rows = [
        node("Shape", "x", "shape"),
        node("Slice", "table zero shape", "part"),
        node("Add", "x part", "y"),
    ]
    constants = {"table": table, "zero": np.zeros(2, np.int64)}
    other = build(rows, [("x", FLOAT, ["n", 5])], [("y", FLOAT, ["n", 5])], constants)
    plain = build([node("Identity", "x", "y")], [("x", FLOAT, ["n", 5])], [("y", FLOAT, ["n", 5])])
    assert validate(plain, other, dims={"n": (1, 2, 6)}).ok
    assert not validate(plain, other, dims={"n": (1, 2, 7)}).ok


def test_a_dimension_without_extents_is_refused():
    with pytest.raises(OnnxfuseError, match="'n' is given no extent"):
        validate(scaled(), scaled(), dims={"n": ()})


def test_the_command_takes_several_extents(folder):  # noqa: F811
    result = invoke("validate", "model.onnx", "model.onnx", "--dim", "n=1,2,7", "--original-provider", "cpu")
    assert result.exit_code == 0, result.output
    assert [f"x float32 {n}x64" in result.stdout for n in (1, 2, 7)] == [True] * 3


# Inputs


def drawn(*nodes, dtype=FLOAT, name="x", constants=None):
    outputs = [(nodes[-1].output[0], FLOAT, None)]
    model = build(nodes, [(name, dtype, [1000])], outputs, constants)
    return make_inputs(model, seed=1)[name]


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Log", "x", "y")],
        [node("Sqrt", "x", "y")],
        [node("Unsqueeze", "x axis", "u"), node("Transpose", "u", "t"), node("Log", "t", "y")],
        [node("Mul", "x two", "m"), node("Add", "m tiny", "a"), node("Log", "a", "y")],
        [node("Div", "x two", "m"), node("Sqrt", "m", "s"), node("Log", "s", "y")],
        [node("Pow", "x half", "y")],
        [node("Clip", "x tiny", "c"), node("Log", "c", "y")],
    ],
)
def test_what_a_log_or_root_reads_is_positive(nodes):
    constants = {"two": np.float32(2), "half": np.float32(0.5), "tiny": np.float32(1e-6), "axis": np.array([0])}
    assert (drawn(*nodes, constants=constants) > 0).all()


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Exp", "x", "y")],
        [node("Mul", "x minus", "m"), node("Exp", "m", "y")],
        [node("Pow", "x two", "y")],
        [node("Sub", "x two", "m"), node("Log", "m", "y")],
    ],
)
def test_other_numbers_have_both_signs(nodes):
    values = drawn(*nodes, constants={"two": np.float32(2), "minus": np.float32(-1)})
    assert (values > 0).any()
    assert (values < 0).any()


def test_other_domains():
    assert (np.abs(drawn(node("Asin", "x", "y"))) < 1).all()
    assert (drawn(node("Acosh", "x", "y")) >= 1).all()
    values = drawn(node("Log", "x", "l"), node("Atanh", "x", "a"), node("Add", "l a", "y"))
    assert ((values > 0) & (values < 1)).all()


@pytest.mark.parametrize("dtype", [FLOAT, TensorProto.INT64, TensorProto.INT32])
def test_masks_are_known_by_their_use(dtype):
    to_float = node("Cast", "x", "f", to=FLOAT)
    softmax = [to_float, node("Sub", "one f", "i"), node("Mul", "i large", "m"), node("Identity", "m", "y")]
    constants = {"one": np.float32(1), "large": np.float32(-10000)}
    assert set(drawn(*softmax, dtype=dtype, constants=constants)) == {0, 1}
    boolean = [node("Cast", "x", "b", to=TensorProto.BOOL), node("Not", "b", "n"), node("Cast", "n", "y", to=FLOAT)]
    assert set(drawn(*boolean, dtype=dtype)) == {0, 1}
    other = [to_float, node("Sub", "one f", "i"), node("Mul", "i small", "y")]
    values = set(drawn(*other, dtype=dtype, constants={"one": np.float32(1), "small": np.float32(2)}))
    assert len(values) > 2


# Figures


def test_argmax_agreement_counts_rows():
    a = np.array([[1, 2, 3], [3, 2, 1], [0, 5, 0], [1, 1, 1]], np.float32)
    b = np.array([[1, 2, 3], [3, 2, 1], [0, 0, 5], [1, 1, 1]], np.float32)
    assert compare("y", a, a).argmax == 1
    assert compare("y", a, b).argmax == 0.75
    assert compare("y", a[:, :1], b[:, :1]).argmax is None


# The float64 reference


def test_the_float64_reference_gives_both_errors():
    result = validate(scaled(), scaled(), float64=True)
    (output,) = result.outputs
    assert output.original_error == output.optimized_error
    assert 0 < output.original_error < 1e-6


def test_with_the_float64_reference_a_worse_model_of_close_numbers_fails():
    """Each is within the tolerance of the other, but the second is further from the truth than the tolerance."""

    def model(rest):
        """(x + 1e6) - 1e6 loses what x holds below 1e6's last place, as float64 does not."""
        nodes = [node("Add", "x large", "a"), node("Sub", "a large", "b"), node("Add", "b rest", "y")]
        constants = {"large": np.float32(1e6), "rest": np.float32(rest)}
        return build(nodes, [("x", FLOAT, [100])], [("y", FLOAT, [100])], constants)

    assert validate(model(0), model(0.05), tolerance=0.03).ok
    assert validate(model(0), model(0), tolerance=0.03, float64=True).ok
    result = validate(model(0), model(0.05), tolerance=0.03, float64=True)
    assert not result.ok
    assert result.outputs[0].optimized_error > 2 * result.outputs[0].original_error > 0.06


def test_a_model_without_a_float64_evaluation_is_refused():
    program = "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = relu f32 %0\noutput 0 f32 [d0] %1\n"
    fused = helper.make_node("FusedElementwise", ["x"], ["y"], domain="onnxfuse", program=program)
    model = build([fused], [("x", FLOAT, [3])], [("y", FLOAT, [3])])
    model.opset_import.append(helper.make_opsetid("onnxfuse", 1))
    with pytest.raises(ModelError, match="cannot be evaluated in float64"):
        validate(model, model, float64=True)
