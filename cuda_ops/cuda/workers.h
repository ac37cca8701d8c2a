// Threads that compile kernels in the background.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace onnxfuse::cuda {

// How soon a job is wanted.
enum class Urgency : uint8_t {
  needed,    // a run waits for it: it gets a thread of its own
  likely,    // the first run is expected to need it
  possible,  // some run may; does not begin while a run waits
};

// Threads start when there is work and end when there is none. When the process exits it waits for the jobs that have
// begun, since they use libraries that end with it, and for no others.
class Workers {
 public:
  static Workers& shared();

  // A job must not throw.
  void add(Urgency urgency, std::function<void()> job);
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
  bool has_work() const;
  std::deque<Job>& jobs(Urgency urgency) { return jobs_[static_cast<size_t>(urgency)]; }
  const std::deque<Job>& jobs(Urgency urgency) const { return jobs_[static_cast<size_t>(urgency)]; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<Job>, 3> jobs_;  // by urgency
  unsigned threads_ = 0;
  unsigned needed_ = 0;  // jobs under way that a run waits for
  bool ending_ = false;
};

}  // namespace onnxfuse::cuda
