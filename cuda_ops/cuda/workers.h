// Threads that compile kernels in the background.
#pragma once

#include <deque>
#include <functional>
#include <mutex>

namespace onnxfuse::cuda {

// Threads start when there is work and end when there is none. A job must not throw.
class Workers {
 public:
  static Workers& shared();
  void add(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;
  unsigned running_ = 0;
};

}  // namespace onnxfuse::cuda
