#include "workers.h"

#include <algorithm>
#include <system_error>
#include <thread>

namespace onnxfuse::cuda {
namespace {

constexpr unsigned kMostThreads = 16;

}  // namespace

Workers& Workers::shared() {
  static Workers* const workers = new Workers;  // outlives every job
  return *workers;
}

void Workers::add(std::function<void()> job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    const unsigned most = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
    if (running_ >= most) return;
    ++running_;
  }
  try {
    std::thread([this] { work(); }).detach();
  } catch (const std::system_error&) {
    work();  // no thread to be had
  }
}

void Workers::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!jobs_.empty()) {
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
  --running_;
}

}  // namespace onnxfuse::cuda
