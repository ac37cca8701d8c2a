// Reductions: accumulators of a thread, combination within a group of threads, partial results between launches.
#include <algorithm>

#include "body.h"
#include "expression.h"

namespace onnxfuse::cuda {
namespace {

bool is_mean(Op op) { return op == Op::op_reduce_mean; }
bool is_sum(Op op) { return op == Op::op_reduce_sum || op == Op::op_reduce_mean; }

std::string reducer(const Statement& s) {
  if (is_argument(s.op)) {
    return std::string("Argument<") + (s.op == Op::op_reduce_argmax ? "Greatest" : "Smallest") + ", " +
           (s.last ? "true" : "false") + ">";
  }
  if (is_sum(s.op)) return "Sum";
  if (s.op == Op::op_reduce_prod) return "Product";
  return s.op == Op::op_reduce_max ? "Maximum" : "Minimum";
}

bool is_unsigned(Type type) { return type == Type::u8 || type == Type::u16 || type == Type::u32 || type == Type::u64; }

}  // namespace

// Sums and products of integers wrap in their own type; the sum behind a mean must not.
std::string BodyWriter::accumulator_type(int reduction) const {
  const Statement& s = statement(reduction);
  if (is_argument(s.op)) {
    const Type type = statement(s.operands[0]).type;
    const bool small = type_size(type) < 4;
    const std::string value = small ? is_unsigned(type) ? "u32" : "i32" : cuda_type(type);
    return "Indexed<" + value + (type_size(type) > 4 || plan_.wide_reduced ? ", i64>" : ", i32>");
  }
  if (is_mean(s.op) && !is_float(s.type)) return is_unsigned(s.type) ? "u64" : "i64";
  return cuda_type(s.type);
}

// Long reductions of floats are gathered in doubles.
std::string BodyWriter::total_type(int reduction) const {
  const Statement& s = statement(reduction);
  const bool widens = !schedule_.resident && s.type == Type::f32 && (is_sum(s.op) || s.op == Op::op_reduce_prod);
  return widens ? "f64" : accumulator_type(reduction);
}

void BodyWriter::declare_accumulators(int pass) {
  for (const int i : stages_.reductions[pass]) {
    const std::string n = std::to_string(i), type = accumulator_type(i), total = total_type(i);
    const std::string which = reducer(statement(i));
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
    if (is_argument(statement(i).op)) {
      out_.line(sum + " = " + reducer(statement(i)) + "::append<" + type + ">(" + sum + ", {" +
                operand(statement(i).operands[0], Scope::point) + ", " + (row() ? "r + w" : "r") + "});");
      continue;
    }
    out_.line(sum + " = " + reducer(statement(i)) + "::apply<" + type + ">(" + sum + ", static_cast<" + type + ">(" +
              operand(statement(i).operands[0], Scope::point) + "));");
  }
}

void BodyWriter::write_flush(int pass) {
  for (const int i : stages_.reductions[pass]) {
    const std::string n = std::to_string(i), type = accumulator_type(i), total = total_type(i);
    const std::string which = reducer(statement(i));
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
  const std::string n = std::to_string(reduction), which = reducer(statement(reduction));
  if (row()) {
    write_row_combination(reduction, schedule_.resident ? "reduce_lanes<" + which + ">(sum" + n + ")" : "total" + n);
  } else {
    write_column_combination(reduction, (schedule_.resident ? "sum" : "total") + n);
  }
}

void BodyWriter::write_row_combination(int reduction, const std::string& total) {
  const std::string n = std::to_string(reduction), type = total_type(reduction), which = reducer(statement(reduction));
  const int group = schedule_.group;
  if (group <= 32) {
    out_.line("const " + type + " all" + n + " = reduce_warp<" + which + ", " + std::to_string(group) + ">(" + total +
              ");");
    return;
  }
  const std::string warps = std::to_string(group / 32);
  if (!in_turns()) out_.line("__shared__ " + type + " shared" + n + "[" + warps + "];");
  out_.line("const " + type + " part" + n + " = reduce_warp<" + which + ", 32>(" + total + ");");
  if (in_turns()) {
    const bool wide = type == "f64" || type == "i64" || type == "u64";
    write_messages(reduction, exchanged("shared" + n) + " + t / 32", "part" + n, wide ? 8 : 4);
    return;
  }
  if (schedule_.cluster > 1) {
    // Each block gets the parts of all warps of the cluster.
    if (!cluster_ready_) out_.line("cluster_wait();");
    cluster_ready_ = true;
    out_.line("if (threadIdx.x % 32 < " + std::to_string(schedule_.cluster) + ") store_cluster(shared" + n +
              " + t / 32, threadIdx.x % 32, part" + n + ");");
    out_.line("cluster_arrive();");
    out_.line("cluster_wait();");
  } else {
    out_.line("if (t % 32 == 0) shared" + n + "[t / 32] = part" + n + ";");
    write_block_barrier();
  }
  write_reduced_parts(reduction, "shared" + n);
}

// Every thread gets what the parts of all warps come to.
void BodyWriter::write_reduced_parts(int reduction, const std::string& parts) {
  out_.line("const " + total_type(reduction) + " all" + std::to_string(reduction) + " = reduce_shared<" +
            reducer(statement(reduction)) + ", " + std::to_string(schedule_.group / 32) + ">(" + parts + ");");
}

// The threads that share a column are `across` apart. What they have is combined within warps first, then by one thread
// for each column, in a fixed order. Two barriers a reduction are enough: what the next one writes, all have read.
void BodyWriter::write_column_combination(int reduction, const std::string& total) {
  const std::string n = std::to_string(reduction), type = total_type(reduction), which = reducer(statement(reduction));
  const int across = schedule_.across(), in_warp = across < 32 ? 32 / across : 1;
  const int columns = across * schedule_.lanes, rows = schedule_.group / in_warp;
  out_.line(type + " all" + n + "[" + lanes() + "];");
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) all" + n + "[w] = reduce_strided<" + which + ", " +
                std::to_string(across) + ">(" + total + "[w]);");
  if (rows == 1) return;
  out_.line("{");
  out_.line(type + "* const results = reinterpret_cast<" + type + "*>(shared);");
  out_.line(type + "* const parts = reinterpret_cast<" + type + "*>(shared + " +
            std::to_string(widest_total() * static_cast<size_t>(columns)) + ");");
  out_.line("const int x = threadIdx.x % " + std::to_string(across) + " * " + lanes() + ";");
  out_.line("if (t % " + std::to_string(in_warp) + " == 0) {");
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) parts[t / " + std::to_string(in_warp) + " * " +
                std::to_string(columns) + " + x + w] = all" + n + "[w];");
  out_.line("}");
  write_block_barrier();
  out_.line("for (int c = threadIdx.x; c < " + std::to_string(columns) + "; c += " + std::to_string(schedule_.threads) +
            ") {");
  out_.line(type + " sum = parts[c];");
  out_.unrolled("for (int j = 1; j < " + std::to_string(rows) + "; ++j) sum = " + which + "::apply<" + type +
                ">(sum, parts[j * " + std::to_string(columns) + " + c]);");
  out_.line("results[c] = sum;");
  out_.line("}");
  write_block_barrier();
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) all" + n + "[w] = results[x + w];");
  out_.line("}");
}

size_t BodyWriter::widest_total() const {
  size_t widest = 4;
  for (const std::vector<int>& pass : stages_.reductions) {
    for (const int i : pass) {
      const std::string type = total_type(i);
      const bool wide = type == "f64" || type == "i64" || type == "u64";
      widest = std::max(widest, is_argument(statement(i).op) ? size_t{16}
                                : wide                       ? size_t{8}
                                                             : type_size(statement(i).type));
    }
  }
  return widest;
}

// A column schedule's reductions take turns in one piece of shared memory.
size_t BodyWriter::shared_bytes() const {
  if (schedule_.kind != ScheduleKind::column) return 0;
  const int in_warp = schedule_.across() < 32 ? 32 / schedule_.across() : 1;
  const size_t columns = static_cast<size_t>(schedule_.across() * schedule_.lanes);
  const size_t rows = static_cast<size_t>(schedule_.group / in_warp);
  return rows == 1 ? 0 : widest_total() * columns * (rows + 1);
}

void BodyWriter::declare_shared() {
  if (shared_bytes() == 0 || block_ == "block") return;
  out_.line("alignas(16) __shared__ char shared[" + std::to_string(shared_bytes()) + "];");
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
  if (is_argument(s.op)) value = reducer(s) + "::result(" + value + ")";
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
      out_.line(pointer + "[static_cast<i64>(id) * " + splits_ + " + " + split_ + "] = all" + n + ";");
    } else {
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
      out_.line(pointer + "[static_cast<i64>(" + split_ + ") * p.points + id + w] = all" + n + "[w];");
      out_.line("}");
    }
  }
  out_.line("}");
}

void BodyWriter::read_partials(int pass) {
  const std::string group = std::to_string(schedule_.group);
  for (const int i : stages_.reductions[pass]) {
    const std::string n = std::to_string(i), type = total_type(i), which = reducer(statement(i));
    const std::string pointer = partial_pointer(i), loop = "for (int s = t; s < " + splits_ + "; s += " + group + ") {";
    if (row()) {
      out_.line(type + " total" + n + " = " + which + "::identity<" + type + ">();");
      out_.line(loop);
      out_.line("total" + n + " = " + which + "::apply<" + type + ">(total" + n + ", " + pointer +
                "[static_cast<i64>(id) * " + splits_ + " + s]);");
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
