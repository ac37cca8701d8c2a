// Picks the tile kernels for the machine that runs. The environment variable ONNXFUSE_CPU, baseline or avx2, asks for
// less than it has; the tests use that.
#include <cstdlib>
#include <cstring>

#if defined(ONNXFUSE_X86_KERNELS)
#include <cpuid.h>
#endif

#include "tile_kernels.h"

namespace onnxfuse::cpu {

extern const TileKernels kernels_baseline;
#if defined(ONNXFUSE_X86_KERNELS)
extern const TileKernels kernels_avx2;
extern const TileKernels kernels_avx512;

// GCC 10 and clang 16 know no such name in __builtin_cpu_supports.
static bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// Where AVX2 is supported, the system saves the registers that F16C needs.
static bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && has_f16c();
}

static bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static const TileKernels& best_kernels() {
  const char* wanted = std::getenv("ONNXFUSE_CPU");
  const auto wants = [&](const char* name) { return wanted != nullptr && std::strcmp(wanted, name) == 0; };
  if (wants("baseline") || !has_avx2()) return kernels_baseline;
  return wants("avx2") || !has_avx512() ? kernels_avx2 : kernels_avx512;
}
#endif

const TileKernels& tile_kernels() {
#if defined(ONNXFUSE_X86_KERNELS)
  static const TileKernels& best = best_kernels();
  return best;
#else
  return kernels_baseline;
#endif
}

}  // namespace onnxfuse::cpu
