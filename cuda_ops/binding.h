// A kernel's maps resolved against the shapes of the tensors that a run brings.
#pragma once

#include <cstdint>
#include <vector>

#include "program.h"

namespace onnxfuse {

using Shape = std::vector<int64_t>;

// Element index of a point = offset + sum over the space dimensions of stride[d] * index[d], and over the kernel's
// rolls of rolled[r] * index of the roll. An output's stride is 0 only where its map lacks the dimension (store at
// index 0 only), has it in a roll, or the extent is 1 or 0.
struct Access {
  int64_t offset = 0;
  std::vector<int64_t> strides;  // one for each dimension of the space; 0: broadcast
  std::vector<int64_t> rolled;   // one for each roll; 0: not used
};

struct BoundKernel {
  std::vector<int64_t> extents;  // of the space's dimensions
  std::vector<Access> inputs;    // one for each statement; empty strides for those that are no inputs
  std::vector<Access> outputs;   // one for each of the kernel's outputs

  // Product of all extents. 0 where a reduced dimension has extent 0, although such a kernel still stores its rows'
  // values (the sum of nothing).
  int64_t points() const;
};

struct BoundProgram {
  uint64_t number = 0;  // tells it from every other one of the process
  std::vector<BoundKernel> kernels;
  std::vector<Shape> output_shapes;
};

// Resolves extents, checks every index against the tensors' shapes and every product against 2^62; throws
// ProgramError naming the input and both extents.
BoundProgram bind(const Program& program, const std::vector<Shape>& input_shapes);

}  // namespace onnxfuse
