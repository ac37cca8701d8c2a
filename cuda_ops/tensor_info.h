// What ONNX Runtime says of a tensor before a run.
#pragma once

#include "inference.h"
#include "ort_api.h"

namespace onnxfuse {

// Extents and names; no dimensions where the rank is not known.
SymbolicShape symbolic_shape(const Api& api, const OrtTensorTypeAndShapeInfo* info);

}  // namespace onnxfuse
