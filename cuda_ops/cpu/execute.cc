// Spreads a kernel's items, or the tiles of its few long rows, over threads.
#include <algorithm>
#include <cstring>
#include <vector>

#include "plan.h"
#include "task.h"

namespace onnxfuse::cpu {
namespace {

constexpr double kTaskCost = 20000;  // nanoseconds: what a task should take at least
constexpr int64_t kMostTasks = 256;

// How many tasks an amount of work is worth; it depends on the plan only, so that results do not depend on threads.
int64_t worth(double cost, int64_t parts) {
  return std::clamp<int64_t>(static_cast<int64_t>(cost / kTaskCost), 1, std::min(parts, kMostTasks));
}

// Pass by pass: each task takes some tiles of one row, then the accumulators of a row's tasks are joined in order.
class SharedRows {
 public:
  SharedRows(const KernelPlan& plan, const std::vector<TensorRef>& inputs, const std::vector<TensorRef>& outputs)
      : plan_(plan),
        inputs_(inputs),
        outputs_(outputs),
        chunks_(worth(plan.item_cost, plan.tiles())),
        width_(plan.accumulators.size()),
        parts_(static_cast<size_t>(plan.items * chunks_) * width_),
        joined_(static_cast<size_t>(plan.items) * width_) {}

  void run(RunContext& context) {
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) {
      context.parallel_for(static_cast<size_t>(plan_.items * chunks_), [&](size_t i) {
        const int64_t part = static_cast<int64_t>(i);
        run_part(pass, part / chunks_, part % chunks_);
      });
      for (int64_t item = 0; item < plan_.items; ++item) join(pass, item);
    }
    for (int64_t item = 0; item < plan_.items; ++item) {
      Task task(plan_, inputs_, outputs_);
      run_before(task, plan_.passes.size(), item, true);
    }
  }

 private:
  uint64_t* part(int64_t item, int64_t chunk) {
    return parts_.data() + static_cast<size_t>(item * chunks_ + chunk) * width_;
  }
  uint64_t* joined(int64_t item) { return joined_.data() + static_cast<size_t>(item) * width_; }

  // Everything that comes before a pass, with the results of the passes before.
  void run_before(Task& task, size_t pass, int64_t item, bool lead) {
    task.enter(item);
    for (size_t p = 0; p <= pass; ++p) {
      task.run_item_code(p, lead && p == pass);
      if (p == pass) break;
      for (size_t a = 0; a < width_; ++a)
        if (plan_.accumulators[a].pass == p)
          std::memcpy(task.accumulator(plan_.accumulators[a]), joined(item) + a, sizeof(uint64_t));
    }
  }

  void run_part(size_t pass, int64_t item, int64_t chunk) {
    Task task(plan_, inputs_, outputs_);
    run_before(task, pass, item, chunk == 0);
    task.run_tiles(pass, plan_.tiles() * chunk / chunks_, plan_.tiles() * (chunk + 1) / chunks_);
    for (size_t a = 0; a < width_; ++a)
      if (plan_.accumulators[a].pass == pass)
        std::memcpy(part(item, chunk) + a, task.accumulator(plan_.accumulators[a]), sizeof(uint64_t));
  }

  void join(size_t pass, int64_t item) {
    for (size_t a = 0; a < width_; ++a) {
      if (plan_.accumulators[a].pass != pass) continue;
      joined(item)[a] = part(item, 0)[a];
      for (int64_t chunk = 1; chunk < chunks_; ++chunk)
        plan_.accumulators[a].merge(joined(item) + a, part(item, chunk) + a, nullptr, nullptr, 1);
    }
  }

  const KernelPlan& plan_;
  const std::vector<TensorRef>& inputs_;
  const std::vector<TensorRef>& outputs_;
  const int64_t chunks_;
  const size_t width_;
  std::vector<uint64_t> parts_, joined_;
};

}  // namespace

void run_kernel(const KernelPlan& plan, const std::vector<TensorRef>& inputs, const std::vector<TensorRef>& outputs,
                RunContext& context) {
  if (plan.items == 0) return;
  if (plan.shares_rows) return SharedRows(plan, inputs, outputs).run(context);
  const int64_t tasks = worth(plan.item_cost * static_cast<double>(plan.items), plan.items);
  if (tasks == 1) return Task(plan, inputs, outputs).run(0, plan.items);
  context.parallel_for(static_cast<size_t>(tasks), [&](size_t t) {
    const int64_t i = static_cast<int64_t>(t);
    Task(plan, inputs, outputs).run(plan.items * i / tasks, plan.items * (i + 1) / tasks);
  });
}

}  // namespace onnxfuse::cpu
