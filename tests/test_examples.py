"""The examples for other languages and tools: run where their tools are here, otherwise checked as far as they can be.

ONNX Runtime's C++ headers and C# sources come from an npm package, which is downloaded once into build/.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import parse

import onnxfuse

NPM_PACKAGE = "com.github.asus4.onnxruntime@0.4.9"
GRAPH = "g (float[n, 64] x) => (float[n, 64] y) { a = Tanh(x)  b = Mul(a, x)  y = Softmax(b) }"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    result = onnxfuse.optimize(parse(GRAPH), target="cpu")
    assert result.report.fusions
    path = tmp_path_factory.mktemp("examples") / "model.onnx"
    result.save(path)
    return path


@pytest.fixture(scope="module")
def expected() -> str:
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    e = np.exp(np.tanh(x) * x)
    return " ".join(f"{value:.5f}" for value in (e / e.sum())[:4])


@pytest.fixture(scope="module")
def sources(root) -> Path:
    """A folder with ONNX Runtime's C++ headers and C# sources, without the rest of the package."""
    folder = root / "build" / "onnxruntime-sources"
    if not folder.is_dir():
        if shutil.which("npm") is None:
            pytest.skip("ONNX Runtime's headers come with npm, which is not installed")
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            _fetch_sources(Path(work))
            if not folder.is_dir():  # or another worker was faster
                Path(work, "sources").rename(folder)
    return folder


def _fetch_sources(work: Path) -> None:
    command = ["npm", "pack", NPM_PACKAGE]
    packed = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False, timeout=300)
    archives = list(work.glob("*.tgz"))
    if packed.returncode or not archives:
        pytest.skip(f"npm could not download {NPM_PACKAGE}: {packed.stderr.strip()[-200:]}")
    (work / "sources").mkdir()
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            name = Path(member.name).name
            header = member.name.endswith(".h") and "/Headers/" in member.name and "-simulator" in member.name
            if member.isfile() and (header or name.endswith(".shared.cs")):
                (work / "sources" / name).write_bytes(archive.extractfile(member).read())


def output(*command: object, **options: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_python(root, model, expected):
    assert output(sys.executable, root / "examples/python/run.py", model) == expected


@pytest.mark.network
def test_cpp(root, model, expected, sources, tmp_path):
    """Against the very library that Python uses, found under the name that it has in ONNX Runtime's releases."""
    compiler = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    capi = Path(onnxruntime.__file__).parent / "capi"
    library = next(capi.glob("libonnxruntime.so.*"), None)
    if library is None:
        pytest.skip(f"no libonnxruntime.so in {capi}")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (tmp_path / name).symlink_to(library)
    arguments = ["-std=c++17", "-Wall", "-Werror", f"-isystem{sources}", f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}"]
    output(compiler, root / "examples/cpp/run.cc", *arguments, "-lonnxruntime", "-o", tmp_path / "run")
    assert output(tmp_path / "run", onnxfuse.library_path(), model) == expected
    missing = subprocess.run([tmp_path / "run", "/nowhere.so", model], capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert "nowhere.so" in missing.stderr


# What the Java example uses of ONNX Runtime, as its API documents it: enough for the compiler.
JAVA_STUBS = {
    "OrtException": "public class OrtException extends Exception {}",
    "OnnxValue": "public interface OnnxValue extends AutoCloseable {"
    " Object getValue() throws OrtException; @Override void close(); }",
    "OnnxTensor": "public class OnnxTensor implements OnnxValue {"
    " public static OnnxTensor createTensor(OrtEnvironment e, Object data) throws OrtException { return null; }"
    " public Object getValue() throws OrtException { return null; } public void close() {} }",
    "OrtEnvironment": "public class OrtEnvironment { public static OrtEnvironment getEnvironment() { return null; }"
    " public OrtSession createSession(String path, OrtSession.SessionOptions o) throws OrtException { return null; } }",
    "OrtSession": "import java.util.*; public class OrtSession implements AutoCloseable {"
    " public Set<String> getInputNames() { return null; }"
    " public Result run(Map<String, OnnxTensor> inputs) throws OrtException { return null; }"
    " public void close() throws OrtException {}"
    " public static class Result implements AutoCloseable { public OnnxValue get(int i) { return null; }"
    " public void close() {} }"
    " public static class SessionOptions implements AutoCloseable {"
    " public void registerCustomOpLibrary(String path) throws OrtException {} public void close() {} } }",
}


def test_java_compiles(root, tmp_path):
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler")
    folder = tmp_path / "ai" / "onnxruntime"
    folder.mkdir(parents=True)
    for name, text in JAVA_STUBS.items():
        (folder / f"{name}.java").write_text(f"package ai.onnxruntime; {text}")
    stubs = sorted(folder.glob("*.java"))
    output("javac", "-Werror", "-d", tmp_path / "out", *stubs, root / "examples/java/Run.java")


@pytest.mark.network
def test_csharp_calls_what_there_is(root, sources):
    """Every member of ONNX Runtime that the example names is public in its C# sources, with as many parameters."""
    text = (root / "examples/csharp/Run.cs").read_text("utf-8")
    assert text.count("{") == text.count("}")
    assert text.count("(") == text.count(")")
    session, options = ((sources / f"{n}.shared.cs").read_text("utf-8") for n in ("InferenceSession", "SessionOptions"))
    value, tensor = ((sources / f"{n}.shared.cs").read_text("utf-8") for n in ("NamedOnnxValue", "DenseTensor"))
    for source, pattern in (
        (options, r"public void RegisterCustomOpLibrary\(string \w+\)"),
        (session, r"public InferenceSession\(string \w+, SessionOptions \w+\)"),
        (session, r"public IReadOnlyDictionary<string, NodeMetadata> InputMetadata"),
        (session, r"Run\(\s*IReadOnlyCollection<NamedOnnxValue> \w+\)"),
        (value, r"public static NamedOnnxValue CreateFromTensor<T>\(string \w+, Tensor<T> \w+\)"),
        (value, r"public Tensor<T> AsTensor<T>\(\)"),
        (tensor, r"public DenseTensor\(ReadOnlySpan<int> \w+"),
    ):
        assert re.search(pattern, source), pattern


def test_optimum(root, tmp_path):
    if importlib.util.find_spec("optimum") is None or importlib.util.find_spec("optimum.onnxruntime") is None:
        pytest.skip("optimum-onnx is not installed")
    graph = """
    bert (int64[batch, tokens] input_ids, int64[batch, tokens] attention_mask)
        => (float[batch, tokens, 16] last_hidden_state)
    <float[32, 16] table, float[16] gamma, float[16] beta> {
        x = Gather(table, input_ids)
        y = Tanh(x)
        z = Add(x, y)
        m = Cast<to = 1>(attention_mask)
        one = Constant<value = int64[1] {2}>()
        w = Unsqueeze(m, one)
        masked = Mul(z, w)
        last_hidden_state = LayerNormalization(masked, gamma, beta)
    }
    """
    source = parse(graph)
    del source.opset_import[1:]
    rng = np.random.default_rng(0)
    for name, shape in (("table", (32, 16)), ("gamma", (16,)), ("beta", (16,))):
        source.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    onnx.save(source, tmp_path / "model.onnx")
    config = {"model_type": "bert", "hidden_size": 16, "vocab_size": 32, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    said = output(sys.executable, root / "examples/python/run_optimum.py", tmp_path, env=environment)
    assert "[1, 8, 16]" in said


def test_transformers_optimizer_first(root, model, tmp_path):
    onnx.save(parse(GRAPH), tmp_path / "in.onnx")
    script = root / "examples/python/transformers_optimizer.py"
    assert "3 -> 1 nodes" in output(sys.executable, script, tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert onnxfuse.validate(tmp_path / "in.onnx", tmp_path / "out.onnx").ok
