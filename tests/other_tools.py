"""Other tools as their users call them, a model to give them, and what each is expected to leave of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from graphs import feeds_for, parse

import onnxfuse

# Two fused nodes of one op type with different programs (a tool that takes them for one makes wrong numbers), and a
# third of another, around matrix products with weights.
GRAPH = """
agraph (float[rows, 16] x) => (float[rows, 16] y)
<float[16, 16] w, float[16] gamma, float half = {0.5}, float two = {2.0}, float eps = {1e-5}> {
    a = Mul(x, half)
    b = Tanh(a)
    c = Add(b, x)
    d = MatMul(c, w)
    mean = ReduceMean<axes = [-1]>(d)
    centred = Sub(d, mean)
    square = Pow(centred, two)
    variance = ReduceMean<axes = [-1]>(square)
    safe = Add(variance, eps)
    deviation = Sqrt(safe)
    normal = Div(centred, deviation)
    scaled = Mul(normal, gamma)
    e = MatMul(scaled, w)
    f = Sigmoid(e)
    y = Mul(e, f)
}
"""
FEEDS_SEED = 3

# What is left of the fused nodes, and what the model then computes.
ALL, NODES, SOME, NONE = "keeps all", "drops all functions", "drops some functions or overloads", "undoes the fusion"
RIGHT, WRONG, UNLOADABLE = "right", "wrong", "does not load"
SOUND = (ALL, RIGHT, RIGHT)


def source() -> onnx.ModelProto:
    model = parse(GRAPH)
    del model.opset_import[1:]
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(16, 16)) / 4, "gamma": 1 + rng.normal(size=16) / 4}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items())
    return model


def run(model: onnx.ModelProto, library: bool) -> np.ndarray | None:
    """The model's output, None where it does not load."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if library:
        options.register_custom_ops_library(str(onnxfuse.library_path()))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        feeds = feeds_for(source(), {"rows": 5}, seed=FEEDS_SEED)
        wanted = {i.name: i.type for i in session.get_inputs()}
        feeds = {k: v.astype(np.float16) if "float16" in wanted[k] else v for k, v in feeds.items()}
        return np.asarray(session.run(None, feeds)[0], np.float64)
    except Exception:  # ONNX Runtime's exceptions have no common base but this
        return None


def state(model: onnx.ModelProto, tolerance: float) -> tuple[str, str, str]:
    """What is left of the fused nodes, and the results with and without the library."""
    nodes = [n for n in model.graph.node if n.domain == "onnxfuse"]
    functions = {(f.name, f.overload) for f in model.functions if f.domain == "onnxfuse"}
    if not nodes:
        kept = NONE
    elif not functions:
        kept = NODES
    elif all((n.op_type, n.overload) in functions for n in nodes) and all(n.overload for n in nodes):
        kept = ALL
    else:
        kept = SOME
    truth = run(source(), library=False)
    assert truth is not None

    def verdict(result: np.ndarray | None) -> str:
        if result is None:
            return UNLOADABLE
        return RIGHT if np.abs(result - truth).max() <= tolerance else WRONG

    return kept, verdict(run(model, library=True)), verdict(run(model, library=False))


@dataclass(frozen=True)
class Line:
    """A line of the table: the tool, how it is called, and what it leaves, as `state` says it.

    `tolerance` is the largest error that the tool itself makes (in narrower types, say).
    """

    tool: str
    apply: Callable[[Path, Path], onnx.ModelProto]
    after: tuple[str, str, str]
    tolerance: float = 1e-5


def transformers_optimizer(level: int) -> Callable[[Path, Path], onnx.ModelProto]:
    def apply(path: Path, folder: Path) -> onnx.ModelProto:
        from onnxruntime.transformers import optimizer

        return optimizer.optimize_model(str(path), model_type="bert", opt_level=level).model

    return apply


def ort_graph_optimizations(path: Path, folder: Path) -> onnx.ModelProto:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(onnxfuse.library_path()))
    options.optimized_model_filepath = str(folder / "out.onnx")
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "out.onnx")


def ort_float16(path: Path, folder: Path) -> onnx.ModelProto:
    from onnxruntime.transformers import float16

    return float16.convert_float_to_float16(onnx.load(path))


def common_float16(path: Path, folder: Path) -> onnx.ModelProto:
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(onnx.load(path))


def quantize_dynamic(path: Path, folder: Path) -> onnx.ModelProto:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(path), str(folder / "out.onnx"))
    return onnx.load(folder / "out.onnx")


def quantize_static(path: Path, folder: Path) -> onnx.ModelProto:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.sets = iter([feeds_for(source(), {"rows": 5}, seed=s) for s in range(4)])

        def get_next(self) -> Any:
            return next(self.sets, None)

    quantize_static(str(path), str(folder / "out.onnx"), Reader())
    return onnx.load(folder / "out.onnx")


def quant_pre_process(path: Path, folder: Path) -> onnx.ModelProto:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(str(path), str(folder / "out.onnx"))
    return onnx.load(folder / "out.onnx")


def symbolic_shapes(path: Path, folder: Path) -> onnx.ModelProto:
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    return SymbolicShapeInference.infer_shapes(onnx.load(path))


def fixed_dimension(path: Path, folder: Path) -> onnx.ModelProto:
    from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

    model = onnx.load(path)
    make_dim_param_fixed(model.graph, "rows", 5)
    return model


def simplify(path: Path, folder: Path) -> onnx.ModelProto:
    import onnxsim

    return onnxsim.simplify(onnx.load(path))[0]


def slim(path: Path, folder: Path) -> onnx.ModelProto:
    import onnxslim

    return onnxslim.slim(str(path))


def optimizer(path: Path, folder: Path) -> onnx.ModelProto:
    import onnxoptimizer

    return onnxoptimizer.optimize(onnx.load(path))


def script_optimizer(path: Path, folder: Path) -> onnx.ModelProto:
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(onnx.load(path))


def ir_round_trip(path: Path, folder: Path) -> onnx.ModelProto:
    import onnx_ir

    onnx_ir.save(onnx_ir.load(path), folder / "out.onnx")
    return onnx.load(folder / "out.onnx")


def convert_version(path: Path, folder: Path) -> onnx.ModelProto:
    import onnx.version_converter

    return onnx.version_converter.convert_version(onnx.load(path), 19)


def shape_inference(path: Path, folder: Path) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(onnx.load(path))


def extract(path: Path, folder: Path) -> onnx.ModelProto:
    onnx.utils.extract_model(str(path), str(folder / "out.onnx"), ["x"], ["y"])
    return onnx.load(folder / "out.onnx")


def inline(path: Path, folder: Path) -> onnx.ModelProto:
    import onnx.inliner

    return onnx.inliner.inline_local_functions(onnx.load(path))


def external_data(path: Path, folder: Path) -> onnx.ModelProto:
    onnx.save(onnx.load(path), folder / "out.onnx", save_as_external_data=True, size_threshold=0)
    return onnx.load(folder / "out.onnx")


def olive(name: str) -> Callable[[Path, Path], onnx.ModelProto]:
    """A pass of Olive, run as its users do."""

    def apply(path: Path, folder: Path) -> onnx.ModelProto:
        from olive.workflows import run as run_workflow

        device = {"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}
        run_workflow(
            {
                "input_model": {"type": "ONNXModel", "model_path": str(path)},
                "systems": {"here": {"type": "LocalSystem", "accelerators": [device]}},
                "host": "here",
                "target": "here",
                "passes": {"only": {"type": name}},
                "cache_dir": str(folder / "cache"),
                "output_dir": str(folder / "out"),
                "log_severity_level": 4,
            }
        )
        return onnx.load(next((folder / "out").rglob("*.onnx")))

    return apply


def graphsurgeon(path: Path, folder: Path) -> onnx.ModelProto:
    import onnx_graphsurgeon as gs

    return gs.export_onnx(gs.import_onnx(onnx.load(path)))


LINES = [
    Line("ONNX Runtime: transformers optimizer, opt_level=0", transformers_optimizer(0), SOUND),
    Line("ONNX Runtime: optimized_model_filepath", ort_graph_optimizations, (NODES, RIGHT, UNLOADABLE)),
    Line("ONNX Runtime: transformers.float16", ort_float16, (ALL, UNLOADABLE, UNLOADABLE), 2e-2),
    Line("ONNX Runtime: quantize_dynamic", quantize_dynamic, SOUND, 0.2),
    Line("ONNX Runtime: quantize_static", quantize_static, SOUND, 0.2),
    Line("ONNX Runtime: quant_pre_process", quant_pre_process, (NONE, RIGHT, RIGHT)),
    Line("ONNX Runtime: symbolic_shape_infer", symbolic_shapes, SOUND),
    Line("ONNX Runtime: make_dim_param_fixed", fixed_dimension, SOUND),
    Line("onnxconverter-common: float16", common_float16, (ALL, UNLOADABLE, UNLOADABLE), 2e-2),
    Line("onnxsim", simplify, SOUND),
    Line("onnxslim", slim, (SOME, RIGHT, UNLOADABLE)),
    Line("onnxoptimizer", optimizer, SOUND),
    Line("onnxscript: optimizer", script_optimizer, (NONE, RIGHT, RIGHT)),
    Line("onnx_ir: load and save", ir_round_trip, SOUND),
    Line("onnx: version_converter", convert_version, (NODES, RIGHT, UNLOADABLE)),
    Line("onnx: shape_inference", shape_inference, SOUND),
    Line("onnx: utils.extract_model", extract, (SOME, RIGHT, UNLOADABLE)),
    Line("onnx: inliner", inline, (NONE, RIGHT, RIGHT)),
    Line("onnx: save with external data", external_data, SOUND),
    Line("Olive: OnnxPeepholeOptimizer", olive("OnnxPeepholeOptimizer"), (NONE, RIGHT, RIGHT)),
    Line("Olive: OrtTransformersOptimization", olive("OrtTransformersOptimization"), SOUND),
    Line("Olive: OnnxFloatToFloat16", olive("OnnxFloatToFloat16"), (ALL, UNLOADABLE, UNLOADABLE), 2e-2),
    Line("Olive: OnnxDynamicQuantization", olive("OnnxDynamicQuantization"), (NONE, RIGHT, RIGHT), 0.2),
    Line("onnx-graphsurgeon: import and export", graphsurgeon, (SOME, UNLOADABLE, UNLOADABLE)),
]
