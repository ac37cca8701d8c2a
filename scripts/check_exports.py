"""Checks which symbols a built library shows to the process that loads it: RegisterCustomOps and nothing else.

    check_exports.py LIBRARY

Anything more (libstdc++, linked statically, above all) could meet the same symbol of another library and be replaced.
"""

from __future__ import annotations

import subprocess
import sys

EXPECTED = {"RegisterCustomOps"}


def exported(library: str) -> set[str]:
    """The names of the dynamic symbols that the library defines, without their versions."""
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", library]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in output.splitlines()]
    return {name.split("@")[0] for name, kind, *_ in symbols if kind != "A"}  # A: the version's own name


def main() -> int:
    found = exported(sys.argv[1])
    if found != EXPECTED:
        more, lacking = sorted(found - EXPECTED), sorted(EXPECTED - found)
        print(f"{sys.argv[1]}: exports too much: {more}, lacks: {lacking}", file=sys.stderr)
        return 1
    print(f"{sys.argv[1]} exports {', '.join(sorted(found))} only")
    return 0


if __name__ == "__main__":
    sys.exit(main())
