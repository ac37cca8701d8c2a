#include "schedule_scans.h"

#include <algorithm>
#include <optional>

#include "schedule_limits.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kColumnThreads = 512;   // that a multiprocessor has where blocks scan whole columns, the registers of a
constexpr int kColumnRegisters = 64;  // thread for its elements, and how many vectors these may be
constexpr int kColumnVectors = 16;
constexpr int kColumnScanWords = 8;  // and how many registers what its scans add up to may take
constexpr int kTileThreads = 256;    // of a block that scans a part of a row, and the registers of a thread
constexpr int kTileRegisters = 24;   // that its elements take
constexpr int kTurnRegisters = 30;   // the same, of a block that takes tiles in turns
constexpr int kTurnScans = 2;        // of which 512 threads have the registers that their products need
constexpr int kRecordBytes = 1280;   // of shared memory, for each scan of such a block, besides the tiles
constexpr int kScanRows = 8;         // rows on a multiprocessor that are enough for a block to scan each

// Shared memory that a block may have, in bytes.
int block_memory(int architecture) {
  if (architecture < 80) return 64 * 1024;
  if (architecture == 80 || architecture == 87) return 163 * 1024;
  return (architecture < 90 || architecture >= 120 ? 99 : 227) * 1024;
}

int64_t scans_of(const Kernel& kernel) {
  return std::count_if(kernel.statements.begin(), kernel.statements.end(),
                       [](const Statement& s) { return is_scan(s.op); });
}

// One block on a multiprocessor that takes tiles of the rows or columns in turns: as large ones as fit into what shared
// memory there is for them, of which there are enough. False where not even the smallest fit.
bool share_in_tiles(const Plan& plan, const Footprint& footprint, const DeviceModel& device, int64_t memory,
                    Schedule& schedule) {
  const bool row = schedule.kind == ScheduleKind::row;
  int64_t staged = 0;
  for (const PlanAccess& access : plan.inputs) staged += staged_bytes(plan, access, row, schedule.lanes);
  const int64_t room = memory / (kTileBuffers * std::max<int64_t>(staged, 1) * schedule.threads);
  if (room < 1) return false;
  const int64_t points = std::max<int64_t>(1, plan.parallel_points * plan.reduced_points);
  const int64_t enough = points / (int64_t{2} * device.multiprocessors * schedule.threads * schedule.lanes);
  const int64_t most = std::max<int64_t>(1, std::min({int64_t{kTurnRegisters / footprint.least}, room, enough}));
  // The last tile of a row may be half empty: 16-bit rows of 131072 have 6.4 tiles of five vectors a thread (0.86 of a
  // copy's speed), and 8 whole ones of four.
  const auto vectors = [&](int64_t slots) {
    return slots * ceil_div(plan.reduced_points, slots * schedule.group * (row ? schedule.lanes : 1));
  };
  schedule.slots = static_cast<int>(most > 3 && vectors(most - 1) < vectors(most) ? most - 1 : most);
  schedule.workers = device.multiprocessors;
  schedule.long_scan = LongScan::look_back;
  return true;
}

std::optional<Schedule> share_rows_in_tiles(const Kernel& kernel, const Plan& plan, Schedule schedule,
                                            const Footprint& footprint, const DeviceModel& device) {
  const int64_t scans = scans_of(kernel), memory = block_memory(device.architecture) - kRecordBytes * (scans + 1);
  for (int threads = memory >= 128 * 1024 && scans <= kTurnScans ? 512 : 256; threads >= 256; threads /= 2) {
    schedule.threads = schedule.group = threads;
    if (share_in_tiles(plan, footprint, device, memory, schedule)) return schedule;
  }
  return std::nullopt;
}

// A block has all of some neighbouring columns, as many as a cache line holds, in registers. On an H200, columns of 16,
// 256 and 1000 get 0.99, 0.97 and 0.93 (fp32), 0.98, 0.95 and 0.87 (fp16) of a copy's speed; with a thread a column
// that waits for each of its points 0.97, 0.90 and 0.84, 0.95, 0.77 and 0.65.
std::optional<Schedule> scan_whole_columns(const Kernel& kernel, const Plan& plan, int lanes, int bytes,
                                           const Footprint& footprint, const DeviceModel& device) {
  Schedule schedule;
  schedule.kind = ScheduleKind::column;
  schedule.lanes = lanes;
  int words = 0;
  for (const Statement& s : kernel.statements) {
    if (is_scan(s.op)) words += lanes * (type_size(scan_type(s)) > 4 ? 2 : 1);
  }
  if (words > kColumnScanWords) return std::nullopt;
  const int most = std::clamp(kColumnRegisters / footprint.least, 1, kColumnVectors);
  const int64_t n = plan.reduced_points, columns = ceil_div(plan.parallel_points, lanes);
  int across = kNarrowBytes / bytes;
  if (bytes < kVectorBytes || n > int64_t{kColumnThreads} / across * most || device.long_scan) return std::nullopt;
  const auto enough = [&] { return ceil_div(columns, across) >= int64_t{2} * device.multiprocessors; };
  if (n == 0 || !enough()) return std::nullopt;
  schedule.group = power_of_two_at_least(ceil_div(n, most), kColumnThreads);
  while (across * schedule.group < kRowThreads) across *= 2;
  if (!enough()) return std::nullopt;
  schedule.threads = across * schedule.group;
  schedule.slots = static_cast<int>(ceil_div(n, schedule.group));
  schedule.blocks = kColumnThreads / schedule.threads;
  const int64_t rows = across < kWarp ? schedule.threads / kWarp : schedule.group;  // after combining in warps
  if (footprint.scan_bytes * (rows + 1) * across * lanes > kSharedBytes) return std::nullopt;
  return schedule;
}

// Blocks take tiles of neighbouring columns in turns, whole cache lines wide where there are as many columns. 4096
// columns of 16384 on an H200: 0.84 of a copy's speed (fp32), in two passes 0.57.
std::optional<Schedule> share_columns_in_tiles(const Kernel& kernel, const Plan& plan, int lanes, int bytes,
                                               const Footprint& footprint, const DeviceModel& device) {
  Schedule schedule;
  schedule.kind = ScheduleKind::column;
  schedule.lanes = lanes;
  schedule.resident = false;
  const int64_t columns = ceil_div(plan.parallel_points, lanes), memory = block_memory(device.architecture);
  const int across = power_of_two_at_least(columns, std::clamp(kNarrowBytes / bytes, 1, kWarp));
  const auto records = [&](int threads) {
    int64_t bytes = 0;
    for (const Statement& s : kernel.statements) {
      if (is_scan(s.op)) bytes += kTileRecords * column_record_bytes(s, threads, across * lanes);
    }
    return bytes;
  };
  if (scans_of(kernel) > kTurnScans) return std::nullopt;
  // 128 columns of bytes have a scout for each 32 and turn; with 512 threads, there would be too few registers.
  int threads = memory >= 128 * 1024 && across * lanes <= 64 && records(512) <= memory / 4 ? 512 : 256;
  for (; threads >= 256; threads /= 2) {
    if (records(threads) > memory / 2) continue;
    schedule.threads = threads;
    schedule.group = threads / across;
    if (share_in_tiles(plan, footprint, device, memory - kRecordBytes - records(threads), schedule)) return schedule;
  }
  return std::nullopt;
}

// Whether there are tiles enough for blocks that take them in turns to be ahead of blocks that go through columns.
bool many_tiles(const Plan& plan, const Schedule& schedule, const DeviceModel& device) {
  const int64_t strips = ceil_div(ceil_div(plan.parallel_points, schedule.lanes), schedule.across());
  const int64_t tiles = ceil_div(plan.reduced_points, schedule.step());
  return tiles > 1 && tiles * strips >= int64_t{2} * device.multiprocessors;
}

}  // namespace

Schedule scan_long_rows(const Kernel& kernel, const Plan& plan, Schedule schedule, const Footprint& footprint, bool few,
                        const DeviceModel& device) {
  schedule.resident = false;
  schedule.cluster = schedule.blocks = schedule.splits = 1;
  schedule.threads = schedule.group = kTileThreads;
  schedule.slots = std::max(1, kTileRegisters / footprint.held);
  schedule.ahead = words_ahead(schedule.slots * footprint.held, schedule.slots * footprint.constant);
  const bool copied = std::all_of(plan.inputs.begin(), plan.inputs.end(), [&](const PlanAccess& access) {
    return !access.used || !varies(access) || staged_bytes(plan, access, true, schedule.lanes) > 0;
  });
  const bool shared =
      plan.reduced_points > 0 &&
      (few || (!footprint.reduces && (copied || plan.parallel_points < int64_t{kScanRows} * device.multiprocessors)));
  schedule.long_scan = shared ? LongScan::look_back : LongScan::chunks;
  if (plan.reduced_points > 0) schedule.long_scan = device.long_scan.value_or(schedule.long_scan);
  if (schedule.long_scan == LongScan::look_back && !scans_both_ways(kernel)) {
    const auto tiles = share_rows_in_tiles(kernel, plan, schedule, footprint, device);
    if (tiles) {
      schedule = *tiles;
    } else {
      schedule.long_scan = few ? LongScan::two_pass : LongScan::chunks;
    }
  }
  const int64_t tiles = std::max<int64_t>(1, ceil_div(plan.reduced_points, schedule.step()));
  if (scans_both_ways(kernel)) {
    schedule.long_scan = LongScan::two_pass;
    schedule.splits = static_cast<int>(checked_blocks(tiles));
  } else if (schedule.long_scan == LongScan::two_pass || (few && schedule.long_scan == LongScan::look_back)) {
    schedule.splits = static_cast<int>(std::clamp<int64_t>(pieces_that_fill(plan.parallel_points, device), 1, tiles));
  }
  return schedule;
}

// Else a thread a column, or a few that take turns where there are too few columns to fill the GPU.
Schedule scan_columns(const Kernel& kernel, const Plan& plan, int lanes, int bytes, const Footprint& footprint,
                      const DeviceModel& device) {
  if (const auto whole = scan_whole_columns(kernel, plan, lanes, bytes, footprint, device)) return *whole;
  const bool may_share = device.long_scan.value_or(LongScan::look_back) == LongScan::look_back;
  if (may_share && plan.reduced_points > 0) {
    const auto tiles = share_columns_in_tiles(kernel, plan, lanes, bytes, footprint, device);
    if (tiles && (device.long_scan || many_tiles(plan, *tiles, device))) return *tiles;
  }
  Schedule schedule;
  schedule.kind = ScheduleKind::column;
  schedule.lanes = lanes;
  schedule.resident = false;
  schedule.slots = std::clamp(kTileRegisters / footprint.held, 1, 8);
  const int64_t columns = ceil_div(plan.parallel_points, lanes), n = plan.reduced_points;
  const int across = power_of_two_at_least(columns, kWarp);
  const int most = std::min<int64_t>(1024 / across, kSharedBytes / (footprint.scan_bytes * across * lanes) - 1);
  const int64_t enough = int64_t{device.multiprocessors} * kResidentThreads / 4;
  while (schedule.group * 2 <= most && columns * schedule.group < enough && schedule.group * schedule.slots < n) {
    schedule.group *= 2;
  }
  schedule.threads = std::max(across * schedule.group, kWarp);
  if (schedule.group == 1 && columns >= 2 * enough) schedule.threads = 2 * across;
  const int64_t blocks = ceil_div(columns, across);
  if (device.long_scan == LongScan::two_pass || (blocks * 2 < device.multiprocessors && n >= 4096)) {
    schedule.splits = static_cast<int>(std::clamp<int64_t>(pieces_that_fill(blocks, device), 1,
                                                           ceil_div(std::max<int64_t>(n, 1), 4 * schedule.step())));
    schedule.long_scan = LongScan::two_pass;
  }
  return schedule;
}

}  // namespace onnxfuse::cuda
