// Compiled and loaded kernels, each source once in a process.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver.h"
#include "images.h"
#include "workers.h"

namespace onnxfuse::cuda {

// The kernels of one source, in the order of their names. Stays loaded for the life of the process.
using Module = std::vector<CudaKernel>;

// A module that is there or will be.
class PendingModule : public std::enable_shared_from_this<PendingModule> {
 public:
  // urgency: of the first request.
  PendingModule(std::function<Module()> make, Urgency urgency)
      : first_(urgency), make_(std::move(make)), future_(promise_.get_future()) {}

  // Has it made in the background, unless that has begun.
  void request(Urgency urgency);
  // Waits for it; throws std::runtime_error saying what went wrong.
  const Module& get();

 private:
  void make();

  const Urgency first_;
  std::atomic<unsigned> begun_{0};  // 1 + Workers::process() where it has
  std::function<Module()> make_;
  std::promise<Module> promise_;
  std::shared_future<Module> future_;
};

class Modules {
 public:
  static Modules& shared();

  // The module of the source, which is found or compiled in the background.
  std::shared_ptr<PendingModule> start(const std::string& source, const std::vector<std::string>& functions,
                                       int architecture, const Driver& driver, const Images& images, Urgency urgency);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<PendingModule>>
      modules_;  // by hash of the source, and of where images come from
};

}  // namespace onnxfuse::cuda
