#include "schedule.h"

#include <algorithm>
#include <stdexcept>

#include "footprint.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kElementwiseThreads = 256;
constexpr int kRowThreads = 128;            // of a block of short rows
constexpr int kRegisters = 65536;           // of a multiprocessor
constexpr int kResidentThreads = 2048;      // the same
constexpr int kOtherRegisters = 28;         // of a thread: addresses, coordinates, the reduction
constexpr int kHeldRegisters = 32;          // that a thread should use for the elements it holds, at most
constexpr int64_t kElementsAtWork = 16384;  // rows on a multiprocessor should have that many, to keep the memory busy
constexpr int kMaxCluster = 8;              // every GPU with clusters has room for as many blocks
constexpr int kClusterArchitecture = 90;
// Of blocks that take rows in turns: threads, the bytes of the next rows that are on their way, what shared memory
// takes of them besides what exchanges need, and on consumer GPUs with less of it.
constexpr int kTurnRowThreads = 512;
constexpr int kAheadBytes = 64 * 1024;
constexpr int kMostRowsAhead = 3;
constexpr int kTurnRowBytes = 200 * 1024;
constexpr int kConsumerArchitecture = 120;
constexpr int kConsumerTurnRowBytes = 80 * 1024;
constexpr int kSharedBytes = 32 * 1024;  // that a column schedule may use for combining, of the 48 KB there always are
constexpr int kNarrowBytes = 128;        // of neighbouring columns that a block reads at least: whole cache lines
constexpr int kVectorBytes = 16;         // of the widest loads
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

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int power_of_two_at_least(int64_t n, int limit) {
  int p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

// Blocks of that many threads that fit on a multiprocessor, where each thread holds `words` registers of elements.
int resident_blocks(int threads, int64_t words) {
  const int64_t registers = std::max<int64_t>(32, (kOtherRegisters + words + 7) / 8 * 8);
  return static_cast<int>(std::min<int64_t>(kResidentThreads, kRegisters / registers) / threads);
}

int words_ahead(int64_t held, int64_t constant) {
  return static_cast<int>(std::clamp<int64_t>(kHeldRegisters - held, 0, constant));
}

// Threads for a row of that many vectors that one block holds; 0: it is too long. Measured on an H200: a vector a
// thread in blocks of 1024 costs a third (0.66 of a copy's speed for LayerNorm over 4096), four vectors in blocks of
// 256 nothing (0.98, softmax), and a single block of 1024 on a multiprocessor a fifth (0.81), for nothing is read while
// it reduces. So: the most threads that leave each two vectors or more, and several blocks with enough elements between
// them.
int block_threads(int64_t vectors, int lanes, const Footprint& footprint) {
  int smallest = 0;
  for (int threads = 1024; threads >= 2 * kWarp; threads /= 2) {
    const int64_t slots = ceil_div(vectors, threads), held = slots * footprint.held;
    if (held > kHeldRegisters) break;
    const int blocks = resident_blocks(threads, held + words_ahead(held, slots * footprint.constant));
    if (blocks < 2) continue;
    smallest = threads;
    if (slots >= 4 && blocks * vectors * lanes >= kElementsAtWork) return threads;
  }
  return smallest;
}

bool exchanges(const Kernel& kernel) {  // types that store_cluster knows
  return std::all_of(kernel.statements.begin(), kernel.statements.end(), [](const Statement& s) {
    return !(is_reduction(s.op) || is_scan(s.op)) || type_size(s.type) >= 4;
  });
}

int64_t pieces_that_fill(int64_t blocks, const DeviceModel& device) {
  return ceil_div(4 * device.multiprocessors, std::max<int64_t>(blocks, 1));
}

// Long rows that come in such numbers that each cluster has several: the smallest clusters whose threads can hold a
// row, and the next one. Measured on an H200 (rows of 131072, trial kernels): blocks of 512 do best, 1024 lose two
// hundredths, 256 as much; the bytes on their way matter, 64 KB a block: one row of 64 KB 0.92 and three 0.91 (softmax,
// fp32), one row of 32 KB 0.85, two 0.92 and three 0.90 (fp16).
bool takes_turns(const Kernel& kernel, const Plan& plan, const Stages& stages, int64_t vectors,
                 const Footprint& footprint, const DeviceModel& device, Schedule* schedule) {
  int64_t own = 0, common = 0;  // bytes of a vector
  int inputs = 0;
  for (const PlanAccess& access : plan.inputs) {
    const int bytes = staged_bytes(plan, access, schedule->lanes);
    own += bytes, inputs += bytes > 0 ? 1 : 0;
    common += common_bytes(access, schedule->lanes);
  }
  const bool arguments =
      std::any_of(kernel.statements.begin(), kernel.statements.end(), [](const auto& s) { return is_argument(s.op); });
  if (own == 0 || arguments) return false;
  // Elements that turn into others between passes need more registers than those that are kept. Half as many threads
  // with twice as much each have twice the registers for everything else.
  const int eighths = stages.passes > 2 ? 5 : stages.passes > 1 && inputs > 1 ? 6 : 8;
  const int threads = stages.passes > 2 ? kTurnRowThreads / 2 : kTurnRowThreads;
  const int most_held = kHeldRegisters * eighths / 8 * kTurnRowThreads / threads;
  for (int cluster = 2; cluster <= kMaxCluster; cluster *= 2) {
    const int64_t group = int64_t{cluster} * threads, slots = ceil_div(vectors, group);
    if (slots * footprint.held > most_held) continue;
    const int64_t bytes = slots * threads * own;
    const int64_t most = device.architecture >= kConsumerArchitecture ? kConsumerTurnRowBytes : kTurnRowBytes;
    if (plan.parallel_points * cluster < int64_t{2} * device.multiprocessors || bytes > most) return false;
    schedule->cluster = cluster;
    schedule->threads = threads;
    schedule->group = static_cast<int>(group);
    schedule->slots = static_cast<int>(slots);
    schedule->rows_ahead = static_cast<int>(std::clamp<int64_t>(kAheadBytes / bytes, 1, kMostRowsAhead));
    schedule->common = common > 0 && bytes * schedule->rows_ahead + slots * threads * common <= most;
    return true;
  }
  return false;
}

// One block on a multiprocessor that takes tiles of the rows in turns: as large ones as fit, of which there are enough.
void share_rows_in_tiles(const Kernel& kernel, const Plan& plan, const Footprint& footprint, const DeviceModel& device,
                         Schedule& schedule) {
  const int64_t scans = std::count_if(kernel.statements.begin(), kernel.statements.end(),
                                      [](const Statement& s) { return is_scan(s.op); });
  const int64_t memory = block_memory(device.architecture) - kRecordBytes * (scans + 1);
  schedule.threads = schedule.group = memory >= 128 * 1024 && scans <= kTurnScans ? 512 : 256;
  int64_t staged = 0;
  for (const PlanAccess& access : plan.inputs) staged += staged_bytes(plan, access, schedule.lanes);
  const int64_t room = memory / (kTileBuffers * std::max<int64_t>(staged, 1) * schedule.threads);
  const int64_t points = std::max<int64_t>(1, plan.parallel_points * plan.reduced_points);
  const int64_t enough = points / (int64_t{2} * device.multiprocessors * schedule.threads * schedule.lanes);
  const int64_t most = std::max<int64_t>(1, std::min({int64_t{kTurnRegisters / footprint.least}, room, enough}));
  // The last tile of a row may be half empty: 16-bit rows of 131072 have 6.4 tiles of five vectors a thread (0.86 of a
  // copy's speed), and 8 whole ones of four.
  const auto vectors = [&](int64_t slots) {
    return slots * ceil_div(plan.reduced_points, slots * schedule.threads * schedule.lanes);
  };
  schedule.slots = static_cast<int>(most > 3 && vectors(most - 1) < vectors(most) ? most - 1 : most);
  schedule.workers = device.multiprocessors;
}

// Scans of rows that outgrow what has all of a row at a time.
Schedule scan_long_rows(const Kernel& kernel, const Plan& plan, Schedule schedule, const Footprint& footprint, bool few,
                        const DeviceModel& device) {
  schedule.resident = false;
  schedule.cluster = schedule.blocks = schedule.splits = 1;
  schedule.threads = schedule.group = kTileThreads;
  schedule.slots = std::max(1, kTileRegisters / footprint.held);
  schedule.ahead = words_ahead(schedule.slots * footprint.held, schedule.slots * footprint.constant);
  const bool shared =
      plan.reduced_points > 0 &&
      (few || (!footprint.reduces && plan.parallel_points < int64_t{kScanRows} * device.multiprocessors));
  schedule.long_scan = shared ? LongScan::look_back : LongScan::chunks;
  if (plan.reduced_points > 0) schedule.long_scan = device.long_scan.value_or(schedule.long_scan);
  if (schedule.long_scan == LongScan::look_back && !scans_both_ways(kernel)) {
    share_rows_in_tiles(kernel, plan, footprint, device, schedule);
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

Schedule choose_row(const Kernel& kernel, const Plan& plan, const Stages& stages, int lanes, const Footprint& footprint,
                    const DeviceModel& device) {
  const bool scans = !stages.scans.empty();
  Schedule schedule;
  schedule.kind = ScheduleKind::row;
  schedule.lanes = lanes;
  const int64_t vectors = std::max<int64_t>(1, ceil_div(plan.reduced_points, lanes));
  const auto slots_of = [&](int64_t group) { return ceil_div(vectors, group); };
  const auto held_by = [&](int64_t group) { return slots_of(group) * footprint.held; };
  schedule.resident = plan.reduced_points > 0;
  if (held_by(kWarp) <= std::max(kHeldRegisters, footprint.held)) {
    // A warp a row, or a part of a warp that leaves each thread two vectors: 0.87 with one (LayerNorm over 256, fp16),
    // for the work that a row costs once weighs as much as that for its elements.
    schedule.threads = kRowThreads;
    schedule.group = power_of_two_at_least(vectors, kWarp);
    const bool many = plan.parallel_points * schedule.group >= int64_t{device.multiprocessors} * kResidentThreads;
    while (many && schedule.group > 1 && slots_of(schedule.group / 2) <= 2) schedule.group /= 2;
  } else if (const int threads = block_threads(vectors, lanes, footprint)) {
    schedule.threads = schedule.group = threads;
  } else {
    // Rows that outgrow a block that leaves room for another one: a cluster's, where there are such. A scan alone does
    // not need all of a row.
    const bool clusters =
        device.architecture >= kClusterArchitecture && exchanges(kernel) && (footprint.reduces || !scans);
    if (clusters && !scans && schedule.resident &&
        takes_turns(kernel, plan, stages, vectors, footprint, device, &schedule)) {
      return schedule;
    }
    for (int cluster = 2; clusters && cluster <= kMaxCluster && schedule.cluster == 1; cluster *= 2) {
      const int each = block_threads(ceil_div(vectors, cluster), lanes, footprint);
      if (each > 0) schedule.cluster = cluster, schedule.threads = each;
    }
    if (schedule.cluster == 1) {
      schedule.cluster = clusters && held_by(1024) > 40 ? kMaxCluster : 1;
      schedule.threads = 1024;
    }
    schedule.group = schedule.threads * schedule.cluster;
    schedule.resident = schedule.resident && held_by(schedule.group) <= (schedule.threads == 1024 ? 40 : 64) &&
                        (footprint.reduces || !scans);
  }
  schedule.slots = static_cast<int>(std::min<int64_t>(slots_of(schedule.group), 1 << 20));
  // Within a warp, threads of other rows hide the reduction, and registers for more of them are worth more.
  const int64_t held = schedule.group > kWarp ? slots_of(schedule.group) * footprint.least : held_by(schedule.group);
  schedule.ahead = words_ahead(held, slots_of(schedule.group) * footprint.constant);
  // From sm_100 on, the full number of elements together with a scale and a bias would spill.
  const bool crowded = device.architecture >= 100 && held_by(schedule.group) + footprint.constant > kHeldRegisters;
  if (schedule.threads == 512 && !crowded) schedule.blocks = 2;
  // What outgrows a cluster too is read by every pass, and too few rows to fill the GPU are shared by several blocks.
  const int64_t blocks = ceil_div(plan.parallel_points, schedule.across()) * schedule.cluster;
  const bool few = blocks * 2 < device.multiprocessors && plan.reduced_points >= 65536;
  if (schedule.resident && !few) return schedule;
  if (scans) return scan_long_rows(kernel, plan, schedule, footprint, few, device);
  schedule.resident = false;
  schedule.cluster = schedule.blocks = 1;
  schedule.group = schedule.threads = power_of_two_at_least(std::max<int64_t>(vectors, kWarp), 512);
  schedule.slots = std::max(1, 16 / footprint.held);
  if (few) {
    const int64_t pieces = ceil_div(vectors, int64_t{4} * schedule.threads * schedule.slots);
    schedule.splits = static_cast<int>(
        std::clamp<int64_t>(pieces_that_fill(plan.parallel_points, device), 1, std::max<int64_t>(1, pieces)));
  }
  return schedule;
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

// A thread a column, or a few that take turns where there are too few columns to fill the GPU.
Schedule scan_columns(const Kernel& kernel, const Plan& plan, int lanes, int bytes, const Footprint& footprint,
                      const DeviceModel& device) {
  if (const auto whole = scan_whole_columns(kernel, plan, lanes, bytes, footprint, device)) return *whole;
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

// As for rows, blocks of 256 threads with eight vectors each: two vectors in blocks of 1024 had 0.79 of a copy's speed
// (channels-first LayerNorm, fp32).
Schedule choose_column(const Kernel& kernel, const Plan& plan, const Stages& stages, int lanes, int bytes,
                       const Footprint& footprint, const DeviceModel& device) {
  const bool scans = !stages.scans.empty();
  if (scans && !footprint.reduces) return scan_columns(kernel, plan, lanes, bytes, footprint, device);
  Schedule schedule;
  schedule.kind = ScheduleKind::column;
  schedule.lanes = lanes;
  const int64_t columns = ceil_div(plan.parallel_points, lanes);
  const int64_t n = std::max<int64_t>(plan.reduced_points, 1);
  const auto held_by = [&](int group) { return ceil_div(n, group) * footprint.held; };
  size_t widest = 4;
  for (const Statement& s : kernel.statements) {
    const bool sums_wide = s.op == Op::op_reduce_mean && !is_float(s.type);
    if (is_reduction(s.op)) widest = std::max(widest, sums_wide ? size_t{8} : type_size(s.type));
    if (is_argument(s.op)) widest = 16;
  }
  const auto shared_bytes = [&](int across, int group, size_t size) {
    const int rows = across < kWarp ? group * across / kWarp : group;  // what is left after combining in warps
    return (static_cast<int64_t>(size) * (rows + 1) + footprint.scan_bytes * (group + 1)) * across * lanes;
  };
  const auto fits = [&](int across, int group) {
    return held_by(group) <= std::max(kHeldRegisters, footprint.held) &&
           shared_bytes(across, group, widest) <= kSharedBytes;
  };
  // As many neighbouring columns a block as possible; fewer, down to whole cache lines, where the reduction is long.
  const int wide = power_of_two_at_least(columns, 128);
  const int narrow = std::min(wide, std::clamp(kNarrowBytes / bytes, 8, kWarp));
  int across = wide;
  schedule.threads = 128;
  while (across > narrow && !fits(across, schedule.threads / across)) across /= 2;
  while (schedule.threads < 512 && !fits(across, schedule.threads / across)) schedule.threads *= 2;
  if (!fits(across, schedule.threads / across) && across >= 8 && fits(across / 2, schedule.threads * 2 / across))
    across /= 2;
  if (!fits(across, schedule.threads / across)) schedule.threads = 1024;
  schedule.group = schedule.threads / across;
  schedule.slots = static_cast<int>(std::min<int64_t>(ceil_div(n, schedule.group), 1 << 20));
  schedule.resident = plan.reduced_points > 0 && fits(across, schedule.group);
  // The sums of all lanes need registers too: 512 threads with 64 each hold half of what they may elsewhere.
  if (schedule.threads == 256) schedule.blocks = 3;
  if (schedule.threads == 512 && held_by(schedule.group) <= kHeldRegisters / 2) schedule.blocks = 2;
  const int64_t blocks = ceil_div(columns, across);
  const bool few = blocks * 2 < device.multiprocessors && n >= 4096;
  if (schedule.resident && !few) return schedule;
  schedule.resident = false;
  schedule.blocks = 1;
  schedule.slots = std::max(1, 16 / footprint.held);
  // What is read once needs no narrow blocks, and no more threads than keep the multiprocessors busy.
  if (stages.passes + (stages.stores_points ? 1 : 0) == 1) {
    across = std::min(wide, kWarp);
    schedule.group = (ceil_div(columns, across) >= 4 * device.multiprocessors ? 256 : 1024) / across;
  } else {
    schedule.group = 512 / across;
  }
  while (schedule.group > 1 && shared_bytes(across, schedule.group, std::max<size_t>(widest, 8)) > kSharedBytes)
    schedule.group /= 2;
  while (schedule.group * across < kWarp) schedule.group *= 2;
  schedule.threads = across * schedule.group;
  if (few) {
    const int64_t pieces = ceil_div(n, int64_t{4} * schedule.group * schedule.slots);
    schedule.splits =
        static_cast<int>(std::clamp<int64_t>(pieces_that_fill(ceil_div(columns, across), device), 1, pieces));
    if (scans) schedule.long_scan = LongScan::two_pass;
  }
  return schedule;
}

}  // namespace

uint32_t checked_blocks(int64_t blocks) {
  if (blocks > INT32_MAX) throw std::runtime_error("a fused node has more elements than the grid of a CUDA kernel");
  return static_cast<uint32_t>(blocks);
}

Schedule choose_schedule(const Kernel& kernel, const Plan& plan, const Stages& stages, bool lanes_reduced,
                         const Alignments& alignments, const DeviceModel& device) {
  const int lanes = choose_lanes(plan, lanes_reduced, alignments);
  if (!plan.reduces) {
    Schedule schedule;
    schedule.lanes = lanes;
    schedule.threads = kElementwiseThreads;
    return schedule;
  }
  const Footprint words = footprint(kernel, plan, stages, lanes_reduced, lanes);
  Schedule schedule = lanes_reduced ? choose_row(kernel, plan, stages, lanes, words, device)
                                    : choose_column(kernel, plan, stages, lanes,
                                                    vector_bytes(plan, lanes_reduced, lanes), words, device);
  const bool alone = !lanes_reduced && schedule.group == 1 && schedule.long_scan == LongScan::chunks;
  if (alone) schedule.scan_parts = ScanParts::single;
  return schedule;
}

}  // namespace onnxfuse::cuda
