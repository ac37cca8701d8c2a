// Values: what a thread computes once, for each of its parallel points, and for every point; and their stores.
#include <algorithm>

#include "body.h"
#include "expression.h"

namespace onnxfuse::cuda {

std::string BodyWriter::bytes(const PlanAccess& access) const {
  return std::to_string(type_size(access.storage) * static_cast<size_t>(schedule_.lanes));
}

std::string BodyWriter::element(const PlanAccess& access) const {
  return is_16bit_float(access.storage) ? "f32" : cuda_type(access.storage);
}

// A thread that divides many values by one value gets its reciprocal ready.
bool BodyWriter::uses_denominator(int i) const {
  const Statement& s = statement(i);
  if (s.op != Op::op_div || s.type != Type::f32 || stages_.scope[i] != Scope::point || divides_raised(i)) return false;
  const int divisor = s.operands[1];
  Literal ignored;
  if (statement(divisor).op == Op::constant) return !exact_reciprocal(statement(divisor).literal, &ignored);
  if (stages_.scope[divisor] == Scope::once) return schedule_.lanes * schedule_.slots >= 4;
  return stages_.scope[divisor] == Scope::lane && schedule_.slots >= 4;
}

// Exact quotients keep the scale, also where it is 1: without it, a LayerNorm in fp32 spills (H200, rows of 16384 and
// 131072: 0.95 to 0.92 and 0.92 to 0.88 of a copy's speed). Approximate ones gain (0.89 to 0.91, fp16).
bool BodyWriter::divides_fast_alone(int divisor) const {
  for (size_t i = 0; i < kernel_.statements.size(); ++i) {
    const Statement& s = kernel_.statements[i];
    if (s.op == Op::op_div && s.operands[1] == divisor && !fast_.division[i]) return false;
  }
  return true;
}

// Exact quotients by a constant are computed for a whole vector at once.
bool BodyWriter::divides_vector(int i) const {
  return uses_denominator(i) && !fast_.division[i] && statement(statement(i).operands[1]).op == Op::constant;
}

std::string BodyWriter::operand(int i, Scope context) const {
  const std::string name = "v" + std::to_string(i);
  const bool each = stages_.scope[i] == Scope::lane || (stages_.scope[i] == Scope::point && vectors_);
  return context != Scope::once && each ? name + "[w]" : name;
}

// 1 + erf(x) and 1 + tanh(x), the sums of activations.
std::string BodyWriter::one_plus(int i, Scope context) const {
  const Statement& s = statement(i);
  if (s.op != Op::op_add || s.type != Type::f32) return "";
  for (int k = 0; k < 2; ++k) {
    const Statement &one = statement(s.operands[k]), &function = statement(s.operands[1 - k]);
    if (one.op != Op::constant || one.literal.f != 1.0) continue;
    if (function.op != Op::op_erf && function.op != Op::op_tanh) continue;
    const bool fast = fast_.exponential[i] && context == Scope::point;
    const std::string argument = "(" + operand(function.operands[0], context) + ")";
    if (function.op == Op::op_erf) return (fast ? "fast_one_plus_erf" : "of_one_plus_erf") + argument;
    if (function.op == Op::op_tanh && fast) return "fast_one_plus_tanh" + argument;
  }
  return "";
}

std::string BodyWriter::expression(int i, Scope context) const {
  const Statement& s = statement(i);
  const auto of = [&](int k) { return operand(s.operands[k], context); };
  const std::string type = cuda_type(s.type);
  if (s.op == Op::constant) return brought_[i] ? "p.n" + std::to_string(i) : cuda_constant(s.type, s.literal);
  if (s.op == Op::cast) return "static_cast<" + type + ">(" + of(0) + ")";
  if (const std::string sum = one_plus(i, context); !sum.empty()) return sum;
  const bool fast_division = fast_.division[i] && context == Scope::point;
  const bool fast_exponential = fast_.exponential[i] && context == Scope::point;
  if (divides_raised(i)) return of(0) + " * inverse" + std::to_string(s.operands[1]);
  if (s.op == Op::op_div && s.type == Type::f32) {
    const int divisor = s.operands[1];
    Literal reciprocal;
    if (statement(divisor).op == Op::constant && exact_reciprocal(statement(divisor).literal, &reciprocal)) {
      return of(0) + " * " + cuda_constant(Type::f32, reciprocal);
    }
    if (uses_denominator(i)) {
      const std::string lane = stages_.scope[divisor] == Scope::lane ? "[w]" : "";
      return (fast_division ? "divide_fast(" : "divide_scaled(") + of(0) + ", sd" + std::to_string(divisor) + lane +
             ")";
    }
    if (fast_division) return "fast_div(" + of(0) + ", " + of(1) + ")";
  }
  if (fast_exponential && s.op == Op::op_exp) {
    const bool raised = i == stages_.softmax.exponential && raises_exponentials();
    return (raised ? "fast_exp_raised(" : "fast_exp(") + of(0) + ")";
  }
  if (fast_exponential && s.op == Op::op_sigmoid) return "fast_sigmoid(" + of(0) + ")";
  if (fast_exponential && s.op == Op::op_tanh) return "fast_tanh(" + of(0) + ")";
  if (fast_division && s.op == Op::op_reciprocal) return "fast_div(1.0f, " + of(0) + ")";
  std::string text = function_name(s.op, statement(s.operands[s.op == Op::op_where ? 1 : 0]).type) + "(";
  for (int k = 0; k < s.operand_count; ++k) text += (k > 0 ? ", " : "") + of(k);
  return text + ")";
}

void BodyWriter::write_once(int level) {
  for (size_t n = 0; n < kernel_.statements.size(); ++n) {
    const int i = static_cast<int>(n);
    if (!stages_.needed_once[i] || stages_.level[i] != level || stages_.scope[i] == Scope::point) continue;
    const std::string name = "v" + std::to_string(i), type = cuda_type(statement(i).type);
    if (is_reduction(statement(i).op)) {
      // written with its pass
    } else if (statement(i).op == Op::input) {
      write_once_input(i);
    } else if (stages_.scope[i] == Scope::once) {
      out_.line("const " + type + " " + name + " = " + expression(i, Scope::once) + ";");
    } else {
      write_lane_statement(i);
    }
    if (denominators_[i]) write_denominator(i, "Denominator", "denominator", "d");
    const bool root = statement(i).op == Op::op_sqrt && divides_fast_alone(i);
    if (scaled_denominators_[i])
      write_denominator(i, "ScaledDenominator", root ? "root_denominator" : "scaled_denominator", "sd");
  }
}

void BodyWriter::write_once_input(int i) {
  const PlanAccess& access = accesses_.input(i);
  const std::string n = std::to_string(i), type = element(access);
  if (stages_.scope[i] == Scope::once) {
    out_.line("const " + type + " v" + n + " = load_one_constant(b" + n + ");");
    return;
  }
  out_.line(type + " v" + n + "[" + lanes() + "];");
  const bool vector = accesses_.lane_mode(access) == LaneMode::vector;
  if (vector) out_.line("const auto raw" + n + " = load_constant<" + bytes(access) + ">(b" + n + ");");
  const std::string value = vector ? std::string("get<") + cuda_type(access.storage) + ">(raw" + n + ", w)"
                                   : "load_one_constant(b" + n + " + w * " + accesses_.lane_stride(access) + ")";
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) v" + n + "[w] = " + value + ";");
}

void BodyWriter::write_lane_statement(int i) {
  const std::string name = "v" + std::to_string(i);
  out_.line(std::string(cuda_type(statement(i).type)) + " " + name + "[" + lanes() + "];");
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) " + name + "[w] = " + expression(i, Scope::lane) + ";");
}

void BodyWriter::write_denominator(int i, const std::string& type, const std::string& function,
                                   const std::string& prefix) {
  const std::string n = std::to_string(i), name = prefix + n;
  if (stages_.scope[i] == Scope::once) {
    out_.line("const " + type + " " + name + " = " + function + "(v" + n + ");");
  } else if (stages_.scope[i] == Scope::lane) {
    out_.line(type + " " + name + "[" + lanes() + "];");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) " + name + "[w] = " + function + "(v" + n + "[w]);");
  }
}

std::vector<int> BodyWriter::statements_of(int pass) const {
  const bool looped = this->looped(pass);
  std::vector<int> own, recalled;  // computed here; kept from earlier passes
  for (const int i : stages_.needed[pass]) {
    if (looped || stages_.first_pass[i] == pass) own.push_back(i);
  }
  const auto recall = [&](int i) {
    if (looped || stages_.scope[i] != Scope::point || stages_.first_pass[i] >= pass) return;
    recalled.push_back(i);
    for (int k = 0; stages_.repeated[i] && k < statement(i).operand_count; ++k) {
      if (stages_.scope[statement(i).operands[k]] == Scope::point) recalled.push_back(statement(i).operands[k]);
    }
  };
  for (const int i : own) {
    for (int k = 0; k < statement(i).operand_count; ++k) recall(statement(i).operands[k]);
  }
  if (pass < stages_.passes) {
    for (const int i : stages_.reductions[pass]) recall(statement(i).operands[0]);
    for (const int i : stages_.scans) {
      if (pass == stages_.scan_pass) recall(statement(i).operands[0]);
    }
  } else {
    for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
      if (!plan_.reduces || accesses_.output(k).per_point) recall(kernel_.outputs[k].value);
    }
  }
  own.insert(own.end(), recalled.begin(), recalled.end());
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  return own;
}

void BodyWriter::write_point_statements(int pass) {
  const bool looped = this->looped(pass);
  const std::vector<int> own = statements_of(pass);
  for (const int i : own) {
    if (looped || !stages_.repeated[i] || stages_.first_pass[i] == pass) continue;
    for (int k = 0; k < 2; ++k) {
      const int input = statement(i).operands[k];
      if (statement(input).op != Op::input || stages_.scope[input] != Scope::point) continue;
      if (accesses_.lane_mode(accesses_.input(input)) == LaneMode::vector)
        out_.line("forget(raw" + std::to_string(input) + "[k]);");
    }
  }
  vectors_ = std::any_of(own.begin(), own.end(),
                         [&](int i) { return divides_vector(i) || (row() && is_scan(statement(i).op)); });
  for (const int i : own) {
    if (vectors_)
      out_.line(std::string(cuda_type(statement(i).type)) + " v" + std::to_string(i) + "[" + lanes() + "];");
  }
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
  for (const int i : own) {
    const std::string n = std::to_string(i), type = cuda_type(statement(i).type);
    const std::string declaration = vectors_ ? "v" + n + "[w]" : "const " + type + " v" + n;
    const bool earlier = !looped && stages_.first_pass[i] < pass && !stages_.repeated[i];
    if (statement(i).op == Op::input) {
      const PlanAccess& access = accesses_.input(i);
      const LaneMode mode = accesses_.lane_mode(access);
      const std::string value = mode == LaneMode::vector
                                    ? std::string("get<") + cuda_type(access.storage) + ">(raw" + n + "[k], w)"
                                : mode == LaneMode::uniform ? "raw" + n + "[k]"
                                                            : "raw" + n + "[k][w]";
      out_.line(declaration + " = " + value + ";");
    } else if (earlier) {
      const bool relative = pass > 1 && joins_softmax() && i == stages_.softmax.exponential;
      out_.line(declaration + " = k" + n + "[k][w]" + (relative ? " * factor" + n : "") + ";");
    } else if (is_scan(statement(i).op)) {
      write_scan(i, declaration);
    } else {
      if (divides_vector(i)) {
        const Statement& s = statement(i);
        out_.line(declaration + " = " + operand(s.operands[0], Scope::point) + ";");
        out_.line("}");
        out_.line("divide_all(v" + n + ", d" + std::to_string(s.operands[1]) + ");");
        out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
      } else {
        out_.line(declaration + " = " + expression(i, Scope::point) + ";");
      }
      if (!looped && stages_.kept[i]) out_.line("k" + n + "[k][w] = v" + n + (vectors_ ? "[w];" : ";"));
    }
  }
  if (pass < stages_.passes) return;
  for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
    const PlanAccess& access = accesses_.output(k);
    if (plan_.reduces && !access.per_point) continue;
    std::string value = operand(kernel_.outputs[k].value, Scope::point);
    if (access.round)
      value = (kernel_.outputs[k].storage == Type::f16 ? "of_round_f16(" : "of_round_bf16(") + value + ")";
    out_.line("out" + std::to_string(k) + "[w] = static_cast<" + element(access) + ">(" + value + ");");
  }
}

void BodyWriter::write_point_stores() {
  for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
    const PlanAccess& access = accesses_.output(k);
    if (plan_.reduces && !access.per_point) continue;
    const std::string n = std::to_string(k), address = "o" + n + accesses_.reduced_offset(access);
    const std::string storage = cuda_type(access.storage);
    std::string condition = accesses_.store_condition(access, true);
    if (plan_.reduces) condition += condition.empty() ? "valid" : " && valid";
    const std::string guard = condition.empty() ? "" : "if (" + condition + ") ";
    switch (accesses_.lane_mode(access)) {
      case LaneMode::vector:
        if (accesses_.has_tail()) {
          out_.line(guard + "store_first<" + storage + ", " + lanes() + ">(" + address + ", out" + n + ", left);");
        } else {
          out_.line(guard + "store_all<" + storage + ", " + lanes() + ">(" + address + ", out" + n + ");");
        }
        break;
      case LaneMode::uniform:
        out_.line(guard + "store_one<" + storage + ">(" + address + ", out" + n + "[0]);");
        break;
      case LaneMode::strided:
        out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
        if (accesses_.has_tail()) out_.line("if (w >= left) break;");
        out_.line(guard + "store_one<" + storage + ">(" + address + " + w * " + accesses_.lane_stride(access) +
                  ", out" + n + "[w]);");
        out_.line("}");
        break;
    }
  }
}

void BodyWriter::write_row_stores() {
  bool any = false;
  for (size_t k = 0; k < kernel_.outputs.size(); ++k) any = any || !accesses_.output(k).per_point;
  if (!any) return;
  const std::string piece = !schedule_.launches_apart() ? "" : in_tiles_ ? " && order == 0" : " && " + split_ + " == 0";
  out_.line("if (t == 0 && valid" + piece + ") {");
  for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
    const PlanAccess& access = accesses_.output(k);
    if (access.per_point) continue;
    const std::string n = std::to_string(k), storage = cuda_type(access.storage);
    const std::string condition = accesses_.store_condition(access, false);
    const std::string guard = condition.empty() ? "" : "if (" + condition + ") ";
    const auto converted = [&](const std::string& value) {
      const std::string rounded =
          access.round ? (kernel_.outputs[k].storage == Type::f16 ? "of_round_f16(" : "of_round_bf16(") + value + ")"
                       : value;
      return "static_cast<" + element(access) + ">(" + rounded + ")";
    };
    const std::string value = operand(kernel_.outputs[k].value, Scope::lane);
    const LaneMode mode = row() ? LaneMode::uniform : accesses_.lane_mode(access);
    if (mode == LaneMode::uniform) {
      const std::string first = stages_.scope[kernel_.outputs[k].value] == Scope::lane
                                    ? "v" + std::to_string(kernel_.outputs[k].value) + "[0]"
                                    : value;
      out_.line(guard + "store_one<" + storage + ">(o" + n + ", " + converted(first) + ");");
      continue;
    }
    out_.line(element(access) + " out" + n + "[" + lanes() + "];");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) out" + n + "[w] = " + converted(value) + ";");
    if (mode == LaneMode::vector) {
      out_.line(guard + "store_all<" + storage + ", " + lanes() + ">(o" + n + ", out" + n + ");");
    } else {
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
      out_.line(guard + "store_one<" + storage + ">(o" + n + " + w * " + accesses_.lane_stride(access) + ", out" + n +
                "[w]);");
      out_.line("}");
    }
  }
  out_.line("}");
}

}  // namespace onnxfuse::cuda
