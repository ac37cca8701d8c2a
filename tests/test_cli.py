"""The command line: what it prints, its exit codes, and that bad input leaves no file behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from graphs import parse
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnxfuse
from onnxfuse.cli.app import app
from onnxfuse.cli.console import human_bytes, printable
from onnxfuse.cli.errors import reports_errors
from onnxfuse.cli.show import compact, show_report
from onnxfuse.report import Fusion, Refusal, Report
from onnxfuse.runtime import fused_nodes, make_session


def gate(offset=3.0, rows="n"):
    """A HardSwish spelled out, and a matrix product behind it."""
    constants = {
        "three": np.float32(offset),
        "zero": np.float32(0),
        "six": np.float32(6),
        "weight": np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Add", ["x", "three"], ["a"], "add"),
        helper.make_node("Clip", ["a", "zero", "six"], ["c"], "clip"),
        helper.make_node("Mul", ["x", "c"], ["m"], "mul"),
        helper.make_node("Div", ["m", "six"], ["d"], "div"),
        helper.make_node("MatMul", ["d", "weight"], ["y"], "matmul"),
    ]
    graph = helper.make_graph(
        nodes,
        "gate",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 8])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with model.onnx in it."""
    monkeypatch.chdir(tmp_path)
    onnx.save(gate(), "model.onnx")
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def command(*arguments, **environment):
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "onnxfuse", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "FORCE_COLOR"} | environment,
        timeout=120,
        check=False,
    )


def files(folder):
    return sorted(p.name for p in folder.iterdir())


def fused(path):
    return [node.op_type for node in fused_nodes(onnx.load(path))]


# What works


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_optimize_writes_the_model_and_says_what_was_fused(folder, target):
    result = invoke("optimize", "model.onnx", "fused.onnx", "--target", target)
    assert result.exit_code == 0, result.output
    assert fused("fused.onnx") == ["FusedElementwise"]
    assert "FusedElementwise" in result.stdout
    assert "Add Clip Mul Div" in result.stdout
    assert f"target {target}: 5 nodes -> 2, of which 1 fused" in result.stdout
    assert "wrote fused.onnx" in result.stdout


def test_the_default_target_is_that_of_the_python_surface(folder):
    assert "target cuda" in invoke("optimize", "model.onnx", "fused.onnx").stdout


def test_verbose_names_the_nodes(folder):
    result = invoke("optimize", "model.onnx", "fused.onnx", "--verbose")
    assert "add, clip, mul, div" in result.stdout


def test_dry_run_writes_nothing(folder):
    for arguments in (["model.onnx", "--dry-run"], ["model.onnx", "fused.onnx", "--dry-run"]):
        result = invoke("optimize", *arguments)
        assert result.exit_code == 0
        assert "FusedElementwise" in result.stdout
        assert "wrote" not in result.stdout
    assert files(folder) == ["model.onnx"]


@pytest.mark.parametrize(
    ("option", "count"),
    [
        (["--skip", "elementwise"], 0),
        (["--skip", "softmax", "--skip", "scan"], 1),
        (["--only", "elementwise"], 1),
        (["--only", "softmax"], 0),
        (["--min-nodes", "5"], 0),
        (["--min-nodes", "4"], 1),
    ],
)
def test_what_is_fused_can_be_chosen(folder, option, count):
    result = invoke("optimize", "model.onnx", "fused.onnx", *option)
    assert result.exit_code == 0, result.output
    assert len(fused("fused.onnx")) == count


def test_no_fallback_leaves_functions_out(folder):
    assert invoke("optimize", "model.onnx", "with.onnx").exit_code == 0
    assert invoke("optimize", "model.onnx", "without.onnx", "--no-fallback").exit_code == 0
    assert onnx.load("with.onnx").functions
    assert not onnx.load("without.onnx").functions


def test_validate_agrees(folder):
    invoke("optimize", "model.onnx", "fused.onnx", "--target", "cpu")
    result = invoke("validate", "model.onnx", "fused.onnx", "--dim", "n=7", "--seeds", "3")
    assert result.exit_code == 0, result.output
    assert "inputs: x float32 7x64" in result.stdout
    assert "OK: 1 output within tolerance" in result.stdout


def test_validate_finds_a_changed_constant(folder):
    onnx.save(gate(3.1), "changed.onnx")
    result = invoke("validate", "model.onnx", "changed.onnx")
    assert result.exit_code == 1
    assert "FAILED: 1 of 1 output not within tolerance: y" in result.stdout
    assert invoke("validate", "model.onnx", "changed.onnx", "--tolerance", "0.5").exit_code == 0


def test_validate_reads_npz_and_writes_json(folder):
    np.savez("inputs.npz", x=np.ones((3, 64), np.float32))
    result = invoke("validate", "model.onnx", "model.onnx", "--inputs", "inputs.npz", "--json")
    assert result.exit_code == 0
    parsed = json.loads(result.stdout)
    assert parsed["ok"] is True
    assert parsed["shapes"] == [[{"name": "x", "dtype": "float32", "shape": [3, 64]}]]
    assert parsed["outputs"][0]["verdict"] == "equal"


def test_the_output_may_be_the_input(folder):
    """Whole or not at all; weights in another file stay as they are, and the model goes on reading them."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"])]
    nodes.append(helper.make_node("Tanh", ["a"], ["y"]))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 300]) for n in "xy"]
    weights = {"w": rng.normal(size=(300, 300)), "b": rng.normal(size=300)}
    tensors = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    data, original = (folder / "m.data").read_bytes(), (folder / "m.onnx").read_bytes()
    names = files(folder)
    x = {"x": rng.normal(size=(2, 300)).astype(np.float32)}
    expected = make_session(folder / "m.onnx").run(None, x)[0]

    assert "error" in invoke("optimize", "m.onnx", "m.onnx", "--drop", "nothing").output
    assert (folder / "m.onnx").read_bytes() == original

    for command_line, fused in ((("optimize", "m.onnx", "m.onnx"), 1), (("restore", "m.onnx", "./m.onnx"), 0)):
        result = invoke(*command_line)
        assert result.exit_code == 0, result.output
        assert "in place of the model that it was made from" in result.output
        assert len(list(fused_nodes(onnx.load("m.onnx", load_external_data=False)))) == fused
        assert (folder / "m.data").read_bytes() == data
        np.testing.assert_allclose(make_session(folder / "m.onnx").run(None, x)[0], expected, rtol=1e-5, atol=1e-6)
    assert files(folder) == names
    assert "in place" not in invoke("optimize", "m.onnx", "other.onnx").output
    assert "holds the model's data" in invoke("optimize", "m.onnx", "m.data").output
    assert (folder / "m.data").read_bytes() == data


def test_restore_leaves_no_fused_node(folder):
    invoke("optimize", "model.onnx", "fused.onnx")
    result = invoke("restore", "fused.onnx", "plain.onnx")
    assert result.exit_code == 0, result.output
    assert fused("fused.onnx")
    assert not fused("plain.onnx")
    assert "1 fused node -> standard operators; the model has" in result.output
    assert invoke("validate", "model.onnx", "plain.onnx").exit_code == 0
    again = invoke("restore", "plain.onnx", "again.onnx")
    assert again.exit_code == 0
    assert "no fused nodes" in again.output
    assert Path("again.onnx").is_file()


def test_library_prints_a_file_that_exists():
    result = invoke("library")
    assert result.exit_code == 0
    assert Path(result.stdout.strip()).is_file()
    assert Path(result.stdout.strip()) == Path(onnxfuse.library_path())


def test_version():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("onnxfuse ")


@pytest.mark.parametrize(
    "name", ["optimize", "explain", "validate", "bench", "report", "restore", "library", "compile"]
)
def test_help_has_what_a_reader_needs(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    examples = [line for line in result.stdout.splitlines() if line.startswith(("    onnxfuse ", "    options."))]
    assert examples, "the lines of the examples were filled"
    assert "\b" not in result.stdout
    assert "\\b" not in result.stdout


# Bad input: exit code 2, one line on stderr, no traceback, no file


def edited_program(operation="rleu"):
    """A fused model whose program somebody edited."""
    program = f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = {operation} f32 %0\noutput 0 f32 [d0] %1\n"
    node = helper.make_node("FusedElementwise", ["x"], ["y"], "edited", domain="onnxfuse", program=program)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("onnxfuse", 1)], ir_version=10
    )


def unloadable():
    """A model that is well-formed ONNX of an operator that no runtime has."""
    model = gate()
    model.graph.node[-1].op_type = "NoSuchOperator"
    return model


def dangling():
    """A model in which a node reads what nothing makes."""
    model = gate()
    model.graph.node[-1].input[0] = "lost"
    return model


def broken_weight():
    """A model with a weight of fewer bytes than its shape needs."""
    model = gate()
    weight = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[5], raw_data=bytes(12))
    model.graph.node.add(op_type="Exp", input=[weight.name], output=["unused"])
    return model


@pytest.fixture
def bad(folder):
    Path("text.onnx").write_text("this is no model\n")
    Path("empty.onnx").write_bytes(b"")
    Path("cut.onnx").write_bytes(Path("model.onnx").read_bytes()[:500])
    onnx.save(edited_program(), "edited.onnx")
    onnx.save(unloadable(), "unloadable.onnx")
    onnx.save(dangling(), "dangling.onnx")
    onnx.save(broken_weight(), "weight.onnx")
    Path("binary.onnx").write_bytes(Path("model.onnx").read_bytes().replace(b"three", b"\xff\xfe\xffee"))
    os.mkfifo("pipe")
    np.savez("inputs.npz", nix=np.zeros(3))
    np.save("array.npy", np.zeros(3))
    extra = edited_program("relu")
    extra.graph.node[0].input.append("x")
    onnx.save(extra, "extra.onnx")
    return folder


BAD = {
    "no model": (["optimize", "text.onnx", "out.onnx"], "text.onnx"),
    "an empty file": (["optimize", "empty.onnx", "out.onnx"], "empty.onnx"),
    "half a file": (["optimize", "cut.onnx", "out.onnx"], "cut.onnx"),
    "no file": (["optimize", "nix.onnx", "out.onnx"], "no file 'nix.onnx'"),
    "a folder": (["optimize", ".", "out.onnx"], "is a folder"),
    "no output": (["optimize", "model.onnx"], "--dry-run"),
    "no output folder": (["optimize", "model.onnx", "nix/out.onnx"], "the folder nix does not exist"),
    "a folder as output": (["optimize", "model.onnx", "."], "is a folder"),
    "a pipe as output": (["optimize", "model.onnx", "pipe"], "no regular file"),
    "a value that nothing makes": (["optimize", "dangling.onnx", "out.onnx"], "the value 'lost', read by node"),
    "a weight cut short": (["optimize", "weight.onnx", "out.onnx"], "the tensor 'w' has 12 bytes"),
    "names that are no text": (["optimize", "binary.onnx", "out.onnx"], "not UTF-8"),
    "an unknown skip": (["optimize", "model.onnx", "out.onnx", "--skip", "nix"], "layer_norm"),
    "an unknown only": (["optimize", "model.onnx", "out.onnx", "--only", "nix"], "layer_norm"),
    "an edited program": (["optimize", "edited.onnx", "out.onnx"], "line 4"),
    "a program for another node": (["optimize", "extra.onnx", "out.onnx"], "its program has 1 inputs, the node 2"),
    "an edited program to validate": (["validate", "edited.onnx", "edited.onnx"], "'edited': line 4"),
    "an edited program to restore": (["restore", "edited.onnx", "out.onnx"], "line 4"),
    "no model to restore": (["restore", "text.onnx", "out.onnx"], "text.onnx"),
    "no folder to restore to": (["restore", "model.onnx", "nix/out.onnx"], "the folder nix does not exist"),
    "no model to validate": (["validate", "model.onnx", "text.onnx"], "'text.onnx' is not an ONNX model"),
    "no file to validate": (["validate", "model.onnx", "nix.onnx"], "no file 'nix.onnx'"),
    "an unloadable model": (["validate", "unloadable.onnx", "model.onnx"], "ONNX Runtime cannot load unloadable.onnx"),
    "a dim without a size": (["validate", "model.onnx", "model.onnx", "--dim", "n"], "--dim takes NAME=N"),
    "a dim without a name": (["validate", "model.onnx", "model.onnx", "--dim", "=4"], "--dim takes NAME=N"),
    "a dim that is no number": (["validate", "model.onnx", "model.onnx", "--dim", "n=-1"], "--dim takes NAME=N"),
    "a dim that is not there": (["validate", "model.onnx", "model.onnx", "--dim", "m=4"], "no free dimension 'm'"),
    "an npz for another model": (["validate", "model.onnx", "model.onnx", "--inputs", "inputs.npz"], "'nix'"),
    "an array without a name": (["validate", "model.onnx", "model.onnx", "--inputs", "array.npy"], "without a name"),
    "no npz": (["validate", "model.onnx", "model.onnx", "--inputs", "model.onnx"], "not an .npz file"),
    "a report over the model": (["optimize", "model.onnx", "out.onnx", "--report", "model.onnx"], "would overwrite"),
    "a report over the output": (["optimize", "model.onnx", "out.onnx", "--report", "out.onnx"], "would overwrite"),
    "time for no tuning": (["optimize", "model.onnx", "out.onnx", "--tune-seconds", "9"], "--tune"),
    "an unknown drop": (["explain", "model.onnx", "--drop", "nix"], "drop names 'nix'"),
    "an unknown skip to explain": (["explain", "model.onnx", "--skip", "nix"], "layer_norm"),
    "an unloadable model to bench": (["bench", "unloadable.onnx"], "ONNX Runtime cannot load unloadable.onnx"),
    "a CUDA graph on the CPU": (["bench", "model.onnx", "--cuda-graph"], "--provider cuda"),
    "an option without a value": (["bench", "model.onnx", "--provider-option", "a"], "KEY=VALUE"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_message_and_exit_code_2(bad, case):
    arguments, message = BAD[case]
    before = files(bad)
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert files(bad) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["optimize"],
        ["optimize", "model.onnx", "out.onnx", "--nix"],
        ["optimize", "model.onnx", "out.onnx", "--target", "tpu"],
        ["optimize", "model.onnx", "out.onnx", "--min-nodes", "0"],
        ["validate", "model.onnx"],
        ["validate", "model.onnx", "model.onnx", "--seeds", "none"],
        ["nix"],
    ],
)
def test_wrong_usage_gives_exit_code_2(folder, arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert files(folder) == ["model.onnx"]


def test_an_existing_output_survives_bad_input(bad):
    Path("out.onnx").write_bytes(b"precious")
    assert invoke("optimize", "text.onnx", "out.onnx").exit_code == 2
    assert Path("out.onnx").read_bytes() == b"precious"


def test_as_a_process(bad):
    """The exit codes and streams of the real command, which CliRunner only imitates."""
    good = command("optimize", "model.onnx", "fused.onnx", "--target", "cpu")
    assert (good.returncode, good.stderr) == (0, "")
    wrong = command("optimize", "text.onnx", "out.onnx")
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr.startswith("error: ")
    assert "Traceback" not in wrong.stderr
    onnx.save(gate(3.1), "changed.onnx")
    assert command("validate", "model.onnx", "changed.onnx").returncode == 1


def test_output_that_is_piped_is_plain_text_in_any_encoding(bad):
    model = gate()
    model.graph.node[0].name = "größe\x1b[31m[bold]"
    onnx.save(model, "model.onnx")
    result = command("optimize", "model.onnx", "--dry-run", "--verbose", PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "\\x1b[31m[bold]" in result.stdout
    assert result.stdout.isascii()


def test_optimize_needs_no_onnx_runtime(folder):
    (folder / "block").mkdir()
    (folder / "block" / "sitecustomize.py").write_text("import sys\nsys.modules['onnxruntime'] = None\n")
    path = os.pathsep.join([str(folder / "block"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    assert command("optimize", "model.onnx", "fused.onnx", PYTHONPATH=path).returncode == 0
    result = command("validate", "model.onnx", "fused.onnx", PYTHONPATH=path)
    assert result.returncode == 2
    assert 'pip install "onnxfuse[cpu]"' in result.stderr
    assert "Traceback" not in result.stderr


# Unexpected errors


@pytest.mark.parametrize("debug", [False, True])
def test_an_unexpected_error_asks_for_a_report(capsys, debug):
    @reports_errors
    def broken(debug: bool) -> None:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(typer.Exit) as stop:
        broken(debug=debug)
    assert stop.value.exit_code == 3
    said = capsys.readouterr().err
    assert "unexpected error: ZeroDivisionError: on purpose" in said
    assert "report" in said
    assert ("Traceback" in said) == debug


def test_an_unwritable_file_is_bad_input(capsys):
    @reports_errors
    def broken() -> None:
        raise PermissionError(13, "Permission denied", "out.onnx")

    with pytest.raises(typer.Exit) as stop:
        broken()
    assert stop.value.exit_code == 2
    assert capsys.readouterr().err == "error: out.onnx: Permission denied\n"


# The pieces


def fusion(operators, saved=None):
    names = tuple(f"n{i}" for i in range(len(operators)))
    return Fusion("FusedElementwise", "f", names, tuple(operators), ("x",), ("y",), "", len(operators) - 1, saved)


def test_the_table_groups_fusions_and_refusals(capsys):
    report = Report("cpu", nodes_before=20, nodes_after=9)
    report.fusions += [fusion(["Mul", "Add"], 2048), fusion(["Mul", "Add"]), fusion(["Exp", "Neg"], 1024)]
    report.refusals += [Refusal(f"node{i}", "Add", "unknown rank") for i in range(5)] + [Refusal("z", "Exp", "alone")]
    show_report(report, verbose=False)
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines()]
    assert ["FusedElementwise", "2", "Mul", "Add", "2", "2.0", "KiB+"] in rows
    assert ["FusedElementwise", "1", "Exp", "Neg", "1", "1.0", "KiB"] in rows
    assert "5  unknown rank  node0 (Add), node1 (Add), node2 (Add)" in text
    assert "node3" not in text
    assert "20 nodes -> 9, of which 3 fused" in text
    show_report(report, verbose=True)
    assert "node3" in capsys.readouterr().out


def test_reasons_that_differ_in_names_only_are_one(capsys):
    report = Report("cpu")
    report.refusals += [Refusal(f"n{i}", "Add", f"the rank of layer.{i}/Mul is unknown") for i in range(3)]
    report.refusals.append(Refusal("n", "Exp", "the rank of 'a b' is unknown"))
    report.refusals.append(Refusal("m", "Exp", "rank 9, which is more than 8"))
    show_report(report, verbose=False)
    text = capsys.readouterr().out
    assert "4  the rank of ... is unknown" in text
    assert "1  rank 9, which is more than 8" in text


def test_compact_and_human_bytes_and_printable():
    assert compact(["Mul", "Add", "Mul"]) == "Mul x2 Add"
    assert [human_bytes(n) for n in (None, 0, 1023, 1536, 3 << 40)] == ["-", "0 B", "1023 B", "1.5 KiB", "3072.0 GiB"]
    assert printable("a\x1bb\nß") == "a\\x1bb\nß"


# explain


def test_explain_names_every_source_node_and_writes_nothing(folder):
    before = files(folder)
    result = invoke("explain", "model.onnx", "--target", "cpu", "--programs")
    assert result.exit_code == 0
    for name in ("add", "clip", "mul", "div"):
        assert f" {name}\n" in result.output
    assert "saves  3 launches" in result.output
    assert "| onnxfuse 1" in result.output
    assert files(folder) == before


def test_explain_names_what_nodes_share(folder):
    """A bias of which each of two nodes takes a part: the one that has it not among its own saves no launch."""
    text = (
        "g (float[8, 30] x, float[30, 6] w, float[6] b) => (float[8, 3] p, float[8, 3] q) "
        "<int64[1] none = {0}, int64[1] half = {3}, int64[1] all = {6}, int64[1] last = {1}> { m = MatMul (x, w) "
        "[bias] a = Add (m, b) [left] p = Slice (a, none, half, last) [right] q = Slice (a, half, all, last) }"
    )
    onnx.save(parse(text), folder / "parts.onnx")
    said = invoke("explain", "parts.onnx").output
    assert "     Add                      bias\n" in said
    assert "   part of Add                bias\n" in said
    assert "saves  0 launches, 0 B of memory traffic (those of what it shares" in said
    assert "saves  1 launch, 408 B of memory traffic\n" in said
    assert "and its part of Add" in invoke("optimize", "parts.onnx", "--dry-run", "--verbose").output
    found = json.loads(invoke("explain", "parts.onnx", "--json").output)
    assert sorted(len(f["shared"]) for f in found["fusions"]) == [0, 1]


def test_explain_gives_reasons_for_what_is_left(folder):
    result = invoke("explain", "model.onnx", "--min-nodes", "9")
    assert result.exit_code == 0
    assert "fewer than 9 operators lie together" in result.output
    assert "nothing would be fused" in result.output
