#include "custom_op.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "in_place.h"
#include "inference.h"
#include "program_cache.h"
#include "tensor_info.h"

namespace onnxfuse {
namespace {

const FusedOp& fused(const OrtCustomOp* op) { return *static_cast<const FusedOp*>(op); }

bool is_axes(const OrtCustomOp* op, size_t input) { return fused(op).first == First::axes && input == 0; }

std::string program_attribute(const Api& api, const OrtShapeInferContext* context) {
  const OrtOpAttr* attribute = nullptr;
  api.check(api.ShapeInferContext_GetAttribute(context, "program", &attribute));
  if (attribute == nullptr) throw ProgramError("the node has no attribute 'program'");
  // The first call fails for want of room and says how much is needed; whether with the terminator, and whether one is
  // written, depends on the version.
  size_t size = 0;
  char none = 0;
  if (OrtStatus* status = api.ReadOpAttr(attribute, ORT_OP_ATTR_STRING, &none, 0, &size)) api.ReleaseStatus(status);
  std::string text(size + 1, '\0');
  api.check(api.ReadOpAttr(attribute, ORT_OP_ATTR_STRING, text.data(), text.size(), &size));
  text.resize(std::min(size, text.size()));
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

struct InferredInputs {
  std::vector<Type> types;
  std::vector<SymbolicShape> shapes;
};

InferredInputs read_inputs(const Api& api, const OrtShapeInferContext* context) {
  size_t count = 0;
  api.check(api.ShapeInferContext_GetInputCount(context, &count));
  InferredInputs inputs;
  for (size_t i = 0; i < count; ++i) {
    OrtTensorTypeAndShapeInfo* info = nullptr;  // the context's own
    api.check(api.ShapeInferContext_GetInputTypeShape(context, i, &info));
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    api.check(api.GetTensorElementType(info, &type));
    inputs.types.push_back(type_from_ort(type, "input " + std::to_string(i)));
    inputs.shapes.push_back(symbolic_shape(api, info));
  }
  return inputs;
}

void write_output(const Api& api, const OrtShapeInferContext* context, size_t i, Type type,
                  const SymbolicShape& shape) {
  std::vector<int64_t> extents;
  std::vector<const char*> names;
  for (const Dim& dim : shape) {
    extents.push_back(dim.extent);
    names.push_back(dim.name.c_str());
  }
  OrtTensorTypeAndShapeInfo* info = nullptr;
  api.check(api.CreateTensorTypeAndShapeInfo(&info));
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owned(
      info, api.ReleaseTensorTypeAndShapeInfo);
  api.check(api.SetTensorElementType(info, type_to_ort(type)));
  api.check(api.SetDimensions(info, extents.data(), extents.size()));
  api.check(api.SetSymbolicDimensions(info, names.data(), names.size()));
  api.check(api.ShapeInferContext_SetOutputTypeShape(context, i, info));
}

// ONNX Runtime passes over a status that inference returns, and complains of a missing type if the model declares none.
// So where shapes are contradictory the types are set all the same: the kernel says what is wrong when it is created.
std::vector<SymbolicShape> shapes_or_unknown(const Program& program, const std::vector<SymbolicShape>& inputs) {
  try {
    return infer_shapes(program, inputs);
  } catch (const ProgramError&) {
    return infer_shapes(program, std::vector<SymbolicShape>(program.inputs.size()));
  }
}

OrtStatus* infer(const OrtCustomOp* op, OrtShapeInferContext* context) noexcept {
  const Api& api = fused(op).api;
  return guarded(api, [&] {
    const std::shared_ptr<const Program> program = cached_program(program_attribute(api, context));
    const InferredInputs inputs = read_inputs(api, context);
    const std::vector<Type> types = actual_output_types(*program, inputs.types);
    const std::vector<SymbolicShape> shapes = shapes_or_unknown(*program, inputs.shapes);
    for (size_t i = 0; i < types.size(); ++i) write_output(api, context, i, types[i], shapes[i]);
  });
}

OrtStatus* create(const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info, void** kernel) noexcept {
  const FusedOp& self = fused(op);
  return guarded(self.api, [&] {
    *kernel = new NodeKernel(self.api, info, self.first == First::axes, self.provider, self.options);
  });
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) noexcept {
  NodeKernel& node = *static_cast<NodeKernel*>(kernel);
  return guarded(node.api(), [&] { node.compute(context); });
}

// ONNX Runtime takes the first pair that suits: the same shape and element size, and no other use of the input. It only
// reads them, so they are the same for every caller.
size_t may_overwrite(int** inputs, int** outputs) {
  static int numbers[kOverwritten] = {0, 1, 2, 3}, zeros[kOverwritten] = {};
  static_assert(kOverwritten == 4, "as many numbers");
  *inputs = numbers;
  *outputs = zeros;
  return kOverwritten;
}

void release(int*, int*) {}

}  // namespace

FusedOp::FusedOp(const Api& a, const char* op_name, First f, InPlace in_place, Provider p, CudaOptions o)
    : OrtCustomOp{}, api(a), name(op_name), first(f), provider(p), options(std::move(o)) {
  // The callbacks left null are those that have a successor here (CreateKernel), or that only some op types have.
  version = kOrtApiVersion;
  GetName = [](const OrtCustomOp* op) { return fused(op).name; };
  GetExecutionProviderType = [](const OrtCustomOp* op) -> const char* {
    return fused(op).provider == Provider::cuda ? kCudaProvider : nullptr;
  };
  GetInputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED; };
  GetInputTypeCount = [](const OrtCustomOp* op) -> size_t { return is_axes(op, 0) ? 2 : 1; };
  GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED; };
  GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  KernelDestroy = [](void* kernel) { delete static_cast<NodeKernel*>(kernel); };
  GetInputCharacteristic = [](const OrtCustomOp* op, size_t i) {
    return is_axes(op, i) ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_VARIADIC;
  };
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_VARIADIC; };
  GetInputMemoryType = [](const OrtCustomOp* op, size_t i) {
    return is_axes(op, i) ? OrtMemTypeCPUInput : OrtMemTypeDefault;
  };
  GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
  GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
  CreateKernelV2 = create;
  KernelComputeV2 = compute;
  InferOutputShapeFn = infer;
  if (in_place == InPlace::first) {
    GetMayInplace = may_overwrite;
    ReleaseMayInplace = release;
  }
  GetStartVersion = [](const OrtCustomOp*) { return 1; };
  GetEndVersion = [](const OrtCustomOp*) { return 1; };
}

}  // namespace onnxfuse
