#include "run_context.h"

#include <exception>
#include <mutex>
#include <string>

namespace onnxfuse {

DeviceMemory::DeviceMemory(const Api& api, const OrtKernelInfo* info, bool has_streams)
    : api_(api), has_streams_(has_streams) {
  api.check(api.KernelInfoGetAllocator(info, OrtMemTypeDefault, &allocator_));
  if (OrtStatus* status = api.AllocatorGetInfo(allocator_, &info_)) {
    api.ReleaseAllocator(allocator_);
    api.check(status);
  }
}

DeviceMemory::~DeviceMemory() { api_.ReleaseAllocator(allocator_); }

int DeviceMemory::device_id() const {
  int id = 0;
  api_.check(api_.MemoryInfoGetId(info_, &id));
  return id;
}

void* DeviceMemory::take(const OrtKernelContext* context, size_t bytes) const {
  void* memory = nullptr;
  // ONNX Runtime 1.18 to 1.22 ask the context's stream in any case, and end the process where there is none.
  api_.check_memory(has_streams_ ? api_.KernelContext_GetScratchBuffer(context, info_, bytes, &memory)
                                 : api_.AllocatorAlloc(allocator_, bytes, &memory),
                    [&] { return "cannot get " + std::to_string(bytes) + " bytes of memory for partial results"; });
  return memory;
}

void DeviceMemory::release(void* memory) const noexcept {
  if (OrtStatus* status = api_.AllocatorFree(allocator_, memory)) api_.ReleaseStatus(status);
}

OrtRunContext::~OrtRunContext() {
  for (void* memory : taken_) memory_.release(memory);
}

void OrtRunContext::parallel_for(size_t tasks, const std::function<void(size_t)>& body) {
  if (tasks <= 1) {
    if (tasks == 1) body(0);
    return;
  }
  struct Call {
    const std::function<void(size_t)>& body;
    std::mutex mutex;
    std::exception_ptr error;  // the first one; none may leave through ONNX Runtime's threads
  } call{body, {}, nullptr};
  const auto task = [](void* data, size_t i) {
    Call& c = *static_cast<Call*>(data);
    try {
      c.body(i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(c.mutex);
      if (!c.error) c.error = std::current_exception();
    }
  };
  api_.check(api_.KernelContext_ParallelFor(context_, task, tasks, 0, &call));
  if (call.error) std::rethrow_exception(call.error);
}

void* OrtRunContext::stream() {
  void* stream = nullptr;
  api_.check(api_.KernelContext_GetGPUComputeStream(context_, &stream));
  return stream;
}

void* OrtRunContext::scratch(size_t bytes) {
  taken_.reserve(taken_.size() + 1);  // so that nothing can fail between taking and noting it
  taken_.push_back(memory_.take(context_, bytes));
  return taken_.back();
}

}  // namespace onnxfuse
