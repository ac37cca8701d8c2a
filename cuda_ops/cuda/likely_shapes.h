// What shapes a node may meet, so that kernels are there before the first run that needs them.
#pragma once

#include <vector>

#include "../binding.h"
#include "../inference.h"

namespace onnxfuse::cuda {

// Sets of input shapes, the likeliest first: one where all extents are known, else one for each class of shapes that
// usually takes a kernel of its own (one row or several, extents that vectors divide or not, short or long reductions).
// declared: what is known of the inputs; empty, or an input without dimensions, where nothing is. The shapes agree with
// each other where the program says how, but they may contradict it all the same: bind() tells.
std::vector<std::vector<Shape>> likely_shapes(const Program& program, const std::vector<SymbolicShape>& declared);

}  // namespace onnxfuse::cuda
