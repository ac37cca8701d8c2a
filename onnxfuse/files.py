"""Model files: reading them with their weights left where they are, and writing them whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError

from onnxfuse.damage import check_damage
from onnxfuse.errors import ModelError
from onnxfuse.external_data import check_external, external_range, external_tensors

__all__ = ["LoadedModel", "load_model", "save_model", "save_text"]

_CHUNK = 1 << 20
_MAX_PROTO_BYTES = (1 << 31) - (1 << 24)  # protobuf's limit, less room for what is not weights
_MIN_EXTERNAL_BYTES = 1024  # smaller tensors stay in the proto (shapes have to be known without the weights)


@dataclass(frozen=True)
class LoadedModel:
    """A model as its file has it: `base_dir` is the folder that the locations of its external data are relative to."""

    proto: onnx.ModelProto
    path: Path

    @property
    def base_dir(self) -> Path:
        """The model's folder."""
        return self.path.parent


def load_model(path: str | os.PathLike[str]) -> LoadedModel:
    """Reads a model, leaving external data where it is.

    Raises ModelError where there is no such file, it is no ONNX model or a damaged one, or external data is missing,
    too short or outside of the model's folder.
    """
    path = Path(path)
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder: name the .onnx file in it")
    if not path.exists():
        raise ModelError(f"there is no file '{path}'")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror}") from error
    loaded = LoadedModel(_parse(path, data), path)
    try:
        check_damage(loaded.proto)
    except ModelError as error:
        raise ModelError(f"'{path}': {error}") from error
    for tensor in external_tensors(loaded.proto):
        check_external(tensor, path)
    return loaded


def _parse(path: Path, data: bytes) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"'{path}' is empty")
    if data[4:8] == b"ORTM":
        raise ModelError(f"'{path}' is in ONNX Runtime's own format: give the ONNX model that it was made from")
    if data.startswith(b"version https://git-lfs"):
        raise ModelError(f"'{path}' is a Git LFS pointer, not the model itself: fetch it with `git lfs pull`")
    if len(data) >= 1 << 31:
        raise ModelError(f"'{path}' is larger than 2 GB, which no ONNX file can be: save it with external data")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"'{path}' is not an ONNX model, or it is damaged (truncated?)") from error
    if not model.ir_version or not model.HasField("graph") or not (model.graph.output or model.graph.node):
        raise ModelError(f"'{path}' is not an ONNX model, or it is damaged: it holds no graph")
    if not model.opset_import:
        raise ModelError(f"'{path}' is damaged (truncated?): it does not say which operator set it uses")
    return model


def save_model(
    model: onnx.ModelProto, path: str | os.PathLike[str], source_dir: str | os.PathLike[str] | None = None
) -> None:
    """Writes a model with its external data, whole or not at all.

    External data is copied from `source_dir`, under the same relative names, unless it is in the output's folder
    already; a file there that has such a name and another content is left alone, and the copy gets a name of its own.
    Weights go into external data where the model would exceed protobuf's 2 GB. `model` is not changed. A file that is
    there already, be it the one that the model was read from, is replaced by the new one, which gets its permissions.

    Raises:
        ModelError: the output's folder is missing, the output is a folder, the model's data or write-protected, or
            writing failed.
    """
    path = Path(path)
    _check_writable(path)
    transaction = _Transaction(path.parent)
    try:
        model = _place_external(model, path, Path(source_dir) if source_dir is not None else None, transaction)
        model = _externalize(model, path, transaction)
        with transaction.create(path) as file:
            file.write(model.SerializeToString())
        transaction.commit()
    except OSError as error:
        raise ModelError(f"'{path}' cannot be written: {error.strerror or error}") from error
    finally:
        transaction.clean_up()


def save_text(text: str, path: str | os.PathLike[str]) -> None:
    """Writes a text as UTF-8, whole or not at all. Raises ModelError saying what is in the way."""
    path = Path(path)
    _check_writable(path)
    transaction = _Transaction(path.parent)
    try:
        with transaction.create(path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
        transaction.commit()
    except OSError as error:
        raise ModelError(f"'{path}' cannot be written: {error.strerror or error}") from error
    finally:
        transaction.clean_up()


def _check_writable(path: Path) -> None:
    if not path.parent.is_dir():
        raise ModelError(f"the folder '{path.parent}' does not exist: create it first, or choose another output")
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder: give the output a file name")
    if path.exists() and not path.is_file():  # a pipe or a device, which the new file would replace
        raise ModelError(f"'{path}' is no regular file: choose another output")
    if path.exists() and not os.access(path, os.W_OK):  # which replacing it would not notice
        raise ModelError(f"'{path}' is write-protected: choose another output, or allow writing it")


def _place_external(
    model: onnx.ModelProto, path: Path, source_dir: Path | None, transaction: _Transaction
) -> onnx.ModelProto:
    """Copies the external data into the output's folder; returns the model that goes with it."""
    locations = sorted({external_range(tensor).location for tensor in external_tensors(model)})
    if not locations:
        return model
    if source_dir is None:
        raise ModelError(f"the model's data is in another file, '{locations[0]}': give the model as a path")
    for location in locations:
        source = source_dir / location
        if not source.is_file():
            raise ModelError(f"the external data '{location}' is missing from the folder '{source_dir}'")
        if path.exists() and path.samefile(source):
            raise ModelError(f"'{path}' holds the model's data: choose another output")
    if source_dir.is_dir() and source_dir.samefile(path.parent):
        return model
    renamed: dict[str, str] = {}
    for location in locations:
        source, target = source_dir / location, path.parent / location
        for name in _candidates(location):
            target = path.parent / name
            # Another file of this model may be about to get the name.
            if target == path or name in renamed.values() or (name != location and name in locations):
                continue
            if target.exists() and not _same_content(source, target):
                continue
            renamed[location] = name
            break
        if not target.exists():
            with source.open("rb") as old, transaction.create(target) as new:
                while chunk := old.read(_CHUNK):
                    new.write(chunk)
    if all(old == new for old, new in renamed.items()):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in external_tensors(copy):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = renamed[entry.value]
    return copy


def _externalize(model: onnx.ModelProto, path: Path, transaction: _Transaction) -> onnx.ModelProto:
    """Moves the weights into a file of their own where they make the model too large for one proto."""
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) < _MAX_PROTO_BYTES:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    location = next(name for name in _candidates(path.name + ".data") if not (path.parent / name).exists())
    offset = 0
    with transaction.create(path.parent / location) as file:
        for tensor in copy.graph.initializer:
            if len(data := tensor.raw_data) >= _MIN_EXTERNAL_BYTES:
                file.write(b"\0" * (-offset % 4096))  # pages, so that the file can be mapped
                offset += -offset % 4096
                file.write(data)
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for key, value in (("location", location), ("offset", offset), ("length", len(data))):
                    tensor.external_data.add(key=key, value=str(value))
                offset += len(data)
    return copy


def _candidates(location: str) -> Iterator[str]:
    yield location
    name = PurePosixPath(location)
    for number in range(1, 10000):
        yield str(name.with_name(f"{name.stem}-{number}{name.suffix}"))
    raise ModelError(f"too many files named like '{location}' in the output's folder")


def _same_content(a: Path, b: Path) -> bool:
    if not b.is_file() or a.stat().st_size != b.stat().st_size:
        return False
    with a.open("rb") as first, b.open("rb") as second:
        while chunk := first.read(_CHUNK):
            if chunk != second.read(_CHUNK):
                return False
    return True


class _Transaction:
    """Files that appear together, the last created one last; nothing is left of them where `commit` is not reached."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: list[tuple[Path, Path]] = []  # temporary, final
        self._undo: list[Path] = []  # new files and folders
        self._committed = False

    @contextlib.contextmanager
    def create(self, final: Path) -> Iterator[BinaryIO]:
        missing = [folder for folder in final.parents if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            self._undo.append(folder)
        temporary = final.with_name(f".{final.name}.{uuid.uuid4().hex}.tmp")
        self._pending.append((temporary, final))
        with temporary.open("xb") as file:
            if final.exists():  # before anything is in it
                with contextlib.suppress(OSError):
                    temporary.chmod(stat.S_IMODE(final.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())

    def commit(self) -> None:
        for temporary, final in self._pending:
            new = not final.exists()
            temporary.replace(final)
            if new:
                self._undo.append(final)
        self._committed = True
        _sync_folders({final.parent for _, final in self._pending})

    def clean_up(self) -> None:
        if self._committed:
            return
        for temporary, _ in self._pending:
            temporary.unlink(missing_ok=True)
        for path in reversed(self._undo):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()


def _sync_folders(folders: Iterable[Path]) -> None:
    """Makes renames durable, where the system can."""
    for folder in folders:
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
