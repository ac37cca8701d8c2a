"""The documentation: every command and rewrite has its page, the Python in it runs, and what it names exists."""

from __future__ import annotations

import re
import sys

import numpy as np
import onnx
import pytest
from graphs import parse

import onnxfuse
from onnxfuse.cli.app import app

GRAPH = "g (float[n, 64] x) => (float[n, 64] y) { a = Tanh(x)  b = Mul(a, x)  y = Softmax(b) }"


def commands():
    return sorted(c.name or c.callback.__name__ for c in app.registered_commands if not c.hidden)


def test_every_command_has_a_guide_with_its_options(root):
    for command in commands():
        page = root / "docs" / "guide" / f"{command}.md"
        assert page.is_file(), f"docs/guide/{command}.md is missing"
        assert f"<!-- options: {command} -->" in page.read_text("utf-8")
        for place in ("docs/guide/index.md", "mkdocs.yml", "README.md"):
            assert command in (root / place).read_text("utf-8"), f"{place} lacks {command}"


def test_every_rewrite_has_a_page_with_its_limits(root):
    for rewrite in onnxfuse.REWRITES:
        text = (root / "docs" / "rewrites" / f"{rewrite}.md").read_text("utf-8")
        assert "## Limits" in text
        assert "## Accuracy" in text


def blocks(root, *, language="python"):
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        for number, block in enumerate(re.findall(rf"```{language}\n(.*?)```", path.read_text("utf-8"), re.DOTALL)):
            yield f"{path.relative_to(root)}:{number}", block


def test_python_in_the_docs_runs(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(GRAPH), "model.onnx")
    onnxfuse.optimize("model.onnx", target="cpu").save("fused.onnx")
    found = dict(blocks(root))
    assert len(found) >= 3
    for place, block in found.items():
        if "CUDAExecutionProvider" in block or "@lowering" in block:
            compile(block, place, "exec")
            continue
        exec(compile(block, place, "exec"), {"np": np})


def test_files_that_the_docs_name_exist(root):
    folders = "onnxfuse|cuda_ops|tests|scripts|bench|models|docs|examples"
    pages = (root / "README.md", root / "SECURITY.md", *sorted((root / "docs").rglob("*.md")))
    named = {n for p in pages for n in re.findall(rf"`((?:{folders})/[\w./]+\.\w+)`", p.read_text("utf-8"))}
    missing = {n for n in named if not (root / n).exists()}
    assert not missing


def test_options_that_the_docs_name_exist(root):
    sys.path.append(str(root / "scripts"))
    import docs_hooks

    known = {o for c in commands() for o in re.findall(r"--[\w-]+", docs_hooks.options(c))} | {"--version", "--help"}
    for path in (root / "README.md", *sorted((root / "docs" / "guide").glob("*.md"))):
        for line in re.findall(r"`?onnxfuse (?:\w+) [^`\n]*", path.read_text("utf-8")):
            unknown = set(re.findall(r"--[a-z][\w-]+", line)) - known
            assert not unknown, f"{path.name}: {line}"


@pytest.mark.parametrize("page", ["index.md", "guide/optimize.md", "primitives.md", "guide/elsewhere.md"])
def test_tables_in_the_pages_are_filled_in(root, page):
    sys.path.append(str(root / "scripts"))
    import docs_hooks

    text = docs_hooks.on_page_markdown((root / "docs" / page).read_text("utf-8"))
    assert "<!--" not in text
    assert text.count("```") % 2 == 0


def test_links_between_pages_of_the_readme_exist(root):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (root / "README.md").read_text("utf-8")):
        assert (root / target).exists(), target
