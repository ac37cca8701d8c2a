// The tile kernels for x86-64-v3; cpu.cmake gives this file its compiler options.
#if defined(__AVX2__)
#define ONNXFUSE_ISA kernels_avx2
#include "tile_kernels_impl.h"
#endif
