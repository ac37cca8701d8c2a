"""Opens an If of which only one branch counts: its condition is known, or the other branch can give no result.

TorchScript's exporter writes an If wherever traced code asked for a shape. The branch that is taken joins the graph
around it, so that its operators can join the regions there and know the ranks of what they read. ONNX Runtime does so
for constants only, and takes a microsecond or two for each If that it runs: silero_vad, its variant of opset 15 and
silero_vad_half, 0.1 ms a run, take 0.86 to 0.88 of that time with their five or six Ifs opened (minima, one thread).
"""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxfuse.bodies import graphs
from onnxfuse.external_data import with_small_values
from onnxfuse.rewrites.dead_branches import find_dead_branches
from onnxfuse.rewrites.if_branches import open_branches
from onnxfuse.rewrites.known_conditions import KnownConditions
from onnxfuse.rewrites.shapes import is_refused

__all__ = ["open_known_ifs"]

_PLAIN_INITIALIZERS = 4  # the IR version from which on they need not be inputs of their graph


def open_known_ifs(model: onnx.ModelProto, opset: int, base_dir: Path | None = None) -> tuple[onnx.ModelProto, int]:
    """The model with them opened, and how many; the model itself where there are none.

    External data is in `base_dir`.
    """
    opened = 0
    if model.ir_version < _PLAIN_INITIALIZERS:
        return model, opened
    # What an opened branch makes known may open others.
    while any(n.op_type == "If" for graph in graphs(model.graph) for n in graph.node):
        search = KnownConditions(with_small_values(model, base_dir), opset)
        found = search.known or find_dead_branches(search)
        if not found:
            break
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        open_branches(copy, found)
        # With the ranks that come out, an operator may be known to fail where the model is loaded, though none runs it.
        if is_refused(copy) and not is_refused(model):
            break
        model = copy
        opened += sum(map(len, found.values()))
    return model, opened
