// Whether a result may lie where one of the tensors lies that it is computed from.
#pragma once

#include "binding.h"

namespace onnxfuse {

// Of the inputs of a FusedElementwise, the first so many are those over which ONNX Runtime may have its first output
// written: when no other node needs the input any more, and shape and element size are the same.
constexpr int kOverwritten = 4;

// Whether each element of the output is computed from that very element of the input, and no other is from it.
bool is_pointwise(const Program& program, const BoundProgram& bound, int input, int output);

}  // namespace onnxfuse
