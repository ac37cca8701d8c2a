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
    jobs_[static_cast<size_t>(urgency)].push_back(std::move(job));
    changed_.notify_all();
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

void Workers::prefer(Urgency urgency) {
  const std::lock_guard<std::mutex> lock(mutex_);
  preferred_ = urgency;
  changed_.notify_all();
}

void Workers::drop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t k = static_cast<size_t>(Urgency::quick); k < jobs_.size(); ++k) jobs_[k].clear();
  changed_.notify_all();
}

void Workers::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return threads_ == 0; });
}

void Workers::end() {
  std::unique_lock<std::mutex> lock(mutex_);
  ending_ = true;
  for (auto& list : jobs_) list.clear();
  changed_.notify_all();
  changed_.wait_for(lock, kPatience, [this] { return threads_ == 0; });
}

std::deque<Workers::Job>* Workers::next() {
  for (const Urgency urgency : {Urgency::needed, Urgency::quick, preferred_, Urgency::likely}) {
    std::deque<Job>& list = jobs_[static_cast<size_t>(urgency)];
    if (!list.empty()) return &list;
  }
  if (possible_ >= std::max(1u, most_threads() / 2)) return nullptr;
  const auto list = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& jobs) { return !jobs.empty(); });
  return list != jobs_.end() ? &*list : nullptr;
}

void Workers::work() {
  const auto all_done = [this] {
    return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& jobs) { return jobs.empty(); });
  };
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    std::deque<Job>* list = nullptr;
    const std::deque<Job>& needed = jobs_[static_cast<size_t>(Urgency::needed)];
    // More threads than there should be came for jobs that are needed.
    if (threads_ > most_threads() && needed.empty()) break;
    changed_.wait(lock, [&] { return (list = next()) != nullptr || all_done(); });
    if (list == nullptr) break;
    Job job = std::move(list->front());
    list->pop_front();
    const Urgency urgency = static_cast<Urgency>(list - jobs_.data());
    const bool possible = urgency >= Urgency::possible && urgency != preferred_;
    if (possible) ++possible_;
    lock.unlock();
    job();
    job = nullptr;  // may hold what takes time to destroy
    lock.lock();
    if (possible) --possible_, changed_.notify_one();
  }
  --threads_;
  changed_.notify_all();
}

}  // namespace onnxfuse::cuda
