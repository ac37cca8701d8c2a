#include "generator.h"

#include <algorithm>
#include <stdexcept>

#include "body.h"
#include "embedded_kernels.h"
#include "expression.h"

namespace onnxfuse::cuda {
namespace {

constexpr size_t kMaxParameterBytes = 4096;  // that every driver accepts

// Each file uses only what those before it define.
constexpr const char* kTemplates[] = {"types.cuh", "convert.cuh", "index.cuh",  "math.cuh",   "division.cuh",
                                      "fast.cuh",  "idioms.cuh",  "reduce.cuh", "moments.cuh"};

std::string primitive_functions(const Kernel& kernel) {
  std::set<std::string> seen;
  std::string text;
  for (const Statement& s : kernel.statements) {
    if (s.op == Op::input || s.op == Op::constant || s.op == Op::cast || is_reduction(s.op)) continue;
    const Type operand = kernel.statements[s.operands[s.op == Op::op_where ? 1 : 0]].type;
    if (seen.insert(function_name(s.op, operand)).second) text += function_text(s.op, operand, s.type);
  }
  return text;
}

}  // namespace

Generated generate(const Kernel& kernel, const Plan& plan, const Stages& stages, const Schedule& schedule) {
  Generated result;
  Accesses accesses(plan, schedule, result.parameters);
  accesses.declare_pointers();
  const bool wide = plan.wide_parallel;
  result.parameters.add(
      {wide ? ParameterKind::wide : ParameterKind::narrow, accesses.index_type(), "points", plan.parallel_points, -1});
  if (plan.reduces) {
    result.parameters.add({plan.wide_reduced ? ParameterKind::wide : ParameterKind::narrow, accesses.reduced_type(),
                           "length", plan.reduced_points, -1});
  }

  const int64_t covered = int64_t{schedule.across()} * (schedule.kind == ScheduleKind::row ? 1 : schedule.lanes);
  result.grid.x = static_cast<uint32_t>((plan.parallel_points + covered - 1) / covered * schedule.cluster);
  result.grid.y = static_cast<uint32_t>(schedule.splits);
  result.threads = static_cast<uint32_t>(schedule.threads);
  if (schedule.splits > 1) {
    size_t reductions = 0;
    for (const auto& pass : stages.reductions) reductions += pass.size();
    const int64_t bytes = 8 * plan.parallel_points * schedule.splits;
    const int64_t piece = (plan.reduced_points + schedule.splits - 1) / schedule.splits;
    const int64_t step = schedule.kind == ScheduleKind::row ? schedule.lanes : 1;
    result.parameters.add({ParameterKind::scratch, "char*", "scratch", 0, -1});
    result.parameters.add({ParameterKind::wide, "i64", "partial_bytes", bytes, -1});
    result.parameters.add({ParameterKind::wide, "i64", "piece", (piece + step - 1) / step * step, -1});
    result.scratch_bytes = reductions * static_cast<size_t>(bytes);
  }
  if (result.parameters.bytes().size() > kMaxParameterBytes) {
    throw std::runtime_error(
        "a fused kernel has more inputs and outputs than a CUDA kernel takes; use a lower limit of "
        "fused nodes for this model");
  }

  for (const char* file : kTemplates) result.source += embedded_kernel(file);
  if (schedule.cluster > 1) result.source += embedded_kernel("cluster.cuh");
  result.source += primitive_functions(kernel);
  result.source += result.parameters.struct_text();
  const int launches = schedule.splits > 1 ? stages.passes + 1 : 1;
  for (int launch = 0; launch < launches; ++launch) {
    const bool last = launch == launches - 1;
    const std::string name = launches == 1 ? "onnxfuse_kernel" : "onnxfuse_kernel_" + std::to_string(launch);
    BodyWriter body(kernel, plan, stages, schedule, accesses);
    result.source += body.write(name, schedule.splits > 1 ? launch : 0, last ? stages.passes : launch);
    result.functions.push_back(name);
  }
  return result;
}

}  // namespace onnxfuse::cuda
