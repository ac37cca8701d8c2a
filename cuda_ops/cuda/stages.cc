#include "stages.h"

#include <algorithm>

namespace onnxfuse::cuda {
namespace {

Scope input_scope(const Plan& plan, const PlanAccess& access, bool lanes_reduced) {
  for (const int64_t stride : access.reduced) {
    if (stride != 0) return Scope::point;
  }
  if (lanes_reduced || plan.parallel.empty() || access.parallel.back() == 0) return Scope::once;
  return plan.reduces ? Scope::lane : Scope::point;
}

// A step from one 16-bit input (x - mean): its operand takes half the registers of its result.
bool cheaper_repeated(const Kernel& kernel, const Plan& plan, const Stages& stages, int i) {
  const Statement& statement = kernel.statements[i];
  if (statement.op != Op::op_add && statement.op != Op::op_sub && statement.op != Op::op_mul) return false;
  int inputs = 0;
  for (int k = 0; k < 2; ++k) {
    const int operand = statement.operands[k];
    if (stages.scope[operand] != Scope::point) continue;
    if (kernel.statements[operand].op != Op::input || !is_16bit_float(plan.inputs[operand].storage)) return false;
    ++inputs;
  }
  return inputs == 1;
}

bool is_f32(const Kernel& kernel, int i, Op op) {
  return kernel.statements[i].op == op && kernel.statements[i].type == Type::f32;
}

// True where the second pass uses results of the first for the statement `relative` alone, as it does not have them
// yet, and leaves nothing behind but the statement `left`, and what is had anew.
bool second_pass_is_for(const Kernel& kernel, const Stages& stages, int relative, int left) {
  for (const int i : stages.needed[1]) {
    if (i != left && stages.first_pass[i] == 1 && stages.kept[i]) return false;
    for (int k = 0; i != relative && k < kernel.statements[i].operand_count; ++k) {
      const int operand = kernel.statements[i].operands[k];
      if (stages.scope[operand] != Scope::point && stages.level[operand] > 0) return false;
    }
  }
  return true;
}

// The deviations of 16-bit elements need no correction for the rounding of a warp's mean: 2^-24 of it is little beside
// the rounding of the elements themselves. They are had anew from the elements wherever they are needed.
Stages::Moments find_moments(const Kernel& kernel, const Plan& plan, const Stages& stages) {
  if (stages.passes < 2 || stages.reductions[0].size() != 1 || stages.reductions[1].size() != 1) return {};
  const int mean = stages.reductions[0][0], variance = stages.reductions[1][0];
  if (!is_f32(kernel, mean, Op::op_reduce_mean)) return {};
  if (!is_f32(kernel, variance, Op::op_reduce_mean) && !is_f32(kernel, variance, Op::op_reduce_sum)) return {};
  const int square = kernel.statements[variance].operands[0];
  if (!is_f32(kernel, square, Op::op_mul)) return {};
  const auto& factors = kernel.statements[square].operands;
  const int deviation = factors[0], value = kernel.statements[mean].operands[0];
  if (factors[1] != deviation || !is_f32(kernel, deviation, Op::op_sub)) return {};
  const auto& operands = kernel.statements[deviation].operands;
  if (!(operands[0] == value && operands[1] == mean) && !(operands[0] == mean && operands[1] == value)) return {};
  if (kernel.statements[value].op != Op::input || !is_16bit_float(plan.inputs[value].storage)) return {};
  if (!second_pass_is_for(kernel, stages, deviation, -1)) return {};
  return {mean, variance};
}

Stages::Softmax find_softmax(const Kernel& kernel, const Stages& stages) {
  if (stages.passes < 2 || stages.reductions[0].size() != 1 || stages.reductions[1].size() != 1) return {};
  const int maximum = stages.reductions[0][0], sum = stages.reductions[1][0];
  if (!is_f32(kernel, maximum, Op::op_reduce_max) || !is_f32(kernel, sum, Op::op_reduce_sum)) return {};
  const int exponential = kernel.statements[sum].operands[0];
  if (!is_f32(kernel, exponential, Op::op_exp)) return {};
  const int difference = kernel.statements[exponential].operands[0];
  if (!is_f32(kernel, difference, Op::op_sub)) return {};
  const auto& operands = kernel.statements[difference].operands;
  if (operands[0] != kernel.statements[maximum].operands[0] || operands[1] != maximum) return {};
  if (!second_pass_is_for(kernel, stages, difference, exponential)) return {};
  return {maximum, exponential, sum};
}

}  // namespace

Stages make_stages(const Kernel& kernel, const Plan& plan, bool lanes_reduced, bool resident, ScanParts parts) {
  const int count = static_cast<int>(kernel.statements.size());
  Stages stages;
  stages.level.assign(count, 0);
  stages.scope.assign(count, Scope::once);
  stages.first_pass.assign(count, -1);
  stages.kept.assign(count, false);
  stages.repeated.assign(count, false);
  stages.needed_once.assign(count, false);
  for (int i = 0; i < count; ++i) {
    const Statement& statement = kernel.statements[i];
    if (statement.op == Op::input) stages.scope[i] = input_scope(plan, plan.inputs[i], lanes_reduced);
    for (int k = 0; k < statement.operand_count; ++k) {
      const int operand = statement.operands[k];
      stages.level[i] = std::max(stages.level[i], stages.level[operand]);
      stages.scope[i] = std::max(stages.scope[i], stages.scope[operand]);
    }
    if (is_scan(statement.op)) {
      stages.scope[i] = Scope::point;
      stages.scans.push_back(i);
    }
    if (!is_reduction(statement.op)) continue;
    const int pass = stages.level[i]++;
    stages.passes = std::max(stages.passes, pass + 1);
    stages.reductions.resize(std::max(stages.reductions.size(), static_cast<size_t>(pass) + 1));
    stages.reductions[pass].push_back(i);
    stages.scope[i] = lanes_reduced || plan.parallel.empty() ? Scope::once : Scope::lane;
  }

  if (!stages.scans.empty()) {
    if (!resident) stages.fresh = stages.passes;
    if (parts == ScanParts::combined) stages.scan_pass = stages.passes++;
    stages.reductions.resize(stages.passes);
  }

  // Reductions that no output uses are not worth a pass of their own, but they are rare: the program's writer drops
  // them.
  stages.needed.resize(stages.passes + 1);
  std::vector<bool> visited;
  const auto visit = [&](auto&& self, int i, int pass) -> void {
    if (visited[i]) return;
    visited[i] = true;
    const Statement& statement = kernel.statements[i];
    if (stages.scope[i] != Scope::point) stages.needed_once[i] = true;
    if (is_reduction(statement.op)) return;
    for (int k = 0; k < statement.operand_count; ++k) self(self, statement.operands[k], pass);
    if (stages.scope[i] == Scope::point) stages.needed[pass].push_back(i);
  };
  for (int pass = 0; pass <= stages.passes; ++pass) {
    visited.assign(count, false);
    if (pass < stages.passes) {
      for (const int i : stages.reductions[pass]) visit(visit, kernel.statements[i].operands[0], pass);
      if (pass == stages.scan_pass) {
        for (const int i : stages.scans) visit(visit, kernel.statements[i].operands[0], pass);
      }
    } else {
      for (size_t k = 0; k < kernel.outputs.size(); ++k) {
        visit(visit, kernel.outputs[k].value, pass);
        stages.stores_points = stages.stores_points || plan.outputs[k].per_point || !plan.reduces;
      }
    }
    std::vector<int>& list = stages.needed[pass];
    std::sort(list.begin(), list.end());
    for (const int i : list) {
      int& first = stages.first_pass[i];
      if (first < 0 || (first < stages.fresh && pass >= stages.fresh)) first = pass;
    }
  }
  // A pass computes the statements that it is the first to use; what it needs of earlier ones has to be kept.
  for (int pass = stages.fresh; pass <= stages.passes; ++pass) {
    const auto use = [&](int i) {
      if (stages.scope[i] != Scope::point || stages.first_pass[i] >= pass) return;
      (cheaper_repeated(kernel, plan, stages, i) ? stages.repeated : stages.kept)[i] = true;
    };
    for_each_use(kernel, stages, pass, use);
  }
  if (lanes_reduced) {
    stages.moments = find_moments(kernel, plan, stages);
    stages.softmax = find_softmax(kernel, stages);
  }
  return stages;
}

}  // namespace onnxfuse::cuda
