#include "plan.h"

#include <algorithm>
#include <cstdlib>

namespace onnxfuse::cuda {
namespace {

// One dimension of the space with the stride of every access along it (inputs, then outputs), and of every roll.
struct Column {
  PlanDim dim;
  std::vector<int64_t> strides, rolls;
  std::vector<bool> lacks;
};

int64_t stride_of(const Roll& roll, const std::vector<int64_t>& extents, int d) {
  int64_t stride = 1;
  for (size_t place = roll.dims.size(); place-- > 0;) {
    if (roll.dims[place] == d) return stride;
    stride *= extents[roll.dims[place]];
  }
  return 0;
}

std::vector<Column> columns(const Kernel& kernel, const BoundKernel& bound, const std::vector<int>& dims) {
  std::vector<Column> result;
  for (const int d : dims) {
    if (bound.extents[d] == 1) continue;
    Column column;
    column.dim = {bound.extents[d], kernel.space.extents[d].has_value()};
    for (const Access& access : bound.inputs) {
      column.strides.push_back(access.strides.empty() ? 0 : access.strides[d]);
      column.lacks.push_back(false);
    }
    for (size_t k = 0; k < bound.outputs.size(); ++k) {
      bool present = false;
      for (const MapEntry& entry : kernel.outputs[k].map) {
        for (const AffineTerm& term : entry.terms) {
          present = present || (kernel.space.dims_of(term.dim) >> d & 1u) != 0;
        }
      }
      column.strides.push_back(present ? bound.outputs[k].strides[d] : 0);
      column.lacks.push_back(!present);
    }
    for (const Roll& roll : kernel.space.rolls) column.rolls.push_back(stride_of(roll, bound.extents, d));
    result.push_back(std::move(column));
  }
  return result;
}

bool mergeable(const Column& outer, const Column& inner) {
  if (outer.lacks != inner.lacks) return false;
  const auto steps_alike = [&](int64_t a, int64_t b) { return a == b * inner.dim.extent; };
  return std::equal(outer.strides.begin(), outer.strides.end(), inner.strides.begin(), steps_alike) &&
         std::equal(outer.rolls.begin(), outer.rolls.end(), inner.rolls.begin(), steps_alike);
}

std::vector<Column> merged(std::vector<Column> list) {
  std::vector<Column> result;
  for (Column& column : list) {
    if (!result.empty() && mergeable(result.back(), column)) {
      column.dim.extent *= result.back().dim.extent;
      column.dim.fixed = column.dim.fixed && result.back().dim.fixed;
      result.back() = std::move(column);
    } else {
      result.push_back(std::move(column));
    }
  }
  return result;
}

// Where nothing is to be reduced, one dimension says so: coordinates along several would be quotients by 0.
std::vector<Column> without_points_once(std::vector<Column> list) {
  const auto empty =
      std::find_if(list.begin(), list.end(), [](const Column& column) { return column.dim.extent == 0; });
  if (empty == list.end()) return list;
  return {*empty};
}

int64_t product(const std::vector<PlanDim>& dims) {
  int64_t points = 1;
  for (const PlanDim& dim : dims) points *= dim.extent;
  return points;
}

bool needs_64_bits(const std::vector<PlanDim>& dims, const std::vector<int64_t>& strides, int64_t span = 0) {
  for (size_t k = 0; k < dims.size(); ++k) span += std::llabs(strides[k]) * (dims[k].extent - 1);
  return span >= (int64_t{1} << 31) - 1024;
}

}  // namespace

bool varies(const PlanAccess& access) {
  const auto moves = [](int64_t stride) { return stride != 0; };
  return std::any_of(access.parallel.begin(), access.parallel.end(), moves) ||
         std::any_of(access.rolled.begin(), access.rolled.end(), moves);
}

Plan make_plan(const Kernel& kernel, const BoundKernel& bound, const ActualTypes& types) {
  Plan plan;
  for (const Statement& statement : kernel.statements) {
    plan.reduces = plan.reduces || is_reduction(statement.op) || is_scan(statement.op);
  }
  const Space& space = kernel.space;
  std::vector<int> parallel_dims, reduced_dims;
  for (int d = 0; d < space.rank(); ++d) {
    const bool reduced = plan.reduces && (space.reduced_mask() >> d & 1u) != 0;
    (reduced ? reduced_dims : parallel_dims).push_back(d);
  }
  const std::vector<Column> parallel = merged(columns(kernel, bound, parallel_dims));
  const std::vector<Column> reduced = without_points_once(merged(columns(kernel, bound, reduced_dims)));
  for (const Column& column : parallel) plan.parallel.push_back(column.dim);
  for (const Column& column : reduced) plan.reduced.push_back(column.dim);
  for (size_t r = 0; r < space.rolls.size(); ++r) {
    plan.rolls.push_back({{}, space.rolls[r].shift, space.rolls[r].points});
    for (const Column& column : parallel) plan.rolls.back().scales.push_back(column.rolls[r]);
  }
  plan.parallel_points = product(plan.parallel);
  plan.reduced_points = product(plan.reduced);
  plan.fixed_reduction = true;
  for (const PlanDim& dim : plan.reduced) plan.fixed_reduction = plan.fixed_reduction && dim.fixed;

  const auto fill = [&](PlanAccess& access, size_t row, const Access& bound_access) {
    access.used = true;
    access.offset = bound_access.offset;
    access.rolled = bound_access.rolled;
    int64_t rolled = 0;
    for (size_t r = 0; r < plan.rolls.size(); ++r) rolled += std::llabs(access.rolled[r]) * (plan.rolls[r].points - 1);
    for (size_t k = 0; k < parallel.size(); ++k) {
      access.parallel.push_back(parallel[k].strides[row]);
      if (parallel[k].lacks[row]) access.lacks_parallel |= 1u << k;
    }
    for (size_t k = 0; k < reduced.size(); ++k) {
      access.reduced.push_back(reduced[k].strides[row]);
      if (reduced[k].lacks[row]) access.lacks_reduced |= 1u << k;
    }
    plan.wide_parallel = plan.wide_parallel || needs_64_bits(plan.parallel, access.parallel, rolled);
    plan.wide_reduced = plan.wide_reduced || needs_64_bits(plan.reduced, access.reduced);
  };
  plan.inputs.resize(kernel.statements.size());
  for (size_t k = 0; k < kernel.statements.size(); ++k) {
    const Statement& statement = kernel.statements[k];
    if (statement.op != Op::input) continue;
    plan.inputs[k].tensor = statement.tensor;
    plan.inputs[k].storage = types.inputs[statement.tensor];
    fill(plan.inputs[k], k, bound.inputs[k]);
  }
  plan.outputs.resize(kernel.outputs.size());
  for (size_t k = 0; k < kernel.outputs.size(); ++k) {
    PlanAccess& access = plan.outputs[k];
    access.output = true;
    access.tensor = kernel.outputs[k].tensor;
    access.storage = types.outputs[access.tensor];
    access.round = is_16bit_float(kernel.outputs[k].storage) && access.storage == Type::f32;
    fill(access, kernel.statements.size() + k, bound.outputs[k]);
    for (const MapEntry& entry : kernel.outputs[k].map) {
      for (const AffineTerm& term : entry.terms) {
        access.per_point = access.per_point || (plan.reduces && (space.reduced_mask() & space.dims_of(term.dim)) != 0);
      }
    }
  }
  plan.wide_parallel = plan.wide_parallel || plan.parallel_points >= (int64_t{1} << 31) - 4096;
  plan.wide_reduced = plan.wide_reduced || plan.reduced_points >= (int64_t{1} << 31) - (1 << 20);
  // A quotient by a parameter takes as long as one by a number in the code, and all channel counts share a kernel.
  // Those of 64 bits do not, and where rolls or scans are about, registers are scarce.
  bool scans = false;
  for (const Statement& statement : kernel.statements) scans = scans || is_scan(statement.op);
  const bool stays = plan.wide_parallel || scans || (plan.reduces && !plan.rolls.empty());
  for (PlanDim& dim : plan.parallel) dim.fixed = dim.fixed && stays;
  return plan;
}

}  // namespace onnxfuse::cuda
