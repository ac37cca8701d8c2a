"""Sections of a Markdown file that benchmarks write: what lies between `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

from pathlib import Path


def write_section(path: Path, name: str, text: str) -> None:
    """Puts the text between the section's two comments, which are added at the end of the file where they are missing.

    Args:
        path: of the Markdown file; it is created where there is none.
        name: of the section, as the comments say it.
        text: Markdown, without the comments.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if begin not in old:
        old = f"{old.rstrip()}\n\n{begin}\n{end}\n".lstrip()
    before, rest = old.split(begin, 1)
    after = rest.split(end, 1)[1]
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose columns, but for the first, are right-aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
