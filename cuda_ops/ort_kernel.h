// A fused node in a session: created once, run many times, from several threads.
#pragma once

#include <memory>
#include <string>

#include "engine.h"
#include "ort_api.h"

namespace onnxfuse {

enum class Provider { cpu, cuda };

class NodeKernel {
 public:
  // Parses and verifies the node's program and makes its engine. Throws std::exception, the node named in the message.
  // takes_axes: whether input 0 lies in host memory, which only a program with run-time axes wants.
  NodeKernel(const Api& api, const OrtKernelInfo* info, bool takes_axes, Provider provider, const CudaOptions& options);
  ~NodeKernel();

  const Api& api() const;
  // One run. Thread-safe. Throws std::exception, the node named in the message.
  void compute(OrtKernelContext* context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onnxfuse
