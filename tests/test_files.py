"""Model files: what is refused and how, and that writing leaves either everything or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import files
from onnxfuse.errors import ModelError
from onnxfuse.external_data import external_tensors, read_external, with_small_values
from onnxfuse.files import load_model, save_model


def small_model() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "v"], ["y"])]
    weights = [numpy_helper.from_array(np.arange(512, dtype=np.float32) + i, name) for i, name in enumerate("wv")]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [512])], [value("y", 1, [512])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def externalize(model: onnx.ModelProto, folder: Path, locations: dict[str, str]) -> None:
    """Moves the weights into files; several may share one."""
    for tensor in model.graph.initializer:
        location = locations[tensor.name]
        path = folder / location
        path.parent.mkdir(parents=True, exist_ok=True)
        offset = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write(tensor.raw_data)
        entries = {"location": location, "offset": str(offset), "length": str(len(tensor.raw_data))}
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model with external data in two files, one in a folder of its own."""
    folder = tmp_path / "source"
    folder.mkdir()
    model = small_model()
    externalize(model, folder, {"w": "weights.data", "v": "more/v.bin"})
    onnx.save_model(model, folder / "model.onnx")
    (folder / "unrelated.data").write_bytes(b"1")
    return folder / "model.onnx"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def values(path: Path) -> list[list[float]]:
    loaded = load_model(path)
    return [
        np.frombuffer(read_external(tensor, loaded.base_dir), np.float32).tolist()
        for tensor in external_tensors(loaded.proto)
    ]


def test_loading_leaves_external_data_where_it_is(source: Path) -> None:
    loaded = load_model(source)
    assert loaded.base_dir == source.parent
    assert loaded.proto.SerializeToString() == source.read_bytes()
    assert all(not tensor.raw_data for tensor in loaded.proto.graph.initializer)
    assert sorted(values(source)) == [np.arange(512).tolist(), (np.arange(512) + 1).tolist()]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello, this is a text file\n" * 20, "not an ONNX model"),
        (bytes(range(256)) * 8, "not an ONNX model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an ONNX model"),
        (b"\x18\x00\x00\x00ORTM" + bytes(100), "ONNX Runtime's own format"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (numpy_helper.from_array(np.ones(3, np.float32), "t").SerializeToString(), "not an ONNX model"),
        (onnx.ModelProto(ir_version=10).SerializeToString(), "not an ONNX model"),
    ],
    ids=["empty", "text", "garbage", "image", "ort", "lfs", "tensor", "no graph"],
)
def test_what_is_not_a_model_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as error:
        load_model(path)
    assert str(path) in str(error.value)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = small_model().SerializeToString()
    path = tmp_path / "model.onnx"
    for length in [*range(200), *range(200, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ModelError):
            load_model(path)
    path.write_bytes(data)
    load_model(path)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no file"):
        load_model(tmp_path / "missing.onnx")
    with pytest.raises(ModelError, match="folder"):
        load_model(tmp_path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "more/../../secret", "..\\secret", ""])
def test_data_outside_of_the_folder_is_refused(source: Path, location: str) -> None:
    (source.parent.parent / "secret").write_bytes(bytes(4096))
    model = onnx.load(source, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    source.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="not inside"):
        load_model(source)
    with pytest.raises(ModelError, match="not inside"):
        save_model(model, source.parent.parent / "out.onnx", source.parent)


def test_data_behind_links_is_refused_unless_the_model_is_there_too(source: Path) -> None:
    cache, elsewhere = source.parent.parent / "cache", source.parent.parent / "elsewhere"
    (cache / "more").mkdir(parents=True)
    for name in ("model.onnx", "weights.data", "more/v.bin"):
        (cache / name).symlink_to(source.parent / name)
    assert sorted(values(cache / "model.onnx")) == sorted(values(source))
    elsewhere.mkdir()
    (source.parent / "weights.data").rename(elsewhere / "weights.data")
    (source.parent / "weights.data").symlink_to(elsewhere / "weights.data")
    with pytest.raises(ModelError, match="leads out"):
        load_model(source)


def test_missing_and_short_data_is_refused(source: Path) -> None:
    data = source.parent / "weights.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ModelError, match="too short"):
        load_model(source)
    data.unlink()
    with pytest.raises(ModelError, match="missing"):
        load_model(source)


def test_data_in_bodies_functions_attributes_and_training_is_found() -> None:
    model = small_model()
    tensor = onnx.TensorProto(name="t", data_location=TensorProto.EXTERNAL)
    body = model.graph.node.add().attribute.add(name="g", type=onnx.AttributeProto.GRAPH).g
    body.initializer.append(tensor)
    body.sparse_initializer.add().values.CopyFrom(tensor)
    body.node.add().attribute.add(name="t", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
    body.node.add().attribute.add(name="ts", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)
    attribute = model.functions.add().node.add().attribute.add(name="s", type=onnx.AttributeProto.SPARSE_TENSOR)
    attribute.sparse_tensor.values.CopyFrom(tensor)
    model.training_info.add().algorithm.initializer.append(tensor)
    assert len(list(external_tensors(model))) == 6


def test_small_values_are_read_for_analysis_only(source: Path) -> None:
    model = load_model(source).proto
    tensor = model.graph.initializer.add()
    tensor.CopyFrom(model.graph.initializer[0])
    tensor.name, tensor.dims[0] = "small", 2
    next(entry for entry in tensor.external_data if entry.key == "offset").value = "4"
    next(entry for entry in tensor.external_data if entry.key == "length").value = "8"
    before = model.SerializeToString()
    result = with_small_values(model, source.parent)
    assert numpy_helper.to_array(result.graph.initializer[2]).tolist() == [1, 2]
    assert len(list(external_tensors(result))) == 2
    assert model.SerializeToString() == before
    assert with_small_values(model, None) is model
    assert with_small_values(small_model(), source.parent).graph.initializer[0].raw_data


def test_saving_elsewhere_copies_what_is_referenced(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    loaded = load_model(source)
    before = contents(source.parent)
    save_model(loaded.proto, out / "other.onnx", loaded.base_dir)
    written = contents(out)
    assert sorted(written) == ["more/v.bin", "other.onnx", "weights.data"]
    assert written["weights.data"] == before["weights.data"]
    assert values(out / "other.onnx") == values(source)
    assert contents(source.parent) == before
    save_model(loaded.proto, out / "other.onnx", loaded.base_dir)  # once more: the same files serve
    assert contents(out) == written


def test_saving_beside_the_source_leaves_the_data(source: Path) -> None:
    loaded = load_model(source)
    before = contents(source.parent)
    save_model(loaded.proto, source.parent / "out.onnx", loaded.base_dir)
    assert contents(source.parent) == before | {"out.onnx": before["model.onnx"]}


def test_saving_onto_the_input_is_safe(source: Path) -> None:
    loaded = load_model(source)
    loaded.proto.doc_string = "new"
    expected = values(source)
    save_model(loaded.proto, source, loaded.base_dir)
    assert load_model(source).proto.doc_string == "new"
    assert values(source) == expected
    assert sorted(contents(source.parent)) == ["model.onnx", "more/v.bin", "unrelated.data", "weights.data"]


def test_other_files_of_the_same_name_are_left_alone(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "weights.data").write_bytes(b"precious")
    loaded = load_model(source)
    save_model(loaded.proto, out / "model.onnx", loaded.base_dir)
    assert sorted(contents(out)) == ["model.onnx", "more/v.bin", "weights-1.data", "weights.data"]
    assert (out / "weights.data").read_bytes() == b"precious"
    assert values(out / "model.onnx") == values(source)
    assert loaded.proto.SerializeToString() == source.read_bytes()


def test_the_output_may_not_be_the_models_data(source: Path, tmp_path: Path) -> None:
    loaded = load_model(source)
    before = contents(source.parent)
    with pytest.raises(ModelError, match="holds the model's data"):
        save_model(loaded.proto, source.parent / "weights.data", loaded.base_dir)
    assert contents(source.parent) == before
    out = tmp_path / "out"
    out.mkdir()
    save_model(loaded.proto, out / "weights.data", loaded.base_dir)  # only the name is the same
    assert values(out / "weights.data") == values(source)


def test_bad_outputs_are_refused(tmp_path: Path, source: Path) -> None:
    model = small_model()
    with pytest.raises(ModelError, match="does not exist: create it"):
        save_model(model, tmp_path / "missing" / "out.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        save_model(model, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="no regular file"):
        save_model(model, tmp_path / "pipe")
    with pytest.raises(ModelError, match="give the model as a path"):
        save_model(load_model(source).proto, tmp_path / "out.onnx")
    (source.parent / "weights.data").unlink()
    with pytest.raises(ModelError, match="missing"):
        save_model(onnx.load(source, load_external_data=False), tmp_path / "out.onnx", source.parent)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("failing", ["fsync", "replace of data", "replace of model", "serialize"])
def test_nothing_remains_of_a_failed_save(
    source: Path, tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_bytes(b"old")
    loaded = load_model(source)
    replace, calls = Path.replace, []

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def fail_late(self: Path, target: Path) -> Path:
        calls.append(target)
        if (target.name == "model.onnx") == (failing == "replace of model"):
            fail()
        return replace(self, target)

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    elif failing == "serialize":
        monkeypatch.setattr(files, "_externalize", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail_late)
    with pytest.raises(ModelError, match="cannot be written: No space left on device"):
        save_model(loaded.proto, out / "model.onnx", loaded.base_dir)
    assert contents(out) == {"model.onnx": b"old"}
    assert [p.name for p in out.iterdir()] == ["model.onnx"]
    assert len(calls) == {"replace of data": 1, "replace of model": 3}.get(failing, 0)


def test_models_too_large_for_a_proto_get_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_PROTO_BYTES", 4096)
    model = small_model()
    model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "small"))
    before = model.SerializeToString()
    save_model(model, tmp_path / "big.onnx")
    assert sorted(contents(tmp_path)) == ["big.onnx", "big.onnx.data"]
    assert model.SerializeToString() == before
    assert len(list(external_tensors(load_model(tmp_path / "big.onnx").proto))) == 2
    assert onnx.load(tmp_path / "big.onnx").graph.initializer[1].raw_data == model.graph.initializer[1].raw_data


def test_the_written_file_has_ordinary_permissions(tmp_path: Path) -> None:
    save_model(small_model(), tmp_path / "out.onnx")
    (tmp_path / "plain").touch()
    assert (tmp_path / "out.onnx").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    save_model(small_model(), tmp_path / "out.onnx")
    (tmp_path / "out.onnx").chmod(0o640)
    save_model(small_model(), tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").stat().st_mode & 0o777 == 0o640


def test_a_write_protected_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(small_model(), tmp_path / "out.onnx")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write anything
    with pytest.raises(ModelError, match="write-protected"):
        save_model(small_model(), tmp_path / "out.onnx")


def test_a_link_to_the_input_is_replaced_and_not_the_input(source: Path) -> None:
    loaded = load_model(source)
    before = source.read_bytes()
    link = source.parent / "link.onnx"
    link.symlink_to(source)
    loaded.proto.doc_string = "new"
    save_model(loaded.proto, link, loaded.base_dir)
    assert source.read_bytes() == before
    assert values(link) == values(source)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_copying_needs_no_memory_for_the_weights(tmp_path: Path) -> None:
    model = small_model()
    externalize(model, tmp_path, {"w": "weights.data", "v": "weights.data"})
    with (tmp_path / "weights.data").open("r+b") as file:
        file.truncate(200 << 20)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "out").mkdir()
    script = (
        "import resource, sys; from onnxfuse.files import load_model, save_model\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)\n"
        "loaded = load_model(sys.argv[1]); save_model(loaded.proto, sys.argv[2], loaded.base_dir)"
    )
    arguments = [sys.executable, "-P", "-c", script, str(tmp_path / "model.onnx"), str(tmp_path / "out" / "model.onnx")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out" / "weights.data").stat().st_size == 200 << 20
