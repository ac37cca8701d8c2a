"""The command on a terminal: colours, progress and the shell's completion. Elsewhere none of that shows."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import onnx
import pytest
from test_cli import folder, gate  # noqa: F401 (a fixture)

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")


def on_terminal(*arguments, **environment):
    """What the command writes to a terminal, both streams together."""
    leader, follower = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "onnxfuse", *arguments],
        stdin=follower, stdout=follower, stderr=follower,
        env=kept | {"TERM": "xterm-256color", "COLUMNS": "160"} | environment,
    )  # fmt: skip
    os.close(follower)
    parts = []
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        parts.append(data)
    os.close(leader)
    assert process.wait(60) in (0, 1)
    return b"".join(parts).decode(errors="replace")


def piped(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-m", "onnxfuse", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env={k: v for k, v in os.environ.items() if k != "FORCE_COLOR"} | environment,
    )  # fmt: skip


def test_colours_and_progress_show_on_a_terminal(folder):  # noqa: F811
    said = on_terminal("validate", "model.onnx", "model.onnx", "--seeds", "3")
    assert COLOUR.search(said)
    assert "comparing" in said
    assert "OK: 1 output within tolerance" in said


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_they_are_not_wanted(folder, environment):  # noqa: F811
    onnx.save(gate(3.1), "changed.onnx")
    for arguments in (
        ("validate", "model.onnx", "model.onnx"),
        ("validate", "model.onnx", "changed.onnx"),
        ("--help",),
    ):
        assert not COLOUR.search(on_terminal(*arguments, **environment))


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", "model.onnx", "model.onnx"),
        ("bench", "model.onnx", "--seconds", "0.1"),
        ("optimize", "model.onnx", "out.onnx", "--target", "cpu"),
        ("explain", "model.onnx"),
    ],
)
def test_pipes_get_neither(folder, arguments):  # noqa: F811
    result = piped(*arguments)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


COMPLETIONS = {
    "a command": ("onnxfuse va", {"validate"}),
    "all commands": ("onnxfuse ", {"optimize", "validate", "bench", "explain", "restore", "library"}),
    "an option": ("onnxfuse bench --cuda", {"--cuda-graph"}),
    "a provider": ("onnxfuse bench --provider c", {"cpu", "cuda"}),
    "a kind of fusion": ("onnxfuse optimize --skip s", {"softmax", "scan"}),
}


@pytest.mark.parametrize("case", COMPLETIONS)
def test_the_shell_completes(case):
    line, expected = COMPLETIONS[case]
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    result = piped(_ONNXFUSE_COMPLETE="complete_bash", **words)
    assert result.returncode == 0, result.stderr
    found = set(result.stdout.split())
    assert expected <= found
    assert case == "all commands" or expected == found


@pytest.mark.parametrize(("shell", "sign"), [("bash", "COMPREPLY"), ("zsh", "#compdef onnxfuse"), ("fish", "complete")])
def test_each_shell_gets_its_script(shell, sign):
    result = piped(_ONNXFUSE_COMPLETE=f"source_{shell}")
    assert result.returncode == 0, result.stderr
    assert sign in result.stdout
    assert "_ONNXFUSE_COMPLETE" in result.stdout
