"""Programs that differ in constants and in extents alone, as the layers of a convolutional network do."""

from __future__ import annotations

from cuda_corpus import Case, program

# What a launch brings along: any f32 but those that are exact in an instruction of their own. In float16 and float64
# alike nothing overflows with them.
CONSTANTS = ((1.3841065, 0.58607715), (2.1722298, -0.27856213), (-0.1675188, 3.470043e-05), (-7.3e-6, 1234.5))
CHANNELS = (16, 60, 240)


def scaled_hardswish(type_: str, scale: float, shift: float, channels: int, name: str = "") -> Case:
    """A bias of each channel, a scale, a HardSwish and a shift, over maps of 24 by 40."""
    text = program(
        f"d0 d1={channels} d2 d3",
        f"%0 = input 0 {type_} [d0, d1, d2, d3]",
        f"%1 = input 1 {type_} [d1, 0, 0]",
        "%2 = add f32 %0 %1",
        f"%3 = const f32 {scale!r}",
        "%4 = mul f32 %3 %2",
        "%5 = const f32 3.0",
        "%6 = add f32 %4 %5",
        "%7 = const f32 0.0",
        "%8 = max f32 %6 %7",
        "%9 = const f32 6.0",
        "%10 = min f32 %8 %9",
        "%11 = mul f32 %4 %10",
        "%12 = div f32 %11 %9",
        f"%13 = const f32 {shift!r}",
        "%14 = sub f32 %13 %12",
        f"output 0 {type_} [d0, d1, d2, d3] %14",
    )
    return Case(name or f"hardswish-{channels}", text, ((2, channels, 24, 40), (channels, 1, 1)))


def family(type_: str) -> list[Case]:
    """Cases that one kernel computes."""
    pairs = [CONSTANTS[k % len(CONSTANTS)] for k in range(len(CHANNELS) + 1)]
    channels = [*CHANNELS, CHANNELS[0]]
    return [
        scaled_hardswish(type_, *pair, count, f"{type_}-{k}")
        for k, (pair, count) in enumerate(zip(pairs, channels, strict=True))
    ]


def bias(type_: str, channels: int, *extents: int) -> Case:
    """What a convolution leaves to a node of its own."""
    dims = [f"d{k + 2}" for k in range(len(extents))]
    everywhere = ", ".join(["d0", "d1", *dims])
    text = program(
        f"d0 d1={channels} {' '.join(dims)}",
        f"%0 = input 0 {type_} [{everywhere}]",
        f"%1 = input 1 {type_} [{', '.join(['d1', *('0' for _ in dims)])}]",
        "%2 = add f32 %0 %1",
        f"output 0 {type_} [{everywhere}] %2",
    )
    return Case(f"bias-{channels}", text, ((2, channels, *extents), (channels, *(1 for _ in extents))))


def pooled(type_: str, channels: int) -> Case:
    """The mean of each channel of a convolution's result, with its bias: what squeeze-and-excite begins with."""
    text = program(
        f"d0 d1={channels} | d2=14 d3=14 |",
        f"%0 = input 0 {type_} [d0, d1, d2, d3]",
        f"%1 = input 1 {type_} [d1, 0, 0]",
        "%2 = add f32 %0 %1",
        "%3 = relu f32 %2",
        "%4 = reduce_mean f32 %3",
        f"output 0 {type_} [d0, d1, d2, d3] %3",
        f"output 1 {type_} [d0, d1, 0, 0] %4",
    )
    return Case(f"pooled-{channels}", text, ((2, channels, 14, 14), (channels, 1, 1)))
