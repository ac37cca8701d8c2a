// From a program and its shapes to kernels that can be compiled: plan, schedule and source of each.
#pragma once

#include <string>
#include <vector>

#include "../engine.h"
#include "generator.h"

namespace onnxfuse::cuda {

// Those of all kernels of the program that have points to compute.
std::vector<Generated> generate_kernels(const Program& program, const BoundProgram& bound, const ActualTypes& types,
                                        const Alignments& alignments, const DeviceModel& device,
                                        LaunchMode mode = LaunchMode::automatic);

// The sources that generate_kernels() has for GPUs of the architecture, whatever the number of their multiprocessors.
std::vector<std::string> sources_for_architecture(const Program& program, const BoundProgram& bound,
                                                  const ActualTypes& types, const Alignments& alignments,
                                                  int architecture);

}  // namespace onnxfuse::cuda
