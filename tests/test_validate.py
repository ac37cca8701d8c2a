"""validate(): what it must catch, what it must let pass, and the inputs that it makes up."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import runtime
from onnxfuse.custom_ops.function import to_function
from onnxfuse.custom_ops.program import Program
from onnxfuse.errors import MissingRuntimeError, ModelError, OnnxfuseError, ProgramError
from onnxfuse.measure import compare_latency
from onnxfuse.validate import make_inputs, validate
from onnxfuse.validate.compare import TOLERANCES, compare

TYPES = {
    "float64": TensorProto.DOUBLE,
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


def build(nodes, inputs, outputs, constants=None, opset=17):
    """A model from nodes, (name, type, shape) of inputs and outputs, and constants by name."""
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    values = [[helper.make_tensor_value_info(*v) for v in group] for group in (inputs, outputs)]
    graph = helper.make_graph(nodes, "graph", *values, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def scaled(factor=1.5, dtype="float32", shape=("n", 5)):
    """x * factor, with one value of x a row."""
    kind = TYPES[dtype]
    numpy_type = helper.tensor_dtype_to_np_dtype(kind)
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    return build([node], [("x", kind, shape)], [("y", kind, shape)], {"factor": np.array(factor, numpy_type)})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_equal_models_are_equal_to_the_bit(dtype):
    result = validate(scaled(dtype=dtype), scaled(dtype=dtype), seeds=2)
    (output,) = result.outputs
    assert result.ok
    assert result.seeds == (0, 1)
    assert (output.verdict, output.absolute, output.ulp, output.mismatches) == ("equal", 0.0, 0, 0.0)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_a_changed_constant_is_found(dtype):
    off = 1 + 20 * TOLERANCES[dtype]
    result = validate(scaled(1.5, dtype), scaled(1.5 * off, dtype))
    (output,) = result.outputs
    assert not result.ok
    assert output.verdict == "different"
    assert output.mismatches > 0
    assert output.relative == pytest.approx(off - 1, rel=0.1)
    assert validate(scaled(1.5, dtype), scaled(1.5 * off, dtype), tolerance=30 * TOLERANCES[dtype]).ok


def test_the_figures_are_those_of_their_definitions():
    a = np.array([1.0, -2.0, 0.0, 4.0], np.float32)
    b = np.array([np.nextafter(np.float32(1), np.float32(2)), -2.5, 0.25, 4.0], np.float32)
    c = compare("y", a, b, tolerance=0.1)
    assert c.absolute == 0.5
    assert c.relative == 0.25
    assert c.mismatches == 0.25  # of the allowed 0.1 * 4, only the 0.5 is over
    assert c.cosine == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)))
    assert compare("y", a[:1], b[:1]).ulp == 1
    assert compare("y", np.array([0.0, -0.0], np.float32), np.array([-0.0, 1e-45], np.float32)).ulp == 1
    assert compare("y", np.array([-1e300]), np.array([1e300])).ulp > 2**62  # more than an int64 difference holds


@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_nan_and_infinity_must_stand_at_the_same_places(dtype):
    kind = helper.tensor_dtype_to_np_dtype(TYPES[dtype])
    a = np.array([np.nan, np.inf, -np.inf, 1.0], kind)
    assert compare("y", a, a.copy()).verdict == "equal"
    for place, value in ((0, 0.0), (1, -np.inf), (2, 3.0), (3, np.nan), (3, np.inf)):
        b = a.copy()
        b[place] = value
        c = compare("y", a, b, tolerance=10.0)
        assert c.verdict == "different", (place, value)
        assert c.mismatches == 0.25
        assert ("NaN" in c.note) != ("infinit" in c.note)


def test_integers_and_booleans_must_be_equal():
    a = np.arange(10, dtype=np.int64)
    assert compare("y", a, a).verdict == "equal"
    assert compare("y", a, a + (a == 3)).mismatches == 0.1
    assert compare("y", a > 3, a > 4).verdict == "different"
    assert compare("y", a, a.astype(np.int32)).note == "type int64 became int32"


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_empty_outputs_are_equal(dtype):
    assert compare("y", np.zeros((0, 3), dtype), np.zeros((0, 3), dtype)).verdict == "equal"


def test_another_shape_is_found():
    flat = scaled()
    flat.graph.node[0].output[0] = "z"
    flat.graph.node.append(helper.make_node("Flatten", ["z"], ["y"], axis=0))
    del flat.graph.output[0].type.tensor_type.shape.dim[:]
    flat.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "m"]))
    (output,) = validate(scaled(), flat).outputs
    assert output.verdict == "different"
    assert output.note.startswith("shape [2, 5] became [1, 10]")


def test_a_lacking_output_is_found():
    two = scaled()
    two.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    two.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 5]))
    result = validate(two, scaled())
    assert [(o.name, o.ok) for o in result.outputs] == [("y", True), ("z", False)]
    assert not validate(scaled(), two).ok


def test_other_inputs_are_refused():
    with pytest.raises(
        ModelError, match=r"do not take the same inputs: .* takes x .tensor.float.*; .* takes x .tensor.double"
    ):
        validate(scaled(), scaled(dtype="float64"))


def test_an_overflow_of_the_original_counts_for_the_optimized_model():
    """x*x is infinite in float32 for x = 1e30, and so is the original; the other one multiplies in another order."""
    kind = TensorProto.FLOAT

    def model(*nodes):
        return build(nodes, [("x", kind, [4])], [("y", kind, [4])], {"scale": np.float32(1e-30)})

    original = model(
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Mul", ["square", "scale"], ["y"]),
    )
    other = model(helper.make_node("Mul", ["x", "scale"], ["s"]), helper.make_node("Mul", ["s", "x"], ["y"]))
    x = np.array([1, -1e30, 2e30, 2], np.float32)
    result = validate(original, other, inputs={"x": x})
    (output,) = result.outputs
    assert result.ok
    assert output.verdict == "better"
    assert "overflow" in output.note
    assert not validate(other, original, inputs={"x": x}).ok


def test_a_random_model_is_named_as_such():
    """ONNX Runtime seeds a random operator by its place among the nodes."""

    def model(*before):
        random = helper.make_node("RandomNormalLike", [before[-1].output[0] if before else "x"], ["y"])
        return build([*before, random], [("x", TensorProto.FLOAT, [8])], [("y", TensorProto.FLOAT, [8])])

    moved = model(helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Cos", ["s"], ["c"]))
    result = validate(model(), moved)
    assert not result.ok
    assert "other numbers when it runs again" in result.notes[0]


@pytest.mark.skipif(
    not hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type"), reason="ONNX Runtime is too old"
)
def test_bfloat16_inputs_and_outputs():
    assert validate(
        build(*identity("bfloat16")), build(*identity("bfloat16")), inputs={"x": np.ones(3, ml_dtypes.bfloat16)}
    ).ok


def identity(dtype):
    values = [("x", TYPES[dtype], [3])], [("y", TYPES[dtype], [3])]
    return [helper.make_node("Identity", ["x"], ["y"])], *values


def test_sequences_are_compared_item_by_item():
    def model(factor):
        nodes = [
            helper.make_node("Mul", ["x", "factor"], ["z"]),
            helper.make_node("SequenceConstruct", ["x", "z"], ["y"]),
        ]
        built = build(nodes, [("x", TensorProto.FLOAT, [3])], [], {"factor": np.float32(factor)})
        built.graph.output.append(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [3]))
        return built

    assert validate(model(2), model(2)).ok
    assert [o.name for o in validate(model(2), model(3)).outputs if not o.ok] == ["y[1]"]


def test_to_dict_is_json_also_with_infinities():
    x = np.array([1.0, np.inf, np.nan, 0, 0], np.float32).reshape(1, 5)
    text = json.dumps(validate(scaled(), scaled(2.0), inputs={"x": x}).to_dict(), allow_nan=False)
    assert json.loads(text)["outputs"][0]["verdict"] == "different"


# Inputs


def test_dims_by_name_and_by_axis():
    node = helper.make_node("Identity", ["x"], ["y"])
    model = build([node], [("x", TensorProto.FLOAT, ["batch", None, 7])], [("y", TensorProto.FLOAT, None)])
    assert make_inputs(model)["x"].shape == (2, 2, 7)
    assert make_inputs(model, {"batch": 3, "x.1": 0})["x"].shape == (3, 0, 7)
    with pytest.raises(OnnxfuseError, match=r"no free dimension 'rows'; it has batch, x\.1"):
        make_inputs(model, {"rows": 3})
    assert make_inputs(model, {"x.0": 3})["x"].shape == (3, 2, 7)  # a named one can be given by its place as well
    with pytest.raises(OnnxfuseError, match="'batch' cannot be 3 and 4 at once"):
        make_inputs(model, {"x.0": 3, "batch": 4})


def test_dimensions_that_an_exporter_did_not_know_are_not_one():
    node = helper.make_node("Identity", ["x"], ["y"])
    model = build([node], [("x", TensorProto.FLOAT, ["?", "?"])], [("y", TensorProto.FLOAT, None)])
    assert make_inputs(model, {"x.0": 3, "x.1": 4})["x"].shape == (3, 4)


def test_seeds_differ_and_repeat():
    first, second, again = (make_inputs(scaled(), seed=s)["x"] for s in (0, 1, 0))
    assert (first == again).all()
    assert (first != second).all()


def test_npz_inputs(tmp_path):
    file = tmp_path / "inputs.npz"
    np.savez(file, x=np.full((3, 5), 2, np.float32))
    result = validate(scaled(), scaled(), inputs=file)
    assert result.shapes == ((("x", "float32", (3, 5)),),)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"q": np.zeros(3, np.float32)}, "no input 'q'; it has x"),
        ({"x": np.zeros((3, 5))}, "input 'x' is float32, the array given for it float64"),
        ({"x": np.zeros(5, np.float32)}, "rank 2, the array given for it 1"),
        ({"x": np.zeros((3, 4), np.float32)}, "extent 4 where 5 is due"),
        ({"x": np.array([{}], dtype=object)}, "not an .npz file of plain arrays"),
    ],
)
def test_unfit_npz_inputs(tmp_path, arrays, message):
    np.savez(tmp_path / "inputs.npz", **arrays)
    with pytest.raises(OnnxfuseError, match=message):
        validate(scaled(), scaled(), inputs=tmp_path / "inputs.npz")


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 broken"])
def test_files_that_are_no_npz(tmp_path, content):
    (tmp_path / "inputs.npz").write_bytes(content)
    with pytest.raises(OnnxfuseError, match=r"not an .npz file"):
        validate(scaled(), scaled(), inputs=tmp_path / "inputs.npz")


def test_dims_that_contradict_the_given_arrays():
    with pytest.raises(OnnxfuseError, match=r"extent 3 where n = 4 is due"):
        validate(scaled(), scaled(), dims={"n": 4}, inputs={"x": np.zeros((3, 5), np.float32)})


def test_an_index_stays_below_the_table_it_reads():
    nodes = [
        helper.make_node("Unsqueeze", ["ids", "one"], ["u"]),
        helper.make_node("Gather", ["table", "u"], ["y"]),
    ]
    constants = {"table": np.zeros((7, 3), np.float32), "one": np.array([1], np.int64)}
    model = build(nodes, [("ids", TensorProto.INT64, [400])], [("y", TensorProto.FLOAT, None)], constants)
    ids = make_inputs(model)["ids"]
    assert set(ids) == set(range(7))
    assert validate(model, model).ok


def test_masks_are_zeros_and_ones():
    node = helper.make_node("Cast", ["attention_mask"], ["y"], to=TensorProto.FLOAT)
    model = build([node], [("attention_mask", TensorProto.INT64, [100])], [("y", TensorProto.FLOAT, [100])])
    assert set(make_inputs(model)["attention_mask"]) == {0, 1}


def test_an_integer_compared_with_constants_takes_one_of_them():
    node = helper.make_node("Equal", ["rate", "known"], ["y"])
    model = build([node], [("rate", TensorProto.INT64, [])], [("y", TensorProto.BOOL, [])], {"known": np.int64(16000)})
    assert make_inputs(model)["rate"] == 16000


def test_an_integer_that_decides_a_shape_stays_small():
    node = helper.make_node("Expand", ["x", "shape"], ["y"])
    inputs = [("x", TensorProto.FLOAT, [1]), ("shape", TensorProto.INT64, [2])]
    model = build([node], inputs, [("y", TensorProto.FLOAT, None)])
    assert set(make_inputs(model)["shape"]) <= {0, 1}


@pytest.mark.parametrize(
    ("kind", "low", "high"), [(TensorProto.INT32, -100, 100), (TensorProto.UINT8, 0, 100), (TensorProto.BOOL, 0, 1)]
)
def test_other_integers_span_their_type(kind, low, high):
    model = build([helper.make_node("Identity", ["x"], ["y"])], [("x", kind, [5000])], [("y", kind, [5000])])
    values = make_inputs(model)["x"].astype(np.int64)
    assert (values.min(), values.max()) == (low, high)


def test_an_input_without_a_rank_must_be_given():
    node = helper.make_node("Relu", ["x"], ["y"])
    model = build([node], [("x", TensorProto.FLOAT, None)], [("y", TensorProto.FLOAT, None)])
    with pytest.raises(OnnxfuseError, match="does not state the rank of input 'x'"):
        validate(model, model)
    assert validate(model, model, inputs={"x": np.ones((2, 3), np.float32)}).ok


# Errors


def test_wrong_arguments():
    for arguments in (
        {"seeds": 0},
        {"seed": -1},
        {"tolerance": -1.0},
        {"tolerance": float("nan")},
        {"dims": {"n": -1}},
    ):
        with pytest.raises(OnnxfuseError):
            validate(scaled(), scaled(), **arguments)


def test_an_unknown_provider_is_named_with_those_there():
    with pytest.raises(ModelError, match=r"no NixExecutionProvider.*CPUExecutionProvider"):
        validate(scaled(), scaled(), provider="NixExecutionProvider")


def test_a_model_that_onnx_runtime_cannot_load():
    broken = scaled()
    broken.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ModelError, match=r"cannot load the model: .*NoSuchOperator"):
        validate(broken, scaled())


def test_a_model_that_does_not_run_on_its_inputs_names_the_free_dimensions():
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    constants = {"shape": np.array([3, -1], np.int64)}
    model = build([node], [("x", TensorProto.FLOAT, ["n", 4])], [("y", TensorProto.FLOAT, None)], constants)
    with pytest.raises(ModelError, match=r"cannot run .*free dimensions.*: n\)"):
        validate(model, model)
    assert validate(model, model, dims={"n": 3}).ok


def test_a_program_edited_by_hand_is_refused_with_its_node_and_line():
    program = "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = rleu f32 %0\noutput 0 f32 [d0] %1\n"
    node = helper.make_node("FusedElementwise", ["x"], ["y"], "fused", domain="onnxfuse", program=program)
    model = build([node], [("x", TensorProto.FLOAT, [3])], [("y", TensorProto.FLOAT, [3])])
    model.opset_import.append(helper.make_opsetid("onnxfuse", 1))
    with pytest.raises(ProgramError, match=r"FusedElementwise node 'fused': line 4: .*rleu"):
        validate(scaled(), model)


def doubling(factor="2.0", function_of=None):
    """x * factor as a fused node with the local function of its own program, or of another one."""

    def program(value):
        text = f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = const f32 {value}\n%2 = mul f32 %0 %1\n"
        return Program.parse(text + "output 0 f32 [d0] %2\n")

    own, other = program(factor), program(function_of or factor)
    node = helper.make_node("FusedElementwise", ["x"], ["y"], "fused", domain="onnxfuse", program=own.text())
    node.overload = own.digest()
    model = build([node], [("x", TensorProto.FLOAT, [3])], [("y", TensorProto.FLOAT, [3])])
    model.ir_version = 10
    model.opset_import.append(helper.make_opsetid("onnxfuse", 1))
    function = to_function(other, "FusedElementwise", 17)
    function.overload = own.digest()
    model.functions.append(function)
    return model


def test_a_local_function_that_does_not_match_its_program_is_reported():
    plain = build([helper.make_node("Add", ["x", "x"], ["y"])], [("x", TensorProto.FLOAT, [3])], [("y", 1, [3])])
    assert validate(plain, doubling()).ok
    result = validate(plain, doubling(function_of="3.0"))
    assert result.outputs[0].ok  # with the library, the program counts
    assert not result.ok
    assert result.wrong_functions == (
        "FusedElementwise node 'fused': its local function computes something else than its program",
    )
    renamed = doubling()
    renamed.graph.node[0].overload = renamed.functions[0].overload = "other"
    assert "another program's" in validate(plain, renamed).wrong_functions[0]


def test_files_are_validated_with_their_external_data(tmp_path):
    table = np.arange(4000, dtype=np.float32)
    node = helper.make_node("Mul", ["x", "table"], ["y"])
    for name, values in (("a", table), ("b", table), ("c", table + 1)):
        model = build([node], [("x", TensorProto.FLOAT, [4000])], [("y", TensorProto.FLOAT, None)], {"table": values})
        onnx.save(model, tmp_path / name, save_as_external_data=True, location=f"{name}.weights")
    assert validate(tmp_path / "a", tmp_path / "b").ok
    assert not validate(tmp_path / "a", tmp_path / "c").ok


def test_files_that_are_no_model(tmp_path):
    for content in (b"", b"plain text", b"\x00" * 64):
        (tmp_path / "model.onnx").write_bytes(content)
        with pytest.raises(ModelError, match=r"model\.onnx' is (empty|not an ONNX model)"):
            validate(tmp_path / "model.onnx", scaled())
    with pytest.raises(ModelError, match="there is no file"):
        validate(Path(tmp_path / "nix.onnx"), scaled())


def test_without_onnx_runtime_the_message_names_the_extras(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingRuntimeError, match=r'pip install "onnxfuse\[cpu\]", or "onnxfuse\[cuda\]"'):
        validate(scaled(), scaled())


def test_two_onnx_runtimes_give_a_warning(monkeypatch):
    real = runtime.importlib.metadata.version
    monkeypatch.setattr(
        runtime.importlib.metadata, "version", lambda name: "9" if "onnxruntime" in name else real(name)
    )
    runtime._warn_of.cache_clear()
    with pytest.warns(UserWarning, match="onnxruntime 9 and onnxruntime-gpu 9 are both installed") as caught:
        validate(scaled(), scaled())
    assert len([w for w in caught if "both installed" in str(w.message)]) == 1


def test_no_warning_with_one_onnx_runtime():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert validate(scaled(), scaled()).ok


# Latency


def test_latency_is_taken_in_turns():
    calls = []
    found = compare_latency(lambda: calls.append("a"), lambda: calls.append("b"), warmup=0, seconds=0, min_runs=4)
    assert "".join(calls) == "abbaabba"
    assert found.a.runs == found.b.runs == 4
    assert found.a.fastest <= found.a.median <= found.a.p90
    assert found.speedup == found.a.median / found.b.median
