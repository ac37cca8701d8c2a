"""Where the custom-op library is, and where it will find NVRTC."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from onnxfuse.errors import OnnxfuseError

__all__ = ["find_nvrtc", "library_path"]

_LIBRARY = Path(__file__).with_name("libonnxfuse.so")
_NVRTC_VARIABLE = "ONNXFUSE_NVRTC"
# Packages of NVIDIA's wheels that hold libnvrtc: for CUDA 13, then for CUDA 12. The driver runs what a newer compiler
# of the same major version made, so the library decides which of them it can use.
_NVRTC_PACKAGES = ("nvidia.cu13", "nvidia.cuda_nvrtc")


def library_path() -> Path:
    """The custom-op library, for `SessionOptions.register_custom_ops_library`.

    Where an NVIDIA wheel with NVRTC is installed and the environment variable ONNXFUSE_NVRTC is not set, it is set to
    that wheel's file, so that the library finds it.

    Raises:
        OnnxfuseError: this installation has no library; the message says how to get it.
    """
    if not _LIBRARY.is_file():
        raise OnnxfuseError(
            f"the custom-op library is not built ({_LIBRARY} is missing): install onnxfuse with pip, or in a source "
            "tree run: cmake -S . -B build && cmake --build build"
        )
    if _NVRTC_VARIABLE not in os.environ:
        nvrtc = find_nvrtc()
        if nvrtc is not None:
            os.environ[_NVRTC_VARIABLE] = str(nvrtc)
    return _LIBRARY


def find_nvrtc() -> Path | None:
    """NVRTC's shared library in an installed NVIDIA wheel, found without loading anything; None where there is none."""
    for package in _NVRTC_PACKAGES:
        for folder in _package_folders(package):
            # libnvrtc.so.13, not libnvrtc-builtins.so.13.1 nor libnvrtc.alt.so.13
            files = sorted(folder.glob("lib/libnvrtc.so.*"))
            if files:
                return files[-1]
    return None


def _package_folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
