#include "workers.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

namespace onnxfuse::cuda {
namespace {

constexpr unsigned kMostThreads = 16;
constexpr std::chrono::seconds kPatience{10};  // at the end of the process: longer than a kernel takes to compile

std::atomic<unsigned> forks{0};
std::atomic<Workers*> instance{nullptr};

unsigned most_threads() { return std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads); }

}  // namespace

Workers& Workers::shared() {
  static const bool made = [] {
    instance = new Workers;  // outlives every job
    // Registered after the libraries of the jobs were opened, so called before they end.
    std::atexit([] { instance.load()->end(); });
    pthread_atfork(nullptr, nullptr, [] {
      ++forks;
      instance = new Workers;
    });
    return true;
  }();
  static_cast<void>(made);
  return *instance.load();
}

unsigned Workers::process() { return forks; }

void Workers::add(Urgency urgency, Job job) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ending_ && urgency != Urgency::needed) return;
    jobs(urgency).push_back(std::move(job));
    changed_.notify_one();
    if (urgency != Urgency::needed && threads_ >= most_threads()) return;
    ++threads_;
  }
  try {
    std::thread([this] { work(); }).detach();
  } catch (const std::system_error&) {  // no thread to be had: what is not needed can wait until it is
    if (urgency == Urgency::needed) return work();
    const std::lock_guard<std::mutex> lock(mutex_);
    --threads_;
  }
}

void Workers::drop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs(Urgency::likely).clear();
  jobs(Urgency::possible).clear();
  changed_.notify_all();
}

void Workers::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return threads_ == 0; });
}

void Workers::end() {
  std::unique_lock<std::mutex> lock(mutex_);
  ending_ = true;
  for (std::deque<Job>& list : jobs_) list.clear();
  changed_.notify_all();
  changed_.wait_for(lock, kPatience, [this] { return threads_ == 0; });
}

bool Workers::has_work() const {
  return !jobs(Urgency::needed).empty() || !jobs(Urgency::likely).empty() ||
         (needed_ == 0 && !jobs(Urgency::possible).empty());
}

void Workers::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    // More threads than there should be came for jobs that are needed.
    const bool surplus = threads_ > most_threads() && jobs(Urgency::needed).empty();
    if (!surplus) changed_.wait(lock, [this] { return has_work() || jobs(Urgency::possible).empty(); });
    if (surplus || !has_work()) break;
    Urgency urgency = Urgency::needed;
    while (jobs(urgency).empty()) urgency = static_cast<Urgency>(static_cast<int>(urgency) + 1);
    Job job = std::move(jobs(urgency).front());
    jobs(urgency).pop_front();
    if (urgency == Urgency::needed) ++needed_;
    lock.unlock();
    job();
    job = nullptr;  // may hold what takes time to destroy
    lock.lock();
    if (urgency == Urgency::needed && --needed_ == 0) changed_.notify_all();
  }
  --threads_;
  changed_.notify_all();
}

}  // namespace onnxfuse::cuda
