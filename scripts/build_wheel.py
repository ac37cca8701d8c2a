"""Builds the wheel and the sdist that can be published, into dist/.

    build_wheel.py [--glibc 2.28]

The compiler is Clang from PyPI's ziglang, which brings the symbols of an old glibc with it, so that the library runs on
distributions older than the one that it is built on. The wheel is made from the sdist, and auditwheel, which names it
after the glibc that it needs, checks that it needs no other library. Run it with the Python of an environment that has
the extra `wheel` (`make wheel` does all of it, and checks the result).
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheel"


def compiler(folder: Path, target: str) -> Path:
    """A compiler command as CMake wants it: one executable file."""
    script = folder / "c++"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang c++ -target {target} "$@"\n')
    script.chmod(0o755)
    return script


def build(kind: str, source: Path, folder: Path, env: dict[str, str]) -> Path:
    """The one file that `python -m build` makes of the kind."""
    subprocess.run([sys.executable, "-m", "build", f"--{kind}", "--outdir", folder, source], check=True, env=env)
    (made,) = (p for p in folder.iterdir() if p.suffix == (".whl" if kind == "wheel" else ".gz"))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glibc", default="2.28", help="the oldest glibc that the library must run with")
    glibc = parser.parse_args().glibc
    machine = platform.machine()
    for folder in (WORK, DIST):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    # CMake, Ninja and strip are looked for on the PATH; the environment's own come first.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path, "CXX": str(compiler(WORK, f"{machine}-linux-gnu.{glibc}"))}
    sdist = build("sdist", ROOT, DIST, env)
    wheel = build("wheel", sdist, WORK, env)
    platform_tag = f"manylinux_{glibc.replace('.', '_')}_{machine}"
    repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", platform_tag, "--only-plat", "-w", DIST, wheel]
    subprocess.run(repair, check=True, env=env)
    for file in sorted(DIST.iterdir()):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
