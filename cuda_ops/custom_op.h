// A fused op as ONNX Runtime sees it: the table of callbacks.
#pragma once

#include "engine.h"
#include "ort_api.h"
#include "ort_kernel.h"

namespace onnxfuse {

constexpr const char* kCudaProvider = "CUDAExecutionProvider";

// What the op types have in front of their variadic inputs.
enum class First { nothing, axes };  // axes: of the run, in host memory on every provider

// Whether ONNX Runtime may have the first output written over one of the first inputs.
enum class InPlace { never, first };

// ONNX Runtime keeps the pointer for as long as any session lives that was registered with it.
struct FusedOp : OrtCustomOp {
  FusedOp(const Api& api, const char* name, First first, InPlace in_place, Provider provider, CudaOptions options);

  const Api& api;
  const char* name;
  First first;
  Provider provider;
  CudaOptions options;
};

}  // namespace onnxfuse
