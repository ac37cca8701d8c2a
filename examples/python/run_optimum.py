"""Runs an optimized encoder of Hugging Face Optimum: run_optimum.py FOLDER, which holds config.json and model.onnx.

Optimum hands session options on to ONNX Runtime, so registering the library there is all that it takes.
"""

import sys

import onnxruntime
import torch
from optimum.onnxruntime import ORTModelForFeatureExtraction

import onnxfuse

folder = sys.argv[1]
onnxfuse.optimize(f"{folder}/model.onnx", target="cpu").save(f"{folder}/model_fused.onnx")

options = onnxruntime.SessionOptions()
options.register_custom_ops_library(str(onnxfuse.library_path()))
model = ORTModelForFeatureExtraction.from_pretrained(folder, file_name="model_fused.onnx", session_options=options)
tokens = torch.arange(1, 9).reshape(1, 8)
print(model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state.shape)
