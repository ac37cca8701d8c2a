"""Programs with scans and arguments, over every schedule that the CUDA generator has for them."""

from __future__ import annotations

from collections.abc import Iterator

from cuda_corpus import Case, program, value_type

ROWS = ("d0 | d1 |", "d0, d1")
COLUMNS = ("d0 | d1 | d2", "d0, d1, d2")
FLAGS = ("", " exclusive", " reverse", " exclusive reverse")
SCANS = ("scan_sum", "scan_prod", "scan_max", "scan_min")
ARGUMENTS = ("reduce_argmax", "reduce_argmax last", "reduce_argmin", "reduce_argmin last")
TYPES = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def scan(type_: str, op: str = "scan_sum", flags: str = "", layout: tuple[str, str] = ROWS) -> str:
    space, dims = layout
    return program(
        space,
        f"%0 = input 0 {type_} [{dims}]",
        f"%1 = {op}{flags} {value_type(type_)} %0",
        f"output 0 {type_} [{dims}] %1",
    )


def scan_scale_bias(type_: str, length: str = "", layout: tuple[str, str] = ROWS) -> str:
    space, dims = layout
    return program(
        space.replace("d1", f"d1{length}"),
        f"%0 = input 0 {type_} [{dims}]",
        "%1 = scan_sum f32 %0",
        "%2 = const f32 0.01",
        "%3 = mul f32 %1 %2",
        "%4 = const f32 0.5",
        "%5 = add f32 %3 %4",
        f"output 0 {type_} [{dims}] %5",
    )


def softmax_scan(type_: str, flags: str = "", layout: tuple[str, str] = ROWS) -> str:
    """Reductions, then a scan of what follows from them, as in nucleus sampling."""
    space, dims = layout
    return program(
        space,
        f"%0 = input 0 {type_} [{dims}]",
        "%1 = reduce_max f32 %0",
        "%2 = sub f32 %0 %1",
        "%3 = exp f32 %2",
        "%4 = reduce_sum f32 %3",
        "%5 = div f32 %3 %4",
        f"%6 = scan_sum{flags} f32 %5",
        f"output 0 {type_} [{dims}] %6",
    )


def both_ways(type_: str, layout: tuple[str, str] = ROWS) -> str:
    """Three scans, of an operand that is computed and of one that is read; one of them comes from the other end."""
    space, dims = layout
    value = value_type(type_)
    return program(
        space,
        f"%0 = input 0 {type_} [{dims}]",
        f"%1 = input 1 {type_} [{'d1' if layout == ROWS else 'd1, 0'}]",
        f"%2 = mul {value} %0 %1",
        f"%3 = scan_sum {value} %2",
        f"%4 = scan_max reverse {value} %0",
        f"%5 = sub {value} %3 %4",
        f"%6 = scan_min exclusive {value} %0",
        f"output 0 {type_} [{dims}] %5",
        f"output 1 {type_} [{dims}] %6",
    )


def scans_and_maximum(type_: str, layout: tuple[str, str] = ROWS) -> str:
    """Two scans, one of which meets the maximum of the row; all three are stored."""
    space, dims = layout
    value = value_type(type_)
    return program(
        space,
        f"%0 = input 0 {type_} [{dims}]",
        f"%1 = reduce_max {value} %0",
        f"%2 = scan_sum exclusive {value} %0",
        f"%3 = scan_max {value} %0",
        f"%4 = sub {value} %3 %1",
        f"output 0 {type_} [{dims}] %2",
        f"output 1 {type_} [{dims}] %4",
        f"output 2 {type_} [{dims.replace('d1', '0')}] %1",
    )


def argument(type_: str, op: str = "reduce_argmax", layout: tuple[str, str] = ROWS) -> str:
    """The index together with the maximum."""
    space, dims = layout
    name, _, flag = op.partition(" ")
    return program(
        space,
        f"%0 = input 0 {type_} [{dims}]",
        f"%1 = {name}{' ' * bool(flag)}{flag} i64 %0",
        f"%2 = reduce_max {value_type(type_)} %0",
        f"output 0 i64 [{dims.replace('d1', '0')}] %1",
        f"output 1 {type_} [{dims.replace('d1', '0')}] %2",
    )


TWO_DIMENSIONS = program(
    "d0 | d1 d2 |",
    "%0 = input 0 f32 [d1, d0, d2]",
    "%1 = scan_sum reverse f32 %0",
    "%2 = reduce_argmin last i64 %0",
    "output 0 f32 [d0, d2, d1] %1",
    "output 1 i64 [d0] %2",
)


def all_scans(type_: str, flags: str = "", layout: tuple[str, str] = ROWS) -> str:
    space, dims = layout
    lines = [f"%{k + 1} = {op}{flags} {value_type(type_)} %0" for k, op in enumerate(SCANS)]
    outputs = [f"output {k} {type_} [{dims}] %{k + 1}" for k in range(len(SCANS))]
    return program(space, f"%0 = input 0 {type_} [{dims}]", *lines, *outputs)


def two_scans(type_: str) -> str:
    """As many as a block that holds its columns in registers has room for in float32."""
    return program(
        COLUMNS[0],
        f"%0 = input 0 {type_} [{COLUMNS[1]}]",
        f"%1 = scan_sum {value_type(type_)} %0",
        f"%2 = scan_max {value_type(type_)} %0",
        f"%3 = add {value_type(type_)} %1 %2",
        f"output 0 {type_} [{COLUMNS[1]}] %3",
    )


def all_arguments(type_: str, layout: tuple[str, str] = ROWS) -> str:
    space, dims = layout
    lines = [f"%{k + 1} = {op.replace(' last', '')}{' last' * ('last' in op)} i64 %0" for k, op in enumerate(ARGUMENTS)]
    outputs = [f"output {k} i64 [{dims.replace('d1', '0')}] %{k + 1}" for k in range(len(ARGUMENTS))]
    return program(space, f"%0 = input 0 {type_} [{dims}]", *lines, *outputs)


def operations() -> Iterator[Case]:
    """Every scan and every argument of every type, in rows and in columns."""
    for type_ in TYPES:
        yield Case(f"scans-{type_}", all_scans(type_), ((512, 1024),))
        yield Case(f"scans-{type_}-long", all_scans(type_, " exclusive reverse"), ((2, 100000),))
        yield Case(f"scans-{type_}-column", all_scans(type_, " reverse", COLUMNS), ((4, 256, 64),))
        for op in ("scan_sum", "scan_prod"):
            yield Case(f"{op}-{type_}-whole_column", scan(type_, op, " exclusive", COLUMNS), ((64, 200, 3136),))
            yield Case(f"{op}-{type_}-tiles_of_columns", scan(type_, op, " exclusive", COLUMNS), ((1, 1 << 18, 256),))
        yield Case(f"arguments-{type_}", all_arguments(type_), ((512, 1024),))
        yield Case(f"argument-{type_}-few", argument(type_), ((1, 1 << 22),))
        yield Case(f"argument-{type_}-column", argument(type_, ARGUMENTS[1], COLUMNS), ((4, 256, 64),))


def schedules() -> Iterator[Case]:
    """Every shape of every schedule."""
    for type_ in ("f32", "f16"):
        for n in (7, 64, 1000, 1023, 4096, 16384):
            yield Case(f"scan-{type_}-{n}", scan_scale_bias(type_), ((4096, n),))
            yield Case(f"both_ways-{type_}-{n}", both_ways(type_), ((4096, n), (n,)))
        for n in (100, 4096, 16384, 131072):
            yield Case(f"softmax_scan-{type_}-{n}", softmax_scan(type_), ((4096, n),))
        for rows in (1, 500):
            yield Case(f"scan-{type_}-{rows}-long", scan(type_, "scan_sum", " reverse"), ((rows, 1 << 20),))
            yield Case(f"softmax_scan-{type_}-{rows}-long", softmax_scan(type_, " reverse"), ((rows, 1 << 18),))
            yield Case(f"both_ways-{type_}-{rows}-long", both_ways(type_), ((rows, 1 << 18), (1 << 18,)))
            yield Case(f"scans_and_maximum-{type_}-{rows}", scans_and_maximum(type_), ((rows, 100001),))
        for n, inner in ((3, 49), (256, 3136), (1024, 196), (100000, 8)):
            for images in (1, 64):
                name = f"{type_}-{images}-{n}-{inner}"
                text = scan(type_, "scan_sum", " exclusive reverse", COLUMNS)
                yield Case(f"scan_column-{name}", text, ((images, n, inner),))
                yield Case(f"softmax_scan_column-{name}", softmax_scan(type_, "", COLUMNS), ((images, n, inner),))
        for n in (15, 200, 1000):
            yield Case(f"whole_column-{type_}-{n}", scan_scale_bias(type_, "", COLUMNS), ((64, n, 3136),))
        yield Case(f"two_scans-{type_}-whole_column", two_scans(type_), ((64, 1000, 3136),))
        yield Case(f"two_scans-{type_}-tiles_of_columns", two_scans(type_), ((8, 40000, 256),))
        for inner in (6, 31, 33):
            text = scan_scale_bias(type_, "", COLUMNS)
            yield Case(f"tiles_of_columns-{type_}-{inner}", text, ((1, 1 << 20, inner),))
        yield Case(f"scans_and_maximum-{type_}-column", scans_and_maximum(type_, COLUMNS), ((64, 256, 49),))
        yield Case(f"both_ways-{type_}-column", both_ways(type_, COLUMNS), ((64, 256, 64), (256, 1)))
        yield Case(f"scan-{type_}-unaligned", scan(type_), ((4096, 4096),), 4)
        for n in (64, 16384, 131072):
            yield Case(f"argument-{type_}-{n}", argument(type_), ((512, n),))
        for n in (3, 5000, 100000):
            yield Case(f"argument-{type_}-column-{n}", argument(type_, ARGUMENTS[0], COLUMNS), ((4, n, 64),))
    yield Case("scan-f16-wide", scan("f16"), ((1, 3 << 30),))
    yield Case("argument-f16-wide", argument("f16"), ((1, 3 << 30),))
    yield Case("two_dimensions", TWO_DIMENSIONS, ((60, 5, 70),))


def small() -> Iterator[Case]:
    """One case of each schedule, for compiling on every architecture."""
    for type_ in ("f32", "f16"):
        yield Case(f"scan-{type_}-100", scan_scale_bias(type_), ((4096, 100),))
        yield Case(f"scan-{type_}-4096", scan_scale_bias(type_, "=4096"), ((4096, 4096),))
        yield Case(f"scan-{type_}-chunks", scan_scale_bias(type_), ((4096, 131072),))
        yield Case(f"scan-{type_}-look_back", scan_scale_bias(type_), ((1, 1 << 26),))
        yield Case(f"scan_column-{type_}", scan(type_, "scan_sum", "", COLUMNS), ((64, 256, 3136),))
        yield Case(f"scan_column-{type_}-tiles", scan_scale_bias(type_, "", COLUMNS), ((1, 16384, 4096),))
        yield Case(f"argument-{type_}-131072", argument(type_), ((512, 131072),))
    yield Case("softmax_scan-f16-32768", softmax_scan("f16"), ((4096, 32768),))
    yield Case("softmax_scan-f32-few", softmax_scan("f32"), ((8, 1 << 18),))
    yield Case("both_ways-f32", both_ways("f32"), ((8, 1 << 18), (1 << 18,)))
    yield Case("scan_column-f32-few", scan("f32", "scan_sum", " reverse", COLUMNS), ((1, 100000, 8),))
    yield Case("scan_prod-f32", scan("f32", "scan_prod"), ((1, 1 << 20),))
