"""One of the two models that `validate` compares: its session, and what messages call it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnxfuse.errors import ModelError, ProgramError
from onnxfuse.files import load_model
from onnxfuse.runtime import make_session, run
from onnxfuse.validate.inputs import free_dimensions, input_specs
from onnxfuse.validate.programs import check_programs

__all__ = ["ModelLike", "Subject", "flat"]

ModelLike = str | os.PathLike[str] | onnx.ModelProto


class Subject:
    """A model and its session on a provider.

    `proto` lacks the data of weights beside the model's file, `note` is what a reader should know of the session.
    """

    def __init__(self, model: ModelLike, role: str) -> None:
        self.source = model
        self.label = f"the {role} model" if isinstance(model, onnx.ModelProto) else os.fspath(model)
        self.proto = model if isinstance(model, onnx.ModelProto) else load_model(model).proto
        self.note = ""
        self.provider = ""

    def load(self, provider: str) -> None:
        """Makes the session.

        Raises:
            ProgramError: A fused node's program is invalid.
            ModelError: ONNX Runtime cannot load the model.
        """
        self.provider = provider
        try:
            check_programs(self.proto)
        except ProgramError as error:
            raise ProgramError(f"{self.label}: {error}") from error
        try:
            self.session = make_session(self.source, provider=provider)
        except ModelError as error:
            # ONNX Runtime's own fusions make some valid models unloadable: without them there is still a truth.
            try:
                self.session = make_session(self.source, provider=provider, optimize=False)
            except ModelError:
                raise error from None
            self.note = f"{self.label} loads only with ONNX Runtime's optimizations off ({error})"

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The outputs by name, as arrays. Raises ModelError where ONNX Runtime cannot run the model on these inputs."""
        try:
            values = run(self.session, feeds)
        except ModelError as error:
            raise ModelError(f"{self.label}: {error}{self._hint()}") from error
        return flat(dict(zip([o.name for o in self.session.get_outputs()], values, strict=True)))

    def whole(self) -> onnx.ModelProto:
        """The model with the data of all its weights."""
        return self.source if isinstance(self.source, onnx.ModelProto) else onnx.load(self.source)

    def _hint(self) -> str:
        free = free_dimensions(input_specs(self.proto))
        return f" (free dimensions, to set with --dim or dims: {', '.join(free)})" if free else ""


def flat(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same with sequences and maps taken apart, so that every value is an array."""
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            found |= flat({f"{name}[{i}]": inner for i, inner in enumerate(value)})
        elif isinstance(value, dict):
            found |= flat({f"{name}[{key!r}]": inner for key, inner in value.items()})
        else:
            found[name] = np.asarray(value)
    return found
