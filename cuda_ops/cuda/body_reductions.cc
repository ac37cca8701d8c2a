// Reductions: accumulators of a thread, combination within a group of threads, partial results between launches.
#include <algorithm>

#include "body.h"
#include "expression.h"

namespace onnxfuse::cuda {
namespace {

bool is_mean(Op op) { return op == Op::op_reduce_mean; }
bool is_sum(Op op) { return op == Op::op_reduce_sum || op == Op::op_reduce_mean; }

std::string reducer(Op op) {
  if (is_sum(op)) return "Sum";
  if (op == Op::op_reduce_prod) return "Product";
  return op == Op::op_reduce_max ? "Maximum" : "Minimum";
}

bool is_unsigned(Type type) { return type == Type::u8 || type == Type::u16 || type == Type::u32 || type == Type::u64; }

}  // namespace

// Integers wrap in their own type.
std::string BodyWriter::accumulator_type(int reduction) const { return cuda_type(statement(reduction).type); }

// Long reductions of floats are gathered in doubles.
std::string BodyWriter::total_type(int reduction) const {
  const Statement& s = statement(reduction);
  const bool widens = !schedule_.resident && s.type == Type::f32 && (is_sum(s.op) || s.op == Op::op_reduce_prod);
  return widens ? "f64" : accumulator_type(reduction);
}

void BodyWriter::declare_accumulators(int pass) {
  for (const int i : stages_.reductions[pass]) {
    const std::string n = std::to_string(i), type = accumulator_type(i), total = total_type(i);
    const std::string which = reducer(statement(i).op);
    out_.line(type + " sum" + n + "[" + lanes() + "];");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) sum" + n + "[w] = " + which + "::identity<" + type +
                  ">();");
    if (schedule_.resident) continue;
    if (row()) {
      out_.line(total + " total" + n + " = " + which + "::identity<" + total + ">();");
    } else {
      out_.line(total + " total" + n + "[" + lanes() + "];");
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) total" + n + "[w] = " + which + "::identity<" + total +
                    ">();");
    }
  }
}

void BodyWriter::write_accumulation(int pass) {
  for (const int i : stages_.reductions[pass]) {
    const std::string sum = "sum" + std::to_string(i) + "[w]", type = accumulator_type(i);
    out_.line(sum + " = " + reducer(statement(i).op) + "::apply<" + type + ">(" + sum + ", static_cast<" + type + ">(" +
              operand(statement(i).operands[0], Scope::point) + "));");
  }
}

void BodyWriter::write_flush(int pass) {
  for (const int i : stages_.reductions[pass]) {
    const std::string n = std::to_string(i), type = accumulator_type(i), total = total_type(i);
    const std::string which = reducer(statement(i).op);
    if (row()) {
      out_.line("total" + n + " = " + which + "::apply<" + total + ">(total" + n + ", reduce_lanes<" + which + ">(sum" +
                n + "));");
    }
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
    if (!row())
      out_.line("total" + n + "[w] = " + which + "::apply<" + total + ">(total" + n + "[w], sum" + n + "[w]);");
    out_.line("sum" + n + "[w] = " + which + "::identity<" + type + ">();");
    out_.line("}");
  }
}

void BodyWriter::write_combination(int reduction) {
  const std::string n = std::to_string(reduction), which = reducer(statement(reduction).op);
  if (row()) {
    write_row_combination(reduction, schedule_.resident ? "reduce_lanes<" + which + ">(sum" + n + ")" : "total" + n);
  } else {
    write_column_combination(reduction, (schedule_.resident ? "sum" : "total") + n);
  }
}

void BodyWriter::write_row_combination(int reduction, const std::string& total) {
  const std::string n = std::to_string(reduction), type = total_type(reduction),
                    which = reducer(statement(reduction).op);
  const int group = schedule_.group;
  if (group <= 32) {
    out_.line("const " + type + " all" + n + " = reduce_warp<" + which + ", " + std::to_string(group) + ">(" + total +
              ");");
    return;
  }
  const std::string warps = std::to_string(group / 32);
  out_.line("__shared__ " + type + " shared" + n + "[" + warps + "];");
  out_.line("const " + type + " part" + n + " = reduce_warp<" + which + ", 32>(" + total + ");");
  out_.line("if (t % 32 == 0) shared" + n + "[t / 32] = part" + n + ";");
  out_.line("__syncthreads();");
  out_.line("const " + type + " all" + n + " = reduce_shared<" + which + ", " + warps + ">(shared" + n + ");");
}

void BodyWriter::write_column_combination(int reduction, const std::string& total) {
  const std::string n = std::to_string(reduction), type = total_type(reduction),
                    which = reducer(statement(reduction).op);
  const std::string across = std::to_string(schedule_.threads / schedule_.group),
                    group = std::to_string(schedule_.group);
  out_.line(type + " all" + n + "[" + lanes() + "];");
  if (schedule_.group == 1) {
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) all" + n + "[w] = " + total + "[w];");
    return;
  }
  // The group's threads are `across` apart in the block. Each lane is combined by one of them, in a fixed order.
  out_.line("{");
  if (shared_in_use_) out_.line("__syncthreads();");
  shared_in_use_ = true;
  out_.line(type + "* const parts = reinterpret_cast<" + type + "*>(shared);");
  out_.line(type + "* const results = parts + " + lanes() + " * " + group + " * " + across + ";");
  out_.line("const int x = threadIdx.x % " + across + ";");
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) parts[(w * " + group + " + t) * " + across +
                " + x] = " + total + "[w];");
  out_.line("__syncthreads();");
  out_.line("for (int w = t; w < " + lanes() + "; w += " + group + ") {");
  out_.line(type + " sum = parts[w * " + group + " * " + across + " + x];");
  out_.line("for (int j = 1; j < " + group + "; ++j) {");
  out_.line("sum = " + which + "::apply<" + type + ">(sum, parts[(w * " + group + " + j) * " + across + " + x]);");
  out_.line("}");
  out_.line("results[w * " + across + " + x] = sum;");
  out_.line("}");
  out_.line("__syncthreads();");
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) all" + n + "[w] = results[w * " + across + " + x];");
  out_.line("}");
}

// A column schedule's reductions take turns in one piece of shared memory.
void BodyWriter::declare_shared() {
  if (elementwise() || row() || schedule_.group == 1) return;
  size_t widest = 1;
  for (const std::vector<int>& pass : stages_.reductions) {
    for (const int i : pass) widest = std::max(widest, total_type(i) == "f64" ? 8 : type_size(statement(i).type));
  }
  const size_t across = static_cast<size_t>(schedule_.threads / schedule_.group);
  const size_t bytes =
      widest * static_cast<size_t>(schedule_.lanes) * across * static_cast<size_t>(schedule_.group + 1);
  out_.line("alignas(8) __shared__ char shared[" + std::to_string(bytes) + "];");
}

void BodyWriter::write_result(int reduction) {
  const Statement& s = statement(reduction);
  const std::string n = std::to_string(reduction), type = cuda_type(s.type);
  const bool lane = lane_results();
  std::string value = "all" + n + (row() ? "" : lane ? "[w]" : "[0]");
  if (is_mean(s.op)) {
    const std::string wide = is_float(s.type) ? total_type(reduction) : is_unsigned(s.type) ? "u64" : "i64";
    const std::string quotient = "static_cast<" + wide + ">(" + value + ") / static_cast<" + wide + ">(length)";
    value = is_float(s.type) ? quotient : "(length == 0 ? 0 : " + quotient + ")";
  }
  value = "static_cast<" + type + ">(" + value + ")";
  if (lane) {
    out_.line(type + " v" + n + "[" + lanes() + "];");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) v" + n + "[w] = " + value + ";");
  } else {
    out_.line("const " + type + " v" + n + " = " + value + ";");
  }
}

std::string BodyWriter::partial_pointer(int reduction) const {
  int number = 0;
  for (int i = 0; i < reduction; ++i) number += is_reduction(statement(i).op) ? 1 : 0;
  return "reinterpret_cast<" + total_type(reduction) + "*>(p.scratch + " + std::to_string(number) +
         " * p.partial_bytes)";
}

void BodyWriter::write_partials(int pass) {
  out_.line("if (t == 0 && valid) {");
  for (const int i : stages_.reductions[pass]) {
    const std::string n = std::to_string(i), pointer = partial_pointer(i);
    if (row()) {
      out_.line(pointer + "[static_cast<i64>(id) * gridDim.y + blockIdx.y] = all" + n + ";");
    } else {
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
      out_.line(pointer + "[static_cast<i64>(blockIdx.y) * p.points + id + w] = all" + n + "[w];");
      out_.line("}");
    }
  }
  out_.line("}");
}

void BodyWriter::read_partials(int pass) {
  const std::string group = std::to_string(schedule_.group);
  for (const int i : stages_.reductions[pass]) {
    const std::string n = std::to_string(i), type = total_type(i), which = reducer(statement(i).op);
    const std::string pointer = partial_pointer(i), loop = "for (int s = t; s < gridDim.y; s += " + group + ") {";
    if (row()) {
      out_.line(type + " total" + n + " = " + which + "::identity<" + type + ">();");
      out_.line(loop);
      out_.line("total" + n + " = " + which + "::apply<" + type + ">(total" + n + ", " + pointer +
                "[static_cast<i64>(id) * gridDim.y + s]);");
      out_.line("}");
    } else {
      out_.line(type + " total" + n + "[" + lanes() + "];");
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) total" + n + "[w] = " + which + "::identity<" + type +
                    ">();");
      out_.line(loop);
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
      out_.line("total" + n + "[w] = " + which + "::apply<" + type + ">(total" + n + "[w], " + pointer +
                "[static_cast<i64>(s) * p.points + id + w]);");
      out_.line("}");
      out_.line("}");
    }
    write_combination(i);
    write_result(i);
  }
}

}  // namespace onnxfuse::cuda
