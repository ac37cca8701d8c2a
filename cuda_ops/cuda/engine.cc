// The CUDA engine: plans by shapes, kernels compiled in the background, launches on the run's stream.
#include "../engine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <stdexcept>

#include "../in_place.h"
#include "driver.h"
#include "generate_kernels.h"
#include "likely_shapes.h"
#include "modules.h"
#include "nvrtc.h"

namespace onnxfuse {
namespace cuda {
namespace {

constexpr size_t kMaxPlans = 64;  // that an engine remembers

std::atomic<int> engines{0};  // that there are

bool same(const Access& a, const Access& b) {
  return a.offset == b.offset && a.strides == b.strides && a.rolled == b.rolled;
}

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
  std::shared_ptr<PendingModule> module;
  std::vector<uint8_t> parameters;
  std::vector<Parameters::Pointer> pointers;
  std::vector<LaunchGrid> grids;  // one for each function of the module
  uint32_t turns;
  size_t scratch_bytes, zeroed_bytes;
  bool clears;                                      // these bytes itself, on a stream that has a number
  std::shared_ptr<std::atomic<uint32_t>> resident;  // blocks that the GPU has at a time; 0: not known yet
};

struct LaunchPlan {
  BoundProgram bound;
  Alignments alignments;
  std::vector<Launch> launches;
  size_t scratch_bytes = 0;  // the most that a launch needs
};

// The queue that the launches on a stream may use: they come one after the other. Negative: none is left for it.
int queue_of(CudaStream stream) {
  constexpr size_t kQueues = 64;  // as in queue.cuh and look_back.cuh
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

// How a node gets its kernels.
struct Recipe {
  std::shared_ptr<const Program> program;
  ActualTypes types;
  const Driver& driver;
  Images images;
  LaunchMode mode;
  DeviceModel device;

  std::vector<Generated> generate(const BoundProgram& bound, const Alignments& alignments) const {
    return generate_kernels(*program, bound, types, alignments, device, mode);
  }
  bool has(const std::vector<Generated>& kernels) const {
    return std::all_of(kernels.begin(), kernels.end(),
                       [this](const Generated& kernel) { return images.has(kernel.source, device.architecture); });
  }
  Alignments alignment(uint8_t bytes) const {
    return {std::vector<uint8_t>(types.inputs.size(), bytes), std::vector<uint8_t>(types.outputs.size(), bytes)};
  }
  std::shared_ptr<PendingModule> start(const Generated& kernel, Urgency urgency) const {
    return Modules::shared().start(kernel.source, kernel.functions, device.architecture, driver, images, urgency);
  }
};

// Starts those that the program may need for aligned tensors of these shapes.
void start_possible(const Recipe& recipe, const LikelyShapes& shapes) noexcept {
  try {
    const std::vector<Generated> kernels =
        recipe.generate(onnxfuse::bind(*recipe.program, shapes.inputs), recipe.alignment(16));
    if (!recipe.has(kernels)) return;
    for (const Generated& kernel : kernels) recipe.start(kernel, possible(shapes.class_of_shapes));
  } catch (const std::exception&) {
    // The shapes do not suit; runs know better.
  }
}

class CudaEngine final : public Engine {
 public:
  CudaEngine(Recipe recipe, const std::vector<SymbolicShape>& declared, int device)
      : recipe_(std::make_shared<const Recipe>(std::move(recipe))),
        dependent_(recipe_->mode != LaunchMode::plain &&
                   recipe_->driver.dependent_launches(recipe_->device.architecture)),
        number_(device) {
    std::vector<LikelyShapes> likely = likely_shapes(*recipe_->program, declared);
    try {
      plan(onnxfuse::bind(*recipe_->program, likely.front().inputs), recipe_->alignment(16), Urgency::likely);
    } catch (const ProgramError&) {
      // The guess does not suit; the first run knows better.
    }
    for (size_t k = 1; k < likely.size(); ++k) {
      Workers::shared().add(Urgency::quick,
                            [recipe = recipe_, shapes = std::move(likely[k])] { start_possible(*recipe, shapes); });
    }
    ++engines;
  }

  ~CudaEngine() override {
    if (--engines == 0) Workers::shared().drop();
  }

  void run(const BoundProgram& bound, Tensors inputs, Tensors outputs, RunContext& context) const override {
    const std::shared_ptr<const LaunchPlan> found = find(bound, inputs, outputs);
    const LaunchPlan& plan = *found;
    const CudaStream stream = context.stream();
    void* const scratch = plan.scratch_bytes > 0 ? context.scratch(plan.scratch_bytes) : nullptr;
    for (const Launch& launch : plan.launches) {
      const int queue = queue_for(launch, stream);
      alignas(16) uint8_t parameters[4096];
      std::memcpy(parameters, launch.parameters.data(), launch.parameters.size());
      for (const Parameters::Pointer& pointer : launch.pointers) {
        if (pointer.kind == ParameterKind::queue) {
          std::memcpy(parameters + pointer.position, &queue, sizeof queue);
          continue;
        }
        char* address = static_cast<char*>(scratch);
        if (pointer.kind == ParameterKind::input) address = static_cast<char*>(inputs[pointer.tensor].data);
        if (pointer.kind == ParameterKind::output) address = static_cast<char*>(outputs[pointer.tensor].data);
        address += pointer.offset;
        std::memcpy(parameters + pointer.position, &address, sizeof address);
      }
      const bool zeroed = launch.zeroed_bytes > 0 && !(launch.clears && queue >= 0);
      if (zeroed) recipe_->driver.set_zero(scratch, launch.zeroed_bytes, stream);
      const Module& module = get(launch, found);
      for (size_t k = 0; k < module.size(); ++k) {
        const bool behind_kernel = k > 0 || !zeroed;
        const LaunchGrid& grid = launch.grids[k];
        Driver::Launch what = {module[k], grid.x, grid.y, grid.threads, grid.shared_bytes};
        if (launch.turns > 0) {
          what.grid_x = std::min(what.grid_x, resident_blocks(launch, what));
        } else if (grid.shared_bytes > 0) {
          recipe_->driver.allow_shared(what, number_);
        }
        launch_kernel(what, stream, parameters, dependent_ && behind_kernel);
      }
    }
  }

  // A kernel reads what a thread makes an element of before the thread stores it.
  bool may_overwrite(const BoundProgram& bound, int input, int output) const override {
    return is_pointwise(*recipe_->program, bound, input, output);
  }

  void copy(void* to, const void* from, size_t bytes, RunContext& context) const override {
    recipe_->driver.copy(to, from, bytes, context.stream());
  }

 private:
  // The queue of a launch that asks for one. What the blocks of a scan count in it is for launches that come one after
  // the other; a graph may be launched on any stream, beside others that were captured on the same one.
  int queue_for(const Launch& launch, CudaStream stream) const {
    const bool asks = std::any_of(launch.pointers.begin(), launch.pointers.end(),
                                  [](const auto& pointer) { return pointer.kind == ParameterKind::queue; });
    if (!asks) return -1;
    if (launch.zeroed_bytes > 0 && (!launch.clears || recipe_->driver.capture(stream).active)) return -1;
    return queue_of(stream);
  }

  // On a stream every launch may begin early: in BERT-base, 1.45 ms a run in place of 1.52 (H200). In a graph only
  // those behind one of ours: between fused nodes a launch takes 1.16 us in place of 1.42, but behind a matrix product
  // it lost 0.15 us.
  void launch_kernel(const Driver::Launch& what, CudaStream stream, void* parameters, bool dependent) const {
    thread_local Driver::Capture own;  // after the thread's last launch
    bool captured = false;
    if (dependent_ && recipe_->mode != LaunchMode::dependent) {
      const Driver::Capture now = recipe_->driver.capture(stream);
      captured = now.active;
      if (captured) dependent = dependent && now.last != nullptr && now.id == own.id && now.last == own.last;
    }
    recipe_->driver.launch(what, stream, parameters, dependent);
    if (captured) own = recipe_->driver.capture(stream);
  }

  // Asked for with the device's context at hand: at the first launch.
  uint32_t resident_blocks(const Launch& launch, const Driver::Launch& what) const {
    uint32_t blocks = launch.resident->load(std::memory_order_relaxed);
    if (blocks == 0) {
      blocks = recipe_->driver.resident_blocks(what, launch.turns, number_);
      launch.resident->store(blocks, std::memory_order_relaxed);
    }
    return blocks;
  }

  std::shared_ptr<const LaunchPlan> find(const BoundProgram& bound, Tensors inputs, Tensors outputs) const {
    const auto aligned_as = [](Tensors tensors, const std::vector<uint8_t>& alignments) {
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
    return plan(bound, std::move(alignments), Urgency::needed);
  }

  std::shared_ptr<const LaunchPlan> plan(const BoundProgram& bound, Alignments alignments, Urgency urgency) const {
    const auto plan = std::make_shared<LaunchPlan>();
    for (const Generated& kernel : generate_available(bound, alignments)) {
      plan->launches.push_back({recipe_->start(kernel, urgency), kernel.parameters, kernel.pointers, kernel.grids,
                                kernel.turns, kernel.scratch_bytes, kernel.zeroed_bytes, kernel.clears,
                                std::make_shared<std::atomic<uint32_t>>(0)});
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
    std::vector<Generated> kernels = recipe_->generate(bound, alignments);
    if (recipe_->has(kernels)) return kernels;
    std::vector<Generated> general = recipe_->generate(bound, recipe_->alignment(1));
    return recipe_->has(general) ? general : kernels;
  }

  // A plan whose kernel cannot be had is made anew by the next run.
  const Module& get(const Launch& launch, const std::shared_ptr<const LaunchPlan>& plan) const {
    try {
      return launch.module->get();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      plans_.remove(plan);
      throw;
    }
  }

  const std::shared_ptr<const Recipe> recipe_;
  const bool dependent_;  // launches begin while the one before ends
  const int number_;      // of the device
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
                                         const std::vector<Type>& actual_outputs,
                                         const std::vector<SymbolicShape>& declared, int device_id,
                                         const CudaOptions& options) {
  std::string why;
  const cuda::Driver* driver = cuda::Driver::get(&why);
  if (driver == nullptr) throw std::runtime_error(why);
  const cuda::Nvrtc* compiler = cuda::Nvrtc::get(options.nvrtc_path, driver->version() / 1000, &why);
  cuda::DeviceModel device;
  device.architecture = driver->architecture(device_id);
  device.multiprocessors = driver->multiprocessors(device_id);
  if (const char* which = std::getenv("ONNXFUSE_LONG_SCAN")) {
    device.long_scan = static_cast<cuda::LongScan>(*which - '0');
  }
  return std::make_unique<cuda::CudaEngine>(
      cuda::Recipe{std::move(program),
                   {actual_inputs, actual_outputs},
                   *driver,
                   cuda::Images(compiler, why, options.kernels_dir, options.cache_dir),
                   options.launches,
                   device},
      declared, device_id);
}

void wait_for_cuda_kernels() { cuda::Workers::shared().wait(); }

}  // namespace onnxfuse
