// Scans: what the points of a thread add up to, what comes before them in the block and in the row, and the results.
//
// For each scan n: part<n> is of each vector of a row, or of each column, first what its points add up to and then what
// all before them do; total<n> is what comes before the points that the block has at a time.
#include <algorithm>

#include "body.h"
#include "expression.h"
#include "footprint.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kWarp = 32;

std::string combine(const Statement& s, Type type, const std::string& a, const std::string& b) {
  const std::string name = cuda_type(type);
  return scanner(s.op) + "::apply<" + name + ">(static_cast<" + name + ">(" + a + "), static_cast<" + name + ">(" + b +
         "))";
}

std::string identity(const Statement& s, Type type) { return scanner(s.op) + "::identity<" + cuda_type(type) + ">()"; }

// What stands before the first point: an exclusive sum begins with 0, not with the identity -0.
std::string first_value(const Statement& s, Type type) {
  return s.exclusive && s.op == Op::op_scan_sum ? std::string("static_cast<") + cuda_type(type) + ">(0)"
                                                : identity(s, type);
}

}  // namespace

std::string scanner(Op op) {
  if (op == Op::op_scan_sum) return "RunningSum";
  if (op == Op::op_scan_prod) return "RunningProduct";
  return op == Op::op_scan_max ? "Maximum" : "Minimum";
}

void BodyWriter::declare_parts() {
  for (const int i : stages_.scans) {
    const std::string n = std::to_string(i), count = row() ? slots() : lanes();
    const Type type = scan_type(statement(i));
    out_.line(std::string(cuda_type(type)) + " part" + n + "[" + count + "];");
    out_.unrolled("for (int k = 0; k < " + count + "; ++k) part" + n + "[k] = " + identity(statement(i), type) + ";");
  }
}

void BodyWriter::write_part_accumulation() {
  for (const int i : stages_.scans) {
    const Statement& s = statement(i);
    const std::string part = "part" + std::to_string(i) + (row() ? "[k]" : "[w]");
    out_.line(part + " = " + combine(s, scan_type(s), part, operand(s.operands[0], Scope::point)) + ";");
  }
}

// A vector beyond the end adds nothing.
void BodyWriter::write_part_mask() {
  for (const int i : stages_.scans) {
    out_.line("if (!valid) part" + std::to_string(i) + "[k] = " + identity(statement(i), scan_type(statement(i))) +
              ";");
  }
}

// Each column's combination since the thread began, where the points before are those of the thread itself.
void BodyWriter::declare_runs() {
  if (row()) return;
  for (const int i : stages_.scans) {
    const Statement& s = statement(i);
    const std::string n = std::to_string(i), type = cuda_type(scan_type(s));
    out_.line(type + " run" + n + "[" + lanes() + "];");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) run" + n + "[w] = " + identity(s, scan_type(s)) + ";");
    if (stages_.scan_pass >= 0) continue;
    const std::string before =
        schedule_.resident ? first_value(s, scan_type(s)) : "static_cast<" + type + ">(total" + n + "[w])";
    out_.line(type + " part" + n + "[" + lanes() + "];");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) part" + n + "[w] = " + before + ";");
  }
}

void BodyWriter::write_scan(int i, const std::string& declaration) {
  const Statement& s = statement(i);
  const std::string n = std::to_string(i), which = scanner(s.op), exclusive = s.exclusive ? "true" : "false";
  const std::string value = operand(s.operands[0], Scope::point);
  if (!row()) {
    out_.line(declaration + " = scan_next<" + which + ", " + exclusive + ">(part" + n + "[w], run" + n + "[w], " +
              value + ");");
    return;
  }
  out_.line(declaration + " = " + value + ";");
  out_.line("}");
  out_.line("scan_lanes<" + which + ", " + exclusive + ", " + (s.reverse ? "true" : "false") + ">(v" + n + ", part" +
            n + "[k]);");
  out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
}

void BodyWriter::declare_totals(int last) {
  for (const int i : stages_.scans) {
    const Statement& s = statement(i);
    const std::string n = std::to_string(i), type = cuda_type(scan_total_type(s));
    const bool pieces = schedule_.long_scan == LongScan::two_pass, prefixes = pieces && last == stages_.passes;
    const std::string value = prefixes ? "(" + sum_of_piece(i) + ")" + (row() ? "[0]" : "[w]")
                              : pieces ? identity(s, scan_total_type(s))
                                       : first_value(s, scan_total_type(s));
    out_.line(type + " total" + n + (row() ? " = " + value : "[" + lanes() + "]") + ";");
    if (row()) continue;
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) total" + n + "[w] = " + value + ";");
  }
}

// Address of what a piece adds up to, later of what comes before it; of lane 0 of a column schedule.
std::string BodyWriter::sum_of_piece(int scan) const {
  return pieces_of(scan) +
         (row() ? " + static_cast<i64>(id) * p.splits + split" : " + static_cast<i64>(split) * p.points + id");
}

std::string BodyWriter::pieces_of(int scan) const {
  const auto number = std::find(stages_.scans.begin(), stages_.scans.end(), scan) - stages_.scans.begin();
  size_t reductions = 0;
  for (const auto& pass : stages_.reductions) reductions += pass.size();
  return std::string("reinterpret_cast<") + cuda_type(scan_total_type(statement(scan))) + "*>(p.scratch + " +
         std::to_string(reductions + static_cast<size_t>(number)) + " * p.partial_bytes)";
}

void BodyWriter::write_sums_of_piece() {
  out_.line("if (t == 0 && valid) {");
  for (const int i : stages_.scans) {
    const std::string n = std::to_string(i);
    if (row()) {
      out_.line("(" + sum_of_piece(i) + ")[0] = total" + n + ";");
    } else {
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) (" + sum_of_piece(i) + ")[w] = total" + n + "[w];");
    }
  }
  out_.line("}");
}

std::string BodyWriter::write_prefixes(const std::string& name) {
  const std::string threads = std::to_string(schedule_.threads);
  out_.line("extern \"C\" __global__ void __launch_bounds__(" + threads + ") " + name + "(const Parameters p) {");
  out_.line("wait_for_earlier_kernels();");
  if (!row()) {
    out_.line("const i64 id = blockIdx.x * static_cast<i64>(" + threads + ") + threadIdx.x;");
    out_.line("if (id >= p.points) return;");
  }
  for (const int i : stages_.scans) {
    const Statement& s = statement(i);
    const std::string first = first_value(s, scan_total_type(s)), reverse = s.reverse ? "true" : "false";
    if (row()) {
      out_.line("scan_array<" + scanner(s.op) + ", " + threads + ", " + reverse + ">(" + pieces_of(i) +
                " + static_cast<i64>(blockIdx.x) * p.splits, p.splits, " + first + ");");
      out_.line("__syncthreads();");
    } else {
      out_.line("scan_strided<" + scanner(s.op) + ", " + reverse + ">(" + pieces_of(i) + " + id, p.splits, p.points, " +
                first + ");");
    }
  }
  out_.line("}");
  return out_.text();
}

void BodyWriter::write_scan_combination() {
  if (in_tiles_ && row()) {
    summing_ ? write_sums_of_warps() : write_scans_of_tile();
  } else if (in_tiles_) {
    summing_ ? write_sums_of_columns() : write_scans_of_columns();
  } else {
    row() ? write_row_scans() : write_column_scans();
  }
}

void BodyWriter::write_sums_of_warps() {
  for (const int i : stages_.scans) {
    const std::string n = std::to_string(i);
    out_.line(std::string("const ") + cuda_type(scan_type(statement(i))) + " sum" + n + " = sum_slots<" +
              scanner(statement(i).op) + ", " + (statement(i).reverse ? "true" : "false") + ">(part" + n + ");");
    out_.line("if (t % 32 == 0) shared" + n + "[record][t / 32] = sum" + n + ";");
  }
}

void BodyWriter::write_scans_of_tile() {
  const std::string warps = std::to_string(schedule_.threads / kWarp);
  for (const int i : stages_.scans) {
    const Statement& s = statement(i);
    const std::string n = std::to_string(i), type = cuda_type(scan_type(s)), total = cuda_type(scan_total_type(s));
    const std::string which = scanner(s.op), reverse = s.reverse ? "true" : "false";
    out_.line("scan_slots<" + which + ", 32, " + reverse + ">(part" + n + ");");
    out_.line(type + " sum" + n + ";");
    out_.line("const " + type + " before" + n + " = scan_shared<" + which + ", " + warps + ", " + reverse + ">(shared" +
              n + "[record], t / 32, sum" + n + ");");
    out_.line("const " + total + " total" + n + " = " +
              combine(s, scan_total_type(s), first_value(s, scan_total_type(s)), "prefix" + n + "[record]") + ";");
    write_befores(i, true);
  }
}

// Of what comes before each vector: from that in its warp to all.
void BodyWriter::write_befores(int scan, bool several_warps) {
  const Statement& s = statement(scan);
  const std::string n = std::to_string(scan), part = "part" + n + "[k]";
  std::string value = several_warps ? combine(s, scan_type(s), "before" + n, part) : part;
  if (!schedule_.resident) {
    value = std::string("static_cast<") + cuda_type(scan_type(s)) + ">(" +
            combine(s, scan_total_type(s), "total" + n, value) + ")";
  } else if (s.exclusive && s.op == Op::op_scan_sum) {
    value = combine(s, scan_type(s), first_value(s, scan_type(s)), value);
  }
  if (value != part) out_.unrolled("for (int k = 0; k < " + slots() + "; ++k) " + part + " = " + value + ";");
}

void BodyWriter::write_row_scans() {
  const int group = std::min(schedule_.group, kWarp), warps = schedule_.group / kWarp;
  const bool looped = !schedule_.resident;
  const std::string phase = looped ? "[phase]" : "", count = std::to_string(warps);
  const auto arguments = [&](int i, int width) {
    return scanner(statement(i).op) + ", " + std::to_string(width) + ", " + (statement(i).reverse ? "true" : "false");
  };
  for (const int i : stages_.scans) {
    const std::string n = std::to_string(i), type = cuda_type(scan_type(statement(i)));
    out_.line(type + " sum" + n + " = scan_slots<" + arguments(i, group) + ">(part" + n + ");");
    if (warps > 1) out_.line("__shared__ " + type + " shared" + n + (looped ? "[2][" : "[") + count + "];");
  }
  if (warps > 1) {
    if (schedule_.cluster > 1 && !cluster_ready_) out_.line("cluster_wait();");
    cluster_ready_ = true;
    for (const int i : stages_.scans) {
      const std::string n = std::to_string(i);
      if (schedule_.cluster > 1) {
        out_.line("if (threadIdx.x % 32 < " + std::to_string(schedule_.cluster) + ") store_cluster(shared" + n +
                  " + t / 32, threadIdx.x % 32, sum" + n + ");");
      } else {
        out_.line("if (t % 32 == 0) shared" + n + phase + "[t / 32] = sum" + n + ";");
      }
    }
    if (schedule_.cluster > 1) {
      out_.line("cluster_arrive();");
      out_.line("cluster_wait();");
    } else {
      out_.line("__syncthreads();");
    }
    for (const int i : stages_.scans) {
      const std::string n = std::to_string(i), type = cuda_type(scan_type(statement(i)));
      out_.line("const " + type + " before" + n + " = scan_shared<" + arguments(i, warps) + ">(shared" + n + phase +
                ", t / 32, sum" + n + ");");
    }
  }
  for (const int i : stages_.scans) {
    const Statement& s = statement(i);
    const std::string n = std::to_string(i);
    write_befores(i, warps > 1);
    if (looped) out_.line("total" + n + " = " + combine(s, scan_total_type(s), "total" + n, "sum" + n) + ";");
  }
}

// Each thread of a column has neighbouring points of it.
void BodyWriter::write_column_scans() {
  const int across = schedule_.across(), rows = schedule_.group;
  const std::string shape = std::to_string(across) + ", " + std::to_string(rows);
  for (const int i : stages_.scans) {
    const Statement& s = statement(i);
    const std::string n = std::to_string(i), type = cuda_type(scan_type(s)), total = "total" + n + "[w]";
    const std::string part = "part" + n + "[w]";
    if (rows > 1) {
      out_.line("__shared__ " + type + " column" + n + "[(COLUMN_ROWS<" + shape + "> + 1) * " +
                std::to_string(across * schedule_.lanes) + "];");
      out_.line(type + " sum" + n + "[" + lanes() + "];");
      out_.line("scan_columns<" + scanner(s.op) + ", " + shape + ", " + (s.reverse ? "true" : "false") + ", " +
                (schedule_.resident ? "false" : "true") + ">(part" + n + ", sum" + n + ", column" + n + ");");
    }
    const std::string before = rows > 1 ? part : identity(s, scan_type(s));
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
    if (schedule_.resident) {
      out_.line(part + " = " + combine(s, scan_type(s), first_value(s, scan_type(s)), before) + ";");
    } else {
      out_.line("const " + type + " sum = " + (rows > 1 ? "sum" + n + "[w]" : part) + ";");
      out_.line(part + " = static_cast<" + type + ">(" + combine(s, scan_total_type(s), total, before) + ");");
      out_.line(total + " = " + combine(s, scan_total_type(s), total, "sum") + ";");
    }
    out_.line("}");
  }
}

// The loop over the chunks of a row or a piece; from the last one on where the scans are reverse.
void BodyWriter::write_chunks(int last) {
  const std::string type = accesses_.reduced_type(), step = std::to_string(schedule_.step());
  declare_totals(last);
  if (row()) out_.line("int phase = 0;");
  out_.line(reverse_ ? "for (" + type + " start = begin + (end - begin - 1) / " + step + " * " + step +
                           "; start >= begin; start -= " + step + ") {"
                     : "for (" + type + " start = begin; start < end; start += " + step + ") {");
  write_early_loads();
  for (int pass = stages_.fresh; pass <= last; ++pass) write_pass(pass);
  if (stages_.scan_pass < 0) {
    for (const int i : stages_.scans) {
      const std::string n = std::to_string(i), total = "total" + n + "[w]";
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) " + total + " = " +
                    combine(statement(i), scan_total_type(statement(i)), total, "run" + n + "[w]") + ";");
    }
  }
  if (row()) out_.line("phase ^= 1;");
  out_.line("}");
  if (last < stages_.passes) write_sums_of_piece();
}

}  // namespace onnxfuse::cuda
