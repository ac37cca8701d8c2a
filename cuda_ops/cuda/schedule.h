// The choice of a schedule: which threads compute what. This is the one place that knows what suits a GPU.
#pragma once

#include <optional>

#include "stages.h"

namespace onnxfuse::cuda {

// How scans get through a row that a block does not have at a time.
enum class LongScan : uint8_t {
  chunks,     // one block goes through it, piece by piece
  look_back,  // blocks take tiles in turns, in one launch, and wait for the sums of the tiles before theirs
  two_pass,   // a block a piece, in three launches: the sums of the pieces, the prefixes of these, the scan
};

// Of blocks that take tiles in turns: turns from the copy of a tile to its sum, from there to its scan, tiles that the
// shared memory has room for, and warps that look up what comes before tiles. 64 Mi elements on an H200, fp32 and fp16,
// as parts of a copy's speed: 0.92 and 0.90; with 2, 2 and one such warp 0.76 and 0.75, with 3 and 3 0.91 and 0.87.
constexpr int kTurnsAhead = 2;
constexpr int kTurnsBehind = 3;
constexpr int kTileBuffers = kTurnsAhead + kTurnsBehind;
constexpr int kScouts = 2;
constexpr int kTileRecords = 8;  // notes about tiles, more than are at work: kTileBuffers + 1

struct DeviceModel {
  int architecture = 90;  // 10 * major + minor compute capability
  int multiprocessors = 132;
  std::optional<LongScan> long_scan;  // for measurements: instead of the choice that is made here
};

enum class ScheduleKind : uint8_t {
  elementwise,  // a vector of `lanes` neighbouring points a thread
  row,          // `group` threads share the reduced dimensions of a parallel point; vectors lie along them
  column,       // as row, but vectors lie along the parallel dimensions: a thread has `lanes` parallel points
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::elementwise;
  int lanes = 1;         // elements in a vector
  int threads = 256;     // in a block
  int group = 1;         // threads that share a reduction
  int slots = 1;         // vectors along the reduced dimensions that a thread has in registers at a time
  bool resident = true;  // all of them: the reduced dimensions are read once. Else every pass reads them again.
  int cluster = 1;       // blocks of a group: more than 1 exchange partial results through distributed shared memory
  int splits = 1;        // blocks that share a reduction; more than 1: a launch for each pass, partial results between
  int ahead = 0;         // registers for what all rows share, loaded before the last reduction is complete
  int blocks = 1;        // that a multiprocessor must have room for
  int workers = 1;       // blocks that take tiles in turns
  int rows_ahead = 0;    // that are on their way in shared memory; more than 0: clusters take rows in turns
  bool common = false;   // what all rows share is there too
  LongScan long_scan = LongScan::chunks;
  ScanParts scan_parts = ScanParts::combined;

  int block_group() const { return group / cluster; }
  int across() const { return threads / block_group(); }  // groups of a block
  // Reductions and scans that several blocks share: each pass is a launch.
  bool launches_apart() const { return splits > 1 || long_scan != LongScan::chunks; }
  // Warps for a turn that look up what comes before a tile: a thread for each column.
  int scouts() const { return kind == ScheduleKind::column ? (across() * lanes + 31) / 32 : 1; }
  int threads_in_turns() const { return threads + 32 * kScouts * scouts(); }
  // Points along the reduced dimensions that a group has at a time.
  int64_t step() const { return int64_t{slots} * group * (kind == ScheduleKind::row ? lanes : 1); }
};

// alignments: for each input tensor and then for each output tensor, the largest power of two up to 16 that divides its
// address. Nothing but speed depends on the choice.
struct Alignments {
  std::vector<uint8_t> inputs, outputs;
};

// The number of blocks as a launch takes it. Throws std::runtime_error where there are more than a grid has.
uint32_t checked_blocks(int64_t blocks);
bool lanes_along_reduced(const Kernel& kernel, const Plan& plan);
Schedule choose_schedule(const Kernel& kernel, const Plan& plan, const Stages& stages, bool lanes_reduced,
                         const Alignments& alignments, const DeviceModel& device);

}  // namespace onnxfuse::cuda
