"""The command line: `onnxfuse optimize | validate | restore | library`."""

from __future__ import annotations

from onnxfuse.cli.app import app, main

__all__ = ["app", "main"]
