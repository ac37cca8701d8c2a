// Runs the CUDA engine on a case, in host memory.
#pragma once

#include "cases.h"

namespace onnxfuse::cuda {

// Prints what happened; throws what the engine throws, or why there can be none.
void run_case(const Case& request);

}  // namespace onnxfuse::cuda
