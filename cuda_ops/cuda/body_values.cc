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
  if (s.op != Op::op_div || s.type != Type::f32 || stages_.scope[i] != Scope::point) return false;
  const int divisor = s.operands[1];
  Literal ignored;
  if (statement(divisor).op == Op::constant) return !exact_reciprocal(statement(divisor).literal, &ignored);
  if (stages_.scope[divisor] == Scope::once) return schedule_.lanes * schedule_.slots >= 4;
  return stages_.scope[divisor] == Scope::lane && schedule_.slots >= 4 && schedule_.lanes <= 4;  // it takes registers
}

std::string BodyWriter::operand(int i, Scope context) const {
  const std::string name = "v" + std::to_string(i);
  return context != Scope::once && stages_.scope[i] == Scope::lane ? name + "[w]" : name;
}

std::string BodyWriter::expression(int i, Scope context) const {
  const Statement& s = statement(i);
  const auto of = [&](int k) { return operand(s.operands[k], context); };
  const std::string type = cuda_type(s.type);
  if (s.op == Op::constant) return cuda_constant(s.type, s.literal);
  if (s.op == Op::cast) return "static_cast<" + type + ">(" + of(0) + ")";
  const bool fast_division = fast_.division[i] && context == Scope::point;
  const bool fast_exponential = fast_.exponential[i] && context == Scope::point;
  if (s.op == Op::op_div && s.type == Type::f32) {
    const int divisor = s.operands[1];
    Literal reciprocal;
    if (statement(divisor).op == Op::constant && exact_reciprocal(statement(divisor).literal, &reciprocal)) {
      return of(0) + " * " + cuda_constant(Type::f32, reciprocal);
    }
    if (uses_denominator(i)) {
      const std::string lane = stages_.scope[divisor] == Scope::lane ? "[w]" : "";
      return std::string(fast_division ? "divide_fast(" : "divide(") + of(0) + ", d" + std::to_string(divisor) + lane +
             ")";
    }
    if (fast_division) return "fast_div(" + of(0) + ", " + of(1) + ")";
  }
  if (fast_exponential && s.op == Op::op_exp) return "fast_exp(" + of(0) + ")";
  if (fast_exponential && s.op == Op::op_sigmoid) return "fast_sigmoid(" + of(0) + ")";
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
    if (denominators_[i]) write_denominator(i);
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

void BodyWriter::write_denominator(int i) {
  const std::string n = std::to_string(i);
  if (stages_.scope[i] == Scope::once) {
    out_.line("const Denominator d" + n + " = denominator(v" + n + ");");
  } else if (stages_.scope[i] == Scope::lane) {
    out_.line("Denominator d" + n + "[" + lanes() + "];");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) d" + n + "[w] = denominator(v" + n + "[w]);");
  }
}

void BodyWriter::write_point_statements(int pass) {
  const bool looped = !schedule_.resident && !elementwise();
  std::vector<int> own, recalled;  // computed here; kept from earlier passes
  for (const int i : stages_.needed[pass]) {
    if (looped || stages_.first_pass[i] == pass) own.push_back(i);
  }
  const auto recall = [&](int i) {
    if (!looped && stages_.scope[i] == Scope::point && stages_.first_pass[i] < pass) recalled.push_back(i);
  };
  for (const int i : own) {
    for (int k = 0; k < statement(i).operand_count; ++k) recall(statement(i).operands[k]);
  }
  if (pass < stages_.passes) {
    for (const int i : stages_.reductions[pass]) recall(statement(i).operands[0]);
  } else {
    for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
      if (!plan_.reduces || accesses_.output(k).per_point) recall(kernel_.outputs[k].value);
    }
  }
  own.insert(own.end(), recalled.begin(), recalled.end());
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  for (const int i : own) {
    const std::string n = std::to_string(i),
                      declaration = std::string("const ") + cuda_type(statement(i).type) + " v" + n;
    const bool earlier = !looped && stages_.first_pass[i] < pass;
    if (statement(i).op == Op::input) {
      const PlanAccess& access = accesses_.input(i);
      const LaneMode mode = accesses_.lane_mode(access);
      const std::string value = mode == LaneMode::vector
                                    ? std::string("get<") + cuda_type(access.storage) + ">(raw" + n + "[k], w)"
                                : mode == LaneMode::uniform ? "raw" + n + "[k]"
                                                            : "raw" + n + "[k][w]";
      out_.line(declaration + " = " + value + ";");
    } else if (earlier) {
      out_.line(declaration + " = k" + n + "[k][w];");
    } else {
      out_.line(declaration + " = " + expression(i, Scope::point) + ";");
      if (!looped && stages_.kept[i]) out_.line("k" + n + "[k][w] = v" + n + ";");
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
  out_.line(schedule_.splits > 1 ? "if (t == 0 && valid && blockIdx.y == 0) {" : "if (t == 0 && valid) {");
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
