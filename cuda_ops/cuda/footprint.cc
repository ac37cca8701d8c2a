#include "footprint.h"

#include <algorithm>

namespace onnxfuse::cuda {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kWarp = 32;

template <class Visit>
void for_each_access(const Plan& plan, Visit visit) {
  for (const PlanAccess& access : plan.inputs) {
    if (access.used) visit(access);
  }
  for (const PlanAccess& access : plan.outputs) visit(access);
}

bool varies_along(const std::vector<int64_t>& strides) {
  return std::any_of(strides.begin(), strides.end(), [](int64_t s) { return s != 0; });
}

// Whether neighbouring lanes may be on the two sides of where a roll wraps around.
bool lanes_wrap(const Plan& plan, bool lanes_reduced) {
  return !lanes_reduced && std::any_of(plan.rolls.begin(), plan.rolls.end(), [](const PlanRoll& roll) {
    return !roll.scales.empty() && roll.scales.back() != 0;
  });
}

size_t widest_vector_element(const Plan& plan, bool lanes_reduced) {
  size_t widest = 0;
  for_each_access(plan, [&](const PlanAccess& access) {
    const std::vector<int64_t>& strides = lanes_reduced ? access.reduced : access.parallel;
    if (!strides.empty() && strides.back() == 1) widest = std::max(widest, type_size(access.storage));
  });
  return widest;
}

int words(Type type) { return type_size(type) > 4 ? 2 : 1; }

// Of a vector that is copied into shared memory: 4 bytes or more can be.
int copied_bytes(const PlanAccess& access, bool lanes_reduced, int lanes) {
  const std::vector<int64_t>& strides = lanes_reduced ? access.reduced : access.parallel;
  if (!access.used || strides.empty() || strides.back() != 1 || !varies_along(access.reduced)) return 0;
  const int bytes = lanes * static_cast<int>(type_size(access.storage));
  return bytes == 4 || bytes == 8 || bytes == 16 ? bytes : 0;
}

// Of a vector as it was loaded.
int raw_words(const PlanAccess& access, bool lanes_reduced, int lanes) {
  const std::vector<int64_t>& strides = lanes_reduced ? access.reduced : access.parallel;
  if (strides.empty() || strides.back() == 0) return words(access.storage);
  if (strides.back() != 1) return lanes * words(access.storage);
  return std::max(1, lanes * static_cast<int>(type_size(access.storage)) / 4);
}

}  // namespace

int choose_lanes(const Plan& plan, bool lanes_reduced, const Alignments& alignments) {
  const std::vector<PlanDim>& dims = lanes_reduced ? plan.reduced : plan.parallel;
  const size_t widest = widest_vector_element(plan, lanes_reduced);
  if (dims.empty() || widest == 0 || lanes_wrap(plan, lanes_reduced)) return 1;
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
      const auto whole = [&](int64_t stride) { return stride % lanes == 0; };
      return std::all_of(other.begin(), other.end(), whole) &&
             std::all_of(access.rolled.begin(), access.rolled.end(), whole);
    };
    while (lanes > 1 && !fits()) lanes /= 2;
  });
  return lanes;
}

int vector_bytes(const Plan& plan, bool lanes_reduced, int lanes) {
  return lanes * static_cast<int>(std::max<size_t>(1, widest_vector_element(plan, lanes_reduced)));
}

// What rows share is near anyway.
int staged_bytes(const Plan& plan, const PlanAccess& access, bool lanes_reduced, int lanes) {
  const bool own = plan.parallel_points == 1 || varies(access);
  return own ? copied_bytes(access, lanes_reduced, lanes) : 0;
}

int common_bytes(const PlanAccess& access, int lanes) { return varies(access) ? 0 : copied_bytes(access, true, lanes); }

int column_record_bytes(const Statement& scan, int threads, int columns) {
  const int rows = threads / kWarp;
  return columns * static_cast<int>(rows * type_size(scan_type(scan)) + type_size(scan_total_type(scan)));
}

Type scan_type(const Statement& scan) {
  return scan.op == Op::op_scan_prod && scan.type == Type::f32 ? Type::f64 : scan.type;
}

Type scan_total_type(const Statement& scan) {
  return scan.op == Op::op_scan_sum && scan.type == Type::f32 ? Type::f64 : scan_type(scan);
}

bool scans_both_ways(const Kernel& kernel) {
  bool forward = false, reverse = false;
  for (const Statement& s : kernel.statements) {
    if (is_scan(s.op)) (s.reverse ? reverse : forward) = true;
  }
  return forward && reverse;
}

Footprint footprint(const Kernel& kernel, const Plan& plan, const Stages& stages, bool lanes_reduced, int lanes) {
  const int count = static_cast<int>(kernel.statements.size());
  std::vector<int> last(count, -1);
  for (int pass = 0; pass <= stages.passes; ++pass) {
    const auto use = [&](int i) {
      last[i] = std::max(last[i], pass);
      for (int k = 0; stages.repeated[i] && k < kernel.statements[i].operand_count; ++k) {
        int& operand = last[kernel.statements[i].operands[k]];
        operand = std::max(operand, pass);
      }
    };
    for_each_use(kernel, stages, pass, use);
  }
  // Slot by slot, a pass replaces what it is the last to use by what it keeps, so what counts is what is alive between
  // passes, and before the first.
  Footprint result;
  for (const Statement& s : kernel.statements) result.reduces = result.reduces || is_reduction(s.op);
  for (int pass = -1; pass < stages.passes; ++pass) {
    int live = 0;
    for (int i = 0; i < count; ++i) {
      if (stages.scope[i] != Scope::point || stages.first_pass[i] < 0 || last[i] <= pass) continue;
      if (kernel.statements[i].op == Op::input) {
        const bool loaded = varies(plan.inputs[i]) || stages.first_pass[i] <= pass;
        if (loaded) live += raw_words(plan.inputs[i], lanes_reduced, lanes);
      } else if (stages.kept[i] && stages.first_pass[i] <= pass) {
        live += lanes * words(kernel.statements[i].type);
      }
    }
    result.held = std::max(result.held, live);
    if (pass >= 0) result.kept = std::max(result.kept, live);
  }
  // The compiler may convert the elements of a row ahead of their use (64 bf16 of a thread: spills), and small integers
  // always.
  result.least = result.held;
  bool widens = lanes_reduced;
  for (const PlanAccess& access : plan.inputs) {
    widens = widens || (access.used && type_size(access.storage) < 4 && !is_16bit_float(access.storage));
  }
  if (widens) result.held = std::max(result.held, lanes);
  // What comes before each vector of a row.
  for (const int i : stages.scans) {
    const Type type = scan_type(kernel.statements[i]);
    if (lanes_reduced) result.held += words(type), result.least += words(type);
    result.scan_bytes += static_cast<int>(type_size(type));
  }
  for (int i = 0; i < count; ++i) {
    if (kernel.statements[i].op == Op::input && stages.first_pass[i] == stages.passes && !varies(plan.inputs[i])) {
      result.constant += raw_words(plan.inputs[i], lanes_reduced, lanes);
    }
  }
  return result;
}

bool lanes_along_reduced(const Kernel& kernel, const Plan& plan) {
  if (scans_both_ways(kernel)) return true;
  if (!plan.reduces || plan.reduced.empty()) return false;
  if (plan.parallel.empty()) return true;
  // Where most bytes are neighbours along.
  size_t reduced = 0, parallel = 0;
  for_each_access(plan, [&](const PlanAccess& access) {
    const size_t weight = type_size(access.storage) * (varies_along(access.reduced) && varies(access) ? 16 : 1);
    if (access.reduced.back() == 1) reduced += weight;
    if (access.parallel.back() == 1) parallel += weight;
  });
  return reduced >= parallel;
}

}  // namespace onnxfuse::cuda
