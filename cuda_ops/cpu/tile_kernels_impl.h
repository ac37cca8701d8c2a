// Compiled once for each instruction set: the including file defines ONNXFUSE_ISA, a name. Everything here has internal
// linkage but the one table, so nothing compiled for a newer machine can stand in for code that every machine runs.
#include <cstdint>

#include "../table.h"
#include "tile_kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define ONNXFUSE_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ONNXFUSE_VECTORIZE _Pragma("GCC ivdep")
#endif

namespace onnxfuse::cpu {
namespace {

// In this order: each uses those before it.
// clang-format off
#include "math.h"
#include "half.h"
#include "vectors.h"
#include "vector_functions.h"
#include "scalar_ops.h"
#include "element_loops.h"
#include "reduction_loops.h"
#include "moments_loops.h"
#include "softmax_parts.h"
#include "softmax_loops.h"
#include "argument_loops.h"
#include "scan_loops.h"
#include "stages.h"
#include "byte_stages.h"
#include "folds.h"
#include "stage_table.h"
// clang-format on

}  // namespace

extern const TileKernels ONNXFUSE_ISA;
const TileKernels ONNXFUSE_ISA = {find_primitive,
                                  find_multiply_add,
                                  find_exp_of_difference,
                                  share_loop,
                                  ask_loop,
                                  moments_loop<false>,
                                  moments_loop<true>,
                                  softmax_loop,
                                  softmax_end,
                                  find_cast,
                                  find_load,
                                  find_store,
                                  find_copy,
                                  find_splat,
                                  find_reduction,
                                  find_fold,
                                  find_scan,
                                  find_stage,
                                  kBlock,
                                  run_blocks,
                                  fence};

}  // namespace onnxfuse::cpu
