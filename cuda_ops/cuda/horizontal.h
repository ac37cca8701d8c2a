// Several kernels of a node in one launch: each block computes a tile of one of them.
#pragma once

#include <vector>

#include "generator.h"

namespace onnxfuse::cuda {

// A kernel of a program and what was decided about it.
struct Part {
  const Kernel* kernel;
  Plan plan;
  Stages stages;
  bool lanes_reduced;
  Schedule schedule;
};

// The launches that a node's kernels share, by number; in each, the first of them in their order. Schedules change
// where that lets kernels share a launch.
std::vector<std::vector<size_t>> share_launches(std::vector<Part>& parts);

// The one kernel of such a launch. queue: its blocks take tile after tile, else each computes one.
Generated generate_shared(const std::vector<const Part*>& parts, bool queue, const DeviceModel& device);

}  // namespace onnxfuse::cuda
