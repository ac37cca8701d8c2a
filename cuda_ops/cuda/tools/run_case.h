// Runs the CUDA engine on a case, in host memory.
#pragma once

#include <memory>

#include "cases.h"

namespace onnxfuse::cuda {

// The engine of a case, which knows its shapes only where `known`. Throws what the engine throws, or why there can be
// none.
std::unique_ptr<Engine> create(const Case& request, bool known);
// Prints what happened.
void run(const Case& request, const Engine& engine);

}  // namespace onnxfuse::cuda
