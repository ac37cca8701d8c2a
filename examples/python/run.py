"""Runs an optimized model: run.py MODEL. All that is special is one line that registers the library."""

import sys

import numpy as np
import onnxruntime

import onnxfuse

options = onnxruntime.SessionOptions()
options.register_custom_ops_library(str(onnxfuse.library_path()))
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 64)
(y,) = session.run(None, {session.get_inputs()[0].name: x})
print(" ".join(f"{value:.5f}" for value in y.ravel()[:4]))
