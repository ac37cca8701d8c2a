"""The custom-op library in ONNX Runtime sessions: hand-written programs on the CPU provider."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxfuse.custom_ops import OP_TYPES
from onnxfuse.custom_ops import library as library_module
from onnxfuse.custom_ops.library import find_nvrtc, library_path
from onnxfuse.errors import OnnxfuseError

F16, F32 = TensorProto.FLOAT16, TensorProto.FLOAT
LEVELS = [
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
]

Value = tuple[str, int, Sequence[int | str | None] | None]

RELU = "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = relu f32 %0\noutput 0 f32 [d0] %1\n"


def fused(
    program: str, inputs: Sequence[str], outputs: Sequence[str], op_type: str = "FusedElementwise"
) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, name=f"fused {outputs[0]}", domain="onnxfuse", program=program)


def model_of(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*v) for v in inputs],
        [helper.make_tensor_value_info(*v) for v in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("onnxfuse", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def options_with_library() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library_path()))
    return options


def session_of(
    model: onnx.ModelProto, options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options or options_with_library(), providers=["CPUExecutionProvider"]
    )


def run(program: str, *arrays: np.ndarray, outputs: Sequence[int] = (F32,)) -> list[np.ndarray]:
    """What a node with the program makes of the arrays; `outputs` are element types. All extents are symbolic."""
    inputs = [
        (f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), [f"x{i}_{d}" for d in range(a.ndim)])
        for i, a in enumerate(arrays)
    ]
    names = [f"y{i}" for i in range(len(outputs))]
    node = fused(program, [v[0] for v in inputs], names)
    session = session_of(model_of([node], inputs, [(n, t, None) for n, t in zip(names, outputs, strict=True)]))
    return list(session.run(None, {v[0]: a for v, a in zip(inputs, arrays, strict=True)}))


@pytest.mark.parametrize("shapes", [((2, 3, 5), (3, 1)), ((1, 3, 5), (3, 5)), ((4, 1, 1), (7, 9)), ((2, 1, 5), (3, 1))])
def test_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Either side may be the one of extent 1, whatever the map says."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float32) for s in shapes)
    program = (
        "onnxfuse 1\nspace d0 d1 d2\n%0 = input 0 f32 [d0, d1, d2]\n%1 = input 1 f32 [d1, d2]\n"
        "%2 = sub f32 %0 %1\noutput 0 f32 [d0, d1, d2] %2\n"
    )
    np.testing.assert_array_equal(run(program, a, b)[0], a - b)


def test_scalar_space() -> None:
    program = "onnxfuse 1\nspace\n%0 = input 0 f64 []\n%1 = neg f64 %0\noutput 0 f64 [] %1\n"
    assert run(program, np.array(2.5), outputs=[TensorProto.DOUBLE])[0] == -2.5


def test_several_outputs_and_rows() -> None:
    x = np.random.default_rng(0).standard_normal((3, 70, 2)).astype(np.float32)
    program = (
        "onnxfuse 1\nspace d0 | d1 | d2\n%0 = input 0 f32 [d0, d1, d2]\n%1 = reduce_max f32 %0\n%2 = sub f32 %0 %1\n"
        "output 0 f32 [d0, d2] %1\noutput 1 f32 [d0, d1, d2] %2\noutput 2 f32 [d0, 0, d2] %1\n"
    )
    row, point, kept = run(program, x, outputs=[F32, F32, F32])
    top = x.max(axis=1)
    np.testing.assert_array_equal(row, top)
    np.testing.assert_array_equal(kept, top[:, None])
    np.testing.assert_array_equal(point, x - top[:, None])


def test_maps_slice_reverse_transpose_and_concatenate() -> None:
    x = np.arange(40, dtype=np.float32).reshape(4, 10)
    program = (
        "onnxfuse 1\nspace d0=4 d1=3\n%0 = input 0 f32 [d0, 2*d1+3]\n%1 = input 0 f32 [-1*d0+3, d1:10]\n"
        "output 0 f32 [d1, d0:8] %0\noutput 0 f32 [d1, d0+4:8] %1\n"
    )
    expected = np.concatenate([x[:, 3:9:2].T, x[::-1, :3].T], axis=1)
    np.testing.assert_array_equal(run(program, x)[0], expected)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("output 0 f32 [2*d0:8] %0\n", "output 0 has 8 elements, of which the program stores 4"),
        ("output 0 f32 [d0+1:4] %0\n", "output 0 has extent 4 in dimension 0, and the program's index leaves it"),
        ("output 0 f32 [d0:8] %0\noutput 0 f32 [d0+2:8] %0\n", "two lines of the program may store to one element"),
        ("output 0 f32 [d0:8] %0\noutput 0 f32 [d0+4:9] %0\n", "different shapes in different lines"),
    ],
)
def test_every_element_is_stored_once(outputs: str, message: str) -> None:
    program = "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n" + outputs
    with pytest.raises(Exception, match="node 'fused y0'") as error:
        run(program, np.zeros(4, np.float32))
    assert message in str(error.value)


def test_two_points_may_not_store_to_one_element() -> None:
    program = "onnxfuse 1\nspace d0 d1\n%0 = input 0 f32 [d0, d1]\noutput 0 f32 [2*d0+d1:6] %0\n"
    np.testing.assert_array_equal(run(program, np.arange(6, dtype=np.float32).reshape(3, 2))[0], np.arange(6))
    with pytest.raises(Exception, match="two points may store to one element"):
        run(program, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("index", ["d0+1", "3*d0", "-1*d0+2", "4"])
def test_reading_outside_of_an_input_is_an_error(index: str) -> None:
    program = f"onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = input 1 f32 [{index}]\n%2 = add f32 %0 %1\n"
    program += "output 0 f32 [d0] %2\n"
    with pytest.raises(Exception, match="node 'fused y0': input 1 has extent 4 in dimension 0"):
        run(program, np.zeros(4, np.float32), np.zeros(4, np.float32))


def test_extents_that_disagree() -> None:
    program = "onnxfuse 1\nspace d0\n%0 = input 0 f32 [d0]\n%1 = input 1 f32 [d0]\n%2 = add f32 %0 %1\n"
    program += "output 0 f32 [d0] %2\n"
    with pytest.raises(Exception, match="input 1 has extent 3 in dimension 0, where the program has d0=4"):
        run(program, np.zeros(4, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize(("map_", "right", "wrong"), [("d0", 4, 6), ("d0", 4, 3), ("d0:6", 6, 8), ("d0:6", 6, 4)])
def test_an_extent_other_than_the_programs_is_an_error(map_: str, right: int, wrong: int) -> None:
    """A longer tensor is cut only where the map says so: a model may declare an extent that it does not have."""
    program = f"onnxfuse 1\nspace d0=4\n%0 = input 0 f32 [{map_}]\n%1 = exp f32 %0\noutput 0 f32 [d0] %1\n"
    assert run(program, np.zeros(right, np.float32))[0].shape == (4,)
    with pytest.raises(Exception, match=f"input 0 has extent {wrong} in dimension 0, where the program has d0=4"):
        run(program, np.zeros(wrong, np.float32))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_zero_size(shape: tuple[int, int]) -> None:
    """Nothing to store is no error, and a reduction over nothing has its value."""
    program = (
        "onnxfuse 1\nspace d0 | d1 |\n%0 = input 0 f32 [d0, d1]\n%1 = reduce_sum f32 %0\n%2 = add f32 %0 %1\n"
        "%3 = reduce_max f32 %0\noutput 0 f32 [d0, d1] %2\noutput 1 f32 [d0] %1\noutput 2 f32 [d0] %3\n"
    )
    x = np.ones(shape, np.float32)
    point, total, largest = run(program, x, outputs=[F32, F32, F32])
    assert point.shape == shape
    np.testing.assert_array_equal(total, np.full(shape[0], shape[1], np.float32))
    np.testing.assert_array_equal(largest, np.full(shape[0], 1 if shape[1] else -np.inf, np.float32))


def test_shapes_that_change_between_runs() -> None:
    session = session_of(model_of([fused(RELU, ["x"], ["y"])], [("x", F32, ["n"])], [("y", F32, ["n"])]))
    for n in [*range(1, 20), 3, 0, 4099, 7]:
        x = np.linspace(-1, 1, n, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_one_session_in_many_threads() -> None:
    session = session_of(model_of([fused(RELU, ["x"], ["y"])], [("x", F32, ["n"])], [("y", F32, ["n"])]))
    failures: list[str] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(50):
            x = random.standard_normal(random.integers(1, 5000)).astype(np.float32)
            if not np.array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0)):
                failures.append(f"{seed}: {x.size}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_symbolic_dimensions_are_kept() -> None:
    program = (
        "onnxfuse 1\nspace d0 d1 | d2 |\n%0 = input 0 f32 [d0, d1, d2]\n%1 = input 1 f32 [d1, d2]\n%2 = add f32 %0 %1\n"
        "%3 = reduce_sum f32 %2\noutput 0 f32 [d0, d1, d2] %2\noutput 1 f32 [d1, d0, 0] %3\n"
    )
    inputs = [("a", F32, ["batch", "rows", 64]), ("b", F32, [1, "columns"])]
    session = session_of(
        model_of([fused(program, ["a", "b"], ["y", "z"])], inputs, [("y", F32, None), ("z", F32, None)])
    )
    assert [o.shape for o in session.get_outputs()] == [["batch", "rows", 64], ["rows", "batch", 1]]


@pytest.mark.skipif(onnxruntime.__version__.startswith("1.18."), reason="it infers no types of custom operators")
def test_types_and_shapes_need_not_be_declared() -> None:
    """Inference alone finds them, also for what stands behind the node."""
    program = "onnxfuse 1\nspace d0 d1\n%0 = input 0 f16 [d0, d1]\n%1 = isnan bool %0\n%2 = relu f32 %0\n"
    program += "output 0 bool [d1, d0] %1\noutput 1 f16 [d0, d1] %2\n"
    nodes = [fused(program, ["x"], ["b", "r"]), helper.make_node("Not", ["b"], ["n"])]
    model = model_of(nodes, [("x", F16, ["n", None])], [])
    for name in ["n", "r"]:
        model.graph.output.add().name = name
    session = session_of(model)
    assert [(o.type, o.shape[1 - i]) for i, o in enumerate(session.get_outputs())] == [
        ("tensor(bool)", "n"),
        ("tensor(float16)", "n"),
    ]
    assert session.run(None, {"x": np.full((2, 3), np.nan, np.float16)})[0].shape == (3, 2)


def test_unknown_rank() -> None:
    """An input whose rank is not known is checked when it comes."""
    reshaped = helper.make_node("Reshape", ["x", "shape"], ["r"])
    model = model_of(
        [reshaped, fused(RELU, ["r"], ["y"])],
        [("x", F32, ["n"]), ("shape", TensorProto.INT64, ["k"])],
        [("y", F32, None)],
    )
    session = session_of(model)
    x = np.array([-1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x, "shape": np.array([4])})[0], [0, 2, 3, 4])
    with pytest.raises(Exception, match="node 'fused y': input 0 has rank 2; the program reads it with rank 1"):
        session.run(None, {"x": x, "shape": np.array([2, 2])})


SCALE_F16 = (
    "onnxfuse 1\nspace d0\n%0 = input 0 f16 [d0]\n%1 = input 1 f32 []\n%2 = mul f32 %0 %1\n"
    "output 0 f16 [d0] %2\noutput 1 f32 [d0] %2\n"
)


def test_float16_computes_in_float32_and_rounds_once() -> None:
    x = np.random.default_rng(0).standard_normal(1001).astype(np.float16)
    scale = np.array(1.0009766, np.float32)
    half, single = run(SCALE_F16, x, scale, outputs=[F16, F32])
    assert half.dtype == np.float16
    np.testing.assert_array_equal(single, x.astype(np.float32) * scale)
    np.testing.assert_array_equal(half, single.astype(np.float16))


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_16_bit_node_between_16_bit_operators(level: onnxruntime.GraphOptimizationLevel, element: str) -> None:
    """ONNX Runtime's cast pass gives such a node float32 on the CPU and wants float32 back: the values are the same."""
    type_ = {"f16": F16, "bf16": TensorProto.BFLOAT16}[element]
    program = SCALE_F16.replace("f16", element)
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=type_),
        helper.make_node("Neg" if element == "f16" else "Identity", ["c"], ["a"]),
        fused(program, ["a", "s"], ["y", "z"]),
        helper.make_node("Add" if element == "f16" else "Identity", ["y", "y"] if element == "f16" else ["y"], ["r"]),
        helper.make_node("Cast", ["r"], ["out"], to=F32),
    ]
    model = model_of(nodes, [("x", F32, ["n"]), ("s", F32, [])], [("out", F32, ["n"]), ("z", F32, ["n"])])
    model.graph.value_info.append(helper.make_tensor_value_info("y", type_, ["n"]))  # as the optimizer declares it
    options = options_with_library()
    options.graph_optimization_level = level
    x = np.random.default_rng(0).uniform(0.5, 2, 257).astype(np.float32)
    scale = np.array(1.37, np.float32)
    out, z = session_of(model, options).run(None, {"x": x, "s": scale})
    if element == "f16":
        a = -x.astype(np.float16).astype(np.float32)
        expected = ((a * scale).astype(np.float16) * 2).astype(np.float32)
    else:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        a = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        expected = (a * scale).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(z, a * scale)


@pytest.mark.parametrize("op_type", [t for t in OP_TYPES if t != "FusedRuntimeAxes"])  # test_runtime_axes.py has that
def test_all_op_types_are_registered(op_type: str) -> None:
    session = session_of(model_of([fused(RELU, ["x"], ["y"], op_type)], [("x", F32, [2])], [("y", F32, [2])]))
    np.testing.assert_array_equal(session.run(None, {"x": np.array([-1, 1], np.float32)})[0], [0, 1])


def test_two_sessions_and_one_left_behind() -> None:
    """Each session registers the library; what one leaves behind serves the next."""
    model = model_of([fused(RELU, ["x"], ["y"])], [("x", F32, ["n"])], [("y", F32, ["n"])])
    x = np.array([-2, 2], np.float32)
    first, second = session_of(model), session_of(model)
    del first
    third = session_of(model)
    for session in (second, third):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], [0, 2])


def test_registered_twice_in_one_session() -> None:
    """ONNX Runtime refuses that, with an error rather than a crash."""
    options = options_with_library()
    options.register_custom_ops_library(str(library_path()))
    model = model_of([fused(RELU, ["x"], ["y"])], [("x", F32, ["n"])], [("y", F32, ["n"])])
    with pytest.raises(Exception, match="Domain already set in registry"):
        session_of(model, options)


def test_session_configuration_is_read() -> None:
    """Its entries are there where the library registers, empty ones too."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("onnxfuse.cache_dir", "")
    options.add_session_config_entry("onnxfuse.nvrtc_path", "/nowhere/libnvrtc.so")
    options.register_custom_ops_library(str(library_path()))
    model = model_of([fused(RELU, ["x"], ["y"])], [("x", F32, [1])], [("y", F32, [1])])
    assert session_of(model, options).run(None, {"x": np.array([3], np.float32)})[0] == [3]


def test_one_symbol_is_exported() -> None:
    listing = subprocess.run(["nm", "-D", "--defined-only", library_path()], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in listing.stdout.splitlines()] == ["RegisterCustomOps"]


def test_no_library_of_cuda_or_c_plus_plus_is_linked() -> None:
    listing = subprocess.run(["objdump", "-p", library_path()], capture_output=True, text=True, check=True)
    needed = {line.split()[1].split(".so")[0] for line in listing.stdout.splitlines() if "NEEDED" in line}
    assert needed <= {"libc", "libm", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_library_path_says_how_to_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library_module, "_LIBRARY", tmp_path / "libonnxfuse.so")
    with pytest.raises(OnnxfuseError, match=r"is not built .*cmake"):
        library_path()


def test_nvrtc_of_a_wheel_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "nvidia" / "cuda_nvrtc" / "lib"
    folder.mkdir(parents=True)
    for name in ("libnvrtc.so.12", "libnvrtc-builtins.so.12.9", "libnvrtc.alt.so.12"):
        (folder / name).touch()
    monkeypatch.setattr(library_module, "_NVRTC_PACKAGES", ("nvidia.cuda_nvrtc",))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.split(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    assert find_nvrtc() == folder / "libnvrtc.so.12"
    monkeypatch.setenv("ONNXFUSE_NVRTC", "/given/libnvrtc.so")
    library_path()
    assert os.environ["ONNXFUSE_NVRTC"] == "/given/libnvrtc.so"
    monkeypatch.delenv("ONNXFUSE_NVRTC")
    library_path()
    assert os.environ["ONNXFUSE_NVRTC"] == str(folder / "libnvrtc.so.12")
    for name in [name for name in sys.modules if name.split(".")[0] == "nvidia"]:
        del sys.modules[name]  # that of this test: later ones would find its NVRTC
    monkeypatch.setattr(sys, "path", [])
