"""Checks cuda_ops/ort_abi.h against ONNX Runtime's official header.

    check_ort_abi.py PATH/onnxruntime_c_api.h

Every function's number and version in the table, the order of OrtCustomOp's callbacks, OrtApiBase, and the values of
all enumerators. Prints what it checked; exits with 1 where anything differs. The header comes with ONNX Runtime's
source and with the npm package com.github.asus4.onnxruntime (`npm pack com.github.asus4.onnxruntime@0.4.9`, under
Headers).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ABI = Path(__file__).parent.parent / "cuda_ops" / "ort_abi.h"


def without_comments(text: str) -> str:
    """C text with its comments blanked."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def struct_body(text: str, name: str) -> str:
    """What stands between the braces of `struct NAME { ... }`."""
    match = re.search(rf"struct {name} \{{(.*?)\n\}};", text, flags=re.DOTALL)
    if match is None:
        raise SystemExit(f"no struct {name} found")
    return match.group(1)


def members(body: str) -> list[str]:
    """The names of a struct's members, in order: functions declared in any of the header's ways, and plain fields."""
    ways = (
        r"ORT_API2_STATUS\(\s*(\w+)",
        r"ORT_API_T\([^,]+,\s*(\w+)",
        r"\(\s*(?:ORT_API_CALL)?\s*\*\s*(\w+)\s*\)\s*\(",
        r"(\w+)$",
    )
    names = []
    for declaration in (" ".join(d.split()) for d in body.split(";")):
        released = re.match(r"ORT_CLASS_RELEASE2?\(\s*(\w+)", declaration)
        if released:
            names.append("Release" + released.group(1))
        elif declaration:
            names.append(next(m.group(1) for m in (re.search(way, declaration) for way in ways) if m))
    return names


def enumerators(text: str, enum: str) -> dict[str, int]:
    """Names and values of an enum; a value that is not written is one more than the last."""
    match = re.search(rf"enum {enum} \{{(.*?)\}}", text, flags=re.DOTALL)
    if match is None:
        raise SystemExit(f"no enum {enum} found")
    values: dict[str, int] = {}
    following = 0
    for item in filter(None, (" ".join(i.split()) for i in match.group(1).split(","))):
        name, _, value = (part.strip() for part in item.partition("="))
        following = values[value] if value in values else int(value) if value else following
        values[name] = following
        following += 1
    return values


def since_versions(body: str) -> dict[str, int]:
    """The minor version in which each function of the table came, where its documentation says so."""
    found = {}
    for comment, name in re.findall(
        r"/\*\*((?:(?!\*/).)*?)\*/\s*(?:ORT_API2_STATUS\(|ORT_API_T\([^,]+,)\s*(\w+)", body, flags=re.DOTALL
    ):
        version = re.search(r"\\since Version 1\.(\d+)", comment)
        if version:
            found[name] = int(version.group(1))
    return found


def compare(what: str, ours: object, theirs: object) -> int:
    """Prints one comparison; 1 where it failed."""
    if ours == theirs:
        print(f"ok    {what} = {ours}")
        return 0
    print(f"WRONG {what}: {ours} in {ABI.name}, {theirs} in the header")
    return 1


def constant_of(text: str, name: str) -> int:
    """The value that a constant of our header is given."""
    found = re.search(rf"{name} = (\d+)", text)
    if found is None:
        raise SystemExit(f"the library's header names no {name}")
    return int(found[1])


def check(header_text: str) -> int:
    """The number of differences."""
    header, ours = without_comments(header_text), without_comments(ABI.read_text(encoding="utf-8"))
    functions = {name: i for i, name in enumerate(members(struct_body(header, "OrtApi")))}
    since = since_versions(struct_body(header_text, "OrtApi"))
    wrong, checked = 0, 0
    for table, constant in (
        ("ONNXFUSE_ORT_SLOTS", "kOrtApiVersion"),
        ("ONNXFUSE_NEWER_ORT_SLOTS", "kNewerOrtApiVersion"),
    ):
        version = constant_of(ours, constant)
        slots = re.findall(r"X\((\d+), (\w+),", ours.split(f"#define {table}(X)")[1].split("#define")[0])
        for slot, name in slots:
            wrong += compare(f"slot of {name}", int(slot), functions.get(name))
            if since.get(name, 0) > version:
                print(f"WRONG {name}: came with version 1.{since[name]}, {version} is asked for")
                wrong += 1
        newer = min(functions[name] for name, minor in since.items() if minor > version and name in functions)
        wrong += compare(f"functions in version {version}", constant_of(ours, f"kOrtApi{version}Slots"), newer)
        checked += len(slots)
    for struct in ("OrtApiBase", "OrtCustomOp"):
        wrong += compare(
            f"members of {struct}", members(struct_body(ours, struct)), members(struct_body(header, struct))
        )
    constants = 0
    for enum in re.findall(r"^enum (\w+) \{", ours, flags=re.MULTILINE):
        theirs = enumerators(header, enum)
        for name, value in enumerators(ours, enum).items():
            wrong += compare(name, value, theirs.get(name))
            constants += 1
    print(f"{checked} functions, 2 structs, {constants} constants checked; {wrong} wrong")
    return wrong


def read_header(path: Path) -> str:
    """The header's text, preceded by that of the headers beside it that it includes (the error codes, lately)."""
    text = path.read_text(encoding="utf-8")
    beside = [path.with_name(name) for name in re.findall(r'^#include "(\w+\.h)"', text, flags=re.MULTILINE)]
    return "".join(p.read_text(encoding="utf-8") for p in beside if p.is_file()) + text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    raise SystemExit(1 if check(read_header(Path(sys.argv[1]))) else 0)
