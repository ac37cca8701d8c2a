#include "generator.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "body.h"
#include "embedded_kernels.h"
#include "expression.h"
#include "footprint.h"

namespace onnxfuse::cuda {
namespace {

// Each file uses only what those before it define.
constexpr const char* kTemplates[] = {"types.cuh",   "launch.cuh",   "convert.cuh", "index.cuh",
                                      "math.cuh",    "division.cuh", "fast.cuh",    "idioms.cuh",
                                      "shuffle.cuh", "reduce.cuh",   "exchange.cuh"};

std::string primitive_functions(const std::vector<const Kernel*>& kernels) {
  std::set<std::string> seen;
  std::string text;
  for (const Kernel* kernel : kernels) {
    for (const Statement& s : kernel->statements) {
      if (s.op == Op::input || s.op == Op::constant || s.op == Op::cast) continue;
      if (is_reduction(s.op) || is_scan(s.op)) continue;
      const Type operand = kernel->statements[s.operands[s.op == Op::op_where ? 1 : 0]].type;
      if (seen.insert(function_name(s.op, operand)).second) text += function_text(s.op, operand, s.type);
    }
  }
  return text;
}

bool has(const Kernel& kernel, bool (*kind)(Op)) {
  return std::any_of(kernel.statements.begin(), kernel.statements.end(),
                     [&](const Statement& s) { return kind(s.op); });
}

std::string templates(const std::vector<const Kernel*>& kernels, const Schedule& schedule) {
  const auto use = [&](bool (*kind)(Op)) {
    return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) { return has(*kernel, kind); });
  };
  std::string text;
  for (const char* file : kTemplates) text += embedded_kernel(file);
  if (schedule.cluster > 1) text += embedded_kernel("cluster.cuh");
  if (use(is_argument)) text += embedded_kernel("argument.cuh");
  if (use(is_scan)) text += embedded_kernel("scan.cuh");
  if (schedule.rows_ahead > 0) text += embedded_kernel("messages.cuh");
  if (schedule.rows_ahead > 0 || schedule.long_scan == LongScan::look_back) text += embedded_kernel("copy_ahead.cuh");
  if (schedule.long_scan == LongScan::look_back) text += embedded_kernel("barrier.cuh");
  if (schedule.long_scan == LongScan::look_back) text += embedded_kernel("look_back.cuh");
  if (schedule.long_scan == LongScan::look_back && schedule.kind == ScheduleKind::column) {
    text += embedded_kernel("look_back_columns.cuh");
  }
  return text;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of the nodes for a row or a column of that many tiles: see look_back.cuh and look_back_columns.cuh.
constexpr int64_t kBranch = 16;  // BRANCH there
// That one block sets to 0 while others copy their first tiles: 256 KB take about as long as these.
constexpr int64_t kMostClearedWords = 1 << 15;

int64_t node_words(const Statement& scan, bool row, int64_t tiles) {
  const auto words = [](Type type) { return type_size(type) > 4 ? 2 : 1; };
  const int64_t groups = ceil_div(tiles, kBranch), carries = ceil_div(tiles, kBranch * kBranch);
  return tiles * words(scan_type(scan)) + (row ? 0 : (groups + carries) * words(scan_total_type(scan)));
}

// What the functions hand on to each other, and which part of the reduced dimensions is whose.
void add_partial_results(Generated& result, Parameters& parameters, const Kernel& kernel, const Plan& plan,
                         const Stages& stages, const Schedule& schedule) {
  const bool row = schedule.kind == ScheduleKind::row;
  if (schedule.long_scan == LongScan::look_back) {
    const int64_t tiles = ceil_div(plan.reduced_points, schedule.step());
    int64_t words = 0;
    for (const int i : stages.scans) words += node_words(kernel.statements[i], row, tiles);
    words = ceil_div(words * plan.parallel_points, 2) * 2;
    result.zeroed_bytes = static_cast<size_t>(8 * (2 + words));
    result.clears = row && words <= kMostClearedWords;
    if (row) {
      parameters.add({ParameterKind::wide, "i64", "words", words, -1});
      parameters.add({ParameterKind::queue, "i32", "queue", 0, -1});
    }
    parameters.add({ParameterKind::scratch, "u64*", "nodes", 0, -1});
    parameters.add({ParameterKind::narrow, "u32", "tiles", checked_blocks(tiles), -1});
    if (!row) parameters.add({ParameterKind::narrow, "u32", "strips", blocks_of(plan, schedule), -1});
  }
  size_t results = schedule.long_scan == LongScan::two_pass ? stages.scans.size() : 0;
  for (const auto& pass : stages.reductions) results += pass.size();
  if (results > 0) {
    const int64_t bytes = (has(kernel, is_argument) ? 16 : 8) * plan.parallel_points * schedule.splits;
    const int64_t step = !stages.scans.empty() ? schedule.step() : row ? schedule.lanes : 1;
    const int64_t piece = ceil_div(ceil_div(plan.reduced_points, schedule.splits), step) * step;
    const int64_t begin = static_cast<int64_t>(result.zeroed_bytes);
    parameters.add({ParameterKind::scratch, "char*", "scratch", begin, -1});
    parameters.add({ParameterKind::wide, "i64", "partial_bytes", bytes, -1});
    parameters.add({ParameterKind::wide, "i64", "piece", piece, -1});
    if (!stages.scans.empty()) parameters.add({ParameterKind::narrow, "i32", "splits", schedule.splits, -1});
    result.scratch_bytes = results * static_cast<size_t>(bytes);
  }
  result.scratch_bytes += result.zeroed_bytes;
}

// The functions, with the number of blocks of each.
void write_functions(Generated& result, const Kernel& kernel, const Plan& plan, const Stages& stages,
                     const Schedule& schedule, const Accesses& accesses) {
  const bool row = schedule.kind == ScheduleKind::row, scans = !stages.scans.empty();
  const int64_t blocks = blocks_of(plan, schedule);
  const auto grid = [&](int64_t x, int64_t y) {
    return LaunchGrid{checked_blocks(x), checked_blocks(y), static_cast<uint32_t>(schedule.threads)};
  };
  if (!schedule.launches_apart()) {
    BodyWriter body(kernel, plan, stages, schedule, accesses);
    const bool turns = schedule.rows_ahead > 0;
    result.source += turns ? body.write_rows("onnxfuse_kernel") : body.write("onnxfuse_kernel", 0, stages.passes);
    if (turns) result.turns = static_cast<uint32_t>(schedule.cluster);
    result.functions.push_back("onnxfuse_kernel");
    result.grids.push_back(grid(blocks, 1));
    if (turns) result.grids.back().shared_bytes = body.dynamic_shared_bytes();
    return;
  }
  const LaunchGrid pieces = scans ? grid(blocks * schedule.splits, 1) : grid(blocks, schedule.splits);
  const auto add = [&](LaunchGrid size, const auto& write) {
    const std::string name = "onnxfuse_kernel_" + std::to_string(result.functions.size());
    BodyWriter body(kernel, plan, stages, schedule, accesses);
    result.source += write(body, name);
    result.functions.push_back(name);
    result.grids.push_back(size);
  };
  const auto passes = [](int first, int last) {
    return [=](BodyWriter& body, const std::string& name) { return body.write(name, first, last); };
  };
  const int reducing = scans ? stages.scan_pass : stages.passes;
  for (int pass = 0; pass < reducing; ++pass) add(pieces, passes(pass, pass));
  if (schedule.long_scan == LongScan::two_pass) {
    add(pieces, passes(reducing, reducing));
    add(grid(row ? plan.parallel_points : ceil_div(plan.parallel_points, schedule.threads), 1),
        [](BodyWriter& body, const std::string& name) { return body.write_prefixes(name); });
  }
  if (schedule.long_scan != LongScan::look_back) {
    add(pieces, passes(reducing, stages.passes));
    return;
  }
  const int64_t tiles = ceil_div(plan.reduced_points, schedule.step()) * (row ? plan.parallel_points : blocks);
  checked_blocks(tiles);
  int staged = 0;
  add(grid(std::min<int64_t>(tiles, schedule.workers), 1), [&](BodyWriter& body, const std::string& name) {
    std::string text = body.write_tiles(name);
    staged = body.staged_bytes_of_block();
    return text;
  });
  result.grids.back().threads = static_cast<uint32_t>(schedule.threads_in_turns());
  result.grids.back().shared_bytes = static_cast<uint32_t>(staged);
}

}  // namespace

std::string source_head(const std::vector<const Kernel*>& kernels, const Schedule& schedule) {
  return templates(kernels, schedule) + primitive_functions(kernels);
}

void declare_parameters(const Kernel& kernel, const Plan& plan, Accesses& accesses, Parameters& parameters) {
  accesses.declare_pointers();
  parameters.add({plan.wide_parallel ? ParameterKind::wide : ParameterKind::narrow, accesses.index_type(), "points",
                  plan.parallel_points, -1});
  if (plan.reduces) {
    parameters.add({plan.wide_reduced ? ParameterKind::wide : ParameterKind::narrow, accesses.reduced_type(), "length",
                    plan.reduced_points, -1});
  }
  const std::vector<bool> brought = brought_constants(kernel);
  for (size_t i = 0; i < brought.size(); ++i) {
    if (!brought[i]) continue;
    const float number = static_cast<float>(kernel.statements[i].literal.f);
    int32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    parameters.add({ParameterKind::number, "f32", "n" + std::to_string(i), bits, -1});
  }
}

uint32_t blocks_of(const Plan& plan, const Schedule& schedule) {
  const int64_t covered = int64_t{schedule.across()} * (schedule.kind == ScheduleKind::row ? 1 : schedule.lanes);
  return checked_blocks(ceil_div(plan.parallel_points, covered) * schedule.cluster);
}

Generated generate(const Kernel& kernel, const Plan& plan, const Stages& stages, const Schedule& schedule) {
  Generated result;
  Parameters parameters;
  Accesses accesses(plan, schedule, parameters);
  declare_parameters(kernel, plan, accesses, parameters);
  if (schedule.launches_apart()) add_partial_results(result, parameters, kernel, plan, stages, schedule);
  result.parameters = parameters.bytes();
  result.pointers = parameters.pointers();
  if (result.parameters.size() > kMaxParameterBytes) {
    throw std::runtime_error(
        "a fused kernel has more inputs and outputs than a CUDA kernel takes; use a lower limit of "
        "fused nodes for this model");
  }
  result.source = source_head({&kernel}, schedule) + parameters.struct_text();
  write_functions(result, kernel, plan, stages, schedule, accesses);
  return result;
}

}  // namespace onnxfuse::cuda
