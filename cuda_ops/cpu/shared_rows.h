// Runs a kernel of few long rows, each shared by several tasks.
#pragma once

#include <algorithm>

#include "plan.h"

namespace onnxfuse::cpu {

constexpr double kTaskCost = 20000;  // nanoseconds: what a task should take at least
constexpr int64_t kMostTasks = 256;

// How many tasks an amount of work is worth; it depends on the plan only, so that results do not depend on threads.
inline int64_t worthwhile_tasks(double cost, int64_t parts) {
  return std::clamp<int64_t>(static_cast<int64_t>(cost / kTaskCost), 1, std::min(parts, kMostTasks));
}

void run_shared_rows(const KernelPlan& plan, Tensors inputs, Tensors outputs, RunContext& context);

}  // namespace onnxfuse::cpu
