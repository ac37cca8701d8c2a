"""What other tools do to an optimized model, as docs/other-tools.md says: each line of its table is a test here.

A tool that is not installed is skipped: `pip install "onnxfuse[other-tools]"` brings all but Olive.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path

import onnx
import pytest
from other_tools import LINES, SOUND, Line, source, state, transformers_optimizer

import onnxfuse


@pytest.fixture(scope="module")
def fused(tmp_path_factory) -> Path:
    result = onnxfuse.optimize(source(), target="cpu")
    assert [f.op_type for f in result.report.fusions].count("FusedElementwise") == 2
    path = tmp_path_factory.mktemp("fused") / "in.onnx"
    result.save(path)
    return path


def applied(line: Line, path: Path, folder: Path) -> onnx.ModelProto:
    """What the tool makes of the model, without what it prints."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return line.apply(path, folder)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("onnxfuse"):
            raise
        pytest.skip(f"{error.name} is not installed")
    finally:
        logging.disable(level)


def test_the_model_is_sound_before(fused):
    assert state(onnx.load(fused), 1e-5) == SOUND


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.tool)
def test_the_tool_does_what_the_table_says_and_a_second_run_mends_it(line, fused, tmp_path):
    made = applied(line, fused, tmp_path)
    assert state(made, line.tolerance) == line.after
    assert state(onnxfuse.optimize(made, target="cpu").model, line.tolerance) == SOUND


def test_the_transformers_optimizer_from_level_1_takes_the_fusion_apart_and_stumbles_over_it(fused, tmp_path):
    """It has ONNX Runtime inline the functions first; its own fusion then stops at what it meets."""
    pytest.importorskip("torch", reason="the transformers optimizer needs PyTorch from level 1 on")
    with pytest.raises(TypeError, match="not subscriptable"):
        applied(Line("", transformers_optimizer(1), SOUND), fused, tmp_path)


@pytest.mark.parametrize("keep_io_types", [False, True])
def test_programs_are_fitted_to_tensors_that_became_float16(keep_io_types, fused):
    from onnxruntime.transformers import float16

    made = float16.convert_float_to_float16(onnx.load(fused), keep_io_types=keep_io_types)
    mended = onnxfuse.optimize(made, target="cpu").model
    assert state(mended, 2e-2) == SOUND
    programs = [next(a.s for a in n.attribute if a.name == "program") for n in mended.graph.node if n.domain]
    assert len(programs) == 3
    assert all(b" f16 [" in p for p in programs)
    again = onnxfuse.optimize(mended, target="cpu").model
    assert again.SerializeToString(deterministic=True) == mended.SerializeToString(deterministic=True)


def test_the_table_in_the_docs_has_these_lines(root):
    text = (root / "docs" / "other-tools.md").read_text("utf-8")
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("| ")]
    assert rows[0] == ["tool", "fused nodes", "with the library", "without", "after a second run"]
    written = {tuple(cell.replace("**", "") for cell in row) for row in rows[1:]}
    assert written == {(line.tool, *line.after, "sound") for line in LINES}
