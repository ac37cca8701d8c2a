// A bound kernel's iteration space as the GPU sees it: dimensions of extent 1 dropped, neighbouring ones merged.
#pragma once

#include <cstdint>
#include <vector>

#include "../binding.h"
#include "../program.h"

namespace onnxfuse::cuda {

struct PlanDim {
  int64_t extent = 1;
  bool fixed = false;  // the program itself says the extent, and generated code may hold it
};

// shift + sum of scales[k] * (index along the parallel dimension k) is less than twice the points, and taken modulo
// them.
struct PlanRoll {
  std::vector<int64_t> scales;
  int64_t shift = 0, points = 1;
};

struct PlanAccess {
  bool used = false;  // false: the statement is not an input
  bool output = false;
  int tensor = -1;
  Type storage = Type::f32;  // of the tensor's elements, as the session has them
  bool round = false;        // an output that the program declares with 16 bits and the session holds as f32
  int64_t offset = 0;        // in elements
  std::vector<int64_t> parallel, reduced;  // strides along the plan's dimensions, in elements
  std::vector<int64_t> rolled;             // strides along the plan's rolls, in elements
  uint32_t lacks_parallel = 0;             // outputs: the sets of dimensions that are missing in the map
  uint32_t lacks_reduced = 0;
  bool per_point = false;  // outputs: has reduced dimensions in its map
};

// Points are numbered over the parallel dimensions (each thread or group of threads has its own ones), and, where the
// kernel reduces, over the reduced ones.
struct Plan {
  std::vector<PlanDim> parallel, reduced;
  std::vector<PlanRoll> rolls;
  std::vector<PlanAccess> inputs;   // one for each statement
  std::vector<PlanAccess> outputs;  // one for each output of the kernel
  bool reduces = false;             // or scans: has reduced dimensions
  int64_t parallel_points = 1;
  int64_t reduced_points = 1;
  bool fixed_reduction = false;  // the program fixes reduced_points
  bool wide_parallel = false;    // some offset along the parallel dimensions needs 64 bits
  bool wide_reduced = false;     // the same, along the reduced ones
};

// The element types that the session decided on, by tensor number.
struct ActualTypes {
  std::vector<Type> inputs, outputs;
};

// Whether the parallel points have elements of their own.
bool varies(const PlanAccess& access);

Plan make_plan(const Kernel& kernel, const BoundKernel& bound, const ActualTypes& types);

}  // namespace onnxfuse::cuda
