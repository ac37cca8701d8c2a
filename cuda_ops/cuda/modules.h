// Compiled and loaded kernels, each source once in a process.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver.h"
#include "images.h"

namespace onnxfuse::cuda {

// The kernels of one source, in the order of their names. Stays loaded for the life of the process.
using Module = std::vector<CudaKernel>;

class Modules {
 public:
  static Modules& shared();

  // Finds or compiles it in the background, unless it is there already or on its way. get() on the result throws what
  // went wrong.
  std::shared_future<Module> start(const std::string& source, const std::vector<std::string>& functions,
                                   int architecture, const Driver& driver, const Images& images);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_future<Module>> modules_;  // by hash of source and options
};

}  // namespace onnxfuse::cuda
