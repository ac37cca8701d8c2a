// The source text of a kernel, from its statements, its plan and its schedule.
#pragma once

#include <string>
#include <vector>

#include "accesses.h"
#include "parameters.h"
#include "schedule.h"

namespace onnxfuse::cuda {

struct LaunchGrid {
  uint32_t x = 1, y = 1;
  uint32_t threads = 0;       // of a block
  uint32_t shared_bytes = 0;  // for a block, besides what the function declares
};

struct Generated {
  std::string source;                  // templates included: all that the compiler needs
  std::vector<std::string> functions;  // to launch one after the other, all with the same parameters
  std::vector<LaunchGrid> grids;       // of each function
  std::vector<uint8_t> parameters;     // the bytes of their struct
  std::vector<Parameters::Pointer> pointers;
  uint32_t turns = 0;  // blocks of a cluster of those that take rows in turns: no more than the GPU has at a time
  size_t scratch_bytes = 0;
  size_t zeroed_bytes = 0;  // at the beginning of the scratch memory: 0 before the first function
  bool clears = false;      // it sees to that itself where its stream has a number
};

Generated generate(const Kernel& kernel, const Plan& plan, const Stages& stages, const Schedule& schedule);

// What the source of any kernel begins with: the templates, and the functions of the primitives that `kernels` use.
std::string source_head(const std::vector<const Kernel*>& kernels, const Schedule& schedule);
// The parameters of a kernel whose schedule is one launch, and its blocks.
void declare_parameters(const Kernel& kernel, const Plan& plan, Accesses& accesses, Parameters& parameters);
uint32_t blocks_of(const Plan& plan, const Schedule& schedule);

constexpr size_t kMaxParameterBytes = 4096;  // that every driver accepts

}  // namespace onnxfuse::cuda
