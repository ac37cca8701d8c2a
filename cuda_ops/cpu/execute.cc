// Spreads a kernel's items over threads.
#include "plan.h"
#include "shared_rows.h"
#include "task.h"

namespace onnxfuse::cpu {
namespace {

// Nanoseconds: what a task of several should take at least. Threads take tasks in turn, and another one than the
// caller's begins 20 us later, so that they end together only where tasks are short. But a task that stores past the
// caches waits at its end.
constexpr double kShortTask = 5000;

int64_t number_of_tasks(const KernelPlan& plan) {
  const double cost = plan.item_cost * static_cast<double>(plan.items);
  if (worthwhile_tasks(cost, plan.items) == 1) return 1;
  return std::clamp<int64_t>(static_cast<int64_t>(cost / (plan.streams ? kTaskCost : kShortTask)), 2,
                             std::min(plan.items, kMostTasks));
}

}  // namespace

void run_kernel(const KernelPlan& plan, Tensors inputs, Tensors outputs, RunContext& context) {
  if (plan.items == 0) return;
  if (plan.shares_rows) return run_shared_rows(plan, inputs, outputs, context);
  const int64_t tasks = number_of_tasks(plan);
  if (tasks == 1) return Task(plan, inputs, outputs).run(0, plan.items);
  context.parallel_for(static_cast<size_t>(tasks), [&](size_t t) {
    const int64_t i = static_cast<int64_t>(t);
    Task(plan, inputs, outputs).run(plan.items * i / tasks, plan.items * (i + 1) / tasks);
  });
}

}  // namespace onnxfuse::cpu
