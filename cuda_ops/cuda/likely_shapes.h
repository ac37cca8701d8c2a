// What shapes a node may meet, so that kernels are there before the first run that needs them.
#pragma once

#include <vector>

#include "../binding.h"
#include "../inference.h"

namespace onnxfuse::cuda {

// Shapes of a node's inputs, for a class of shapes that usually takes a kernel of its own: one row or several, extents
// that vectors divide or not, short or long reductions. Classes have the same numbers for all nodes, below
// kMostClasses.
struct LikelyShapes {
  int class_of_shapes = 0;
  std::vector<Shape> inputs;
};

// The likeliest first; one where all extents are known. declared: what is known of the inputs; empty, or an input
// without dimensions, where nothing is. The shapes agree with each other where the program says how, but they may
// contradict it all the same: bind() tells.
std::vector<LikelyShapes> likely_shapes(const Program& program, const std::vector<SymbolicShape>& declared);

}  // namespace onnxfuse::cuda
