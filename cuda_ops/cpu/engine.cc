// The CPU engine: makes a plan for each combination of shapes and types that runs bring, and keeps the last ones.
#include "engine.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>

#include "boxes.h"
#include "in_place.h"
#include "plan.h"

namespace onnxfuse {
namespace cpu {
namespace {

constexpr size_t kMostPlans = 32;

std::vector<Type> types_of(Tensors tensors) {
  std::vector<Type> types;
  for (const TensorRef& t : tensors) types.push_back(t.type);
  return types;
}

bool same_types(const std::vector<Type>& types, Tensors tensors) {
  return std::equal(types.begin(), types.end(), tensors.begin(), tensors.end(),
                    [](Type a, const TensorRef& b) { return a == b.type; });
}

bool same_access(const Access& a, const Access& b) {
  return a.offset == b.offset && a.strides == b.strides && a.rolled == b.rolled;
}

bool same_binding(const BoundProgram& a, const BoundProgram& b) {
  return std::equal(
      a.kernels.begin(), a.kernels.end(), b.kernels.begin(), b.kernels.end(),
      [](const BoundKernel& x, const BoundKernel& y) {
        return x.extents == y.extents &&
               std::equal(x.inputs.begin(), x.inputs.end(), y.inputs.begin(), y.inputs.end(), same_access) &&
               std::equal(x.outputs.begin(), x.outputs.end(), y.outputs.begin(), y.outputs.end(), same_access);
      });
}

void check_types(const char* kind, const std::vector<TensorInfo>& declared, Tensors actual) {
  if (declared.size() != actual.size()) throw std::runtime_error(std::string("wrong number of ") + kind + "s");
  for (size_t i = 0; i < declared.size(); ++i)
    if (actual[i].type != declared[i].type && !(actual[i].type == Type::f32 && is_16bit_float(declared[i].type)))
      throw std::runtime_error(std::string(kind) + " " + std::to_string(i) + " is " + type_name(actual[i].type) +
                               ", but the program has " + type_name(declared[i].type));
}

// Whether no element is stored; extents of reduced dimensions may be 0 all the same.
bool is_empty(const Kernel& kernel, const BoundKernel& bound) {
  const uint32_t reduced = kernel.space.reduced_mask();
  for (size_t d = 0; d < bound.extents.size(); ++d)
    if (bound.extents[d] == 0 && (reduced >> d & 1) == 0) return true;
  return false;
}

struct Plan {
  BoundProgram bound;
  int threads = 1;  // see CpuEngine
  std::vector<Type> input_types, output_types;
  std::vector<KernelPlan> kernels;
};

// Whether a kernel that stores an output has read an input by then. A value is computed where it stands, or by the only
// statement that reads it.
bool reads_before_storing(const Kernel& kernel, int input, int output) {
  const auto is_read = [&](int v) {
    const Statement& s = kernel.statements[static_cast<size_t>(v)];
    return s.op == Op::input && s.tensor == input;
  };
  const int count = static_cast<int>(kernel.statements.size());
  std::vector<int> first_reader(kernel.statements.size(), count), last_reader(kernel.statements.size(), -1);
  for (int v = 0; v < count; ++v) {
    const Statement& s = kernel.statements[static_cast<size_t>(v)];
    for (int k = 0; k < s.operand_count; ++k) {
      int& first = first_reader[static_cast<size_t>(s.operands[k])];
      first = std::min(first, v);
      last_reader[static_cast<size_t>(s.operands[k])] = v;
    }
  }
  int stored = count;
  for (const Output& o : kernel.outputs) {
    if (is_read(o.value)) return false;
    if (o.tensor == output) stored = std::min(stored, o.value);
    last_reader[static_cast<size_t>(o.value)] = -1;  // it is computed where it stands
  }
  for (int v = 0; v < count; ++v) {
    const Statement& s = kernel.statements[static_cast<size_t>(v)];
    const int last = last_reader[static_cast<size_t>(v)];
    const int computed = last == first_reader[static_cast<size_t>(v)] ? last : v;
    if (computed > stored && std::any_of(s.operands, s.operands + s.operand_count, is_read)) return false;
  }
  return true;
}

// Counts the threads that take tasks; of two that have the same bit, one.
class Observed final : public RunContext {
 public:
  explicit Observed(RunContext& context) : context_(context) {}

  void parallel_for(size_t tasks, const std::function<void(size_t)>& body) override {
    context_.parallel_for(tasks, [&](size_t task) {
      if ((seen_.load(std::memory_order_relaxed) & own_bit()) == 0)
        seen_.fetch_or(own_bit(), std::memory_order_relaxed);
      body(task);
    });
  }
  void* stream() override { return context_.stream(); }
  void* scratch(size_t bytes) override { return context_.scratch(bytes); }

  int threads() const { return __builtin_popcountll(seen_.load(std::memory_order_relaxed)); }

 private:
  static uint64_t own_bit() {
    static std::atomic<unsigned> threads{0};
    static thread_local const uint64_t bit = uint64_t{1} << threads.fetch_add(1, std::memory_order_relaxed) % 64;
    return bit;
  }

  RunContext& context_;
  std::atomic<uint64_t> seen_{0};
};

class CpuEngine : public Engine {
 public:
  explicit CpuEngine(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  void run(const BoundProgram& bound, Tensors inputs, Tensors outputs, RunContext& context) const override {
    const std::shared_ptr<const Plan> plan = find(bound, inputs, outputs);
    Observed observed(context);
    for (const KernelPlan& kernel : plan->kernels) run_kernel(kernel, inputs, outputs, observed);
    if (const int threads = observed.threads(); threads > threads_.load(std::memory_order_relaxed)) note(threads);
  }

  // An instruction that stores one of several outputs may come before another that reads the input again.
  bool may_overwrite(const BoundProgram& bound, int input, int output) const override {
    const auto in_order = [&](const Kernel& kernel) {
      return kernel.outputs.size() == 1 || reads_before_storing(kernel, input, output);
    };
    return std::all_of(program_->kernels.begin(), program_->kernels.end(), in_order) &&
           is_pointwise(*program_, bound, input, output);
  }

  void copy(void* to, const void* from, size_t bytes, RunContext&) const override { std::memcpy(to, from, bytes); }

 private:
  // Steps are large, so that there are few new plans.
  void note(int seen) const {
    int threads = 1;
    while (threads < seen) threads *= 2;
    threads_.store(threads, std::memory_order_relaxed);
  }

  std::shared_ptr<const Plan> find(const BoundProgram& bound, Tensors inputs, Tensors outputs) const {
    const int threads = threads_.load(std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto p = plans_.begin(); p != plans_.end(); ++p) {
        if ((*p)->threads != threads || !same_types((*p)->input_types, inputs) ||
            !same_types((*p)->output_types, outputs) ||
            ((*p)->bound.number != bound.number && !same_binding((*p)->bound, bound)))
          continue;
        if (p != plans_.begin()) plans_.splice(plans_.begin(), plans_, p);
        return plans_.front();
      }
    }
    std::shared_ptr<const Plan> plan = make(bound, inputs, outputs, threads);
    const std::lock_guard<std::mutex> lock(mutex_);
    plans_.push_front(plan);
    if (plans_.size() > kMostPlans) plans_.pop_back();
    return plan;
  }

  std::shared_ptr<const Plan> make(const BoundProgram& bound, Tensors inputs, Tensors outputs, int threads) const {
    check_types("input", program_->inputs, inputs);
    check_types("output", program_->outputs, outputs);
    auto plan = std::make_shared<Plan>();
    plan->bound = bound;
    plan->threads = threads;
    plan->input_types = types_of(inputs);
    plan->output_types = types_of(outputs);
    const auto compile = [&](const Kernel& kernel, const BoundKernel& bound_kernel) {
      plan->kernels.push_back(compile_kernel(kernel, bound_kernel, plan->input_types, plan->output_types, threads));
    };
    for (size_t k = 0; k < program_->kernels.size(); ++k) {
      const Kernel& kernel = program_->kernels[k];
      if (is_empty(kernel, bound.kernels[k])) continue;
      if (kernel.space.rolls.empty()) {
        compile(kernel, bound.kernels[k]);
      } else {
        for (const Box& box : unrolled(kernel, bound.kernels[k])) compile(box.kernel, box.bound);
      }
    }
    return plan;
  }

  std::shared_ptr<const Program> program_;
  // How many threads were seen at work in a run, at most: a session does not tell. What they write is in their caches.
  mutable std::atomic<int> threads_{1};
  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<const Plan>> plans_;  // the last used first
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Engine> make_cpu_engine(std::shared_ptr<const Program> program) {
  return std::make_unique<cpu::CpuEngine>(std::move(program));
}

}  // namespace onnxfuse
