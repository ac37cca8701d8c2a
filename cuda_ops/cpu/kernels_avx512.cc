// The tile kernels for x86-64-v4; cpu.cmake gives this file its compiler options.
#if defined(__AVX512F__)
#define ONNXFUSE_ISA kernels_avx512
#include "tile_kernels_impl.h"
#endif
