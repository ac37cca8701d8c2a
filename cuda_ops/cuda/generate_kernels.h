// From a program and its shapes to kernels that can be compiled: plan, schedule and source of each.
#pragma once

#include <vector>

#include "generator.h"

namespace onnxfuse::cuda {

// One for each kernel of the program that has points to compute; in their order.
std::vector<Generated> generate_kernels(const Program& program, const BoundProgram& bound, const ActualTypes& types,
                                        const Alignments& alignments, const DeviceModel& device);

}  // namespace onnxfuse::cuda
