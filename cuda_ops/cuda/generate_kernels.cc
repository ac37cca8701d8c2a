#include "generate_kernels.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace onnxfuse::cuda {
namespace {

constexpr int kMostMultiprocessors = 256;  // the largest GPU of 2026 has 192

// The kernels of the program that have points to compute, in their order.
template <class Visit>
void for_each_kernel(const Program& program, const BoundProgram& bound, const ActualTypes& types, const Visit& visit) {
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    const Plan plan = make_plan(kernel, bound.kernels[k], types);
    if (plan.parallel_points == 0) continue;
    const bool lanes_reduced = lanes_along_reduced(kernel, plan);
    visit(kernel, plan, make_stages(kernel, plan, lanes_reduced), lanes_reduced);
  }
}

// All that a source depends on: the number of pieces of a reduction is a parameter.
auto form(const Schedule& s) {
  static_assert(sizeof(Schedule) == 11 * sizeof(int), "a new member of Schedule belongs here too");
  return std::make_tuple(s.kind, s.lanes, s.threads, s.group, s.slots, s.resident, s.cluster, std::min(s.splits, 2),
                         s.ahead, s.blocks, s.long_scan, s.scan_parts);
}

Generated write(const Kernel& kernel, const Plan& plan, const Stages& stages, bool lanes_reduced,
                const Schedule& schedule) {
  if (stages.scans.empty()) return generate(kernel, plan, stages, schedule);
  const Stages suited = make_stages(kernel, plan, lanes_reduced, schedule.resident, schedule.scan_parts);
  return generate(kernel, plan, suited, schedule);
}

}  // namespace

std::vector<Generated> generate_kernels(const Program& program, const BoundProgram& bound, const ActualTypes& types,
                                        const Alignments& alignments, const DeviceModel& device) {
  std::vector<Generated> result;
  for_each_kernel(program, bound, types,
                  [&](const Kernel& kernel, const Plan& plan, const Stages& stages, bool lanes_reduced) {
                    const Schedule schedule = choose_schedule(kernel, plan, stages, lanes_reduced, alignments, device);
                    result.push_back(write(kernel, plan, stages, lanes_reduced, schedule));
                  });
  return result;
}

std::vector<std::string> sources_for_architecture(const Program& program, const BoundProgram& bound,
                                                  const ActualTypes& types, const Alignments& alignments,
                                                  int architecture) {
  std::vector<std::string> result;
  for_each_kernel(
      program, bound, types, [&](const Kernel& kernel, const Plan& plan, const Stages& stages, bool lanes_reduced) {
        std::set<decltype(form(Schedule()))> seen;
        for (int count = 1; count <= kMostMultiprocessors; ++count) {
          DeviceModel device;
          device.architecture = architecture;
          device.multiprocessors = count;
          const Schedule schedule = choose_schedule(kernel, plan, stages, lanes_reduced, alignments, device);
          if (seen.insert(form(schedule)).second) {
            result.push_back(write(kernel, plan, stages, lanes_reduced, schedule).source);
          }
        }
      });
  return result;
}

}  // namespace onnxfuse::cuda
