"""bench/accounts.py where there is no GPU: the page that it makes of figures taken elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

KERNEL = {"launches": 36, "grid": [384, 2, 1], "block": [256, 1, 1], "registers": 26}
FIGURES = {
    "machine": {"gpu": "NVIDIA H1", "multiprocessors": 7, "cuda": "12.8", "runtime": "1.99.0"},
    "launch": {"host": 1.234, "device": 2.345, "graph_host": 3.456, "graph_device": 0.567},
    "models": [
        {
            "title": "a chain",
            "nodes": [12, 1],
            "launches": [12, None],
            "bytes": [6 << 30, 512 << 20],
            "memory": [512 << 20, 128 << 20],
            "latency": [1.7624, 0.1416],
            "kernels": [KERNEL | {"shared": 2048, "local": 0, "occupancy": 0.5625}],
            "note": "launches not counted: why",
        }
    ],
    "broadcast": {
        "functions": 12,
        "row": 1024,
        "rows": 65536,
        "kernels": [1, 2],
        "latency": [0.552, 0.146],
        "verdict": "faster",
        "ratio": 3.79,
    },
}


@pytest.fixture
def accounts(root, tmp_path):
    """Runs the command in a folder of its own."""

    def call(*arguments):
        command = [sys.executable, str(root / "bench" / "accounts.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)

    return call


def test_the_page_says_what_the_figures_say(accounts, tmp_path):
    (tmp_path / "figures.json").write_text(json.dumps(FIGURES))
    (tmp_path / "page.md").write_text("# Title\n\n<!-- accounts -->\nold\n<!-- end of accounts -->\n\nThe end.\n")
    said = accounts("--from", "figures.json", "--write", "page.md", "--json", "again.json")
    assert said.returncode == 0, said.stderr
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Title\n")
    assert page.endswith("The end.\n")
    assert "old" not in page
    assert "One NVIDIA H1 with 7 multiprocessors, CUDA 12.8, ONNX Runtime 1.99.0." in page
    assert "1.23 us of the host to launch and 2.35 us of the GPU" in page
    row = "| a chain | 12 / 1 | 12 / - | 6.0 GiB / 512.0 MiB | 512.0 MiB / 128.0 MiB | 75 % | 1.762 / 0.142 |"
    assert row in page
    assert "| a chain | 36 | 384x2 | 256 | 26 | 2.0 KiB | 0 | 56 % |" in page
    assert "- a chain: launches not counted: why" in page
    assert "3.79 times as fast" in page
    assert json.loads((tmp_path / "again.json").read_text()) == FIGURES


def test_later_figures_take_the_place_of_earlier_ones(accounts, tmp_path):
    (tmp_path / "first.json").write_text(json.dumps(FIGURES))
    model = FIGURES["models"][0]
    later = FIGURES | {"models": [model | {"nodes": [13, 2]}, model | {"title": "another"}], "broadcast": None}
    (tmp_path / "second.json").write_text(json.dumps(later))
    page = accounts("--from", "first.json", "second.json").stdout
    assert page.count("| a chain | 13 / 2 |") == 1
    assert "| a chain | 12 / 1 |" not in page
    assert "| another | 12 / 1 |" in page
    assert "3.79 times as fast" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nix"], "takes some of chain, bert, rec, piper, broadcast"),
        (["--from", "nix.json"], "nix.json"),
        (["--from", "text.json"], "error: "),
        (["--nix"], "unrecognized arguments: --nix"),
    ],
)
def test_bad_arguments(accounts, tmp_path, arguments, message):
    (tmp_path / "text.json").write_text("no json")
    said = accounts(*arguments)
    assert said.returncode == 2
    assert message in said.stderr
    assert "Traceback" not in said.stderr
