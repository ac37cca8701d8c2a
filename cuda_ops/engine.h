// What runs a program: the CPU engine (cpu/) and the CUDA engine (cuda/) behind one interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "binding.h"
#include "inference.h"
#include "program.h"

namespace onnxfuse {

struct TensorRef {
  void* data = nullptr;
  Type type = Type::f32;  // actual type: f32 may stand in for a declared f16 or bf16
};

// Tensors by number, which the caller keeps.
class Tensors {
 public:
  Tensors(const TensorRef* first, size_t count) : first_(first), count_(count) {}
  Tensors(const std::vector<TensorRef>& tensors) : Tensors(tensors.data(), tensors.size()) {}

  const TensorRef& operator[](size_t i) const { return first_[i]; }
  size_t size() const { return count_; }
  const TensorRef* begin() const { return first_; }
  const TensorRef* end() const { return first_ + count_; }

 private:
  const TensorRef* first_;
  size_t count_;
};

// What an engine may ask of the run it serves. Implemented over OrtKernelContext; tests have their own.
class RunContext {
 public:
  virtual ~RunContext() = default;
  // CPU: calls body(i) for i in [0, tasks), on ONNX Runtime's own threads. tasks <= 1 runs inline.
  virtual void parallel_for(size_t tasks, const std::function<void(size_t)>& body) = 0;
  // GPU: the stream (a CUstream) to launch on.
  virtual void* stream() = 0;
  // Memory of the engine's device that lives until the kernel's work of this run is done (stream-ordered).
  virtual void* scratch(size_t bytes) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Runs all kernels of the program. inputs and outputs are indexed by tensor number. Thread-safe. Throws
  // std::runtime_error (ProgramError for shapes) with a message for the user.
  virtual void run(const BoundProgram& bound, Tensors inputs, Tensors outputs, RunContext& context) const = 0;
  // Whether it may run with the output in the very place of the input, whose elements have the same size.
  virtual bool may_overwrite(const BoundProgram& bound, int input, int output) const = 0;
  // Copies within the engine's device, as part of a run.
  virtual void copy(void* to, const void* from, size_t bytes, RunContext& context) const = 0;
};

// actual_inputs and actual_outputs: the element types that the session decided on.
std::unique_ptr<Engine> make_cpu_engine(std::shared_ptr<const Program> program);

// How the kernels of one node are launched.
enum class LaunchMode : uint8_t {
  automatic,   // as the CUDA engine's model of a launch has it
  plain,       // one launch for each, after all that was launched before
  dependent,   // one for each, which begins while the one before ends (programmatic dependent launch, sm_90 and later)
  horizontal,  // one for all that suit each other, blocks dealt out by number; dependent
  persistent,  // the same, blocks that take tiles from a queue
};
struct CudaOptions {
  std::string nvrtc_path;   // session config "onnxfuse.nvrtc_path", else empty
  std::string cache_dir;    // session config "onnxfuse.cache_dir", else empty: the default
  std::string kernels_dir;  // session config "onnxfuse.kernels": kernels made ahead of time; else empty
  LaunchMode launches = LaunchMode::automatic;  // session config "onnxfuse.launches"
};
// True where the CUDA driver can be opened and has a device, and NVRTC can be found or kernels made ahead of time are
// there; else why says what to install.
bool cuda_available(const CudaOptions& options, std::string* why);
// declared: what the session knows of the inputs' shapes before a run; may be empty. Kernels for likely shapes are
// compiled in the background from now on.
std::unique_ptr<Engine> make_cuda_engine(std::shared_ptr<const Program> program, const std::vector<Type>& actual_inputs,
                                         const std::vector<Type>& actual_outputs,
                                         const std::vector<SymbolicShape>& declared, int device_id,
                                         const CudaOptions& options);
// Returns when nothing is left to compile in the background.
void wait_for_cuda_kernels();

// Makes kernels ahead of time, without a GPU, as the text of a request says (cuda/ahead.h). Throws std::runtime_error.
void make_kernels_ahead(const std::string& request_path, const CudaOptions& options);

}  // namespace onnxfuse
