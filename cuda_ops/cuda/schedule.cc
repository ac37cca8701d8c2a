#include "schedule.h"

#include <algorithm>
#include <stdexcept>

#include "footprint.h"
#include "schedule_limits.h"
#include "schedule_scans.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kElementwiseThreads = 256;
constexpr int kOtherRegisters = 28;         // of a thread: addresses, coordinates, the reduction
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
// Blocks of that many threads that fit on a multiprocessor, where each thread holds `words` registers of elements.
int resident_blocks(int threads, int64_t words) {
  const int64_t registers = std::max<int64_t>(32, (kOtherRegisters + words + 7) / 8 * 8);
  return static_cast<int>(std::min<int64_t>(kResidentThreads, kRegisters / registers) / threads);
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

// Long rows that come in such numbers that each cluster has several: the smallest clusters whose threads can hold a
// row, and the next one. Measured on an H200 (rows of 131072, trial kernels): blocks of 512 do best, 1024 lose two
// hundredths, 256 as much; the bytes on their way matter, 64 KB a block: one row of 64 KB 0.92 and three 0.91 (softmax,
// fp32), one row of 32 KB 0.85, two 0.92 and three 0.90 (fp16).
bool takes_turns(const Kernel& kernel, const Plan& plan, const Stages& stages, int64_t vectors,
                 const Footprint& footprint, const DeviceModel& device, Schedule* schedule) {
  int64_t own = 0, common = 0;  // bytes of a vector
  int inputs = 0;
  for (const PlanAccess& access : plan.inputs) {
    const int bytes = staged_bytes(plan, access, true, schedule->lanes);
    own += bytes, inputs += bytes > 0 ? 1 : 0;
    common += common_bytes(access, schedule->lanes);
  }
  const bool arguments =
      std::any_of(kernel.statements.begin(), kernel.statements.end(), [](const auto& s) { return is_argument(s.op); });
  if (own == 0 || arguments) return false;
  const int64_t most_bytes = device.architecture >= kConsumerArchitecture ? kConsumerTurnRowBytes : kTurnRowBytes;
  // Of `eighths` of the registers for elements. Half as many threads with twice as much each have twice the registers
  // for everything else.
  const auto fits = [&](int threads, int eighths, int words) {
    const int most_held = kHeldRegisters * eighths / 8 * kTurnRowThreads / threads;
    for (int cluster = 2; cluster <= kMaxCluster; cluster *= 2) {
      const int64_t group = int64_t{cluster} * threads, slots = ceil_div(vectors, group);
      if (slots * words > most_held) continue;
      const int64_t bytes = slots * threads * own;
      if (plan.parallel_points * cluster < int64_t{2} * device.multiprocessors || bytes > most_bytes) return false;
      schedule->cluster = cluster;
      schedule->threads = threads;
      schedule->group = static_cast<int>(group);
      schedule->slots = static_cast<int>(slots);
      schedule->rows_ahead = static_cast<int>(std::clamp<int64_t>(kAheadBytes / bytes, 1, kMostRowsAhead));
      schedule->common = common > 0 && bytes * schedule->rows_ahead + slots * threads * common <= most_bytes;
      return true;
    }
    return false;
  };
  // Elements that turn into others between passes need more registers than those that are kept.
  if (stages.passes > 2) return fits(kTurnRowThreads / 2, 5, footprint.held);
  const bool turn = stages.passes > 1 && inputs > 1;
  if (fits(kTurnRowThreads, turn ? 6 : 8, footprint.held)) return true;
  // Where what is made of several inputs takes less room than they do. From sm_100 on it would spill; of softmaxes of
  // 16-bit elements, whole rows in clusters that do not stay are faster (H200: 0.65 of a copy's speed, 0.62 in turns).
  if (inputs < 2 || device.architecture >= 100) return false;
  if (turn && (own < int64_t{kVectorBytes} * inputs || schedule->lanes >= 8)) return false;
  return fits(kTurnRowThreads, 8, std::max(footprint.kept, footprint.held / 2));
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
