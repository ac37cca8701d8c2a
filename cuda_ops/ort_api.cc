#include "ort_api.h"

#include <utility>

namespace onnxfuse {
namespace {

constexpr std::pair<Type, ONNXTensorElementDataType> kTypes[] = {
    {Type::f16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},  {Type::bf16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16},
    {Type::f32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},    {Type::f64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
    {Type::i8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},      {Type::i16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16},
    {Type::i32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},    {Type::i64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {Type::u8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},     {Type::u16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16},
    {Type::u32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32},   {Type::u64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},
    {Type::boolean, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL},
};

#define ONNXFUSE_IN_VERSION(slot, name, result, parameters) \
  static_assert((slot) < kOrtApi18Slots, #name " is newer than the version asked for");
ONNXFUSE_ORT_SLOTS(ONNXFUSE_IN_VERSION)
#undef ONNXFUSE_IN_VERSION
#define ONNXFUSE_IN_VERSION(slot, name, result, parameters) \
  static_assert((slot) < kOrtApi24Slots, #name " is newer than the version asked for");
ONNXFUSE_NEWER_ORT_SLOTS(ONNXFUSE_IN_VERSION)
#undef ONNXFUSE_IN_VERSION

}  // namespace

Api::Api(const OrtApi* table, const OrtApi* newer) {
  void (*const* slots)() = table->slots;
#define ONNXFUSE_LOAD(slot, name, result, parameters) name = reinterpret_cast<result(*) parameters>(slots[slot]);
  ONNXFUSE_ORT_SLOTS(ONNXFUSE_LOAD)
#undef ONNXFUSE_LOAD
#define ONNXFUSE_LOAD(slot, name, result, parameters) \
  name = newer == nullptr ? nullptr : reinterpret_cast<result(*) parameters>(newer->slots[slot]);
  ONNXFUSE_NEWER_ORT_SLOTS(ONNXFUSE_LOAD)
#undef ONNXFUSE_LOAD
}

void Api::fail(OrtStatus* status) const {
  const std::string message = GetErrorMessage(status);
  ReleaseStatus(status);
  throw std::runtime_error(message);
}

void Api::fail_for_memory(OrtStatus* status, const std::string& what) const {
  try {
    fail(status);
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    const bool none = message.find("alloc") != std::string::npos || message.find("memory") != std::string::npos;
    throw std::runtime_error(what + ": " + message +
                             (none ? ". Run smaller batches; on a GPU, end other processes on it, and see that the "
                                     "CUDA provider's option gpu_mem_limit is not too low"
                                   : ""));
  }
}

Type type_from_ort(ONNXTensorElementDataType type, const std::string& what) {
  for (const auto& row : kTypes)
    if (row.second == type) return row.first;
  throw ProgramError(what + " has an element type that fused nodes do not take (number " +
                     std::to_string(static_cast<int>(type)) + " of ONNXTensorElementDataType)");
}

ONNXTensorElementDataType type_to_ort(Type type) {
  for (const auto& row : kTypes)
    if (row.first == type) return row.second;
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

}  // namespace onnxfuse
