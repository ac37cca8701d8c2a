"""ONNX Runtime's transformers optimizer first, then onnxfuse: transformers_optimizer.py IN OUT.

The optimizer's own operators (attention, SkipLayerNormalization, FastGelu) come from what it recognizes; onnxfuse takes
those it knows into its regions and fuses what is left around them. The other order is not sound: see the table of what
other tools do.
"""

import sys

from onnxruntime.transformers import optimizer

import onnxfuse

first = optimizer.optimize_model(sys.argv[1], model_type="bert", opt_level=0)
result = onnxfuse.optimize(first.model, target="cpu")
result.save(sys.argv[2])
print(f"{result.report.nodes_before} -> {result.report.nodes_after} nodes")
