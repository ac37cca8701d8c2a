#include <algorithm>
#include <cmath>

#include "expression.h"

namespace onnxfuse::cuda {
namespace {

// A kernel's parameters are limited, and what has more than these is one of a kind anyway.
constexpr int kMostBrought = 32;
constexpr int kMostTensors = 32;

// Signs, sums and products with these are exact, or an instruction of their own.
bool is_special(double value) {
  int exponent = 0;
  return !std::isfinite(value) || value == 0 || std::fabs(std::frexp(value, &exponent)) == 0.5;
}

}  // namespace

std::vector<bool> brought_constants(const Kernel& kernel) {
  const size_t count = kernel.statements.size();
  std::vector<bool> result(count, false);
  size_t tensors = kernel.outputs.size();
  for (size_t i = 0; i < count; ++i) {
    const Statement& s = kernel.statements[i];
    if (is_reduction(s.op) || is_scan(s.op)) return std::vector<bool>(count, false);
    tensors += s.op == Op::input ? 1 : 0;
    result[i] = s.op == Op::constant && s.type == Type::f32 && !is_special(s.literal.f);
  }
  for (const Statement& s : kernel.statements) {
    const auto is_constant = [&](int k) { return kernel.statements[s.operands[k]].op == Op::constant; };
    const bool sum_or_product = s.op == Op::op_add || s.op == Op::op_sub || s.op == Op::op_mul;
    const bool takes = sum_or_product && !(is_constant(0) && is_constant(1));
    for (int k = 0; k < s.operand_count && !takes; ++k) result[s.operands[k]] = false;
  }
  for (const Output& output : kernel.outputs) result[output.value] = false;
  const bool few = tensors <= kMostTensors && std::count(result.begin(), result.end(), true) <= kMostBrought;
  return few ? result : std::vector<bool>(count, false);
}

}  // namespace onnxfuse::cuda
