// RunContext over ONNX Runtime's kernel context.
#pragma once

#include <vector>

#include "engine.h"
#include "ort_api.h"

namespace onnxfuse {

// The memory of the device that a kernel runs on.
class DeviceMemory {
 public:
  DeviceMemory(const Api& api, const OrtKernelInfo* info, bool has_streams);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  int device_id() const;
  // Where the device has streams, ordered by the context's: what is released may be handed out again to work that is
  // queued later.
  void* take(const OrtKernelContext* context, size_t bytes) const;
  void release(void* memory) const noexcept;

 private:
  const Api& api_;
  const bool has_streams_;
  OrtAllocator* allocator_ = nullptr;
  const OrtMemoryInfo* info_ = nullptr;  // the allocator's own
};

class OrtRunContext final : public RunContext {
 public:
  OrtRunContext(const Api& api, const OrtKernelContext* context, const DeviceMemory& memory)
      : api_(api), context_(context), memory_(memory) {}
  ~OrtRunContext() override;

  void parallel_for(size_t tasks, const std::function<void(size_t)>& body) override;
  void* stream() override;
  void* scratch(size_t bytes) override;

 private:
  const Api& api_;
  const OrtKernelContext* context_;
  const DeviceMemory& memory_;
  std::vector<void*> taken_;
};

}  // namespace onnxfuse
