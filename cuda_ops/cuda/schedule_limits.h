// What the choices of schedules share: the limits of GPUs, and how work is divided.
#pragma once

#include <algorithm>
#include <cstdint>

#include "footprint.h"

namespace onnxfuse::cuda {

constexpr int kWarp = 32;
constexpr int kRowThreads = 128;         // of a block of short rows
constexpr int kRegisters = 65536;        // of a multiprocessor
constexpr int kResidentThreads = 2048;   // the same
constexpr int kHeldRegisters = 32;       // that a thread should use for the elements it holds, at most
constexpr int kSharedBytes = 32 * 1024;  // that a column schedule may use for combining, of the 48 KB there always are
constexpr int kNarrowBytes = 128;        // of neighbouring columns that a block reads at least: whole cache lines
constexpr int kVectorBytes = 16;         // of the widest loads

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int power_of_two_at_least(int64_t n, int limit) {
  int p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

inline int words_ahead(int64_t held, int64_t constant) {
  return static_cast<int>(std::clamp<int64_t>(kHeldRegisters - held, 0, constant));
}

inline int64_t pieces_that_fill(int64_t blocks, const DeviceModel& device) {
  return ceil_div(4 * device.multiprocessors, std::max<int64_t>(blocks, 1));
}

}  // namespace onnxfuse::cuda
