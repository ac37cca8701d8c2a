// The part of ONNX Runtime's C ABI that the library uses, declared here because the official header is in none of its
// wheels. The table of functions only ever grows at its end, so a function is found by its number for good. Nothing
// newer than API version 18 is needed; what a newer table has besides is used where it is there.
// scripts/check_ort_abi.py checks this file against the official header.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct OrtStatus;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtOpAttr;
struct OrtMemoryInfo;
struct OrtAllocator;

// The functions themselves: slots of unknown type, see ort_api.h.
struct OrtApi {
  void (*slots[1])();
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

enum OrtErrorCode { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };

enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = 2,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = 3,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 = 4,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16 = 5,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = 6,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = 7,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = 9,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = 11,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32 = 12,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 = 13,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 = 16,
};

enum OrtCustomOpInputOutputCharacteristic { INPUT_OUTPUT_REQUIRED = 0, INPUT_OUTPUT_VARIADIC = 2 };
enum OrtMemType { OrtMemTypeCPUInput = -2, OrtMemTypeDefault = 0 };
enum OrtOpAttrType { ORT_OP_ATTR_STRING = 5 };

struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info);
  const char* (*GetName)(const OrtCustomOp* op);
  const char* (*GetExecutionProviderType)(const OrtCustomOp* op);
  ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp* op, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp* op);
  ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp* op, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp* op);
  void (*KernelCompute)(void* kernel, OrtKernelContext* context);
  void (*KernelDestroy)(void* kernel);
  OrtCustomOpInputOutputCharacteristic (*GetInputCharacteristic)(const OrtCustomOp* op, size_t index);
  OrtCustomOpInputOutputCharacteristic (*GetOutputCharacteristic)(const OrtCustomOp* op, size_t index);
  OrtMemType (*GetInputMemoryType)(const OrtCustomOp* op, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp* op);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp* op);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp* op);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp* op);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext* context);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp* op, OrtShapeInferContext* context);
  int (*GetStartVersion)(const OrtCustomOp* op);
  int (*GetEndVersion)(const OrtCustomOp* op);
  size_t (*GetMayInplace)(int** input_index, int** output_index);
  void (*ReleaseMayInplace)(int* input_index, int* output_index);
  size_t (*GetAliasMap)(int** input_index, int** output_index);
  void (*ReleaseAliasMap)(int* input_index, int* output_index);
};

}  // extern "C"

namespace onnxfuse {

constexpr uint32_t kOrtApiVersion = 18;
constexpr uint32_t kOrtApi18Slots = 280;      // functions in the table of that version
constexpr uint32_t kNewerOrtApiVersion = 24;  // of what is used where it is there
constexpr uint32_t kOrtApi24Slots = 415;

// X(slot number, name, result, parameters)
#define ONNXFUSE_ORT_SLOTS(X)                                                                                         \
  X(0, CreateStatus, OrtStatus*, (OrtErrorCode, const char*))                                                         \
  X(2, GetErrorMessage, const char*, (const OrtStatus*))                                                              \
  X(26, CreateCustomOpDomain, OrtStatus*, (const char*, OrtCustomOpDomain**))                                         \
  X(27, CustomOpDomain_Add, OrtStatus*, (OrtCustomOpDomain*, const OrtCustomOp*))                                     \
  X(28, AddCustomOpDomain, OrtStatus*, (OrtSessionOptions*, OrtCustomOpDomain*))                                      \
  X(51, GetTensorMutableData, OrtStatus*, (OrtValue*, void**))                                                        \
  X(55, CastTypeInfoToTensorInfo, OrtStatus*, (const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**))                \
  X(57, CreateTensorTypeAndShapeInfo, OrtStatus*, (OrtTensorTypeAndShapeInfo**))                                      \
  X(58, SetTensorElementType, OrtStatus*, (OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType))                    \
  X(59, SetDimensions, OrtStatus*, (OrtTensorTypeAndShapeInfo*, const int64_t*, size_t))                              \
  X(60, GetTensorElementType, OrtStatus*, (const OrtTensorTypeAndShapeInfo*, ONNXTensorElementDataType*))             \
  X(61, GetDimensionsCount, OrtStatus*, (const OrtTensorTypeAndShapeInfo*, size_t*))                                  \
  X(62, GetDimensions, OrtStatus*, (const OrtTensorTypeAndShapeInfo*, int64_t*, size_t))                              \
  X(63, GetSymbolicDimensions, OrtStatus*, (const OrtTensorTypeAndShapeInfo*, const char**, size_t))                  \
  X(65, GetTensorTypeAndShape, OrtStatus*, (const OrtValue*, OrtTensorTypeAndShapeInfo**))                            \
  X(72, MemoryInfoGetId, OrtStatus*, (const OrtMemoryInfo*, int*))                                                    \
  X(75, AllocatorAlloc, OrtStatus*, (OrtAllocator*, size_t, void**))                                                  \
  X(76, AllocatorFree, OrtStatus*, (OrtAllocator*, void*))                                                            \
  X(77, AllocatorGetInfo, OrtStatus*, (const OrtAllocator*, const OrtMemoryInfo**))                                   \
  X(87, KernelInfoGetAttribute_string, OrtStatus*, (const OrtKernelInfo*, const char*, char*, size_t*))               \
  X(88, KernelContext_GetInputCount, OrtStatus*, (const OrtKernelContext*, size_t*))                                  \
  X(89, KernelContext_GetOutputCount, OrtStatus*, (const OrtKernelContext*, size_t*))                                 \
  X(90, KernelContext_GetInput, OrtStatus*, (const OrtKernelContext*, size_t, const OrtValue**))                      \
  X(91, KernelContext_GetOutput, OrtStatus*, (OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**))         \
  X(93, ReleaseStatus, void, (OrtStatus*))                                                                            \
  X(98, ReleaseTypeInfo, void, (OrtTypeInfo*))                                                                        \
  X(99, ReleaseTensorTypeAndShapeInfo, void, (OrtTensorTypeAndShapeInfo*))                                            \
  X(125, GetAvailableProviders, OrtStatus*, (char***, int*))                                                          \
  X(126, ReleaseAvailableProviders, OrtStatus*, (char**, int))                                                        \
  X(132, ReleaseAllocator, void, (OrtAllocator*))                                                                     \
  X(193, KernelContext_GetGPUComputeStream, OrtStatus*, (const OrtKernelContext*, void**))                            \
  X(230, KernelInfo_GetInputCount, OrtStatus*, (const OrtKernelInfo*, size_t*))                                       \
  X(231, KernelInfo_GetOutputCount, OrtStatus*, (const OrtKernelInfo*, size_t*))                                      \
  X(234, KernelInfo_GetInputTypeInfo, OrtStatus*, (const OrtKernelInfo*, size_t, OrtTypeInfo**))                      \
  X(235, KernelInfo_GetOutputTypeInfo, OrtStatus*, (const OrtKernelInfo*, size_t, OrtTypeInfo**))                     \
  X(237, HasSessionConfigEntry, OrtStatus*, (const OrtSessionOptions*, const char*, int*))                            \
  X(238, GetSessionConfigEntry, OrtStatus*, (const OrtSessionOptions*, const char*, char*, size_t*))                  \
  X(244, KernelInfo_GetNodeName, OrtStatus*, (const OrtKernelInfo*, char*, size_t*))                                  \
  X(267, ShapeInferContext_GetInputCount, OrtStatus*, (const OrtShapeInferContext*, size_t*))                         \
  X(268, ShapeInferContext_GetInputTypeShape, OrtStatus*,                                                             \
    (const OrtShapeInferContext*, size_t, OrtTensorTypeAndShapeInfo**))                                               \
  X(269, ShapeInferContext_GetAttribute, OrtStatus*, (const OrtShapeInferContext*, const char*, const OrtOpAttr**))   \
  X(270, ShapeInferContext_SetOutputTypeShape, OrtStatus*,                                                            \
    (const OrtShapeInferContext*, size_t, const OrtTensorTypeAndShapeInfo*))                                          \
  X(271, SetSymbolicDimensions, OrtStatus*, (OrtTensorTypeAndShapeInfo*, const char**, size_t))                       \
  X(272, ReadOpAttr, OrtStatus*, (const OrtOpAttr*, OrtOpAttrType, void*, size_t, size_t*))                           \
  X(274, KernelContext_ParallelFor, OrtStatus*,                                                                       \
    (const OrtKernelContext*, void (*)(void*, size_t), size_t, size_t, void*))                                        \
  X(277, KernelContext_GetScratchBuffer, OrtStatus*, (const OrtKernelContext*, const OrtMemoryInfo*, size_t, void**)) \
  X(278, KernelInfoGetAllocator, OrtStatus*, (const OrtKernelInfo*, OrtMemType, OrtAllocator**))

#define ONNXFUSE_NEWER_ORT_SLOTS(X)                             \
  X(414, GetTensorElementTypeAndShapeDataReference, OrtStatus*, \
    (const OrtValue*, ONNXTensorElementDataType*, const int64_t**, size_t*))

}  // namespace onnxfuse
