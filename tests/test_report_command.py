"""`onnxfuse report` and `optimize --report`."""

from __future__ import annotations

import json

import onnx
import pytest
from report_pages import check, layers
from typer.testing import CliRunner

import onnxfuse
from onnxfuse.cli.app import app
from onnxfuse.report_page import read_measurements


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(layers(2, rows="rows"), "model.onnx")
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_optimize_writes_the_page_beside_the_model(folder):
    result = invoke("optimize", "model.onnx", "fused.onnx", "--report", "page.html")
    assert result.exit_code == 0
    assert "wrote page.html" in result.output
    check((folder / "page.html").read_text("utf-8"))


def test_a_tuned_model_says_on_the_page_what_was_measured(folder):
    arguments = ("--target", "cpu", "--tune", "--tune-seconds", "1", "--dim", "rows=64", "--report", "page.html")
    result = invoke("optimize", "model.onnx", "fused.onnx", *arguments)
    assert result.exit_code == 0, result.output
    page = (folder / "page.html").read_text("utf-8")
    check(page)
    assert "Tuning: which fusions pay" in page


def test_optimize_checks_where_the_page_goes_before_it_works(folder):
    result = invoke("optimize", "model.onnx", "fused.onnx", "--report", "nowhere/page.html")
    assert result.exit_code == 2
    assert not (folder / "fused.onnx").exists()


def test_report_takes_what_the_other_commands_print(folder):
    assert invoke("optimize", "model.onnx", "fused.onnx", "--target", "cpu").exit_code == 0
    validated = invoke("validate", "model.onnx", "fused.onnx", "--dim", "rows=3", "--json")
    (folder / "errors.json").write_text(validated.output, "utf-8")
    result = invoke("report", "model.onnx", "page.html", "--target", "cpu", "--validation", "errors.json")
    assert result.exit_code == 0, result.output
    page = (folder / "page.html").read_text("utf-8")
    check(page)
    assert "1 of 1" in page
    assert "known for 0 of" in page


def test_report_knows_bytes_where_dimensions_are_set(folder):
    for name in ("rows", "x.0"):
        assert invoke("report", "model.onnx", "page.html", "--dim", f"{name}=1024").exit_code == 0
        page = (folder / "page.html").read_text("utf-8")
        assert "f32 1024×16" in page
        assert "space d0 " in page  # what is fused stays that of free dimensions
        assert "known for 0 of" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dim", "columns=3"), "no free dimension 'columns'; they are rows"),
        (("--validation", "model.onnx"), "not JSON"),
        (("--bench", "list.json"), "not the result of `onnxfuse bench --json`"),
        (("--bench", "absent.json"), "'absent.json' cannot be read"),
    ],
)
def test_bad_input_is_named(folder, arguments, message):
    (folder / "list.json").write_text(json.dumps([1]))
    result = invoke("report", "model.onnx", "page.html", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (folder / "page.html").exists()


def test_read_measurements_refuses_half_a_result(folder):
    (folder / "v.json").write_text(json.dumps({"ok": True}))
    with pytest.raises(onnxfuse.OnnxfuseError, match="it has no outputs"):
        read_measurements(validation="v.json")
