// Spreads a kernel's items over threads.
#include "plan.h"
#include "shared_rows.h"
#include "task.h"

namespace onnxfuse::cpu {

void run_kernel(const KernelPlan& plan, Tensors inputs, Tensors outputs, RunContext& context) {
  if (plan.items == 0) return;
  if (plan.shares_rows) return run_shared_rows(plan, inputs, outputs, context);
  const int64_t tasks = worthwhile_tasks(plan.item_cost * static_cast<double>(plan.items), plan.items);
  if (tasks == 1) return Task(plan, inputs, outputs).run(0, plan.items);
  context.parallel_for(static_cast<size_t>(tasks), [&](size_t t) {
    const int64_t i = static_cast<int64_t>(t);
    Task(plan, inputs, outputs).run(plan.items * i / tasks, plan.items * (i + 1) / tasks);
  });
}

}  // namespace onnxfuse::cpu
