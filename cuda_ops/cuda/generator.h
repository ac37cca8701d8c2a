// The source text of a kernel, from its statements, its plan and its schedule.
#pragma once

#include <string>
#include <vector>

#include "parameters.h"
#include "schedule.h"

namespace onnxfuse::cuda {

struct LaunchGrid {
  uint32_t x = 1, y = 1;
};

struct Generated {
  std::string source;                  // templates included: all that the compiler needs
  std::vector<std::string> functions;  // to launch one after the other, all with the same parameters
  std::vector<LaunchGrid> grids;       // of each function
  Parameters parameters;
  uint32_t threads = 0;
  size_t scratch_bytes = 0;
  size_t zeroed_bytes = 0;  // at the beginning of the scratch memory: 0 before the first function
};

Generated generate(const Kernel& kernel, const Plan& plan, const Stages& stages, const Schedule& schedule);

}  // namespace onnxfuse::cuda
