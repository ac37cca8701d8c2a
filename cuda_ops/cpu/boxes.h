// A kernel with rolls as kernels without: a space cut into boxes in which no roll wraps around.
#pragma once

#include <vector>

#include "../binding.h"
#include "../program.h"

namespace onnxfuse::cpu {

// A part of a kernel's space, as a kernel of its own: its points are numbered from 0. It lacks the outputs that are
// stored elsewhere, at index 0 of a dimension.
struct Box {
  Kernel kernel;
  BoundKernel bound;
};

// No dimension that is not reduced may have extent 0.
std::vector<Box> unrolled(const Kernel& kernel, const BoundKernel& bound);

}  // namespace onnxfuse::cpu
