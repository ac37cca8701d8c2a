// RunContext of the tools and the fuzzer, which run programs outside of ONNX Runtime: all work on the calling thread,
// scratch memory of just the size asked for, on the host.
#pragma once

#include <memory>
#include <vector>

#include "engine.h"

namespace onnxfuse {

class InlineContext final : public RunContext {
 public:
  void parallel_for(size_t tasks, const std::function<void(size_t)>& body) override {
    for (size_t i = 0; i < tasks; ++i) body(i);
  }
  void* stream() override { return nullptr; }
  void* scratch(size_t bytes) override {
    memory_.emplace_back(new char[bytes]);
    return memory_.back().get();
  }

 private:
  std::vector<std::unique_ptr<char[]>> memory_;
};

}  // namespace onnxfuse
