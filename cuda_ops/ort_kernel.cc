#include "ort_kernel.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "in_place.h"
#include "inline_buffer.h"
#include "program_cache.h"
#include "run_context.h"
#include "runtime_axes.h"
#include "tensor_info.h"

namespace onnxfuse {
namespace {

// Reads a string that ONNX Runtime copies out, its size (terminator included) asked for first.
template <class Read>
std::string read_string(const Api& api, const Read& read) {
  size_t size = 0;
  api.check(read(nullptr, &size));
  std::string text(size, '\0');
  api.check(read(text.data(), &size));
  text.resize(size > 0 ? size - 1 : 0);
  return text;
}

struct Declared {
  Type type;
  SymbolicShape shape;
};

Declared read_type_info(const Api& api, OrtTypeInfo* info, const std::string& what) {
  const std::unique_ptr<OrtTypeInfo, void (*)(OrtTypeInfo*)> owned(info, api.ReleaseTypeInfo);
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  api.check(api.CastTypeInfoToTensorInfo(info, &tensor));
  if (tensor == nullptr) throw ProgramError(what + " is not a tensor");
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  api.check(api.GetTensorElementType(tensor, &type));
  return {type_from_ort(type, what), symbolic_shape(api, tensor)};
}

std::string tensor_name(const char* kind, size_t i) { return std::string(kind) + " " + std::to_string(i); }

bool is_empty(const Shape& shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

// The last few sets of input shapes and what they were bound to.
class BindingCache {
 public:
  struct Entry {
    std::vector<int64_t> extents;
    BoundProgram bound;
    bool empty;  // no output has an element
  };

  // extents: those of all inputs' dimensions, one input after the other.
  std::shared_ptr<const Entry> get(const Program& program, const int64_t* extents, size_t count) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const std::shared_ptr<const Entry>& entry : entries_)
        if (std::equal(extents, extents + count, entry->extents.begin())) return entry;
    }
    auto entry = std::make_shared<Entry>();
    entry->extents.assign(extents, extents + count);
    entry->bound = onnxfuse::bind(program, shapes(program, extents));
    entry->empty = std::all_of(entry->bound.output_shapes.begin(), entry->bound.output_shapes.end(), is_empty);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (entries_.size() < kEntries) {
      entries_.push_back(entry);
    } else {
      entries_[next_++ % kEntries] = entry;
    }
    return entry;
  }

 private:
  static constexpr size_t kEntries = 8;

  static std::vector<Shape> shapes(const Program& program, const int64_t* extents) {
    std::vector<Shape> result;
    const int64_t* next = extents;
    for (const TensorInfo& input : program.inputs) {
      result.emplace_back(next, next + input.rank);
      next += input.rank;
    }
    return result;
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<const Entry>> entries_;
  size_t next_ = 0;
};

// A program that an engine runs: the node's, or what the axes of a run make of it.
struct Runnable {
  std::shared_ptr<const Program> program;
  std::unique_ptr<Engine> engine;
  BindingCache bindings;
};

// One for each set of dimensions that runs reduced so far (0: the node's program takes no axes).
class Runnables {
 public:
  template <class Make>
  Runnable& get(uint32_t dims, const Make& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Runnable>& found = made_[dims];
    if (!found) found = make();
    return *found;
  }

 private:
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<Runnable>> made_;
};

}  // namespace

struct NodeKernel::State {
  const Api& api;
  std::string node;  // for messages
  std::shared_ptr<const Program> program;
  const Provider provider;
  const CudaOptions options;
  std::vector<Type> input_types;
  std::vector<ONNXTensorElementDataType> input_ort_types;
  std::vector<Type> output_types;
  size_t dimensions = 0;                // of all inputs
  std::vector<SymbolicShape> declared;  // of the inputs
  DeviceMemory memory;
  Runnables runnables;
  Runnable* only = nullptr;  // where the program takes no axes

  State(const Api& a, const OrtKernelInfo* info, Provider p, const CudaOptions& o)
      : api(a), provider(p), options(o), memory(a, info, p == Provider::cuda) {}

  void create(const OrtKernelInfo* info, bool takes_axes) {
    program = cached_program(read_string(
        api, [&](char* out, size_t* size) { return api.KernelInfoGetAttribute_string(info, "program", out, size); }));
    if (takes_axes != (runtime_axes(*program) != nullptr))
      throw ProgramError(takes_axes ? "FusedRuntimeAxes needs a program with axes"
                                    : "only FusedRuntimeAxes runs a program with axes");
    size_t inputs = 0;
    size_t outputs = 0;
    api.check(api.KernelInfo_GetInputCount(info, &inputs));
    api.check(api.KernelInfo_GetOutputCount(info, &outputs));
    for (const TensorInfo& input : program->inputs) dimensions += static_cast<size_t>(input.rank);
    for (size_t i = 0; i < inputs; ++i) {
      OrtTypeInfo* type = nullptr;
      api.check(api.KernelInfo_GetInputTypeInfo(info, i, &type));
      Declared input = read_type_info(api, type, tensor_name("input", i));
      input_types.push_back(input.type);
      input_ort_types.push_back(type_to_ort(input.type));
      declared.push_back(std::move(input.shape));
    }
    output_types = actual_output_types(*program, input_types);
    if (outputs != output_types.size())
      throw ProgramError("the program has " + std::to_string(output_types.size()) + " outputs, the node " +
                         std::to_string(outputs));
    infer_shapes(*program, declared);  // throws where they contradict the program, before any run
    for (size_t i = 0; i < outputs; ++i) {
      OrtTypeInfo* type = nullptr;
      api.check(api.KernelInfo_GetOutputTypeInfo(info, i, &type));
      const Type actual = read_type_info(api, type, tensor_name("output", i)).type;
      if (!is_compatible(program->outputs[i].type, actual))
        throw ProgramError(tensor_name("output", i) + " is " + type_name(actual) + "; the program stores " +
                           type_name(program->outputs[i].type));
      output_types[i] = actual;
    }
    if (!takes_axes) only = &runnable(0);  // which axes runs will bring is not known yet
  }

  // Made at the first run with axes, so that a node has no more engines than it needs.
  Runnable& runnable(uint32_t dims) {
    return runnables.get(dims, [&] {
      auto made = std::make_unique<Runnable>();
      made->program = runtime_axes(*program) != nullptr ? over_dims(*program, dims) : program;
      made->engine = engine_for(made->program);
      return made;
    });
  }

  std::unique_ptr<Engine> engine_for(const std::shared_ptr<const Program>& runnable_program) const {
#ifdef ONNXFUSE_CUDA
    if (provider == Provider::cuda)
      return make_cuda_engine(runnable_program, input_types, output_types, declared, memory.device_id(), options);
#endif
    return make_cpu_engine(runnable_program);
  }

  void compute(OrtKernelContext* context) {
    InlineBuffer<TensorRef, 8> inputs(input_types.size());
    InlineBuffer<int64_t, 32> extents(dimensions);
    int64_t* next = extents.data();
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = read_input(context, i, next);
      next += program->inputs[i].rank;
    }
    Runnable* chosen = only;
    if (chosen == nullptr) {
      const Shape shape(extents.begin(), extents.begin() + program->inputs[0].rank);
      chosen = &runnable(named_dims(*program, shape, inputs[0].data));
      inputs[0].data = nullptr;  // in host memory: no engine reads it
    }
    const auto entry = chosen->bindings.get(*chosen->program, extents.data(), extents.size());
    const BoundProgram& bound = entry->bound;
    InlineBuffer<TensorRef, 4> outputs(output_types.size());
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = allocate(context, i, bound.output_shapes[i]);
    if (entry->empty) return;
    OrtRunContext run(api, context, memory);
    keep_apart(*chosen->engine, bound, extents.data(), inputs.data(), outputs[0], run);
    chosen->engine->run(bound, {inputs.data(), inputs.size()}, {outputs.data(), outputs.size()}, run);
  }

 private:
  // ONNX Runtime writes the first output over an input where it can (FusedOp). What more is computed from that input
  // than the same element reads a copy of it. The rewrites name no such node FusedElementwise; others may.
  void keep_apart(const Engine& engine, const BoundProgram& bound, const int64_t* extents, TensorRef* inputs,
                  const TensorRef& output, RunContext& run) const {
    for (size_t i = 0; i < std::min<size_t>(input_types.size(), kOverwritten); ++i) {
      const int rank = program->inputs[i].rank;
      const bool shared = inputs[i].data == output.data && output.data != nullptr;
      if (shared && !engine.may_overwrite(bound, static_cast<int>(i), 0)) {
        size_t bytes = type_size(inputs[i].type);
        for (int d = 0; d < rank; ++d) bytes *= static_cast<size_t>(extents[d]);
        void* const copy = run.scratch(bytes);
        engine.copy(copy, inputs[i].data, bytes, run);
        inputs[i].data = copy;
      }
      extents += rank;
    }
  }

  // Writes the extents of its dimensions as well.
  TensorRef read_input(OrtKernelContext* context, size_t i, int64_t* extents) const {
    const OrtValue* value = nullptr;
    api.check(api.KernelContext_GetInput(context, i, &value));
    if (value == nullptr) throw ProgramError(tensor_name("input", i) + " is missing");
    if (api.GetTensorElementTypeAndShapeDataReference != nullptr) {
      ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
      const int64_t* shape = nullptr;
      size_t rank = 0;
      api.check(api.GetTensorElementTypeAndShapeDataReference(value, &type, &shape, &rank));
      check_input(i, type, rank);
      std::copy(shape, shape + rank, extents);
    } else {
      read_shape(value, i, extents);
    }
    TensorRef tensor;
    // GetTensorData came with a later version than 18; the engines only read their inputs.
    api.check(api.GetTensorMutableData(const_cast<OrtValue*>(value), &tensor.data));
    tensor.type = input_types[i];
    return tensor;
  }

  // As before version 24, which makes an object of it for every tensor.
  void read_shape(const OrtValue* value, size_t i, int64_t* extents) const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    api.check(api.GetTensorTypeAndShape(value, &info));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owned(
        info, api.ReleaseTensorTypeAndShapeInfo);
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    api.check(api.GetTensorElementType(info, &type));
    api.check(api.GetDimensionsCount(info, &rank));
    check_input(i, type, rank);
    api.check(api.GetDimensions(info, extents, rank));
  }

  void check_input(size_t i, ONNXTensorElementDataType type, size_t rank) const {
    if (type != input_ort_types[i])
      throw ProgramError(tensor_name("input", i) + " is not " + type_name(input_types[i]) + ", as the session decided");
    if (rank != static_cast<size_t>(program->inputs[i].rank))
      throw ProgramError(tensor_name("input", i) + " has rank " + std::to_string(rank) +
                         "; the program reads it with rank " + std::to_string(program->inputs[i].rank));
  }

  TensorRef allocate(OrtKernelContext* context, size_t i, const Shape& shape) const {
    OrtValue* value = nullptr;
    api.check_memory(api.KernelContext_GetOutput(context, i, shape.data(), shape.size(), &value),
                     [i] { return tensor_name("output", i); });
    if (value == nullptr) throw ProgramError(tensor_name("output", i) + " is missing");
    TensorRef tensor;
    api.check(api.GetTensorMutableData(value, &tensor.data));
    tensor.type = output_types[i];
    return tensor;
  }
};

NodeKernel::NodeKernel(const Api& api, const OrtKernelInfo* info, bool takes_axes, Provider provider,
                       const CudaOptions& options)
    : state_(std::make_unique<State>(api, info, provider, options)) {
  state_->node =
      "onnxfuse: node '" +
      read_string(api, [&](char* out, size_t* size) { return api.KernelInfo_GetNodeName(info, out, size); }) + "': ";
  try {
    state_->create(info, takes_axes);
  } catch (const ProgramError& e) {
    throw ProgramError(state_->node + e.what());
  } catch (const std::exception& e) {
    throw std::runtime_error(state_->node + e.what());
  }
}

NodeKernel::~NodeKernel() = default;

const Api& NodeKernel::api() const { return state_->api; }

void NodeKernel::compute(OrtKernelContext* context) {
  try {
    state_->compute(context);
  } catch (const ProgramError& e) {
    throw ProgramError(state_->node + e.what());
  } catch (const std::exception& e) {
    throw std::runtime_error(state_->node + e.what());
  }
}

}  // namespace onnxfuse
