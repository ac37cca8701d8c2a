"""The commands in models/: what they say to a stranger."""

from __future__ import annotations

import onnx
import pytest
from test_cli import gate

from models import fetch, seeded


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nix"], "there is no model 'nix'"),
        (["silero_vd"], "did you mean silero_vad?"),
        (["magika", "nix"], "there is no model 'nix'"),
        (["--nix"], "unrecognized arguments: --nix"),
    ],
)
def test_wrong_arguments_fetch_nothing(capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(fetch, "fetch", lambda name: pytest.fail(f"{name} was fetched"))
    with pytest.raises(SystemExit) as stop:
        fetch.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_help_and_the_list_fetch_nothing(capsys, monkeypatch):
    monkeypatch.setattr(fetch, "fetch", lambda name: pytest.fail(f"{name} was fetched"))
    with pytest.raises(SystemExit) as stop:
        fetch.main(["--help"])
    assert stop.value.code == 0
    assert "models/cache" in capsys.readouterr().out
    assert fetch.main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(fetch.catalogue())


def test_one_that_cannot_be_had_does_not_keep_others_away(capsys, monkeypatch):
    def some(name):
        if name == "magika":
            raise fetch.FetchError("no index in reach")
        return f"cache/{name}.onnx"

    monkeypatch.setattr(fetch, "fetch", some)
    assert fetch.main(["magika", "silero_vad", "silero_vad"]) == 1
    said = capsys.readouterr()
    assert said.out == "cache/silero_vad.onnx\n"
    assert said.err == "error: magika: no index in reach\n"
    assert fetch.main(["all"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == len(fetch.catalogue()) - 1


@pytest.mark.parametrize(("source", "message"), [("nix.onnx", "No such file"), ("text.onnx", "not an ONNX model")])
def test_seeded_says_what_is_wrong(capsys, monkeypatch, tmp_path, source, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.onnx").write_text("this is no model\n")
    monkeypatch.setattr("sys.argv", ["seeded.py", "strip", source, "out.onnx"])
    with pytest.raises(SystemExit) as stop:
        seeded.main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_what_is_filled_has_the_structure_of_what_was_stripped():
    model = gate()
    large = model.graph.initializer.add(name="large", data_type=1, dims=[64, 64])
    large.raw_data = bytes(64 * 64 * 4)
    stripped = seeded.strip(model)
    assert not stripped.graph.initializer[-1].raw_data
    filled = [seeded.fill(stripped) for _ in range(2)]
    assert filled[0] == filled[1]
    assert list(filled[0].graph.initializer[-1].dims) == [64, 64]
    onnx.checker.check_model(filled[0])
