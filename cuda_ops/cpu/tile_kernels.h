// The loops that the CPU engine's instructions call, one set for each instruction set of the machine.
#pragma once

#include <cstddef>

#include "program.h"

namespace onnxfuse::cpu {

// One loop over n elements: out[i] = f(a[i], b[i], c[i]). out may be one of the operands, but may not overlap one
// otherwise. bool elements are bytes, 0 or 1.
using TileFn = void (*)(void* out, const void* a, const void* b, const void* c, size_t n);

// A reduction works on accumulators of its own type, each of as many words of 8 bytes.
struct ReductionFns {
  size_t words;
  TileFn init;    // out: n accumulators, set to the identity
  TileFn row;     // out: one accumulator, takes in n elements of a
  TileFn column;  // out: n accumulators, each takes in its element of a
  TileFn band;    // out: accumulators, as many as int64_t b; each takes in its elements of a, n in all, rows of one for
                  // each; nullptr where there is no such loop: of arguments
  TileFn merge;   // out: n accumulators, each takes in accumulator a[i]
  TileFn finish;  // out: n results of accumulators a; b: int64_t, the number of elements reduced
  TileFn whole;   // out: the result of n elements of a
  // row and whole for the products a[i] * b[i]; nullptr where there is no such loop
  TileFn row_of_products;
  TileFn whole_of_products;
};

// A scan goes through a row in the order of its direction, from a state of two words: what came before this part of the
// row, and what the part has taken in so far. Where it goes through many rows at once, point by point, each has a state
// of one word.
struct ScanFns {
  TileFn init;         // out: a row's state at its beginning
  TileFn row;          // out: n results of n elements of a; b: the state, which takes them in
  TileFn total;        // out: the state, which takes in n elements of a as row does
  TileFn join;         // out: what came before the next part, of what came before a and what it took in, b
  TileFn whole;        // out: n results of the n elements of a whole row a
  TileFn column_init;  // out: n states
  TileFn column;       // out: n results of n elements of a, one of each row; b: n states, which take them in
};

// Pipelines: chains of float operations over blocks of elements that stay in vector registers.

// What a step does: a primitive of floats; one that gives bools of floats, of integers, or of bools; a choice of floats
// by bools; a loop of two operations, as in TileKernels; taking the block into a reduction, or each of its elements
// into an accumulator of its own; from or to a tensor or tile, which may be of bytes; nothing, at the end.
enum class Work : uint8_t {
  none,
  primitive,
  comparison,
  comparison_of_i32,
  comparison_of_i64,
  logic,
  where,
  multiply_add,
  exp_of_difference,
  exp_and_sum,        // with the fold after it
  exp_store_and_sum,  // with the store and the fold after it
  share,
  fold,
  fold_products,
  accumulate,
  ask,  // for memory that blocks read later
  load,
  load_f16,
  load_bf16,
  load_bool,
  load_u8,
  load_i8,
  load_i32,
  load_i64,
  store,
  stream,
  store_f16,
  store_bf16,
  store_bool,
  store_byte,
  end
};

// Where an operand comes from: what the step before left in the block, memory that moves with the block, one element.
enum class Source : uint8_t { block, memory, element };

using StageFn = void (*)();
struct Step {
  StageFn fn;
  char* operand[3];
};

// A reduction at the end of a pipeline, of floats: its stage has the state for operand 2.
constexpr size_t kFoldBytes = 128;  // at most, of a state
struct FoldFns {
  TileFn init;              // out: a state
  TileFn rest;              // out: a state, takes in n elements of a
  TileFn rest_of_products;  // or of a[i] * b[i]; nullptr where there is no such loop
  TileFn finish;            // out: the result of state a; b: int64_t, the number of elements reduced
  TileFn accumulate;        // out: an accumulator of ReductionFns, takes in state a
};

// Of softmax: what is known of the rows.
struct SoftmaxRows {
  int64_t length;
  int64_t far;      // whether they come from memory
  int64_t streams;  // whether results go past the caches, by way of a buffer that lies behind the state
  double instead;   // of NaN, a float; NaN where that stays
};

// What the calls of a softmax in one task hand on to each other; zero at first.
struct SoftmaxState {
  const float* next;  // set before each call: what the rows after these are computed from, which may be read, or null
  const float* row;   // whose shares are still to be stored, or null: exponentials
  float* out;         // where they go
  double sum;
  bool bounded;  // rows are expected to have elements like -inf
  char alignment[27];
};
static_assert(sizeof(SoftmaxState) == 64);

// Where a softmax's results go past the caches, rows of exponentials take turns in a buffer: in the places of two, so
// that one is finished beside the next one's exponentials; longer ones in the place of one, which is as fast and leaves
// room in the second-level cache.
constexpr size_t softmax_rows_buffered(size_t length) { return length <= 16384 ? 2 : 1; }

// Floats that each of these places takes; apart by half of 4096 bytes, so that a load from one does not wait for a
// store to the other.
constexpr size_t softmax_buffered(size_t length) { return (length + 511) / 1024 * 1024 + 512; }

constexpr size_t kAskedAhead = 4096;  // bytes, of Work::ask

struct TileKernels {
  // The loop of an element-wise primitive; type: of its operands (of where: of the two values). Bit i of scalars:
  // operand i is one element, the same for all. nullptr where there is no loop for these scalars; there is always one
  // for 0.
  TileFn (*primitive)(Op op, Type type, unsigned scalars);
  // f32: out[i] = a[i] * b[i] + c[i], with scalars as above; never nullptr where bit 0 is not set.
  TileFn (*multiply_add)(unsigned scalars);
  // f32: out[i] = exp(a[i] - b[i]); never nullptr where bit 0 is not set.
  TileFn (*exp_of_difference)(unsigned scalars);
  // f32: out[i] = a[i] / b[0], where b[0] is a sum that a[i] was taken into: by a product with the reciprocal.
  TileFn share;
  TileFn ask;  // does for n elements of a what Work::ask does
  // f32: out: the mean of n elements of a; b, which is written: the sum of the squares of what they are off it, or the
  // mean of these.
  TileFn mean_and_squares, mean_and_variance;
  // f32: of rows (SoftmaxRows b), n elements in all, e[i] / (e[0] + e[1] + ...) for e[i] = exp(a[i] - max(a[0], ...)).
  // c: SoftmaxState, which is written. softmax_end: does what is left (out: SoftmaxState, b: SoftmaxRows).
  TileFn softmax, softmax_end;
  TileFn (*cast)(Type from, Type to);                      // between types of values
  TileFn (*load)(Type storage);                            // f16 or bf16 to f32
  TileFn (*store)(Type storage);                           // f32 to f16 or bf16
  TileFn (*copy)(size_t size);                             // elements of 1, 2, 4 or 8 bytes
  TileFn (*splat)(size_t size);                            // out[i] = a[0]
  ReductionFns (*reduction)(Op op, Type type, bool last);  // last: of an argument; type: of the operand
  FoldFns (*fold)(Op op);                                  // all nullptr where there is none
  ScanFns (*scan)(Op op, Type type, bool exclusive, bool reverse);

  // The stage of a step of a pipeline, nullptr where there is none. One that does the steps after it as well goes on
  // after them.
  StageFn (*stage)(Work work, Op op, const Source* sources);
  size_t block;                                          // elements
  void (*run_blocks)(const Step* steps, size_t blocks);  // the last step is Work::end
  void (*fence)();                                       // after Work::stream, before others read what it stored
};

// The best set for this machine.
const TileKernels& tile_kernels();

}  // namespace onnxfuse::cpu
