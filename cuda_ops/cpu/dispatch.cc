// Picks the tile kernels for the machine that runs.
#include "tile_kernels.h"

namespace onnxfuse::cpu {

extern const TileKernels kernels_baseline;
#if defined(ONNXFUSE_X86_KERNELS)
extern const TileKernels kernels_avx2;
extern const TileKernels kernels_avx512;

static bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2");
}

static bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const TileKernels& tile_kernels() {
#if defined(ONNXFUSE_X86_KERNELS)
  static const TileKernels& best = has_avx512() ? kernels_avx512 : has_avx2() ? kernels_avx2 : kernels_baseline;
  return best;
#else
  return kernels_baseline;
#endif
}

}  // namespace onnxfuse::cpu
