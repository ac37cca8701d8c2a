// The CUDA engine: plans by shapes, kernels compiled in the background, launches on the run's stream.
#include "../engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <stdexcept>

#include "driver.h"
#include "generate_kernels.h"
#include "modules.h"
#include "nvrtc.h"

namespace onnxfuse {
namespace cuda {
namespace {

constexpr size_t kMaxPlans = 64;         // that an engine remembers
constexpr int64_t kGuessedExtent = 512;  // of dimensions that only a run shows, for compiling ahead

bool same(const Access& a, const Access& b) { return a.offset == b.offset && a.strides == b.strides; }

bool same(const std::vector<Access>& a, const std::vector<Access>& b) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (!same(a[k], b[k])) return false;
  }
  return true;
}

bool same(const BoundProgram& a, const BoundProgram& b) {
  if (a.number == b.number) return true;
  if (a.kernels.size() != b.kernels.size()) return false;
  for (size_t k = 0; k < a.kernels.size(); ++k) {
    if (a.kernels[k].extents != b.kernels[k].extents || !same(a.kernels[k].inputs, b.kernels[k].inputs) ||
        !same(a.kernels[k].outputs, b.kernels[k].outputs)) {
      return false;
    }
  }
  return true;
}

struct Launch {
  std::shared_future<Module> module;
  std::vector<uint8_t> parameters;
  std::vector<Parameters::Pointer> pointers;
  std::vector<LaunchGrid> grids;  // one for each function of the module
  uint32_t threads;
  size_t scratch_bytes, zeroed_bytes;
};

struct LaunchPlan {
  BoundProgram bound;
  Alignments alignments;
  std::vector<Launch> launches;
  size_t scratch_bytes = 0;  // the most that a launch needs
};

// The queue that the launches on a stream may use: they come one after the other. Negative: none is left for it.
int queue_of(CudaStream stream) {
  constexpr size_t kQueues = 64;  // as in queue.cuh
  static std::mutex mutex;
  static std::vector<CudaStream> streams;
  if (stream == kPerThreadStream) return -1;  // a handle of many streams
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = std::find(streams.begin(), streams.end(), stream);
  if (found == streams.end() && streams.size() == kQueues) return -1;
  const int number = static_cast<int>(found - streams.begin());
  if (found == streams.end()) streams.push_back(stream);
  return number;
}

uint8_t alignment_of(const void* pointer) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | 16u;
  return static_cast<uint8_t>(bits & (~bits + 1));
}

// Shapes that suit the program, for compiling before the first run shows any.
std::vector<Shape> guess_shapes(const Program& program) {
  std::vector<Shape> shapes;
  for (const TensorInfo& input : program.inputs) shapes.emplace_back(input.rank, 1);
  for (const Kernel& kernel : program.kernels) {
    for (const Statement& s : kernel.statements) {
      if (s.op != Op::input) continue;
      for (size_t d = 0; d < s.map.size(); ++d) {
        int64_t last = s.map[d].offset;
        for (const AffineTerm& term : s.map[d].terms) {
          const int64_t extent = kernel.space.extents[term.dim].value_or(kGuessedExtent);
          last += term.scale > 0 ? term.scale * (extent - 1) : 0;
        }
        shapes[s.tensor][d] = std::max(shapes[s.tensor][d], last + 1);
      }
    }
  }
  return shapes;
}

class CudaEngine final : public Engine {
 public:
  CudaEngine(std::shared_ptr<const Program> program, ActualTypes types, int device, const Driver& driver, Images images,
             LaunchMode mode)
      : program_(std::move(program)),
        types_(std::move(types)),
        driver_(driver),
        images_(std::move(images)),
        mode_(mode) {
    device_.architecture = driver.architecture(device);
    dependent_ = mode_ != LaunchMode::plain && driver.dependent_launches(device_.architecture);
    device_.multiprocessors = driver.multiprocessors(device);
    if (const char* which = std::getenv("ONNXFUSE_LONG_SCAN")) device_.long_scan = static_cast<LongScan>(*which - '0');
    Alignments alignments{std::vector<uint8_t>(program_->inputs.size(), 16),
                          std::vector<uint8_t>(program_->outputs.size(), 16)};
    try {
      plan(onnxfuse::bind(*program_, guess_shapes(*program_)), std::move(alignments));
    } catch (const ProgramError&) {
      // The guess does not suit; the first run knows better.
    }
  }

  ~CudaEngine() override {
    for (const auto& plan : plans_) {
      for (const Launch& launch : plan->launches) launch.module.wait();
    }
  }

  void run(const BoundProgram& bound, const std::vector<TensorRef>& inputs, const std::vector<TensorRef>& outputs,
           RunContext& context) const override {
    const std::shared_ptr<const LaunchPlan> found = find(bound, inputs, outputs);
    const LaunchPlan& plan = *found;
    const CudaStream stream = context.stream();
    void* const scratch = plan.scratch_bytes > 0 ? context.scratch(plan.scratch_bytes) : nullptr;
    for (const Launch& launch : plan.launches) {
      alignas(16) uint8_t parameters[4096];
      std::memcpy(parameters, launch.parameters.data(), launch.parameters.size());
      for (const Parameters::Pointer& pointer : launch.pointers) {
        if (pointer.kind == ParameterKind::queue) {
          const int queue = queue_of(stream);
          std::memcpy(parameters + pointer.position, &queue, sizeof queue);
          continue;
        }
        char* address = static_cast<char*>(scratch);
        if (pointer.kind == ParameterKind::input) address = static_cast<char*>(inputs[pointer.tensor].data);
        if (pointer.kind == ParameterKind::output) address = static_cast<char*>(outputs[pointer.tensor].data);
        address += pointer.offset;
        std::memcpy(parameters + pointer.position, &address, sizeof address);
      }
      if (launch.zeroed_bytes > 0) driver_.set_zero(scratch, launch.zeroed_bytes, stream);
      const Module& module = launch.module.get();
      for (size_t k = 0; k < module.size(); ++k) {
        const bool behind_kernel = k > 0 || launch.zeroed_bytes == 0;
        launch_kernel(module[k], launch.grids[k], launch.threads, stream, parameters, dependent_ && behind_kernel);
      }
    }
  }

 private:
  // On a stream every launch may begin early: in BERT-base, 1.45 ms a run in place of 1.52 (H200). In a graph only
  // those behind one of ours: between fused nodes a launch takes 1.16 us in place of 1.42, but behind a matrix product
  // it lost 0.15 us.
  void launch_kernel(CudaKernel kernel, LaunchGrid grid, uint32_t threads, CudaStream stream, void* parameters,
                     bool dependent) const {
    thread_local Driver::Capture own;  // after the thread's last launch
    bool captured = false;
    if (dependent_ && mode_ != LaunchMode::dependent) {
      const Driver::Capture now = driver_.capture(stream);
      captured = now.active;
      if (captured) dependent = dependent && now.last != nullptr && now.id == own.id && now.last == own.last;
    }
    driver_.launch(kernel, grid.x, grid.y, threads, stream, parameters, dependent);
    if (captured) own = driver_.capture(stream);
  }

  std::shared_ptr<const LaunchPlan> find(const BoundProgram& bound, const std::vector<TensorRef>& inputs,
                                         const std::vector<TensorRef>& outputs) const {
    const auto aligned_as = [](const std::vector<TensorRef>& tensors, const std::vector<uint8_t>& alignments) {
      return std::equal(
          tensors.begin(), tensors.end(), alignments.begin(),
          [](const TensorRef& tensor, uint8_t alignment) { return alignment_of(tensor.data) == alignment; });
    };
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& plan : plans_) {
        if (aligned_as(inputs, plan->alignments.inputs) && aligned_as(outputs, plan->alignments.outputs) &&
            same(plan->bound, bound)) {
          return plan;
        }
      }
    }
    Alignments alignments;
    for (const TensorRef& tensor : inputs) alignments.inputs.push_back(alignment_of(tensor.data));
    for (const TensorRef& tensor : outputs) alignments.outputs.push_back(alignment_of(tensor.data));
    return plan(bound, std::move(alignments));
  }

  std::shared_ptr<const LaunchPlan> plan(const BoundProgram& bound, Alignments alignments) const {
    const auto plan = std::make_shared<LaunchPlan>();
    for (const Generated& kernel : generate_available(bound, alignments)) {
      plan->launches.push_back({modules_.start(kernel.source, kernel.functions, device_.architecture, driver_, images_),
                                kernel.parameters, kernel.pointers, kernel.grids, kernel.threads, kernel.scratch_bytes,
                                kernel.zeroed_bytes});
      plan->scratch_bytes = std::max(plan->scratch_bytes, kernel.scratch_bytes);
    }
    plan->bound = bound;
    plan->alignments = std::move(alignments);
    const std::lock_guard<std::mutex> lock(mutex_);
    plans_.push_front(plan);
    if (plans_.size() > kMaxPlans) plans_.pop_back();
    return plan;
  }

  // Kernels made ahead of time serve aligned tensors and, one element at a time, all others.
  std::vector<Generated> generate_available(const BoundProgram& bound, const Alignments& alignments) const {
    std::vector<Generated> kernels = generate_kernels(*program_, bound, types_, alignments, device_, mode_);
    const auto has = [&](const Generated& kernel) { return images_.has(kernel.source, device_.architecture); };
    if (std::all_of(kernels.begin(), kernels.end(), has)) return kernels;
    const Alignments any{std::vector<uint8_t>(alignments.inputs.size(), 1),
                         std::vector<uint8_t>(alignments.outputs.size(), 1)};
    std::vector<Generated> general = generate_kernels(*program_, bound, types_, any, device_, mode_);
    return std::all_of(general.begin(), general.end(), has) ? general : kernels;
  }

  const std::shared_ptr<const Program> program_;
  const ActualTypes types_;
  const Driver& driver_;
  const Images images_;
  Modules& modules_ = Modules::shared();
  const LaunchMode mode_;
  DeviceModel device_;
  bool dependent_ = false;  // launches begin while the one before ends
  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<const LaunchPlan>> plans_;  // the newest first
};

}  // namespace
}  // namespace cuda

bool cuda_available(const CudaOptions& options, std::string* why) {
  const cuda::Driver* driver = cuda::Driver::get(why);
  if (driver == nullptr) return false;
  if (cuda::Nvrtc::get(options.nvrtc_path, driver->version() / 1000, why) != nullptr) return true;
  std::string reason;
  if (options.kernels_dir.empty()) return false;
  if (cuda::can_read_kernels(options.kernels_dir, cuda::Trust::administrator, &reason)) return true;
  *why += "\nThe folder of kernels made ahead of time cannot be used either: " + reason;
  return false;
}

std::unique_ptr<Engine> make_cuda_engine(std::shared_ptr<const Program> program, const std::vector<Type>& actual_inputs,
                                         const std::vector<Type>& actual_outputs, int device_id,
                                         const CudaOptions& options) {
  std::string why;
  const cuda::Driver* driver = cuda::Driver::get(&why);
  if (driver == nullptr) throw std::runtime_error(why);
  const cuda::Nvrtc* compiler = cuda::Nvrtc::get(options.nvrtc_path, driver->version() / 1000, &why);
  return std::make_unique<cuda::CudaEngine>(
      std::move(program), cuda::ActualTypes{actual_inputs, actual_outputs}, device_id, *driver,
      cuda::Images(compiler, why, options.kernels_dir, options.cache_dir), options.launches);
}

}  // namespace onnxfuse
