#include "caches.h"

#include <algorithm>
#include <fstream>
#include <thread>

namespace onnxfuse::cpu {
namespace {

int64_t last_level_cache() {
  int64_t kilobytes = 0;  // glibc's figure is that of all sockets on some machines
  std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kilobytes;
  return kilobytes > 0 ? kilobytes << 10 : int64_t{32} << 20;
}

bool is_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

}  // namespace

// A virtual machine sees all of a cache of which its neighbours use the rest, so the machine's size alone tells little.
// Where a chain and an operator that reads what it wrote took as long by way of the caches as past them, with one and
// two threads: with 3 and 4 MB on a Xeon of 2.8 GHz (two processors, 48 MB), with 3 and 4 to 6 MB on one of 2.1 GHz (16
// processors, 300 MB). With twice as much they took 10 to 15 % less past them; there the chain alone halves its time.
// On an EPYC (two processors, 32 MB) one thread lost 5 % with 4 MB and gained 10 % with 8, where two were still faster
// through the caches.
int64_t cache_share(int threads) {
  static const int64_t half = last_level_cache() / 2;
  static const int64_t megabytes_of_all = is_intel() ? 2 : 4, megabytes_of_each = is_intel() ? 1 : 4;
  return std::min(half, (megabytes_of_all + megabytes_of_each * threads) << 20);
}

int64_t cache_share() {
  static const int64_t share =
      std::min(last_level_cache() / 4, cache_share(static_cast<int>(std::thread::hardware_concurrency())));
  return share;
}

// Tiles wait for memory in turn: on an EPYC that takes 1.3 times as long as by way of the caches, on a Xeon 0.6 to 0.9
// times (scale, mask and softmax of 4 to 64 MB).
bool tiles_stream() {
  static const bool well = is_intel();
  return well;
}

// On an EPYC it gains; a Xeon reads ahead well enough by itself, and LayerNorms of 4 to 32 MB took 5 to 20 % longer.
bool asks_for_rows() {
  static const bool pays = !is_intel();
  return pays;
}

}  // namespace onnxfuse::cpu
