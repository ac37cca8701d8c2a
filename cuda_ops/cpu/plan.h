// A kernel made ready for tensors of known shapes and types: loops, and the instructions that they repeat.
//
// The work is a list of items that do not depend on each other. Within an item come the passes, one after the other,
// with item code before each and after the last; a pass repeats its loop code for each point of the loop and, within,
// its tile code for each block of the tile. A tile is a run of points that the instructions treat as one vector.
//
//   column  an item is a tile of dimensions that are not reduced, a pass goes over the reduced ones point by point;
//           without reductions there is no pass
//   row     an item is a point of the dimensions that are not reduced, a pass goes over the reduced ones tile by tile
//   band    for few columns, which are inside of the reduced dimensions: an item is a point of the other dimensions, a
//           pass goes over the reduced ones by tiles of some points of the innermost and all columns
//   whole   for rows that are not long: an item is a tile of a few whole rows, and there is no pass
#pragma once

#include <cstdint>
#include <vector>

#include "engine.h"
#include "tile_kernels.h"

namespace onnxfuse::cpu {

// One or more dimensions of the space that all accesses step through as one.
struct Dim {
  int64_t extent = 1;
  int innermost = 0;  // dimension of the space whose stride is the stride of all
  uint32_t mask = 0;  // dimensions of the space
  bool reduced = false;
};

enum class Schedule : uint8_t { column, row, band, whole };

// Points of a tile: a few of 4-byte elements lie in the first-level cache. Of what keeps no values beside the vectors
// of a pipeline, a tile is longer, since each costs some 35 ns besides (relu, add and mul of 262144 elements in the
// second-level cache: 33 us in place of 38, of three tensors of 204800 added 43 in place of 49).
constexpr int64_t kTile = 1024, kLongTile = 8192;

// Points. A tile that is shorter takes in another dimension; and where its inner dimensions are shorter, what varies
// with its first one only is copied to all points rather than taken row by row.
constexpr int64_t kShortTile = 256;

constexpr int64_t kFewItems = 8;  // fewer may be shared out among tasks

struct Layout {
  Schedule schedule = Schedule::column;
  std::vector<Dim> grid, loop;
  std::vector<Dim> tile;  // the first is cut into blocks, the others are whole
  int64_t grid_points = 1, loop_points = 1;
  int64_t tile_extent = 1;  // of the first tile dimension
  int64_t inner = 1;        // points of the others
  int64_t block = 1;        // indices of the first in a tile
  int64_t blocks = 1;
  int64_t reduced_points = 1;

  bool item_is_point() const { return schedule == Schedule::row || schedule == Schedule::band; }  // else a block
  size_t capacity() const { return static_cast<size_t>(block * inner); }
};

// Points of the longest rows that the whole schedule takes: a few of their 4-byte elements lie in the second-level
// cache. A softmax, whose loop goes over a row twice, takes half as long so even where a row leaves that cache, and no
// longer than two threads that share a row (of 32000, 131072, 256000 and 500000: 14, 42, 80 and 168 us, shared 21, 63,
// 155 and 320 by one thread, 23, 65, 137 and 243 by two). So may rows that are normalized by their mean and variance:
// two of 131072 take 0.29 ms, shared 0.39.
constexpr int64_t kWholeRow = 16384, kLongWholeRow = 524288;

// Whether a point's place among the reduced ones matters: in scans and arguments.
bool takes_order(const Kernel& kernel);

// Points: of the longest rows of the whole schedule, and of a tile where nothing is reduced.
struct Limits {
  int64_t whole_row, tile;
};

// Chooses the schedule. No extent but those of reduced dimensions may be 0.
Layout make_layout(const Kernel& kernel, const BoundKernel& bound, const Limits& limits);

// Whether the tensors are too large for the last cache to hold them between one operator and the next; or so large that
// often it will not.
bool comes_from_memory(const BoundKernel& bound);
bool may_come_from_memory(const BoundKernel& bound);

// A register whose address moves with the loops. Strides are in bytes.
struct Address {
  enum class Base : uint8_t { input, output, arena };
  Base base = Base::input;
  int tensor = 0;
  int64_t offset = 0;
  uint16_t reg = 0;
  int64_t block = 0;
  bool dense = false;  // of a tensor: a block's bytes lie one after the other
  std::vector<int64_t> grid, loop;
};

// A strided copy of a tile; the first dimension's extent counts for each index of a block.
struct CopyDim {
  int64_t extent, out_stride, in_stride;  // strides in bytes
};
struct CopyPattern {
  size_t size;  // of an element
  std::vector<CopyDim> dims;
  bool per_block;  // the first extent is multiplied by the number of indices in the block
};

struct Instruction {
  // How many elements fn takes: one; the indices of a block; the points of the inner tile dimensions; both; the same of
  // a whole block. steps: inner points, once for each index of a block, each time farther by the steps. pipeline: a
  // number of instructions at once, in place of fn.
  enum class Count : uint8_t { one, rows, inner, tile, capacity, steps, pattern, pipeline };
  TileFn fn = nullptr;
  uint16_t out = 0, a = 0, b = 0, c = 0;
  Count count = Count::one;
  bool guarded = false;  // runs only where the indices named below are 0
  bool guard_block = false;
  uint16_t pattern = 0;  // or pipeline
  // What a step of a pipeline in its place does, where there is one.
  Work work = Work::none;
  Op op = Op::input;
  unsigned scalars = 0;                                       // bit i: operand i is one element
  uint32_t guard_grid = 0, guard_loop = 0;                    // sets of positions in Layout::grid and loop
  uint32_t step_out = 0, step_a = 0, step_b = 0, step_c = 0;  // in bytes
};
using Code = std::vector<Instruction>;

// A register that moves with the elements: by size from one to the next, by row_step from one index of a block to the
// next.
struct Stream {
  uint16_t reg = 0;
  uint8_t size = 0;
  uint32_t row_step = 0;
};

constexpr size_t kMostParts = 64, kMostFolds = 8;

// Instructions that are executed together, block of elements by block; what is left over takes them one by one.
struct Pipeline {
  struct Part {
    StageFn fn;
    Stream streams[3];
    int fold;  // whose state is operand 2; -1: none
  };
  struct Rest {
    TileFn fn;
    Stream out, in[3];
    int fold;  // whose state is out; -1: none
  };
  // A reduction of each row, or of a tile into an accumulator.
  struct Fold {
    TileFn init, finish;
    Stream out;
  };
  Instruction::Count count = Instruction::Count::tile;  // or inner; or steps, of which every part knows its own
  std::vector<Part> parts;                              // at most kMostParts; the last ends it
  std::vector<Rest> rest;
  std::vector<Fold> folds;  // at most kMostFolds
};

struct Pass {
  std::vector<uint16_t> moving;  // addresses that follow the loop
  Code loop_code, tile_code;
  bool reverse = false;  // its tiles come last to first
};

// Of a reduction in a pass.
struct Accumulator {
  uint16_t reg;
  size_t pass;
  size_t words;   // of all
  size_t number;  // one, or one for each point of a tile
  TileFn merge;   // takes accumulators a into out
};

// Of a scan of rows that tasks share: its state in the pass that scans, and in the one before, which finds what a part
// of the row comes to.
struct SharedScan {
  uint16_t state, total;
  TileFn join;
};

struct Register {
  enum class Kind : uint8_t { address, arena, constant };
  Kind kind = Kind::address;
  size_t offset = 0;
  bool temporary = false;  // holds no value beyond the code that writes it
};

// A register that has a SoftmaxState, and the address of the input that it is told of; -1: none.
struct SoftmaxPlace {
  uint16_t state;
  int ahead_of;
};

struct KernelPlan {
  Layout layout;
  std::vector<Register> registers;
  std::vector<Address> addresses;
  std::vector<CopyPattern> patterns;
  std::vector<Pipeline> pipelines;
  std::vector<uint64_t> constants;
  Code task_code;
  Code once_code;               // for the first item of a task
  Code end_code;                // after its last
  std::vector<Code> item_code;  // one more than passes
  std::vector<Pass> passes;
  std::vector<Accumulator> accumulators;
  // The items are few, so several tasks share each: another than the whole schedule, nothing is kept in the arena.
  bool shares_rows = false;
  bool streams = false;        // outputs are so large that they go past the caches where nothing reads them again
  bool keeps_tiles = false;    // values lie in the arena, other than in what follows a pipeline's blocks
  bool asks_ahead = false;     // inputs come from memory, where tiles lie in the order in which passes take them
  bool finds_moments = false;  // an instruction finds mean and variance by one reading of a row
  bool rows_alone = false;     // an instruction finishes row after row, and so stores all the time
  std::vector<SoftmaxPlace> softmaxes;
  int totals_pass = -1;  // of shared rows: before the pass that scans; has no effect but on the states
  std::vector<SharedScan> scans;
  size_t arena_bytes = 0;
  int64_t items = 0;
  double item_cost = 0;  // about nanoseconds

  // Tiles of a pass.
  int64_t tiles() const { return layout.loop_points * (layout.item_is_point() ? layout.blocks : 1); }
};

// threads: about as many work on it; results do not depend on them.
KernelPlan compile_kernel(const Kernel& kernel, const BoundKernel& bound, const std::vector<Type>& input_types,
                          const std::vector<Type>& output_types, int threads);

// Puts pipelines in the place of instructions that follow each other.
void form_pipelines(KernelPlan& plan);

void run_kernel(const KernelPlan& plan, Tensors inputs, Tensors outputs, RunContext& context);

}  // namespace onnxfuse::cpu
