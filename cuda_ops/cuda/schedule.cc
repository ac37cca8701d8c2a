#include "schedule.h"

#include <algorithm>

namespace onnxfuse::cuda {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kWarp = 32;
constexpr int kElementwiseThreads = 256;
constexpr int kSharedBytes = 32 * 1024;  // that a column schedule may use for combining, of the 48 KB there always are

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int power_of_two_at_least(int64_t n, int limit) {
  int p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

template <class Visit>
void for_each_access(const Plan& plan, Visit visit) {
  for (const PlanAccess& access : plan.inputs) {
    if (access.used) visit(access);
  }
  for (const PlanAccess& access : plan.outputs) visit(access);
}

// The largest number of lanes such that every access with unit stride along the lanes is one aligned access.
int choose_lanes(const Plan& plan, bool lanes_reduced, const Alignments& alignments) {
  const std::vector<PlanDim>& dims = lanes_reduced ? plan.reduced : plan.parallel;
  if (dims.empty()) return 1;
  size_t widest = 0;
  for_each_access(plan, [&](const PlanAccess& access) {
    if ((lanes_reduced ? access.reduced : access.parallel).back() == 1)
      widest = std::max(widest, type_size(access.storage));
  });
  if (widest == 0) return 1;
  int lanes = static_cast<int>(kVectorBytes / widest);
  // A single dimension may end in the middle of a vector: the last thread takes a slower way.
  const bool has_tail = !plan.reduces && plan.parallel.size() == 1;
  while (lanes > 1 && !has_tail && dims.back().extent % lanes != 0) lanes /= 2;
  for_each_access(plan, [&](const PlanAccess& access) {
    const std::vector<int64_t>& own = lanes_reduced ? access.reduced : access.parallel;
    const std::vector<int64_t>& other = lanes_reduced ? access.parallel : access.reduced;
    if (own.back() != 1) return;
    const int64_t size = static_cast<int64_t>(type_size(access.storage));
    const int64_t alignment = (access.output ? alignments.outputs : alignments.inputs)[access.tensor];
    const auto fits = [&] {
      if (alignment % std::min<int64_t>(lanes * size, kVectorBytes) != 0 || access.offset % lanes != 0) return false;
      for (size_t k = 0; k + 1 < own.size(); ++k) {
        if (own[k] % lanes != 0) return false;
      }
      return std::all_of(other.begin(), other.end(), [&](int64_t stride) { return stride % lanes == 0; });
    };
    while (lanes > 1 && !fits()) lanes /= 2;
  });
  return lanes;
}

int words(Type type) { return type_size(type) > 4 ? 2 : 1; }

// Registers for each point that a resident schedule holds between its passes.
int live_words(const Kernel& kernel, const Stages& stages) {
  const int count = static_cast<int>(kernel.statements.size());
  std::vector<int> last(count, -1);
  for (int pass = 0; pass <= stages.passes; ++pass) {
    const auto use = [&](int i) { last[i] = std::max(last[i], pass); };
    for (const int i : stages.needed[pass]) {
      if (stages.first_pass[i] != pass) continue;
      for (int k = 0; k < kernel.statements[i].operand_count; ++k) use(kernel.statements[i].operands[k]);
    }
    if (pass < stages.passes) {
      for (const int i : stages.reductions[pass]) use(kernel.statements[i].operands[0]);
    } else {
      for (const Output& output : kernel.outputs) use(output.value);
    }
  }
  // Slot by slot, a pass replaces what it is the last to use by what it keeps, so what counts is what is alive between
  // passes (and before the first, when everything has just been loaded).
  int most = 1;
  for (int pass = -1; pass < stages.passes; ++pass) {
    int live = 0;
    for (int i = 0; i < count; ++i) {
      if (stages.scope[i] != Scope::point || last[i] <= pass) continue;
      const bool held = kernel.statements[i].op == Op::input || (stages.kept[i] && stages.first_pass[i] <= pass);
      if (held && stages.first_pass[i] >= 0) live += words(kernel.statements[i].type);
    }
    most = std::max(most, live);
  }
  return most;
}

Schedule choose_row(const Plan& plan, int lanes, int live, const DeviceModel& device) {
  Schedule schedule;
  schedule.kind = ScheduleKind::row;
  schedule.lanes = lanes;
  const int64_t vectors = std::max<int64_t>(1, ceil_div(plan.reduced_points, lanes));
  const auto slots_of = [&](int group) { return ceil_div(vectors, group); };
  const auto registers_of = [&](int group) { return slots_of(group) * lanes * live; };
  // A warp or less a row while the row fits into 32 registers a thread; beyond, a block a row with about 16 a thread,
  // or 64 (40 in the largest blocks, which have 64 registers a thread in all) where there are no more threads to be
  // had.
  if (registers_of(kWarp) <= std::max(32, lanes * live)) {
    schedule.group = power_of_two_at_least(vectors, kWarp);
    schedule.threads = 4 * kWarp;
  } else {
    schedule.group = 2 * kWarp;
    while (schedule.group < 1024 && registers_of(schedule.group) > std::max(16, lanes * live)) schedule.group *= 2;
    schedule.threads = schedule.group;
  }
  schedule.slots = static_cast<int>(std::min<int64_t>(slots_of(schedule.group), 1 << 20));
  schedule.resident = plan.reduced_points > 0 && registers_of(schedule.group) <= (schedule.group == 1024 ? 40 : 64);
  // Rows that outgrow a block, or too few rows to fill the GPU: shared by several blocks.
  const int64_t blocks = ceil_div(plan.parallel_points, schedule.threads / schedule.group);
  const bool few = blocks * 2 < device.multiprocessors && plan.reduced_points >= 65536;
  if (schedule.resident && !few) return schedule;
  schedule.resident = false;
  schedule.group = schedule.threads = power_of_two_at_least(std::max<int64_t>(vectors, kWarp), 512);
  schedule.slots = std::max(1, 16 / (lanes * live));
  if (few) {
    const int64_t pieces = ceil_div(vectors, int64_t{4} * schedule.threads * schedule.slots);
    schedule.splits = static_cast<int>(std::clamp<int64_t>(ceil_div(4 * device.multiprocessors, blocks), 1, pieces));
  }
  return schedule;
}

Schedule choose_column(const Kernel& kernel, const Plan& plan, const Stages& stages, int lanes, int live,
                       const DeviceModel& device) {
  Schedule schedule;
  schedule.kind = ScheduleKind::column;
  schedule.lanes = lanes;
  const int64_t columns = ceil_div(plan.parallel_points, lanes);
  const int64_t n = std::max<int64_t>(plan.reduced_points, 1);
  const auto registers_of = [&](int group) { return ceil_div(n, group) * lanes * live; };
  const auto shared_bytes = [&](int threads) { return int64_t{8} * lanes * threads; };
  bool wide_totals = false;
  for (const Statement& s : kernel.statements)
    wide_totals = wide_totals || (is_reduction(s.op) && type_size(s.type) > 4);
  const int64_t most_threads = std::min<int64_t>(1024, kSharedBytes / 4 / lanes);
  int across = power_of_two_at_least(columns, kWarp);  // threads along the parallel dimensions
  const bool rereads = stages.passes + (stages.stores_points ? 1 : 0) > 1;
  // Short reductions stay within a thread; longer ones are spread over the block, with fewer columns the longer they
  // are.
  schedule.group = 1;
  while (schedule.group * across < most_threads && registers_of(schedule.group) > std::max(32, lanes * live)) {
    schedule.group *= 2;
  }
  while (across > 8 && rereads && registers_of(schedule.group) > 32) {
    across /= 2;
    schedule.group *= 2;
  }
  schedule.threads = across * schedule.group;
  if (schedule.threads < 128 && columns > across) {
    across = power_of_two_at_least(columns, 128 / schedule.group);
    schedule.threads = across * schedule.group;
  }
  schedule.slots = static_cast<int>(std::min<int64_t>(ceil_div(n, schedule.group), 1 << 20));
  schedule.resident = plan.reduced_points > 0 &&
                      registers_of(schedule.group) <= (schedule.threads <= 512 ? 64
                                                       : wide_totals           ? 24
                                                                               : 40) &&
                      (!wide_totals || shared_bytes(schedule.threads) <= kSharedBytes);
  const int64_t blocks = ceil_div(columns, across);
  const bool few = blocks * 2 < device.multiprocessors && n >= 4096;
  if (schedule.resident && !few) return schedule;
  schedule.resident = false;
  schedule.slots = std::max(1, 16 / (lanes * live));
  // Without rereading, a block needs no more threads than keep the multiprocessors busy.
  if (!rereads && blocks >= 4 * device.multiprocessors)
    schedule.group = std::min(schedule.group, std::max(1, 256 / across));
  while (schedule.group > 1 && shared_bytes(across * schedule.group) > kSharedBytes) schedule.group /= 2;
  schedule.threads = across * schedule.group;
  if (few) {
    const int64_t pieces = ceil_div(n, int64_t{4} * schedule.group * schedule.slots);
    schedule.splits = static_cast<int>(std::clamp<int64_t>(ceil_div(4 * device.multiprocessors, blocks), 1, pieces));
  }
  return schedule;
}

}  // namespace

bool lanes_along_reduced(const Plan& plan) {
  if (!plan.reduces || plan.reduced.empty()) return false;
  if (plan.parallel.empty()) return true;
  // Where most bytes are neighbours along.
  size_t reduced = 0, parallel = 0;
  for_each_access(plan, [&](const PlanAccess& access) {
    const bool streams = std::any_of(access.reduced.begin(), access.reduced.end(), [](int64_t s) { return s != 0; }) &&
                         std::any_of(access.parallel.begin(), access.parallel.end(), [](int64_t s) { return s != 0; });
    const size_t weight = type_size(access.storage) * (streams ? 16 : 1);
    if (access.reduced.back() == 1) reduced += weight;
    if (access.parallel.back() == 1) parallel += weight;
  });
  return reduced >= parallel;
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
  const int live = live_words(kernel, stages);
  return lanes_reduced ? choose_row(plan, lanes, live, device)
                       : choose_column(kernel, plan, stages, lanes, live, device);
}

}  // namespace onnxfuse::cuda
