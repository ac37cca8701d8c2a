"""Kernels that differ in numbers alone are one: constants and channel counts are parameters of a launch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from constant_corpus import bias, family, pooled, scaled_hardswish
from cuda_corpus import Case, program
from cuda_tools import FakeCuda


def source(compiler: Path, case: Case) -> str:
    """The generated text without the remark on the launch."""
    done = subprocess.run(
        [str(compiler), "--source"], input=case.request((90,)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r"// grid.*\n", "", done.stdout)


def own_part(text: str) -> str:
    return text[text.rindex("struct Parameters") :]


@pytest.mark.parametrize("type_", ["f32", "f16", "bf16"])
def test_layers_of_a_network_share_a_kernel(compiler: Path, type_: str) -> None:
    assert len({source(compiler, case) for case in family(type_)}) == 1


def test_biases_share_a_kernel(compiler: Path) -> None:
    assert len({source(compiler, bias("f32", c, 12, 20)) for c in (3, 16, 480)}) == 1
    assert len({source(compiler, bias("f32", c, 400)) for c in (3, 16, 480)}) == 1


def test_reductions_share_a_kernel_whatever_their_channels(compiler: Path) -> None:
    assert len({source(compiler, pooled("f16", c)) for c in (72, 120, 480)}) == 1


@pytest.mark.parametrize("value", ["0.0", "-0.0", "1.0", "-1.0", "2.0", "0.125", "inf", "-inf", "nan"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_numbers_that_are_exact_stay_in_the_code(compiler: Path, op: str, value: str) -> None:
    text = program(
        "d0", "%0 = input 0 f32 [d0]", f"%1 = const f32 {value}", f"%2 = {op} f32 %0 %1", "output 0 f32 [d0] %2"
    )
    assert "p.n" not in own_part(source(compiler, Case("exact", text, ((64,),))))


@pytest.mark.parametrize(
    "lines",
    [
        ["%2 = div f32 %0 %1"],
        ["%2 = max f32 %0 %1"],
        ["%2 = pow f32 %0 %1"],
        ["%2 = mul f32 %0 %1", "%3 = min f32 %2 %1"],  # a sum or product beside it does not help
        ["%2 = const f32 0.7", "%3 = mul f32 %1 %2", "%4 = add f32 %0 %3"],  # the compiler computes it
        ["%2 = reduce_sum f32 %0", "%3 = mul f32 %2 %1"],
    ],
    ids=["div", "max", "pow", "min", "constants", "reduced"],
)
def test_other_uses_of_constants_stay_in_the_code(compiler: Path, lines: list[str]) -> None:
    last = lines[-1].split()[0]
    reduces = any("reduce" in line for line in lines)
    text = program(
        "d0 | d1 |" if reduces else "d0 d1",
        "%0 = input 0 f32 [d0, d1]",
        "%1 = const f32 3.3",
        *lines,
        f"output 0 f32 [{'d0, 0' if reduces else 'd0, d1'}] {last}",
    )
    assert "p.n1" not in own_part(source(compiler, Case("use", text, ((64, 64),))))


def test_a_constant_that_is_stored_stays_in_the_code(compiler: Path) -> None:
    text = program(
        "d0",
        "%0 = input 0 f32 [d0]",
        "%1 = const f32 3.3",
        "%2 = mul f32 %0 %1",
        "output 0 f32 [d0] %2",
        "output 1 f32 [d0] %1",
    )
    assert "p.n1" not in own_part(source(compiler, Case("stored", text, ((64,),))))


def test_more_constants_than_a_launch_should_bring(compiler: Path) -> None:
    lines = ["%0 = input 0 f32 [d0]"]
    for k in range(40):
        lines += [f"%{2 * k + 1} = const f32 {k + 0.3}", f"%{2 * k + 2} = mul f32 %{2 * k} %{2 * k + 1}"]
    text = program("d0", *lines, "output 0 f32 [d0] %80")
    assert "p.n" not in own_part(source(compiler, Case("many", text, ((64,),))))


def test_quotients_of_64_bits_are_by_numbers_in_the_code(compiler: Path) -> None:
    case = bias("f32", 48, 1, 1)
    huge = Case("huge", case.text, ((1 << 16, 48, 32, 32), case.shapes[1]))
    assert "/ 48;" in own_part(source(compiler, huge))
    assert "/ 48;" not in own_part(source(compiler, case))


def test_sessions_compile_no_more_for_many_layers_than_for_one(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    def compiled(cases: list[Case], name: str) -> int:
        log = tmp_path / f"{name}.log"
        request = "".join(case.request((90,)) for case in cases)
        folder = {"ONNXFUSE_CACHE_DIR": tmp_path / name, "HOME": tmp_path}
        _, said = fake_cuda.run(request, "wait", "run", FAKE_NVRTC_LOG=log, **folder)
        assert said == ""
        kernels = len(log.read_text().splitlines())
        assert kernels == sum(1 for file in (tmp_path / name).iterdir() if not file.name.startswith("."))
        return kernels

    layers = [*family("f32"), scaled_hardswish("f32", 0.7, 0.3, 96)]
    assert compiled(layers, "many") == compiled(layers[:1], "one")
