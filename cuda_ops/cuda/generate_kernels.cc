#include "generate_kernels.h"

#include "unsupported.h"

namespace onnxfuse::cuda {

std::vector<Generated> generate_kernels(const Program& program, const BoundProgram& bound, const ActualTypes& types,
                                        const Alignments& alignments, const DeviceModel& device) {
  refuse_scans_and_arguments(program, "CUDA");
  std::vector<Generated> result;
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    const Plan plan = make_plan(kernel, bound.kernels[k], types);
    if (plan.parallel_points == 0) continue;
    const bool lanes_reduced = lanes_along_reduced(plan);
    const Stages stages = make_stages(kernel, plan, lanes_reduced);
    const Schedule schedule = choose_schedule(kernel, plan, stages, lanes_reduced, alignments, device);
    result.push_back(generate(kernel, plan, stages, schedule));
  }
  return result;
}

}  // namespace onnxfuse::cuda
