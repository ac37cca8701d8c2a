"""The cache of compiled kernels: whatever happens to its folder, the right kernel is loaded, at worst compiled anew.

A driver and an NVRTC that only play them stand in: the driver refuses an image that is not whole, and both keep a log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cuda_corpus
import pytest
from cuda_tools import FakeCuda

CASES = [case for case in cuda_corpus.schedules() if case.alignment == 16][:6]
REQUEST = "".join(case.request((90,)) for case in CASES)
RAN = "".join(f"{case.name} ran\n" for case in CASES)
FULL = """
#include <errno.h>
#include <sys/types.h>
#include <sys/syscall.h>
#include <unistd.h>
static long left = 5000;
ssize_t write(int file, const void* data, size_t size) {
  if (file > 2) {
    if (left <= 0) { errno = ENOSPC; return -1; }
    if ((long)size > left) size = left;
    left -= size;
  }
  return syscall(SYS_write, file, data, size);
}
"""


class Machine:
    """Runs the tool on one cache folder and counts compilations."""

    def __init__(self, cuda: FakeCuda, home: Path) -> None:
        self.cuda, self.home = cuda, home
        self.cache = home / "cache"

    def run(self, **variables: object) -> int:
        """The number of kernels compiled; all cases must run, without a word."""
        log, loads = self.home / "compiled", self.home / "loaded"
        log.unlink(missing_ok=True)
        loads.unlink(missing_ok=True)
        given = {"ONNXFUSE_CACHE_DIR": self.cache, "FAKE_NVRTC_LOG": log, "FAKE_CUDA_LOG": loads, "HOME": self.home}
        assert self.cuda.run(REQUEST, **(given | variables)) == (RAN, "")
        assert sorted(set(loads.read_text().split())) == sorted(self.expected or set(loads.read_text().split()))
        return len(log.read_text().split()) if log.exists() else 0

    expected: frozenset[str] = frozenset()

    def fill(self, **variables: object) -> int:
        compiled = self.run(**variables)
        self.expected = frozenset((self.home / "loaded").read_text().split())
        assert compiled == len(self.expected) == len(self.files())
        return compiled

    def files(self) -> list[Path]:
        return sorted(p for p in self.cache.iterdir() if not p.name.startswith("."))


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"{options},mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def machine(fake_cuda: FakeCuda, tmp_path: Path) -> Machine:
    return Machine(fake_cuda, tmp_path)


def test_what_was_compiled_is_found_again(machine: Machine) -> None:
    """And where shapes are known, nothing else is compiled."""
    assert machine.fill() == len(CASES)
    assert machine.run() == 0
    assert (machine.cache.stat().st_mode & 0o777, machine.files()[0].stat().st_mode & 0o777) == (0o700, 0o600)


def test_another_compiler_has_entries_of_its_own(machine: Machine) -> None:
    compiled = machine.fill()
    assert machine.run(FAKE_NVRTC_MAJOR=12, FAKE_NVRTC_MINOR=8) == compiled
    assert machine.run() == 0


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _cut_to_header(file: Path) -> None:
    os.truncate(file, 20)


def _flip_image(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)


def _flip_header(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[90] ^= 1
    file.write_bytes(data)


def _append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"more")


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _other_entry(file: Path) -> None:
    other = next(p for p in file.parent.iterdir() if p != file and not p.name.startswith("."))
    shutil.copy(other, file)


def _forge(file: Path) -> None:
    """An image with a good checksum that is no image: only the driver can tell."""
    import hashlib

    lines = file.read_bytes().split(b"\n", 4)
    head, image = b"\n".join(lines[:3]) + b"\n", b"FAKE 0\nnonsense" * 100
    sums = hashlib.sha256(head).hexdigest() + hashlib.sha256(image).hexdigest()
    file.write_bytes(head + hashlib.sha256(sums.encode()).hexdigest().encode() + b"\n" + image)


def _link(file: Path) -> None:
    moved = file.parent.parent / file.name
    file.rename(moved)
    file.symlink_to(moved)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _writable(file: Path) -> None:
    file.chmod(0o666)


DAMAGES = [
    _truncate,
    _cut_to_header,
    _flip_image,
    _flip_header,
    _append,
    _empty,
    _other_entry,
    _forge,
    _link,
    _pipe,
    _writable,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__.strip("_"))
def test_a_damaged_entry_is_made_anew(machine: Machine, damage: Callable[[Path], None]) -> None:
    machine.fill()
    damage(machine.files()[0])
    assert machine.run() == 1
    assert machine.run() == 0


def test_a_folder_in_place_of_an_entry(machine: Machine) -> None:
    """It cannot be replaced, so that each process compiles."""
    machine.fill()
    _folder(machine.files()[0])
    assert machine.run() == machine.run() == 1


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(machine: Machine, mode: int) -> None:
    compiled = machine.fill()
    machine.cache.chmod(mode)
    assert machine.run() == compiled


def test_a_folder_of_another_user_is_not_used(machine: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give the folder away")
    compiled = machine.fill()
    os.chown(machine.cache, 12345, 12345)
    assert machine.run() == compiled
    os.chown(machine.cache, 0, 0)
    os.chown(machine.files()[0], 12345, 12345)
    assert machine.run() == 1


def test_a_read_only_folder_still_serves(machine: Machine) -> None:
    if os.geteuid() != 0:
        machine.fill()
        machine.files()[0].unlink()
        machine.cache.chmod(0o500)
        assert machine.run() == machine.run() == 1
        machine.cache.chmod(0o700)
        return
    with mounted(machine.cache, "size=4m"):  # modes do not stop root
        machine.fill()
        machine.files()[0].unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(machine.cache)], check=True)
        assert machine.run() == machine.run() == 1


@pytest.mark.parametrize("place", ["/proc/onnxfuse", "/dev/null/cache", "relative/cache", ""])
def test_a_folder_that_cannot_be_made(machine: Machine, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.home)
    assert machine.run(ONNXFUSE_CACHE_DIR=place) > 0
    assert machine.run(ONNXFUSE_CACHE_DIR=place, HOME=None, XDG_CACHE_HOME=None) >= 0


def test_a_file_in_place_of_the_folder(machine: Machine) -> None:
    machine.cache.write_text("")
    assert machine.run() == machine.run() > 0
    assert machine.cache.read_text() == ""


def test_a_full_disk(machine: Machine) -> None:
    """Writing stops in the middle of the first entry: it does not appear, and nothing is left of it."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc")
    source, library = machine.home / "full.c", machine.home / "full.so"
    source.write_text(FULL)
    subprocess.run([gcc, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert machine.run(LD_PRELOAD=library) > 0
    assert list(machine.cache.iterdir()) == []
    machine.fill()


def test_a_file_system_that_is_full(machine: Machine) -> None:
    """The same with a real one, where it can be mounted."""
    with mounted(machine.cache, "size=64k"):
        compiled = machine.run()
        kept = machine.files()
        assert 0 < len(kept) < compiled
        assert len(list(machine.cache.iterdir())) == len(kept)
        assert machine.run() == compiled - len(kept)


def test_two_processes_at_once(machine: Machine) -> None:
    compiled = machine.fill()
    shutil.rmtree(machine.cache)
    variables = {"ONNXFUSE_CACHE_DIR": machine.cache, "HOME": machine.home}
    processes = [machine.cuda.start(REQUEST, **variables) for _ in range(6)]
    assert [p.communicate(timeout=120) for p in processes] == [(RAN, "")] * 6
    assert len(list(machine.cache.iterdir())) == compiled
    assert machine.run() == 0


def test_killed_in_the_middle_of_a_write(machine: Machine) -> None:
    """Many processes, killed at any time: what they leave behind is whole, or is not used, and goes in the end."""
    compiled = machine.fill(FAKE_NVRTC_SIZE=3_000_000)
    shutil.rmtree(machine.cache)
    variables = {"ONNXFUSE_CACHE_DIR": machine.cache, "HOME": machine.home, "FAKE_NVRTC_SIZE": 3_000_000}
    for k in range(40):
        process = machine.cuda.start(REQUEST, **variables)
        time.sleep(0.004 + 0.002 * (k % 20))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert machine.run(FAKE_NVRTC_SIZE=3_000_000) <= compiled
    assert len(machine.files()) == compiled
    for draft in machine.cache.glob(".draft-*"):
        os.utime(draft, (0, 0))
    machine.files()[0].unlink()
    assert machine.run(FAKE_NVRTC_SIZE=3_000_000) == 1
    assert [p.name for p in machine.cache.iterdir() if p.name.startswith(".")] == []
    assert machine.run(FAKE_NVRTC_SIZE=3_000_000) == 0
