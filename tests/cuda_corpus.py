"""Programs that between them hold every primitive, every type and every schedule of the CUDA generator."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onnxfuse.custom_ops.parser import parse
from onnxfuse.custom_ops.primitives import PRIMITIVES

STORAGE = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")


@dataclass(frozen=True)
class Case:
    """A program and the shapes of its inputs."""

    name: str
    text: str
    shapes: tuple[tuple[int, ...], ...]
    alignment: int = 16
    actual: dict[str, str] = field(default_factory=dict)  # types that the session puts in place of declared ones

    def request(self, architectures: Sequence[int]) -> str:
        """The case as onnxfuse-nvcompile reads it."""
        program = parse(self.text)
        lines = [f"case {self.name} {','.join(map(str, architectures))}"]
        for (type_, _), shape in zip(program.inputs, self.shapes, strict=True):
            lines.append(" ".join(["input", self.actual.get(type_, type_), str(self.alignment), *map(str, shape)]))
        lines += [f"output {self.actual.get(type_, type_)} {self.alignment}" for type_, _ in program.outputs]
        return "\n".join(lines) + "\n" + self.text + "end\n"


def merge(texts: Sequence[str]) -> str:
    """One program with the kernels of all."""
    lines, inputs, outputs = ["onnxfuse 1"], 0, 0
    for text in texts:
        for line in text.splitlines()[1:]:
            moved = re.sub(r"(?<= = input )\d+", functools.partial(_add, inputs), line)
            lines.append(re.sub(r"(?<=^output )\d+", functools.partial(_add, outputs), moved))
        inputs += len(parse(text).inputs)
        outputs += len(parse(text).outputs)
    return "\n".join(lines) + "\n"


def _add(number: int, match: re.Match[str]) -> str:
    return str(number + int(match[0]))


def value_type(storage: str) -> str:
    return "f32" if storage in ("f16", "bf16") else storage


def program(space: str, *lines: str) -> str:
    return "\n".join(["onnxfuse 1", f"space {space}".rstrip(), *lines]) + "\n"


def primitive(name: str, type_: str) -> str:
    """The primitive over one dimension."""
    row = PRIMITIVES[name]
    types = ["bool", type_, type_] if name == "where" else [type_] * row.arity
    inputs = [f"%{i} = input {i} {t} [d0]" for i, t in enumerate(types)]
    operands = " ".join(f"%{i}" for i in range(row.arity))
    result = row.result_type(type_)
    return program("d0", *inputs, f"%{row.arity} = {name} {result} {operands}", f"output 0 {result} [d0] %{row.arity}")


def reduction(name: str, type_: str, space: str = "d0 | d1 |", dims: str = "d0, d1", out: str = "d0") -> str:
    value = value_type(type_)
    return program(
        space,
        f"%0 = input 0 {type_} [{dims}]",
        f"%1 = {name} {value} %0",
        f"output 0 {type_} [{out}] %1",
    )


def layer_norm(
    type_: str, length: str = "", space: str = "d0 | d1{} |", dims: str = "d0, d1", scale: str = "d1"
) -> str:
    """With scale and bias that vary along the reduced dimensions; `length` is "=N" or empty."""
    return program(
        space.format(length),
        f"%0 = input 0 {type_} [{dims}]",
        "%1 = reduce_mean f32 %0",
        "%2 = sub f32 %0 %1",
        "%3 = mul f32 %2 %2",
        "%4 = reduce_mean f32 %3",
        "%5 = const f32 1e-05",
        "%6 = add f32 %4 %5",
        "%7 = sqrt f32 %6",
        "%8 = div f32 %2 %7",
        f"%9 = input 1 {type_} [{scale}]",
        "%10 = mul f32 %8 %9",
        f"%11 = input 2 {type_} [{scale}]",
        "%12 = add f32 %10 %11",
        f"output 0 {type_} [{dims}] %12",
    )


def softmax(type_: str, length: str = "", space: str = "d0 | d1{} |", dims: str = "d0, d1") -> str:
    value = value_type(type_)
    return program(
        space.format(length),
        f"%0 = input 0 {type_} [{dims}]",
        f"%1 = reduce_max {value} %0",
        f"%2 = sub {value} %0 %1",
        f"%3 = exp {value} %2",
        f"%4 = reduce_sum {value} %3",
        f"%5 = div {value} %3 %4",
        f"output 0 {type_} [{dims}] %5",
    )


def mean_variance(type_: str, length: str = "") -> str:
    return program(
        f"d0 | d1{length} |",
        f"%0 = input 0 {type_} [d0, d1]",
        "%1 = reduce_mean f32 %0",
        "%2 = sub f32 %0 %1",
        "%3 = mul f32 %2 %2",
        "%4 = reduce_mean f32 %3",
        f"output 0 {type_} [d0, 0] %1",
        f"output 1 {type_} [d0, 0] %4",
    )


def scaled_deviation(type_: str) -> str:
    """A quotient, divided by the same value over a vector, that later passes read again; two outputs."""
    value = value_type(type_)
    return program(
        "d0 | d1 |",
        f"%0 = input 0 {type_} [d0, d1]",
        f"%1 = const {value} 3.0",
        f"%2 = div {value} %0 %1",
        f"%3 = reduce_mean {value} %2",
        f"%4 = sub {value} %2 %3",
        f"%5 = reduce_max {value} %4",
        f"%6 = div {value} %4 %5",
        f"output 0 {type_} [d0, d1] %6",
        f"output 1 {type_} [d0, d1] %2",
    )


def skip_rms_norm(type_: str) -> str:
    return program(
        "d0 | d1 |",
        f"%0 = input 0 {type_} [d0, d1]",
        f"%1 = input 1 {type_} [d0, d1]",
        "%2 = add f32 %0 %1",
        "%3 = mul f32 %2 %2",
        "%4 = reduce_mean f32 %3",
        "%5 = const f32 1e-05",
        "%6 = add f32 %4 %5",
        "%7 = sqrt f32 %6",
        "%8 = div f32 %2 %7",
        f"%9 = input 2 {type_} [d1]",
        "%10 = mul f32 %8 %9",
        f"output 0 {type_} [d0, d1] %2",
        f"output 1 {type_} [d0, d1] %10",
    )


def masked_softmax(type_: str) -> str:
    return program(
        "d0 d1 d2 | d3 |",
        f"%0 = input 0 {type_} [d0, d1, d2, d3]",
        "%1 = const f32 8.0",
        "%2 = div f32 %0 %1",
        f"%3 = input 1 {type_} [d0, 0, 0, d3]",
        "%4 = add f32 %2 %3",
        "%5 = reduce_max f32 %4",
        "%6 = sub f32 %4 %5",
        "%7 = exp f32 %6",
        "%8 = reduce_sum f32 %7",
        "%9 = div f32 %7 %8",
        f"output 0 {type_} [d0, d1, d2, d3] %9",
    )


def biased_softmax_rms(type_: str) -> str:
    """Three passes; what all rows share is read in the first of them, a value of each row in the last."""
    return program(
        "d0 | d1 |",
        f"%0 = input 0 {type_} [d0, d1]",
        f"%1 = input 1 {type_} [d1]",
        "%2 = add f32 %0 %1",
        "%3 = reduce_max f32 %2",
        "%4 = sub f32 %2 %3",
        "%5 = exp f32 %4",
        "%6 = reduce_sum f32 %5",
        "%7 = div f32 %5 %6",
        "%8 = mul f32 %7 %7",
        "%9 = reduce_mean f32 %8",
        "%10 = sqrt f32 %9",
        "%11 = div f32 %7 %10",
        f"%12 = input 2 {type_} [d0, 0]",
        "%13 = mul f32 %11 %12",
        f"output 0 {type_} [d0, d1] %13",
        f"output 1 {type_} [d0, 0] %3",
    )


def bias_gelu(type_: str) -> str:
    return program(
        "d0 d1",
        f"%0 = input 0 {type_} [d0, d1]",
        f"%1 = input 1 {type_} [d1]",
        "%2 = add f32 %0 %1",
        "%3 = const f32 1.4142135",
        "%4 = div f32 %2 %3",
        "%5 = erf f32 %4",
        "%6 = const f32 1.0",
        "%7 = add f32 %5 %6",
        "%8 = mul f32 %2 %7",
        "%9 = const f32 0.5",
        "%10 = mul f32 %8 %9",
        f"output 0 {type_} [d0, d1] %10",
    )


def hardswish(type_: str) -> str:
    return program(
        "d0 d1 d2",
        f"%0 = input 0 {type_} [d0, d1, d2]",
        f"%1 = input 1 {type_} [d1, 0]",
        "%2 = mul f32 %0 %1",
        f"%3 = input 2 {type_} [d1, 0]",
        "%4 = add f32 %2 %3",
        "%5 = const f32 3.0",
        "%6 = add f32 %4 %5",
        "%7 = const f32 0.0",
        "%8 = max f32 %6 %7",
        "%9 = const f32 6.0",
        "%10 = min f32 %8 %9",
        "%11 = mul f32 %4 %10",
        "%12 = div f32 %11 %9",
        f"output 0 {type_} [d0, d1, d2] %12",
    )


def chain(type_: str, length: int) -> str:
    """length / 3 times add, relu, mul with constants."""
    lines = [f"%0 = input 0 {type_} [d0]"]
    value = 0
    for k in range(length // 3):
        lines += [
            f"%{value + 1} = const f32 {0.125 * (k + 1)}",
            f"%{value + 2} = add f32 %{value} %{value + 1}",
            f"%{value + 3} = relu f32 %{value + 2}",
            f"%{value + 4} = const f32 0.875",
            f"%{value + 5} = mul f32 %{value + 3} %{value + 4}",
        ]
        value += 5
    return program("d0", *lines, f"output 0 {type_} [d0] %{value}")


MIXED = program(
    "d0 d1",
    "%0 = input 0 f16 [d0, d1]",
    "%1 = input 1 bool [d0, d1]",
    "%2 = input 2 f32 [d1]",
    "%3 = input 3 i64 [d0, 0]",
    "%4 = cast f32 %3",
    "%5 = add f32 %0 %2",
    "%6 = where f32 %1 %5 %4",
    "%7 = round_f16 f32 %6",
    "%8 = cast f64 %7",
    "output 0 f16 [d0, d1] %6",
    "output 1 f64 [d0, d1] %8",
    "output 2 bool [d0, d1] %1",
)
QUANTIZED = program(  # from bytes to bytes
    "d0 d1",
    "%0 = input 0 u8 [d0, d1]",
    "%1 = cast f32 %0",
    "%2 = const f32 3.0",
    "%3 = sub f32 %1 %2",
    "%4 = const f32 0.05",
    "%5 = mul f32 %3 %4",
    "%6 = input 1 f16 [d1]",
    "%7 = add f32 %5 %6",
    "%8 = const f32 0.07",
    "%9 = div f32 %7 %8",
    "%10 = const f32 -128.0",
    "%11 = max f32 %9 %10",
    "%12 = const f32 127.0",
    "%13 = min f32 %11 %12",
    "%14 = round f32 %13",
    "%15 = cast i8 %14",
    "output 0 i8 [d0, d1] %15",
)
STRIDED = program(  # a slice with steps, a reversal, a transposition; a result that lacks a dimension
    "d0 d1=6",
    "%0 = input 0 f32 [d0, 2*d1+3]",
    "%1 = input 1 f32 [-1*d1+5, d0]",
    "%2 = add f32 %0 %1",
    "%3 = input 2 f32 [d0]",
    "%4 = exp f32 %3",
    "output 0 f32 [d0, d1] %2",
    "output 1 f32 [d1, d0] %2",
    "output 2 f32 [d0, 0] %4",
)
GROUP_NORM = program(  # the scale varies inside of the reduced block
    "d0 d1 | d2 d3 |",
    "%0 = input 0 f32 [d0, 4*d1+d2, d3]",
    "%1 = reduce_mean f32 %0",
    "%2 = sub f32 %0 %1",
    "%3 = mul f32 %2 %2",
    "%4 = reduce_mean f32 %3",
    "%5 = const f32 1e-05",
    "%6 = add f32 %4 %5",
    "%7 = sqrt f32 %6",
    "%8 = div f32 %2 %7",
    "%9 = input 1 f32 [4*d1+d2, 0]",
    "%10 = mul f32 %8 %9",
    "output 0 f32 [d0, 4*d1+d2:32, d3] %10",
).replace("d0 d1 | d2 d3 |", "d0 d1=8 | d2=4 d3 |")
SCALAR = program("", "%0 = input 0 f64 []", "%1 = neg f64 %0", "output 0 f64 [] %1")
TWO_KERNELS = chain("f32", 3) + softmax("f32").removeprefix("onnxfuse 1\n").replace("input 0", "input 1").replace(
    "output 0", "output 1"
)
CHANNELS_FIRST = {"space": "d0 | d1{} | d2", "dims": "d0, d1, d2"}


def primitives() -> Iterator[Case]:
    for name, row in PRIMITIVES.items():
        if row.kind != "element":
            continue
        for type_ in row.types:
            arity = row.arity
            yield Case(f"{name}-{type_}", primitive(name, type_), ((1000,),) * arity)


def reductions() -> Iterator[Case]:
    for name, row in PRIMITIVES.items():
        if row.kind != "reduction":
            continue
        types = [*row.types, "f16", "bf16"] if "f32" in row.types else list(row.types)
        for type_ in types:
            every = type_ in ("f32", "f16", "i32")
            for n in (64, 1024, 100000) if every else (1024,):
                yield Case(f"{name}-{type_}-row-{n}", reduction(name, type_), ((512, n),))
            yield Case(f"{name}-{type_}-full", reduction(name, type_, "| d0 |", "d0", ""), ((1 << 24,),))
            column = reduction(name, type_, "d0 | d1 | d2", "d0, d1, d2", "d0, d2")
            for n in (3, 256, 100000) if every else (256,):
                yield Case(f"{name}-{type_}-column-{n}", column, ((4, n, 64),))


def schedules() -> Iterator[Case]:
    """Every shape of every schedule."""
    for type_ in ("f32", "f16", "bf16"):
        for length in ("", "fixed"):
            for n in (1, 7, 30, 64, 100, 256, 768, 1000, 1023, 1024, 4096, 8192, 16384, 32768, 131072):
                text = f"={n}" if length else ""
                yield Case(f"layer_norm-{type_}-{n}{length}", layer_norm(type_, text), ((4096, n), (n,), (n,)))
                yield Case(f"softmax-{type_}-{n}{length}", softmax(type_, text), ((4096, n),))
        for n in (20000, 65536, 131072):
            yield Case(f"skip_rms_norm-{type_}-{n}", skip_rms_norm(type_), ((512, n), (512, n), (n,)))
            yield Case(f"biased_softmax-{type_}-{n}", biased_softmax_rms(type_), ((512, n), (n,), (512, 1)))
            yield Case(f"mean_variance-{type_}-{n}", mean_variance(type_), ((512, n),))
            yield Case(f"masked_softmax-{type_}-{n}", masked_softmax(type_), ((8, 8, 8, n), (8, 1, 1, n)))
        for n in (1024, 65536, 1 << 20):
            yield Case(f"softmax-{type_}-one-{n}", softmax(type_), ((1, n),))
            yield Case(f"mean_variance-{type_}-few-{n}", mean_variance(type_), ((8, n),))
        for n, inner in ((3, 49), (64, 64), (256, 3136), (256, 3135), (1024, 196), (5000, 64)):
            text = layer_norm(type_, "", CHANNELS_FIRST["space"], CHANNELS_FIRST["dims"], "d1, 0")
            yield Case(f"channels_first-{type_}-{n}-{inner}", text, ((64, n, inner), (n, 1), (n, 1)))
            text = softmax(type_, "", CHANNELS_FIRST["space"], CHANNELS_FIRST["dims"])
            yield Case(f"softmax_column-{type_}-{n}-{inner}", text, ((64, n, inner),))
        yield Case(f"mean_variance-{type_}", mean_variance(type_), ((8192, 8192),))
        yield Case(f"scaled_deviation-{type_}", scaled_deviation(type_), ((4096, 1024),))
        yield Case(f"skip_rms_norm-{type_}", skip_rms_norm(type_), ((8192, 4096), (8192, 4096), (4096,)))
        yield Case(f"masked_softmax-{type_}", masked_softmax(type_), ((16, 16, 512, 512), (16, 1, 1, 512)))
        for c in (4096, 4095):
            yield Case(f"bias_gelu-{type_}-{c}", bias_gelu(type_), ((16384, c), (c,)))
        for s in (3136, 49):
            yield Case(f"hardswish-{type_}-{s}", hardswish(type_), ((64, 256, s), (256, 1), (256, 1)))
        for length in (3, 12, 120):
            yield Case(f"chain-{type_}-{length}", chain(type_, length), ((1 << 20,),))
        yield Case(f"chain-{type_}-unaligned", chain(type_, 12), ((1001,),), 2)
        yield Case(f"softmax-{type_}-unaligned", softmax(type_), ((4096, 4096),), 4)
    yield Case("chain-f32-wide", chain("f32", 3), ((3 << 30,),))
    yield Case("bias_gelu-f32-wide", bias_gelu("f32"), ((1 << 20, 3000), (3000,)))
    yield Case("softmax-f64", softmax("f64"), ((4096, 1024),))
    yield Case("softmax-f32-wide", softmax("f32"), ((1 << 21, 1536),))
    yield Case("layer_norm-f32-for-f16", layer_norm("f16"), ((64, 768), (768,), (768,)), actual={"f16": "f32"})
    yield Case("mixed", MIXED, ((33, 64), (33, 64), (64,), (33, 1)))
    yield Case("mixed-odd", MIXED, ((33, 63), (33, 63), (63,), (33, 1)))
    yield Case("quantized", QUANTIZED, ((64, 4096), (4096,)))
    yield Case("quantized-odd", QUANTIZED, ((33, 63), (63,)))
    yield Case("strided", STRIDED, ((40, 20), (6, 40), (40,)))
    yield Case("group_norm", GROUP_NORM, ((16, 32, 196), (32, 1)))
    yield Case("group_norm-long", GROUP_NORM, ((2, 32, 50176), (32, 1)))
    yield Case("scalar", SCALAR, ((),))
    yield Case("two_kernels", TWO_KERNELS, ((1000,), (64, 128)))


def groups() -> Iterator[Case]:
    """Kernels that share a launch: equal ones, all kinds of schedules, and what cannot share."""
    parts = {
        "same": [(chain("f32", 3), ((n,),)) for n in (4096, 1024, 1000, 77777)],
        "mixed": [
            (softmax("f32"), ((64, 128),)),
            (chain("f32", 12), ((5003,),)),
            (softmax("f32"), ((9, 128),)),
            (layer_norm("f16"), ((128, 768), (768,), (768,))),
            (softmax("f32", "", CHANNELS_FIRST["space"], CHANNELS_FIRST["dims"]), ((4, 64, 64),)),
            (reduction("reduce_mean", "f32"), ((300, 1024),)),
            (bias_gelu("f16"), ((128, 768), (768,))),
        ],
        "columns": [
            (softmax(t, "", CHANNELS_FIRST["space"], CHANNELS_FIRST["dims"]), ((4, n, inner),))
            for t, n, inner in (("f32", 256, 196), ("f16", 256, 196), ("f32", 1024, 49), ("bf16", 64, 3136))
        ],
        "alone": [
            (softmax("f32"), ((5, 131072),)),
            (mean_variance("f32"), ((2, 1000000),)),
            (chain("f32", 3), ((8,),)),
        ],
    }
    for name, own in parts.items():
        yield Case(f"group-{name}", merge([text for text, _ in own]), tuple(s for _, shapes in own for s in shapes))


def small() -> Iterator[Case]:
    """One case of each schedule, for compiling on every architecture."""
    for type_ in ("f32", "f16", "bf16"):
        yield Case(f"layer_norm-{type_}-768", layer_norm(type_, "=768"), ((4096, 768), (768,), (768,)))
        yield Case(f"layer_norm-{type_}-131072", layer_norm(type_), ((512, 131072), (131072,), (131072,)))
        yield Case(f"softmax-{type_}-100", softmax(type_), ((4096, 100),))
        yield Case(f"softmax-{type_}-8192", softmax(type_), ((4096, 8192),))
        yield Case(f"softmax-{type_}-one", softmax(type_), ((1, 1 << 20),))
        text = layer_norm(type_, "", CHANNELS_FIRST["space"], CHANNELS_FIRST["dims"], "d1, 0")
        yield Case(f"channels_first-{type_}", text, ((64, 256, 3136), (256, 1), (256, 1)))
        yield Case(f"hardswish-{type_}", hardswish(type_), ((64, 256, 49), (256, 1), (256, 1)))
        yield Case(f"bias_gelu-{type_}", bias_gelu(type_), ((16384, 4096), (4096,)))
    yield Case("mixed", MIXED, ((33, 64), (33, 64), (64,), (33, 1)))
    yield Case("strided", STRIDED, ((40, 20), (6, 40), (40,)))
