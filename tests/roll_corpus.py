"""Programs with rolls for every schedule of the engines."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_corpus import Case, program, value_type

# Windows of 7 x 7 of an image that starts some rows and columns further and wraps around, less their means; the image
# that they come from; and a mean of each row, stored where a dimension is missing too.
WINDOWS = program(
    "d0 d1=2 d2=2 d3=7 d4=7 | d5 |",
    "r0 = roll 3 d1 d3",
    "r1 = roll 11 d2 d4",
    "%0 = input 0 {type} [d0, r0, r1, d5]",
    "%1 = reduce_mean f32 %0",
    "%2 = sub f32 %0 %1",
    "%3 = input 1 {type} [d0, 2*d1+d2, 7*d3+d4, d5]",
    "%4 = add f32 %2 %3",
    "%5 = input 2 f32 [r1]",
    "output 0 {type} [d0, 14*r0+r1:196, d5] %4",
    "output 1 {type} [d0, d1, d2, d3, d4, d5] %2",
    "output 2 f32 [d0, r0:14, r1:14, 0] %1",
    "output 3 f32 [r1:14, 0] %5",
)


def _rolled(type_: str, space: str, dims: str, *lines: str, roll: str = "d1", shift: int = 5) -> str:
    """Reads a tensor rolled, and stores the last line's value the other way."""
    stored = dims.replace("r0", "r1:12")
    return program(
        space,
        f"r0 = roll {shift} {roll}",
        f"r1 = roll {12 - shift} {roll}",
        f"%0 = input 0 {type_} [{dims}]",
        *lines,
        f"output 0 {type_} [{stored}] %{len(lines)}",
    )


def cases(type_: str) -> Iterator[Case]:
    """Each program once, with small tensors."""
    value = value_type(type_)
    double = f"%1 = add {value} %0 %0"
    mean = (f"%1 = reduce_max {value} %0", f"%2 = sub {value} %0 %1")
    yield Case(f"windows-{type_}", WINDOWS.replace("{type}", type_), ((3, 14, 14, 40), (3, 4, 49, 40), (14,)))
    yield Case(f"outer-{type_}", _rolled(type_, "d0 d1=12 d2", "d0, r0, d2", double), ((5, 12, 64),))
    yield Case(f"last-{type_}", _rolled(type_, "d0 d1=12", "d0, r0", double), ((70, 12),))
    yield Case(f"only-{type_}", _rolled(type_, "d0=12", "r0", double, roll="d0", shift=1), ((12,),))
    split = _rolled(type_, "d0 d1=3 d2 d3=4", "d0, r0, d2", double, roll="d1 d3")
    yield Case(f"split-{type_}", split, ((5, 12, 33),))
    turned = _rolled(type_, "d0 d1=3 d2=4", "r0, d0", double, roll="d2 d1")
    yield Case(f"turned-{type_}", turned, ((12, 33),))
    yield Case(f"row-{type_}", _rolled(type_, "d0 d1=12 | d2 |", "d0, r0, d2", *mean), ((9, 12, 1000),))
    column = _rolled(type_, "d0 d1=12 | d2 | d3", "d0, r0, d2, d3", *mean)
    yield Case(f"column-{type_}", column, ((3, 12, 50, 24),))
    inner = _rolled(type_, "d0 | d1 | d2=12", "d0, d1, r0", *mean, roll="d2")
    yield Case(f"inner-{type_}", inner, ((3, 100, 12),))
    scan = (f"%1 = scan_max {value} %0", f"%2 = sub {value} %0 %1")
    wide = _rolled(type_, "d0 d1=12 d2", "d0, r0, d2", double)
    yield Case(f"odd-{type_}", wide, ((3, 12, 1001),))
    yield Case(f"scan-{type_}", _rolled(type_, "d0 d1=12 | d2 |", "d0, r0, d2", *scan), ((9, 12, 5000),))
