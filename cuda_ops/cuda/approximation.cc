// Where a program of 16-bit outputs bears an approximation.
#include <algorithm>

#include "expression.h"

namespace onnxfuse::cuda {
namespace {

// Each approximation adds at most 2^-16 to the relative error, and half a unit of f16 is 2^-12 or more.
constexpr int kMostApproximations = 8;

// Set of the statements that are never negative.
std::vector<bool> not_negative(const Kernel& kernel) {
  std::vector<bool> result(kernel.statements.size(), false);
  for (size_t i = 0; i < kernel.statements.size(); ++i) {
    const Statement& s = kernel.statements[i];
    const auto of = [&](int k) -> bool { return result[s.operands[k]]; };
    switch (s.op) {
      case Op::constant:
        result[i] = is_float(s.type) && s.literal.f >= 0;
        break;
      case Op::op_exp:
      case Op::op_abs:
      case Op::op_sqrt:
      case Op::op_sigmoid:
      case Op::op_softplus:
      case Op::op_relu:
        result[i] = true;
        break;
      case Op::op_reciprocal:
      case Op::op_reduce_sum:
      case Op::op_reduce_mean:
      case Op::op_reduce_max:
      case Op::op_reduce_min:
        result[i] = of(0);
        break;
      case Op::op_mul:
        result[i] = s.operands[0] == s.operands[1] || (of(0) && of(1));
        break;
      case Op::op_add:
      case Op::op_div:
      case Op::op_min:
      case Op::op_max:
        result[i] = of(0) && of(1);
        break;
      case Op::op_where:
        result[i] = of(1) && of(2);
        break;
      default:
        break;
    }
  }
  return result;
}

// What an operation does with a small error of its operands.
enum class Effect { keeps_relative, keeps_absolute, magnifies };

Effect effect(const Kernel& kernel, const Statement& s, const std::vector<bool>& positive) {
  const auto same_sign = [&](int k) {
    return positive[s.operands[k]] ? Effect::keeps_relative : Effect::keeps_absolute;
  };
  switch (s.op) {
    case Op::op_mul:
    case Op::op_div:
    case Op::op_neg:
    case Op::op_abs:
    case Op::op_sqrt:
    case Op::op_reciprocal:
    case Op::op_relu:
    case Op::op_min:
    case Op::op_max:
    case Op::op_where:
    case Op::op_reduce_max:
    case Op::op_reduce_min:
      return Effect::keeps_relative;
    case Op::op_add:
      return std::max(same_sign(0), same_sign(1));
    case Op::op_reduce_sum:
    case Op::op_reduce_mean:
      return same_sign(0);
    case Op::op_sub:
    case Op::op_exp:
    case Op::op_tanh:
    case Op::op_erf:
    case Op::op_sigmoid:
    case Op::op_softplus:
      return Effect::keeps_absolute;
    case Op::cast:
      return kernel.statements[s.operands[0]].type == s.type ? Effect::keeps_relative : Effect::magnifies;
    default:
      return Effect::magnifies;
  }
}

// Set of the statements between which and the outputs nothing does worse than `allowed`.
std::vector<bool> bearing(const Kernel& kernel, Effect allowed, const std::vector<bool>& positive) {
  std::vector<bool> bears(kernel.statements.size(), true);
  for (size_t i = kernel.statements.size(); i-- > 0;) {
    const Statement& s = kernel.statements[i];
    const bool good = bears[i] && effect(kernel, s, positive) <= allowed;
    for (int k = 0; k < s.operand_count; ++k) {
      const bool condition = s.op == Op::op_where && k == 0;
      bears[s.operands[k]] = bears[s.operands[k]] && good && !condition;
    }
  }
  for (size_t i = 0; i < bears.size(); ++i) bears[i] = bears[i] && kernel.statements[i].type == Type::f32;
  return bears;
}

}  // namespace

Approximable approximable(const Kernel& kernel) {
  const std::vector<bool> none(kernel.statements.size(), false);
  for (const Output& output : kernel.outputs) {
    if (!is_16bit_float(output.storage)) return {none, none};
  }
  int candidates = 0;
  for (const Statement& s : kernel.statements) {
    candidates += s.op == Op::op_exp || s.op == Op::op_sigmoid || s.op == Op::op_tanh || s.op == Op::op_erf ||
                  s.op == Op::op_div || s.op == Op::op_reciprocal;
  }
  if (candidates > kMostApproximations) return {none, none};
  const std::vector<bool> positive = not_negative(kernel);
  return {bearing(kernel, Effect::keeps_absolute, positive), bearing(kernel, Effect::keeps_relative, positive)};
}

}  // namespace onnxfuse::cuda
