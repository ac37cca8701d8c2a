"""The report as a page: one HTML file that needs nothing besides itself."""

from __future__ import annotations

from onnxfuse.report_page.measured import Measurements, read_measurements
from onnxfuse.report_page.page import render

__all__ = ["Measurements", "read_measurements", "render"]
