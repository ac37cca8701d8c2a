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
  Parameters parameters;
  LaunchGrid grid;
  uint32_t threads = 0;
  size_t scratch_bytes = 0;
};

Generated generate(const Kernel& kernel, const Plan& plan, const Stages& stages, const Schedule& schedule);

}  // namespace onnxfuse::cuda
