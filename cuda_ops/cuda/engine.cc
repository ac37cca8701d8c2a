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
};

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
  CudaEngine(std::shared_ptr<const Program> program, ActualTypes types, int device, const Driver& driver, Images images)
      : program_(std::move(program)), types_(std::move(types)), driver_(driver), images_(std::move(images)) {
    device_.architecture = driver.architecture(device);
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
    size_t scratch_bytes = 0;
    for (const Launch& launch : plan.launches) scratch_bytes = std::max(scratch_bytes, launch.scratch_bytes);
    void* const scratch = scratch_bytes > 0 ? context.scratch(scratch_bytes) : nullptr;
    for (const Launch& launch : plan.launches) {
      alignas(16) uint8_t parameters[4096];
      std::memcpy(parameters, launch.parameters.data(), launch.parameters.size());
      for (const Parameters::Pointer& pointer : launch.pointers) {
        char* address = static_cast<char*>(scratch);
        if (pointer.kind == ParameterKind::input) address = static_cast<char*>(inputs[pointer.tensor].data);
        if (pointer.kind == ParameterKind::output) address = static_cast<char*>(outputs[pointer.tensor].data);
        address += pointer.offset;
        std::memcpy(parameters + pointer.position, &address, sizeof address);
      }
      if (launch.zeroed_bytes > 0) driver_.set_zero(scratch, launch.zeroed_bytes, stream);
      const Module& module = launch.module.get();
      for (size_t k = 0; k < module.size(); ++k) {
        driver_.launch(module[k], launch.grids[k].x, launch.grids[k].y, launch.threads, stream, parameters);
      }
    }
  }

 private:
  std::shared_ptr<const LaunchPlan> find(const BoundProgram& bound, const std::vector<TensorRef>& inputs,
                                         const std::vector<TensorRef>& outputs) const {
    Alignments alignments;
    for (const TensorRef& tensor : inputs) alignments.inputs.push_back(alignment_of(tensor.data));
    for (const TensorRef& tensor : outputs) alignments.outputs.push_back(alignment_of(tensor.data));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& plan : plans_) {
        if (plan->alignments.inputs == alignments.inputs && plan->alignments.outputs == alignments.outputs &&
            same(plan->bound, bound)) {
          return plan;
        }
      }
    }
    return plan(bound, std::move(alignments));
  }

  std::shared_ptr<const LaunchPlan> plan(const BoundProgram& bound, Alignments alignments) const {
    const auto plan = std::make_shared<LaunchPlan>();
    for (const Generated& kernel : generate_available(bound, alignments)) {
      plan->launches.push_back({modules_.start(kernel.source, kernel.functions, device_.architecture, driver_, images_),
                                kernel.parameters.bytes(), kernel.parameters.pointers(), kernel.grids, kernel.threads,
                                kernel.scratch_bytes, kernel.zeroed_bytes});
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
    std::vector<Generated> kernels = generate_kernels(*program_, bound, types_, alignments, device_);
    const auto has = [&](const Generated& kernel) { return images_.has(kernel.source, device_.architecture); };
    if (std::all_of(kernels.begin(), kernels.end(), has)) return kernels;
    const Alignments any{std::vector<uint8_t>(alignments.inputs.size(), 1),
                         std::vector<uint8_t>(alignments.outputs.size(), 1)};
    std::vector<Generated> general = generate_kernels(*program_, bound, types_, any, device_);
    return std::all_of(general.begin(), general.end(), has) ? general : kernels;
  }

  const std::shared_ptr<const Program> program_;
  const ActualTypes types_;
  const Driver& driver_;
  const Images images_;
  Modules& modules_ = Modules::shared();
  DeviceModel device_;
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
  return std::make_unique<cuda::CudaEngine>(std::move(program), cuda::ActualTypes{actual_inputs, actual_outputs},
                                            device_id, *driver,
                                            cuda::Images(compiler, why, options.kernels_dir, options.cache_dir));
}

}  // namespace onnxfuse
