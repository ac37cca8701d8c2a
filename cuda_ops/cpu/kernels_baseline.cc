// The tile kernels for any machine of the architecture.
#define ONNXFUSE_ISA kernels_baseline
#include "tile_kernels_impl.h"
