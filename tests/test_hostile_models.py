"""Models that are wrong, absurd or made to do harm: a clear error or nothing fused, no crash, no file elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnxfuse
from onnxfuse.cli import app
from onnxfuse.errors import ModelError, OnnxfuseError

PROGRAM = "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = tanh f32 %0\noutput 0 f32 [d0] %1\n"
node = helper.make_node


def value(name: str, shape: object = (2,), type_: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, shape)


def constant(name: str, *numbers: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def model(
    *nodes: onnx.NodeProto,
    shape: object = (2,),
    out: object = None,
    constants: tuple[onnx.TensorProto, ...] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [value("x", shape)], [value("y", out)], constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("onnxfuse", 1), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def ended(
    *nodes: onnx.NodeProto, constants: tuple[onnx.TensorProto, ...] = (), shape: object = (2,)
) -> onnx.ModelProto:
    """The nodes, which define t, and two more that fuse."""
    return model(*nodes, node("Tanh", ["t"], ["u"]), node("Mul", ["u", "t"], ["y"]), constants=constants, shape=shape)


def fused(program: object, inputs: tuple[str, ...] = ("m",), outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    """A fused node, which reads what another node makes."""
    attributes = {} if program is None else {"program": program}
    made = node("Floor", ["x"], ["m"])
    return model(made, node("FusedElementwise", inputs, outputs, domain="onnxfuse", name="bad", **attributes))


def function(name: str, *calls: str) -> onnx.FunctionProto:
    """Calls one after the other, and two operators that fuse."""
    nodes, last = [], "a"
    for k, call in enumerate(calls):
        nodes.append(node(call, [last], [f"c{k}"], domain="local"))
        last = f"c{k}"
    nodes += [node("Tanh", [last], ["d"]), node("Mul", ["d", last], ["b"])]
    return helper.make_function(
        "local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    )


def with_functions(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    result = model(node(functions[0].name, ["x"], ["y"], domain="local"))
    result.functions.extend(functions)
    return result


def tensor_of(shape: tuple[int, ...], data: bytes = b"") -> onnx.TensorProto:
    return TensorProto(name="c", data_type=TensorProto.FLOAT, dims=shape, raw_data=data)


HUGE = 2**62
# What is wrong, and a part of the message; "" where nothing is to be fused, which is no error.
WRONG: dict[str, tuple[onnx.ModelProto, str]] = {
    "initializer_without_data": (ended(node("Add", ["x", "c"], ["t"]), constants=(tensor_of((HUGE, 4)),)), "'c'"),
    "initializer_of_2_63": (
        ended(node("Add", ["x", "c"], ["t"]), constants=(tensor_of((2**63 - 1,), b"1234"),)),
        "'c'",
    ),
    "initializer_of_less_than_nothing": (ended(node("Add", ["x", "c"], ["t"]), constants=(tensor_of((-1,)),)), "'c'"),
    "input_of_2_124": (ended(node("Neg", ["x"], ["t"]), shape=(HUGE, HUGE)), ""),
    "input_of_2_63": (ended(node("Neg", ["x"], ["t"]), shape=(2**63 - 1,)), ""),
    "reshape_to_2_62": (ended(node("Reshape", ["x", "s"], ["t"]), constants=(constant("s", HUGE, -1),)), ""),
    "reshape_to_negative": (ended(node("Reshape", ["x", "s"], ["t"]), constants=(constant("s", -7, -9),)), ""),
    "expand_to_2_80": (ended(node("Expand", ["x", "s"], ["t"]), constants=(constant("s", 2**40, 2**40),)), ""),
    "constant_of_2_40": (ended(node("ConstantOfShape", ["s"], ["t"]), constants=(constant("s", 2**40),)), ""),
    "doubled_70_times": (
        ended(
            node("Neg", ["x"], ["c0"]),
            *[node("Concat", [f"c{k}"] * 2, [f"c{k + 1}"], axis=0) for k in range(70)],
            node("Neg", ["c70"], ["t"]),
        ),
        "",
    ),
    "cycle": (model(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Tanh", ["b"], ["y"])), "cycle"),
    "cycle_of_one": (model(node("Add", ["x", "y"], ["y"])), "cycle"),
    "defined_twice": (model(node("Tanh", ["x"], ["y"]), node("Relu", ["x"], ["y"])), "defined twice"),
    "undefined": (ended(node("Add", ["x", "nothing"], ["t"])), "nothing"),
    "too_many_inputs": (model(node("Tanh", ["x"] * 5, ["t"]), node("Relu", ["t"], ["y"])), ""),
    "too_few_inputs": (model(node("Add", ["x"], ["t"]), node("Relu", ["t"], ["y"])), ""),
    "no_inputs": (model(node("Where", [], ["t"]), node("Relu", ["t"], ["y"])), ""),
    "transpose_outside": (ended(node("Transpose", ["x"], ["t"], perm=[3, 3])), "not valid ONNX"),
    "transpose_twice": (ended(node("Transpose", ["x"], ["t"], perm=[0, 0]), shape=(2, 3)), ""),
    "transpose_of_floats": (ended(node("Transpose", ["x"], ["t"], perm=[0.5])), "not valid ONNX"),
    "concat_outside": (ended(node("Concat", ["x", "x"], ["t"], axis=9)), "not valid ONNX"),
    "slice_of_step_0": (
        ended(
            node("Slice", ["x", "s", "e", "a", "p"], ["t"]),
            constants=(constant("s", 0), constant("e", 5), constant("a", 0), constant("p", 0)),
        ),
        "not valid ONNX",
    ),
    "unsqueeze_twice": (
        ended(node("Unsqueeze", ["x", "s"], ["t"]), constants=(constant("s", 0, 0, 9),)),
        "not valid ONNX",
    ),
    "attribute_of_another_type": (ended(node("LeakyRelu", ["x"], ["t"], alpha="text")), "not valid ONNX"),
    "axis_that_is_text": (ended(node("Softmax", ["x"], ["t"], axis="one")), "not valid ONNX"),
    "recursion": (with_functions(function("f", "f")), "recursive"),
    "recursion_of_two": (with_functions(function("f", "g"), function("g", "f")), "recursive"),
    "functions_without_end": (
        with_functions(*[function(f"f{k}", f"f{k + 1}", f"f{k + 1}") for k in range(40)], function("f40")),
        "local functions",
    ),
    "program_none": (fused(None), "'bad'"),
    "program_empty": (fused(""), "'bad'"),
    "program_binary": (fused(b"\xff\xfe\0\n"), "'bad'"),
    "program_number": (fused(3), "'bad'"),
    "program_long": (fused(PROGRAM + "x" * 70000), "'bad'"),
    "program_huge": (fused(PROGRAM.replace("space d0", f"space d0={2**63}")), "'bad'"),
    "program_literal": (fused(PROGRAM.replace("tanh f32 %0", "const f32 1e999999999999")), "'bad'"),
    "program_too_many_inputs": (fused(PROGRAM, ("m", "m")), "'bad'"),
    "program_no_inputs": (fused(PROGRAM, ()), "'bad'"),
    "program_too_many_outputs": (fused(PROGRAM, ("m",), ("y", "z")), "'bad'"),
    "program_undefined_input": (fused(PROGRAM, ("nothing",)), "nothing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_optimize_says_what_is_wrong(tmp_path: Path, name: str) -> None:
    wrong, words = WRONG[name]
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(wrong.SerializeToString())
    done = CliRunner().invoke(app, ["optimize", str(source), str(target)])
    assert done.exit_code == (2 if words else 0), done.output
    assert words in done.output
    assert target.exists() == (not words)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.onnx"] + ["out.onnx"] * (not words)


@pytest.mark.parametrize("name", [n for n in WRONG if n.startswith("program_") and n != "program_undefined_input"])
@pytest.mark.parametrize("command", ["restore", "validate", "compile"])
def test_other_commands_refuse_broken_programs(tmp_path: Path, name: str, command: str) -> None:
    source = tmp_path / "in.onnx"
    source.write_bytes(WRONG[name][0].SerializeToString())
    arguments = {
        "restore": [str(source), str(tmp_path / "out.onnx")],
        "validate": [str(source), str(source)],
        "compile": [str(source), "--arch", "sm_90", "-o", str(tmp_path / "kernels")],
    }
    done = CliRunner().invoke(app, [command, *arguments[command]])
    assert done.exit_code == 2, done.output
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]


def nested(depth: int) -> onnx.ModelProto:
    """If in If in If."""
    graph = helper.make_graph([node("Tanh", ["x"], ["t0"]), node("Mul", ["t0", "x"], ["o0"])], "b0", [], [value("o0")])
    for k in range(1, depth):
        other = helper.make_graph([node("Neg", ["x"], [f"e{k}"])], f"e{k}", [], [value(f"e{k}")])
        branch = node("If", ["c"], [f"o{k}"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([branch], f"b{k}", [], [value(f"o{k}")])
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "e", [], [value("e")])
    top = helper.make_graph(
        [node("If", ["c"], ["y"], then_branch=graph, else_branch=other)],
        "g",
        [value("x"), value("c", (), TensorProto.BOOL)],
        [value("y")],
    )
    return helper.make_model(top, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_nesting_that_protobuf_reads_is_followed() -> None:
    assert onnxfuse.optimize(nested(25)).report.fusions


def deep_bytes(depth: int) -> bytes:
    """The file of a model with that many Ifs inside each other, which protobuf itself would not write."""

    def field(number: int, data: bytes) -> bytes:
        size, head = len(data), bytes([number << 3 | 2])
        while size > 127:
            head, size = head + bytes([size & 127 | 128]), size >> 7
        return head + bytes([size]) + data

    graph = field(1, node("Neg", ["x"], ["o"]).SerializeToString()) + field(12, value("o").SerializeToString())
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(1, b"c") + field(2, b"o") + field(4, b"If") + field(5, attribute)) + field(2, b"g")
        graph += field(12, value("o").SerializeToString())
    return b"\x08\x0a" + field(7, graph) + field(8, helper.make_opsetid("", 17).SerializeToString())


@pytest.mark.parametrize("depth", [40, 1000, 20000])
def test_nesting_that_protobuf_does_not_read(tmp_path: Path, depth: int) -> None:
    source = tmp_path / "in.onnx"
    source.write_bytes(deep_bytes(depth))
    done = CliRunner().invoke(app, ["optimize", str(source), str(tmp_path / "out.onnx")])
    assert done.exit_code == 2, done.output
    assert "is not an ONNX model, or it is damaged" in done.output


def external(location: str, folder: Path, **entries: int) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    for key, number in entries.items():
        tensor.external_data.add(key=key, value=str(number))
    file = folder / "in.onnx"
    file.write_bytes(ended(node("Add", ["x", "w"], ["t"]), constants=(tensor,)).SerializeToString())
    return file


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that no model may read, beside the folder of the model."""
    file = tmp_path / "secret"
    file.write_bytes(b"12345678")
    (tmp_path / "model").mkdir()
    return file


@pytest.mark.parametrize(
    "how", ["parent", "absolute", "inner_parent", "backslash", "link", "link_folder", "none", "empty"]
)
@pytest.mark.parametrize("command", ["optimize", "restore", "validate", "explain"])
def test_external_data_stays_in_the_folder(secret: Path, command: str, how: str) -> None:
    folder = secret.parent / "model"
    location = {
        "parent": "../secret",
        "absolute": str(secret),
        "inner_parent": "a/../../secret",
        "backslash": "..\\secret",
        "none": "nothing",
        "empty": "",
    }.get(how, "data")
    if how == "link":
        (folder / "data").symlink_to(secret)
    if how == "link_folder":
        (folder / "data").symlink_to(secret.parent)
        location = "data/secret"
    file = external(location, folder)
    outputs = {"optimize": [str(folder / "out.onnx")], "restore": [str(folder / "out.onnx")], "validate": [str(file)]}
    done = CliRunner().invoke(app, [command, str(file), *outputs.get(command, [])])
    assert done.exit_code == 2, done.output
    assert "external data" in done.output or "not inside of the model's folder" in done.output
    assert not (folder / "out.onnx").exists()
    assert secret.read_bytes() == b"12345678"
    assert sorted(p.name for p in secret.parent.iterdir()) == ["model", "secret"]


@pytest.mark.parametrize(
    "entries",
    [{"offset": -1}, {"offset": 2**63}, {"length": -8}, {"length": 2**62}, {"offset": 8, "length": 8}],
    ids=str,
)
def test_places_outside_of_the_external_data(tmp_path: Path, entries: dict[str, int]) -> None:
    (tmp_path / "data").write_bytes(b"12345678")
    file = external("data", tmp_path, **entries)
    done = CliRunner().invoke(app, ["optimize", str(file), str(tmp_path / "out.onnx")])
    assert done.exit_code == 2, done.output
    assert not (tmp_path / "out.onnx").exists()


def test_a_result_with_external_data_is_not_written_through_a_link(secret: Path) -> None:
    """The output's folder has a link by the name of the data: neither what it leads to nor the link is written."""
    folder, other = secret.parent / "model", secret.parent / "other"
    other.mkdir()
    (folder / "data").write_bytes(np.arange(2, dtype=np.float32).tobytes())
    (other / "data").symlink_to(secret)
    file = external("data", folder)
    onnxfuse.optimize(file).save(other / "out.onnx")
    assert secret.read_bytes() == b"12345678"
    written = onnx.load(other / "out.onnx")
    assert any(numpy_helper.to_array(t).tolist() == [0, 1] for t in written.graph.initializer)
    assert (other / "data").readlink() == secret


def test_a_fault_of_ours_is_not_blamed_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("ours")

    monkeypatch.setattr("onnxfuse.optimizer.inline_fusible", fail)
    with pytest.raises(IndexError, match="ours"):
        onnxfuse.optimize(ended(node("Neg", ["x"], ["t"])))
    with pytest.raises(ModelError, match="not valid ONNX"):
        onnxfuse.optimize(ended(node("Concat", ["x", "x"], ["t"], axis=9)))


def test_long_vectors_take_no_memory_of_their_length() -> None:
    """ONNX's propagation of data would make a dimension object for each element."""
    huge = model(node("Mul", ["x", "x"], ["t"]), node("Tanh", ["t"], ["y"]), shape=(2**40,), out=(2**40,))
    assert len(onnxfuse.optimize(huge).report.fusions) == 1


def test_every_error_is_one_for_the_user() -> None:
    for wrong, words in WRONG.values():
        if words:
            with pytest.raises(OnnxfuseError):
                onnxfuse.optimize(wrong)
