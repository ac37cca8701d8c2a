#include "generate_kernels.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "horizontal.h"

namespace onnxfuse::cuda {
namespace {

// Of a block that takes tiles from a queue: with 512, the loop around columns of 64 KB leaves registers to spill.
constexpr int kMostQueueThreads = 256;
constexpr int kMostMultiprocessors = 256;  // the largest GPU of 2026 has 192

// The kernels of the program that have points to compute, in their order; without stages and schedules.
std::vector<Part> parts_of(const Program& program, const BoundProgram& bound, const ActualTypes& types) {
  std::vector<Part> parts;
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    Plan plan = make_plan(kernel, bound.kernels[k], types);
    if (plan.parallel_points == 0) continue;
    const bool lanes_reduced = lanes_along_reduced(kernel, plan);
    parts.push_back({&kernel, std::move(plan), Stages(), lanes_reduced, Schedule()});
  }
  return parts;
}

void schedule(std::vector<Part>& parts, const Alignments& alignments, const DeviceModel& device) {
  for (Part& part : parts) {
    part.stages = make_stages(*part.kernel, part.plan, part.lanes_reduced);
    part.schedule = choose_schedule(*part.kernel, part.plan, part.stages, part.lanes_reduced, alignments, device);
    const Schedule& s = part.schedule;
    if (part.stages.scans.empty()) continue;
    part.stages = make_stages(*part.kernel, part.plan, part.lanes_reduced, s.resident, s.scan_parts);
  }
}

// A queue never paid in a node (H200, in a CUDA graph, us of a launch with one against a launch without): 16 equal
// chains of 256 KiB 3.84 against 3.23, 16 of 16 KiB to 1 MiB 3.72 against 3.12, one of 4 MiB and 15 of 16 KiB 3.94
// against 3.43, 8 means of rows of 32 to 4096 4.18 against 3.64, 8 of many short rows 10.70 against 7.87: the GPU deals
// out blocks as they come, which is a queue already. So only who asks for one gets it (LaunchMode::persistent).
std::vector<Generated> generate_all(std::vector<Part>& parts, const DeviceModel& device, LaunchMode mode) {
  std::vector<Generated> result;
  const auto alone = [&](const Part& p) { result.push_back(generate(*p.kernel, p.plan, p.stages, p.schedule)); };
  if (mode == LaunchMode::plain || mode == LaunchMode::dependent) {
    for (const Part& part : parts) alone(part);
    return result;
  }
  for (const std::vector<size_t>& launch : share_launches(parts)) {
    if (launch.size() == 1) {
      alone(parts[launch.front()]);
    } else {
      std::vector<const Part*> sharing;
      for (const size_t k : launch) sharing.push_back(&parts[k]);
      const bool queue = mode == LaunchMode::persistent && sharing.front()->schedule.threads <= kMostQueueThreads;
      result.push_back(generate_shared(sharing, queue, device));
    }
  }
  return result;
}

// All that a source depends on: the number of pieces of a reduction is a parameter, that of blocks matters to none.
auto form(const Schedule& s) {
  static_assert(sizeof(Schedule) == 13 * sizeof(int), "a new member of Schedule belongs here too");
  return std::make_tuple(s.kind, s.lanes, s.threads, s.group, s.slots, s.resident, s.cluster, std::min(s.splits, 2),
                         s.ahead, s.blocks, s.rows_ahead, s.common, s.long_scan, s.scan_parts);
}

}  // namespace

std::vector<Generated> generate_kernels(const Program& program, const BoundProgram& bound, const ActualTypes& types,
                                        const Alignments& alignments, const DeviceModel& device, LaunchMode mode) {
  std::vector<Part> parts = parts_of(program, bound, types);
  schedule(parts, alignments, device);
  return generate_all(parts, device, mode);
}

std::vector<std::string> sources_for_architecture(const Program& program, const BoundProgram& bound,
                                                  const ActualTypes& types, const Alignments& alignments,
                                                  int architecture) {
  std::vector<std::string> result;
  std::vector<Part> parts = parts_of(program, bound, types);
  std::set<std::vector<decltype(form(Schedule()))>> seen;
  for (int count = 1; count <= kMostMultiprocessors; ++count) {
    DeviceModel device;
    device.architecture = architecture;
    device.multiprocessors = count;
    schedule(parts, alignments, device);
    std::vector<decltype(form(Schedule()))> forms;
    for (const Part& part : parts) forms.push_back(form(part.schedule));
    if (!seen.insert(forms).second) continue;
    for (const Generated& kernel : generate_all(parts, device, LaunchMode::automatic)) {
      if (std::find(result.begin(), result.end(), kernel.source) == result.end()) result.push_back(kernel.source);
    }
  }
  return result;
}

}  // namespace onnxfuse::cuda
