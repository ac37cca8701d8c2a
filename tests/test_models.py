"""Whole models: networks from PyTorch and published models compute the same once they are optimized."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data

import onnxfuse
from models import fetch as fetching
from models.fetch import FetchError, catalogue, feeds, fetch

# Published models, and how many fused nodes there must be at least. silero_vad holds 25 Ifs, and a copy of the network
# for each sampling rate in their branches.
PUBLISHED = {
    "ch_PP-OCRv4_rec_infer": 19,  # what its 224 other operators computed goes into convolutions
    "ch_PP-OCRv4_det_infer": 10,  # 200 others likewise
    "ch_ppocr_mobile_v2.0_cls_infer": 0,  # all that could be goes into convolutions
    "magika": 5,
    "silero_vad": 2,
    "silero_vad_16k_op15": 1,
    "silero_vad_op18_ifless": 2,
}
Arrays = dict[str, np.ndarray]


def run(model: onnx.ModelProto, feed: Arrays, library: bool, optimizations: bool = True) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if not optimizations:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library:
        options.register_custom_ops_library(str(onnxfuse.library_path()))
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def assert_close(got: list[np.ndarray], wanted: list[np.ndarray], share: float, what: str) -> None:
    assert len(got) == len(wanted)
    for index, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), what
        # ONNX Runtime's logistic is exact to some 1e-7 of 1 only, and 0 where the true value is below.
        limit = share * float(np.abs(b.astype(np.float64)).max(initial=0)) + 3e-7
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=0, atol=limit, err_msg=f"{what}, output {index}"
        )


def fused_nodes(graph: onnx.GraphProto) -> int:
    inner = (a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
    return sum(node.domain == "onnxfuse" for node in graph.node) + sum(map(fused_nodes, inner))


@pytest.fixture(scope="module", params=networks.NETWORKS)
def network(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("exporter", networks.EXPORTERS)
def test_networks_compute_what_pytorch_computes(network: str, exporter: str) -> None:
    model = onnx.load_model_from_string(networks.export(network, exporter))
    result = onnxfuse.optimize(model, target="cpu")
    onnx.checker.check_model(result.model, full_check=True)
    assert fused_nodes(result.model.graph) == len(result.report.fusions) > 0
    assert [v.name for v in result.model.graph.input] == [v.name for v in model.graph.input]
    # float16: PyTorch and ONNX Runtime round at different places, each of them to 11 bits, and errors add up.
    share = 5e-3 if networks.NETWORKS[network].dtype.itemsize == 2 else 2e-6
    for batch in (2, 1, 5):
        inputs = networks.example(network, batch)
        wanted = [networks.module(network)(*inputs).detach().numpy()]
        feed = {f"input{i}": x.numpy() for i, x in enumerate(inputs)}
        assert_close(run(model, feed, library=False), wanted, share, f"the exported model, batch {batch}")
        for library in (True, False):
            for optimizations in (True, False):
                what = f"batch {batch}, library {library}, optimizations {optimizations}"
                assert_close(run(result.model, feed, library, optimizations), wanted, share, what)


@pytest.mark.parametrize("exporter", networks.EXPORTERS)
def test_a_second_optimization_of_a_network_changes_nothing(network: str, exporter: str) -> None:
    once = onnxfuse.optimize(onnx.load_model_from_string(networks.export(network, exporter)), target="cpu").model
    twice = onnxfuse.optimize(once, target="cpu").model
    assert twice.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_a_model_whose_every_weight_is_external_is_fused_and_keeps_its_data(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(networks.export("block", "dynamo"))
    for folder in ("source", "out"):
        (tmp_path / folder).mkdir()
    source, out = tmp_path / "source" / "model.onnx", tmp_path / "out" / "model.onnx"
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:  # ONNX Runtime reads no axes and shapes from other files
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
            set_external_data(tensor, "weights")
    onnx.save_model(model, source)
    result = onnxfuse.optimize(source, target="cpu")
    assert any(fusion.op_type == "FusedRMSNorm" and "1e-06" in fusion.program for fusion in result.report.fusions)
    result.save(out)
    assert (out.parent / "weights").read_bytes() == (source.parent / "weights").read_bytes()
    (inputs,) = networks.example("block", 3)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(onnxfuse.library_path()))
    session = ort.InferenceSession(out, options, providers=["CPUExecutionProvider"])
    wanted = networks.module("block")(inputs).detach().numpy()
    assert_close(session.run(None, {"input0": inputs.numpy()}), [wanted], 2e-6, "external data")


@pytest.mark.network
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_hold_parity(name: str, tmp_path: Path) -> None:
    source = fetch(name)
    original = onnx.load(source)
    result = onnxfuse.optimize(source, target="cpu")
    result.save(tmp_path / "out.onnx")
    optimized = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(optimized)
    assert fused_nodes(optimized.graph) >= PUBLISHED[name]
    assert result.report.nodes_after < result.report.nodes_before
    assert result.report.fusions or result.report.respelled
    for index, feed in enumerate(feeds(name)):
        wanted = run(original, feed, library=False, optimizations=False)
        for library in (True, False):
            what = f"inputs {index}, library {library}"
            assert_close(run(optimized, feed, library), wanted, 1e-4, what)


def test_the_catalogue_is_complete_and_its_inputs_are_made_the_same_each_time() -> None:
    for name, model in catalogue().items():
        assert len(model.sha256) == 64
        assert model.inputs
        assert model.licence
        for first, second, other in zip(feeds(name, 1), feeds(name, 1), feeds(name, 2), strict=True):
            assert all(np.array_equal(first[key], second[key]) for key in first)
            assert any(not np.array_equal(first[key], other[key]) for key in first)


def test_masks_keep_at_least_one_element_of_each_row() -> None:
    masks = [feed["attention_mask"] for seed in range(10) for feed in feeds("minilm_int8", seed)]
    assert all(np.all(mask[:, 0] == 1) and np.all(np.diff(mask, axis=1) <= 0) for mask in masks)
    assert any(0 in mask for mask in masks)


def test_unknown_models_are_named() -> None:
    with pytest.raises(FetchError, match=r"no model 'unknown'; there are .*magika"):
        fetch("unknown")


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "CACHE", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError, match=r"could not download magika==.*\n.*by hand"):
        fetch("magika")
    assert not list(tmp_path.iterdir())


@pytest.mark.network
def test_a_damaged_file_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "CACHE", tmp_path)
    name = "silero_vad_openvino_16k"
    (tmp_path / f"{name}.onnx").write_bytes(b"damaged")
    path = fetch(name)
    assert path.parent == tmp_path
    onnx.checker.check_model(path)
    assert [p.suffix for p in tmp_path.iterdir()] == [".onnx"] * 6  # all models of the package came along
