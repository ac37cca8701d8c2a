"""Runs a program text as one fused node on ONNX Runtime's CUDA provider, over device memory of the test's own."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from cpu_runner import ulps
from cuda_corpus import merge
from onnx import helper

from onnxfuse.custom_ops.library import find_nvrtc, library_path
from onnxfuse.custom_ops.parser import parse
from onnxfuse.custom_ops.reference import evaluate
from onnxfuse.custom_ops.types import to_numpy, to_onnx

Array = npt.NDArray[Any]

MAX_KERNELS, MAX_TENSORS = 16, 64  # of a program
POISON = 0xFB  # in every byte of an output before the run: NaN in the float types
GUARD = 256  # bytes behind each output that must stay as they are


def model(text: str) -> onnx.ModelProto:
    """A model whose only node computes the program; every extent is free."""
    program = parse(text)
    names = [f"x{i}" for i in range(len(program.inputs))]
    outputs = [f"y{i}" for i in range(len(program.outputs))]
    op_type = "FusedScan" if "scan_" in text else "FusedReduction" if "reduce_" in text else "FusedElementwise"
    op_type = "FusedRuntimeAxes" if program.axes is not None else op_type
    node = helper.make_node(op_type, names, outputs, domain="onnxfuse", program=text)

    def infos(names: Sequence[str], tensors: Sequence[tuple[str, int]]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, to_onnx(type_), [None] * rank)
            for name, (type_, rank) in zip(names, tensors, strict=True)
        ]

    graph = helper.make_graph([node], "g", infos(names, program.inputs), infos(outputs, program.outputs))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("onnxfuse", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def new_session(text: str, launches: str = "", **provider_options: str) -> ort.InferenceSession:
    """A session of the program; `launches` as the library's setting onnxfuse.launches."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if launches:
        options.add_session_config_entry("onnxfuse.launches", launches)
    nvrtc = find_nvrtc()
    if nvrtc is not None:
        options.add_session_config_entry("onnxfuse.nvrtc_path", str(nvrtc))
    options.register_custom_ops_library(str(library_path()))
    # Nothing may fall back to the CPU unseen.
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(
        model(text).SerializeToString(), options, providers=[("CUDAExecutionProvider", provider_options)]
    )


session = functools.lru_cache(maxsize=4)(new_session)


class Tensor:
    """Device memory with a tensor's elements `offset` bytes behind a 256-byte boundary."""

    def __init__(
        self, shape: Sequence[int], type_: str, offset: int = 0, array: Array | None = None, device: int = 0
    ) -> None:
        import torch

        self.shape, self.type = tuple(shape), type_
        self.size = int(np.prod(self.shape, dtype=np.int64)) * to_numpy(type_).itemsize
        self.offset = offset
        self.memory = torch.full((offset + self.size + GUARD,), POISON, dtype=torch.uint8, device=f"cuda:{device}")
        if array is not None:
            self.fill(array)

    def fill(self, array: Array) -> None:
        """Puts other elements in the same memory."""
        import torch

        if self.size > 0:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.memory[self.offset : self.offset + self.size] = torch.from_numpy(data).to(self.memory.device)

    @property
    def pointer(self) -> int:
        return int(self.memory.data_ptr()) + self.offset

    def numpy(self) -> Array:
        data: Array = self.memory.cpu().numpy()
        guard = np.concatenate([data[: self.offset], data[self.offset + self.size :]])
        assert (guard == POISON).all(), "the kernel wrote outside of its output"
        return data[self.offset : self.offset + self.size].view(to_numpy(self.type)).reshape(self.shape)


def bind(
    node: ort.InferenceSession, inputs: Sequence[Tensor | Array], outputs: Sequence[Tensor], device: int = 0
) -> ort.IOBinding:
    binding = node.io_binding()
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor):  # in host memory
            binding.bind_cpu_input(f"x{i}", x)
            continue
        binding.bind_input(f"x{i}", "cuda", device, to_onnx(x.type), list(x.shape), x.pointer)
    for i, y in enumerate(outputs):
        binding.bind_output(f"y{i}", "cuda", device, to_onnx(y.type), list(y.shape), y.pointer)
    return binding


def run(
    text: str,
    *arrays: Array,
    offset: int = 0,
    shapes: Sequence[Sequence[int]] | None = None,
    launches: str = "dependent",
) -> list[Array]:
    """The outputs of the program; all tensors lie `offset` bytes behind a boundary.

    Args:
        launches: a launch for each kernel, unless told otherwise.
        shapes: of the outputs, where the reference would take long to find them.
    """
    import torch

    program = parse(text)
    if shapes is None:
        shapes = [x.shape for x in evaluate(program, arrays)]
    inputs = [Tensor(x.shape, t, offset, x) for x, (t, _) in zip(arrays, program.inputs, strict=True)]
    outputs = [Tensor(shape, t, offset) for shape, (t, _) in zip(shapes, program.outputs, strict=True)]
    node = session(text, launches)
    torch.cuda.synchronize()
    node.run_with_iobinding(bind(node, inputs, outputs))
    torch.cuda.synchronize()
    return [y.numpy() for y in outputs]


def compare(text: str, actual: Sequence[Array], inputs: Sequence[Array], limit: float, floor: float) -> None:
    """Compares with the program's evaluation in float64; see `check`."""
    program = parse(text)
    expected = evaluate(program, inputs, float64=True)
    for i, (got, want, (type_, _)) in enumerate(zip(actual, expected, program.outputs, strict=True)):
        if got.dtype.kind in "iub":
            wrong = got != want
            error = wrong.astype(np.float64)
        else:
            with np.errstate(all="ignore"):
                close = np.abs(got.astype(np.float64) - want) <= floor
            allowed = 1.0 if type_ in ("f16", "bf16") else limit
            error = np.where(close, 0.0, ulps(got, want))
            wrong = error > allowed
        if wrong.any():
            at = np.unravel_index(int(error.argmax()), error.shape)
            where = [int(k) for k in at]
            first = [int(k) for k in np.argwhere(wrong)[0]]
            raise AssertionError(
                f"output {i} ({type_}, shape {got.shape}): {int(wrong.sum())} wrong, first at {first}, "
                f"worst at {where}: "
                f"{got[at]!r} instead of {want[at]!r}, {float(error[at]):.3g} ulp"
            )


def check(text: str, *arrays: Array, limit: float = 8, floor: float = 0.0, offset: int = 0) -> list[Array]:
    """Runs the program and compares with its evaluation in float64.

    Args:
        limit: units in the last place that f32 and f64 outputs may be off; 16-bit ones may be off by one unit, anything
            else must be equal.
        floor: absolute error that is allowed besides, for results that cancel.
    """
    actual = run(text, *arrays, offset=offset)
    compare(text, actual, arrays, limit, floor)
    return actual


@dataclass(frozen=True)
class Check:
    """A program with its inputs, and the errors that `compare` allows."""

    text: str
    arrays: Sequence[Array]
    limit: float = 8
    floor: float = 0.0
    name: str = ""


def batches(texts: Sequence[str]) -> Iterator[slice]:
    """Neighbours that fit into one program."""
    begin = 0
    while begin < len(texts):
        end = kernels = inputs = outputs = 0
        for end in range(begin, len(texts) + 1):
            if end == len(texts):
                break
            program = parse(texts[end])
            kernels += len(program.kernels)
            inputs += len(program.inputs)
            outputs += len(program.outputs)
            if end > begin and (kernels > MAX_KERNELS or max(inputs, outputs) > MAX_TENSORS):
                break
        yield slice(begin, end)
        begin = end


def run_all(texts: Sequence[str], arrays: Sequence[Sequence[Array]], offset: int = 0) -> list[list[Array]]:
    """The outputs of each program. Merged, so that their kernels are compiled at a time, on all cores."""
    results: list[list[Array]] = []
    for part in batches(texts):
        shapes = [x.shape for t, a in zip(texts[part], arrays[part], strict=True) for x in evaluate(parse(t), a)]
        flat = iter(run(merge(texts[part]), *[x for a in arrays[part] for x in a], offset=offset, shapes=shapes))
        results += [[next(flat) for _ in parse(text).outputs] for text in texts[part]]
    return results


def check_all(checks: Sequence[Check], offset: int = 0) -> None:
    """Runs the programs and compares each with its evaluation in float64; tells of all that are wrong."""
    results = run_all([c.text for c in checks], [c.arrays for c in checks], offset)
    wrong = []
    for check, actual in zip(checks, results, strict=True):
        try:
            compare(check.text, actual, check.arrays, check.limit, check.floor)
        except AssertionError as error:
            wrong.append(f"{check.name or [x.shape for x in check.arrays]}: {error}")
    assert not wrong, f"{len(wrong)} of {len(checks)}: " + "; ".join(wrong)


def random(shape: Sequence[int], type_: str, seed: int = 0, scale: float = 1.0) -> Array:
    rng = np.random.default_rng(seed)
    if type_ == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if type_[0] in "iu":
        return rng.integers(0, 5, shape).astype(to_numpy(type_))
    return (rng.standard_normal(shape) * scale).astype(to_numpy(type_))
