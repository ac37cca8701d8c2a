#include "run_case.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "engine.h"
#include "inline_context.h"

namespace onnxfuse::cuda {
namespace {

// Memory at an address that the alignment divides, and no larger power of two.
class Buffer {
 public:
  Buffer(const Shape& shape, Type type, size_t alignment) : type_(type), alignment_(alignment) {
    size_t bytes = type_size(type);
    for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
    memory_.reset(new char[bytes + 128]);
  }
  TensorRef tensor() const {
    const uintptr_t base = (reinterpret_cast<uintptr_t>(memory_.get()) + 63) / 64 * 64;
    return {reinterpret_cast<void*>(base + (alignment_ < 16 ? alignment_ : 0)), type_};
  }

 private:
  std::unique_ptr<char[]> memory_;
  Type type_;
  size_t alignment_;
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::unique_ptr<Engine> create(const Case& request, bool known) {
  const CudaOptions options{"", "", variable("ONNXFUSE_KERNELS")};
  std::string why;
  if (!cuda_available(options, &why)) throw std::runtime_error("no CUDA kernels: " + why);
  std::vector<SymbolicShape> declared;
  for (const Shape& shape : request.shapes) {
    declared.emplace_back();
    for (const int64_t extent : shape) declared.back().push_back({known ? extent : -1, ""});
  }
  return make_cuda_engine(parse_program(request.program), request.types.inputs, request.types.outputs, declared, 0,
                          options);
}

void run(const Case& request, const Engine& engine) {
  const BoundProgram bound = bind(*parse_program(request.program), request.shapes);
  std::vector<Buffer> buffers;
  std::vector<TensorRef> inputs, outputs;
  buffers.reserve(request.types.inputs.size() + request.types.outputs.size());
  for (size_t i = 0; i < request.types.inputs.size(); ++i) {
    buffers.emplace_back(request.shapes[i], request.types.inputs[i], request.alignments.inputs[i]);
    inputs.push_back(buffers.back().tensor());
  }
  for (size_t i = 0; i < request.types.outputs.size(); ++i) {
    buffers.emplace_back(bound.output_shapes[i], request.types.outputs[i], request.alignments.outputs[i]);
    outputs.push_back(buffers.back().tensor());
  }
  InlineContext context;
  engine.run(bound, inputs, outputs, context);
  std::printf("%s ran\n", request.name.c_str());
  std::fflush(stdout);
}

}  // namespace onnxfuse::cuda
