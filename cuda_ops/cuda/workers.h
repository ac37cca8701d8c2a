// Threads that compile kernels in the background.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace onnxfuse::cuda {

// How soon a job is wanted: `possible` plus the number of a class of shapes stands for what runs of that class need.
enum class Urgency : uint8_t {
  needed,    // a run waits for it: it gets a thread of its own
  quick,     // takes next to no time, and finds out what there is to do
  likely,    // the first run is expected to need it
  possible,  // some run may: on half of the threads, until a run shows its class of shapes
};
constexpr int kMostClasses = 8;
constexpr Urgency possible(int class_of_shapes) {
  return static_cast<Urgency>(static_cast<int>(Urgency::possible) + class_of_shapes);
}

// Threads start when there is work and end when there is none. When the process exits it waits for the jobs that have
// begun, since they use libraries that end with it, and for no others.
class Workers {
 public:
  static Workers& shared();

  // A job must not throw.
  void add(Urgency urgency, std::function<void()> job);
  // A run has shown that it needs what is as urgent as this: all of that goes before the rest.
  void prefer(Urgency urgency);
  // Forgets all that has not begun and that no run waits for.
  void drop();
  // Returns when nothing is left to do.
  void wait();
  // Another number in a process that was forked off: threads, and with them jobs under way, are the parent's alone.
  static unsigned process();

 private:
  using Job = std::function<void()>;
  Workers() = default;
  void work();
  void end();
  // The list to take from; null where there is nothing to do, or nothing for another thread.
  std::deque<Job>* next();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<Job>, static_cast<size_t>(Urgency::possible) + kMostClasses> jobs_;  // by urgency
  Urgency preferred_ = Urgency::likely;
  unsigned threads_ = 0;
  unsigned possible_ = 0;  // jobs under way that no run may need
  bool ending_ = false;
};

}  // namespace onnxfuse::cuda
