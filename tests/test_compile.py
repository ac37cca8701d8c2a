"""`onnxfuse compile`: the kernels that it makes are those that the engine asks for, and they are used with suspicion.

The engine runs on a driver that only plays one (tests/fakes) and without NVRTC; what it finds is what was made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from cuda_corpus import Case
from cuda_tools import FakeCuda
from graphs import parse

import onnxfuse
from onnxfuse.errors import OnnxfuseError
from onnxfuse.kernels.shapes import node_shapes

# Normalizations, a softmax, element-wise work on symbolic and computed extents, in a body too.
GRAPH = """
agraph (float[batch, tokens, 96] x, float[96] scale, bool flag) => (float[batch, tokens, 96] y, float z, float[p, q] w)
<int64[2] flat = {-1, 64}>
{
   a = ReduceMean<axes=[-1], keepdims=1>(x)
   b = Sub(x, a)
   c = Mul(b, b)
   d = ReduceMean<axes=[-1], keepdims=1>(c)
   e = Constant<value_float=0.00001>()
   f = Add(d, e)
   g = Sqrt(f)
   h = Div(b, g)
   i = Mul(h, scale)
   j = Softmax<axis=1>(i)
   k = Transpose<perm=[1, 0, 2]>(j)
   l = Concat<axis=0>(k, k)
   m = Reshape(l, flat)
   n = Sigmoid(m)
   w = Mul(n, m)
   y = If(flag)<
     then_branch = g1 () => (float[batch, tokens, 96] t) { t1 = Tanh(i)  t = Mul(t1, x) },
     else_branch = g2 () => (float[batch, tokens, 96] u) { u1 = Exp(i)  u = Add(u1, x) }
   >
   z = ReduceMax<keepdims=0>(w)
}
"""


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    optimized = onnxfuse.optimize(parse(GRAPH), target="cuda").model
    assert sum(1 for _ in onnxfuse.runtime.fused_nodes(optimized)) >= 5
    return optimized


@pytest.fixture(scope="module")
def model_file(model: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "fused.onnx"
    onnx.save(model, file)
    return file


def shapes_seen(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Iterator[tuple[str, list[tuple[int, ...]]]]:
    """Program and input shapes of each fused node of the main graph in a run."""
    nodes = [n for n in model.graph.node if n.domain == "onnxfuse"]
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    constants = {t.name: tuple(t.dims) for t in model.graph.initializer}
    names = list(dict.fromkeys(i for n in nodes for i in n.input if i not in constants))
    extra = [n for n in names if n not in {v.name for v in (*model.graph.output, *model.graph.input)}]
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in extra)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.register_custom_ops_library(str(onnxfuse.library_path()))
    session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True)) | feeds
    for node in nodes:
        shapes = [constants[i] if i in constants else values[i].shape for i in node.input]
        yield next(a.s for a in node.attribute if a.name == "program").decode(), shapes


def feeds(batch: int, tokens: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(batch, tokens, 96)).astype(np.float32)
    return {"x": x, "scale": np.ones(96, np.float32), "flag": np.array(True)}


def requests(model: onnx.ModelProto, batch: int, tokens: int, alignment: int = 16) -> tuple[str, str]:
    """What the tool is to run, and what it then prints."""
    text, names = "", ""
    for k, (program, shapes) in enumerate(shapes_seen(model, feeds(batch, tokens))):
        name = f"{k}-{batch}-{tokens}"
        text += Case(name, program, tuple(shapes), alignment).request((90,))
        names += f"{name} ran\n"
    return text, names


def compile_(cuda: FakeCuda, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "onnxfuse", "compile", *map(str, arguments)]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=cuda.environment(PYTHONPATH=path, LD_LIBRARY_PATH=None),
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def kernels(fake_cuda: FakeCuda, model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels") / "made"
    done = compile_(
        fake_cuda, model_file, "--arch", "sm_80,sm_90", "-o", folder, "--dim", "batch=1,2", "--dim", "tokens=3..5,512"
    )
    assert "for sm_80, sm_90" in done.stdout
    return folder


OFF = {"ONNXFUSE_NVRTC": "none", "ONNXFUSE_CACHE_DIR": "/nowhere"}


def test_every_kernel_that_runs_ask_for_is_there(fake_cuda: FakeCuda, model: onnx.ModelProto, kernels: Path) -> None:
    for batch, tokens in ((1, 3), (2, 5), (2, 512)):
        for alignment in (16, 8, 4):  # 8 and 4 take the kernel for tensors of any alignment
            request, names = requests(model, batch, tokens, alignment)
            assert fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=kernels) == (names, "")


@pytest.mark.parametrize("count", [1, 16, 78, 108, 132, 192])
def test_for_gpus_of_every_size(fake_cuda: FakeCuda, model: onnx.ModelProto, kernels: Path, count: int) -> None:
    request, names = requests(model, 2, 512)
    assert fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=kernels, FAKE_CUDA_COUNT=count) == (names, "")


def test_a_later_gpu_of_the_same_major_version_takes_them(
    fake_cuda: FakeCuda, model: onnx.ModelProto, kernels: Path
) -> None:
    request, names = requests(model, 1, 3)
    assert fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=kernels, FAKE_CUDA_ARCH=89) == (names, "")
    out, err = fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=kernels, FAKE_CUDA_ARCH=100)
    assert out == ""
    assert "no kernel for this node on a GPU of architecture sm_100" in err
    assert "--arch sm_100" in err


def test_what_is_missing_is_said_with_both_remedies(fake_cuda: FakeCuda, model: onnx.ModelProto, kernels: Path) -> None:
    _, err = fake_cuda.run(requests(model, 7, 1000)[0], **OFF, ONNXFUSE_KERNELS=kernels)
    assert "onnxfuse compile MODEL --arch sm_90 --dim NAME=N --output FOLDER" in err
    assert 'pip install "onnxfuse[cuda]"' in err
    assert "onnxfuse.kernels" in err


def test_what_is_missing_is_compiled_where_nvrtc_is(
    fake_cuda: FakeCuda, model: onnx.ModelProto, kernels: Path, tmp_path: Path
) -> None:
    """And what is there is not."""
    log = tmp_path / "compiled"
    variables = {"ONNXFUSE_CACHE_DIR": tmp_path / "cache", "FAKE_NVRTC_LOG": log, "ONNXFUSE_KERNELS": kernels}
    # The engine guesses at the first shapes when it is made.
    for batch, tokens in ((2, 5), (7, 1000), (7, 1000)):
        request, names = requests(model, batch, tokens)
        log.unlink(missing_ok=True)
        assert fake_cuda.run(request, **variables) == (names, "")
        text = log.read_text() if log.exists() else ""
    assert text == ""


@pytest.mark.parametrize("damage", ["truncate", "alter", "swap", "link", "foreign", "writable"])
def test_an_entry_that_is_not_right_is_not_used(
    fake_cuda: FakeCuda, model: onnx.ModelProto, kernels: Path, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kernels, folder)
    files = sorted(folder.iterdir())
    for file, other in zip(files, files[1:] + files[:1], strict=True):
        if damage == "truncate":
            os.truncate(file, file.stat().st_size // 2)
        elif damage == "alter":
            data = bytearray(file.read_bytes())
            data[-50] ^= 4
            file.write_bytes(data)
        elif damage == "swap":
            shutil.copy(kernels / other.name, file)
        elif damage == "link":
            file.unlink()
            file.symlink_to(kernels / file.name)
        elif damage == "writable":
            file.chmod(0o666)
        elif os.geteuid() != 0:
            pytest.skip("needs root, to give files away")
        else:
            os.chown(file, 12345, 12345)
    request, names = requests(model, 1, 3)
    out, err = fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=folder)
    assert out == ""
    words = {"truncate": "damaged", "alter": "damaged", "swap": "damaged", "link": "symbolic links"}
    assert words.get(damage, "another user" if damage == "foreign" else "other users") in err
    variables = {"ONNXFUSE_CACHE_DIR": tmp_path / "cache", "ONNXFUSE_KERNELS": folder}
    assert fake_cuda.run(request, **variables) == (names, "")


def test_a_folder_that_cannot_be_used(
    fake_cuda: FakeCuda, model: onnx.ModelProto, kernels: Path, tmp_path: Path
) -> None:
    request, names = requests(model, 1, 3)
    _, err = fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=tmp_path / "none")
    assert "no CUDA kernels" in err
    assert "No such file or directory" in err
    folder = tmp_path / "open"
    shutil.copytree(kernels, folder)
    folder.chmod(0o777)
    _, err = fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=folder)
    assert "can be written by other users" in err
    folder.chmod(0o555)
    assert fake_cuda.run(request, **OFF, ONNXFUSE_KERNELS=folder) == (names, "")
    folder.chmod(0o755)


def test_made_again_they_are_there(fake_cuda: FakeCuda, model_file: Path, kernels: Path, tmp_path: Path) -> None:
    arguments = [model_file, "--arch", "sm_80", "--arch", "90", "--dim", "batch=1,2", "--dim", "tokens=3..5,512"]
    result = json.loads(compile_(fake_cuda, *arguments, "-o", kernels, "--json").stdout)
    assert (result["ok"], result["made"], result["incomplete"]) == (True, 0, [])
    assert result["present"] == len(list(kernels.iterdir()))
    # Byte for byte, also where a file was damaged.
    folder = tmp_path / "again"
    shutil.copytree(kernels, folder)
    first = min(folder.iterdir())
    first.write_bytes(b"")
    assert json.loads(compile_(fake_cuda, *arguments, "-o", folder, "--json").stdout)["made"] == 1
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {p.name: p.read_bytes() for p in kernels.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--arch", "ampere"), "'ampere' is no architecture"),
        (("--arch", "sm_90a"), "'sm_90a' is no architecture"),
        (("--arch", "sm_70"), "compiles for sm_80, sm_86, sm_90, not for sm_70"),
        (("--arch", "sm_90"), "say which extents count"),
        (("--arch", "sm_90", "--dim", "batch"), "--dim takes NAME=N"),
        (("--arch", "sm_90", "--dim", "batch=x"), "whole numbers N and ranges"),
        (("--arch", "sm_90", "--dim", "batch=9..2"), "ranges from small to large"),
        (("--arch", "sm_90", "--dim", "size=1"), "the model has no free dimension 'size'; it has batch, tokens"),
        (("--arch", "sm_90", "--dim", "batch=1..64", "--dim", "tokens=1..64"), "give fewer extents"),
    ],
    ids=lambda v: " ".join(v[1:]) if isinstance(v, tuple) else "",
)
def test_wrong_arguments(
    fake_cuda: FakeCuda, model_file: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    dims = () if "--dim" in arguments or arguments[1] == "sm_90" else ("--dim", "batch=1", "--dim", "tokens=1")
    done = compile_(fake_cuda, model_file, "-o", tmp_path / "kernels", *arguments, *dims, code=2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_folders_that_cannot_be_written(fake_cuda: FakeCuda, model_file: Path, tmp_path: Path) -> None:
    dims = ("--arch", "sm_90", "--dim", "batch=1", "--dim", "tokens=1")
    file = tmp_path / "file"
    file.write_text("")
    assert "is no folder" in compile_(fake_cuda, model_file, "-o", file, *dims, code=2).stderr
    done = compile_(fake_cuda, model_file, "-o", "/proc/kernels", *dims, code=2)
    assert "/proc/kernels" in done.stderr
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    done = compile_(fake_cuda, model_file, "-o", folder, *dims, code=1)
    assert "can be written by other users" in done.stdout


def test_a_model_without_fused_nodes(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    file = tmp_path / "plain.onnx"
    onnx.save(parse(GRAPH), file)
    assert "no fused nodes" in compile_(fake_cuda, file, "-o", tmp_path / "k", "--arch", "sm_90", code=2).stderr


def test_shapes_that_depend_on_data_are_incomplete(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    plain = parse(
        "agraph (float[8] x) => (float[1, n] y) { a = NonZero(x)  b = Cast<to=1>(a)  c = Tanh(b)  y = Mul(c, b) }"
    )
    file = tmp_path / "fused.onnx"
    onnxfuse.optimize(plain).save(file)
    done = compile_(fake_cuda, file, "-o", tmp_path / "k", "--arch", "sm_90", code=1)
    assert "depend on data" in done.stdout


def test_the_shapes_are_those_of_a_run(model: onnx.ModelProto) -> None:
    for batch, tokens in ((1, 3), (2, 5), (3, 1)):
        found = {
            n.program: n.shapes for n in node_shapes(model, {"batch": [batch], "tokens": [tokens]}) if "." not in n.name
        }
        seen = {program: [tuple(shapes)] for program, shapes in shapes_seen(model, feeds(batch, tokens))}
        assert found == seen


def test_only_what_a_node_depends_on_must_be_given() -> None:
    plain = parse("agraph (float[a, 8] x, float[b, 8] y) => (float[a, 8] p, float[b, 8] q) "
                  "{ s = Tanh(x)  p = Mul(s, x)  q = Relu(y) }")  # fmt: skip
    optimized = onnxfuse.optimize(plain).model
    (node,) = node_shapes(optimized, {"a": [1, 2]})
    assert node.shapes == [((1, 8),), ((2, 8),)]
    with pytest.raises(OnnxfuseError, match=r"without: a\)"):
        node_shapes(optimized, {"b": [1]})


def test_with_the_real_compiler(fake_cuda: FakeCuda, nvrtc: str, tmp_path: Path) -> None:
    """Machine code for every architecture asked for, which the driver that plays one takes for ELF files."""
    plain = parse("agraph (float[n, 64] x) => (float[n, 64] y) { a = Tanh(x)  b = Mul(a, x)  y = Softmax(b) }")
    optimized = onnxfuse.optimize(plain).model
    made = onnxfuse.compile_kernels(optimized, tmp_path / "k", ["sm_80", "sm_90"], {"n": [4]})
    assert made.ok
    assert made.made == len(list((tmp_path / "k").iterdir())) >= 4
    assert made.compiler.split(".")[0].isdecimal()
    (node,) = node_shapes(optimized, {"n": [4]})
    case = Case("softmax", node.program, tuple(node.shapes[0]))
    assert fake_cuda.run(case.request((90,)), **OFF, ONNXFUSE_KERNELS=tmp_path / "k") == ("softmax ran\n", "")
