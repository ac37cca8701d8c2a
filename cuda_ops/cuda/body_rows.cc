// Long rows, of which a cluster of blocks takes one after the other.
//
// Three rows are at work at a time. The elements of the next one, or the next few, are on their way into shared memory.
// The present one is taken from there into registers, and each warp sends what it makes of its part to all blocks of
// the cluster. Meanwhile the messages about the row before have come, and its results are computed and stored: nobody
// waits for the exchange, and reading goes on while results are written.
//
// Measured on an H200, 512 rows of 131072, against a copy, fp32 and fp16: LayerNorm 0.92 and 0.91, softmax 0.94 and
// 0.89; a cluster for each row has 0.72 and 0.63, 0.80 and 0.62. The best of 230 trial kernels have 0.94 and 0.91, 0.92
// and 0.92. With the results stored at once, after waiting, they have 0.91 and 0.90, 0.91 and 0.87; with the cluster's
// barrier in place of messages 0.75 and 0.72, 0.78 and 0.68 (its release waits until all stores are complete); with
// scale and bias read from the second-level cache for every row in place of shared memory 0.86 and 0.89. Copies by the
// bulk engine gained nothing beside those of each thread for itself, nor did stores that the cache evicts first.
#include <algorithm>

#include "body.h"
#include "expression.h"
#include "footprint.h"

namespace onnxfuse::cuda {
namespace {

// A warp that sends about a row has had all messages about the row two before, for which each warp has sent about that
// row. So the slowest may be reading about the row three before.
constexpr int kExchanges = 4;

}  // namespace

bool BodyWriter::in_turns() const { return schedule_.rows_ahead > 0; }

// What a block has of every row's tensor, or of what all rows share, in shared memory.
bool BodyWriter::staged_row(int i) const {
  return in_turns() && staged_bytes(plan_, accesses_.input(i), true, schedule_.lanes) > 0;
}
bool BodyWriter::staged_common(int i) const {
  return in_turns() && schedule_.common && common_bytes(accesses_.input(i), schedule_.lanes) > 0;
}

std::vector<int> BodyWriter::staged_inputs(bool common) const {
  std::vector<int> inputs;
  for (size_t k = 0; k < kernel_.statements.size(); ++k) {
    const int i = static_cast<int>(k);
    const bool used = stages_.first_pass[k] >= 0 && statement(i).op == Op::input;
    if (used && (common ? staged_common(i) : staged_row(i))) inputs.push_back(i);
  }
  return inputs;
}

uint32_t BodyWriter::dynamic_shared_bytes() const {
  int bytes = 0;
  for (const int i : staged_inputs(false)) bytes += schedule_.rows_ahead * tile_bytes(i);
  for (const int i : staged_inputs(true)) bytes += tile_bytes(i);
  return static_cast<uint32_t>(bytes);
}

// A thread reads what it has copied itself, so that its own waiting is enough.
void BodyWriter::declare_slices() {
  out_.line("extern __shared__ char slices[];");
  int begin = 0;
  const auto own = [&](int i) {
    return "slices + " + std::to_string(begin) + " + threadIdx.x * " + bytes(accesses_.input(i)) + ";";
  };
  for (const int i : staged_inputs(true)) {
    out_.line("char* const tile" + std::to_string(i) + " = " + own(i));
    begin += tile_bytes(i);
  }
  for (const int i : staged_inputs(false)) {
    out_.line("char* const ahead" + std::to_string(i) + " = " + own(i));
    begin += schedule_.rows_ahead * tile_bytes(i);
  }
}

void BodyWriter::write_row_tiles(const std::string& turn) {
  for (const int i : staged_inputs(false)) {
    const std::string n = std::to_string(i), ahead = std::to_string(schedule_.rows_ahead);
    const std::string which = schedule_.rows_ahead == 1 ? "" : " + " + turn + " % " + ahead + " * ";
    out_.line("char* const tile" + n + " = ahead" + n + (which.empty() ? "" : which + std::to_string(tile_bytes(i))) +
              ";");
  }
}

void BodyWriter::write_row_copies(bool common) {
  const std::vector<int> inputs = staged_inputs(common);
  if (inputs.empty()) return;
  open_slot(true);
  for (const int i : inputs) {
    const PlanAccess& access = accesses_.input(i);
    out_.line("copy_ahead<" + bytes(access) + ">(" + staged_slot(i) + ", b" + std::to_string(i) +
              accesses_.reduced_offset(access) + ");");
  }
  close_slot();
}

// What is near takes no registers between one pass and the next.
void BodyWriter::write_common_loads(int pass) {
  if (!schedule_.common) return;
  std::vector<int> inputs;
  for (const int i : statements_of(pass)) {
    if (statement(i).op == Op::input && staged_common(i)) inputs.push_back(i);
  }
  declare_loads(inputs);
  write_slot_loads(inputs);
}

// Copies row `row` for turn `turn`, if there is such a row.
void BodyWriter::write_copies_of(const std::string& row, const std::string& turn) {
  out_.line("if (" + row + " < p.points) {");
  out_.line(std::string("const ") + accesses_.index_type() + " id = " + row + ";");
  write_row_tiles(turn);
  write_bases();
  write_row_copies(false);
  out_.line("}");
  out_.line("end_copies();");
}

// Exchanges of a row: the number of the barrier of each that has a set of them, one for each turn.
int BodyWriter::exchange_number(int reduction) const {
  int number = 0;
  for (const std::vector<int>& pass : stages_.reductions) {
    for (const int i : pass) {
      if (i == reduction) return number;
      ++number;
    }
  }
  return number;
}

void BodyWriter::declare_exchanges() {
  const std::string turns = std::to_string(kExchanges), warps = std::to_string(schedule_.group / 32);
  int count = 0;
  for (int pass = 0; pass < stages_.passes; ++pass) {
    for (const int i : stages_.reductions[pass]) {
      const std::string n = std::to_string(i);
      ++count;
      if (!joins(pass)) {
        out_.line("alignas(16) __shared__ " + total_type(i) + " shared" + n + "[" + turns + "][" + warps + "];");
      } else if (pass == 1) {
        out_.line("alignas(16) __shared__ f32 pairs" + n + "[" + turns + "][2 * " + warps + "];");
      }
    }
  }
  const std::string all = std::to_string(count * kExchanges);
  out_.line("__shared__ u64 arrivals[" + all + "];");
  out_.line("if (threadIdx.x == 0) prepare_arrivals(arrivals, " + all + ");");
  out_.line("cluster_arrive();");
  out_.line("cluster_wait();");
}

std::string BodyWriter::arrivals_of(int reduction) const {
  return "arrivals + " + std::to_string(exchange_number(reduction) * kExchanges) + " + turn % " +
         std::to_string(kExchanges);
}

// Each warp sends its part, once to every block.
void BodyWriter::write_messages(int reduction, const std::string& array, const std::string& value, int size) {
  const std::string barrier = arrivals_of(reduction), bytes = std::to_string(schedule_.group / 32 * size);
  out_.line("if (threadIdx.x == 0) expect_arrivals(" + barrier + ", " + bytes + ");");
  out_.line("if (threadIdx.x % 32 < " + std::to_string(schedule_.cluster) + ") send(" + array + ", threadIdx.x % 32, " +
            value + ", " + barrier + ");");
}

void BodyWriter::write_wait_for_messages(int reduction) {
  out_.line("wait_for_arrivals(" + arrivals_of(reduction) + ", turn / " + std::to_string(kExchanges) + " % 2);");
}

std::string BodyWriter::exchanged(const std::string& array) const {
  return array + "[turn % " + std::to_string(kExchanges) + "]";
}

// The results of a pass, as soon as its messages are there.
void BodyWriter::write_receipt(int pass) {
  if (joins(pass)) {
    if (pass == 0) return;
    write_exchanged();
    write_once(1);
  } else {
    for (const int i : stages_.reductions[pass]) {
      write_wait_for_messages(i);
      write_reduced_parts(i, exchanged("shared" + std::to_string(i)));
    }
    for (const int i : stages_.reductions[pass]) write_result(i);
  }
  write_once(pass + 1);
}

// What the storing pass has from the passes before it: arrays of elements, and what all threads know of the row.
std::vector<BodyWriter::Held> BodyWriter::held_for_storing() const {
  std::vector<Held> held;
  const int last = stages_.passes;
  const auto array = [&](const std::string& type, const std::string& name, const std::string& extents) {
    held.push_back({type, name, extents});
  };
  for (const int i : stages_.stores_points ? statements_of(last) : std::vector<int>()) {
    const std::string n = std::to_string(i);
    if (statement(i).op == Op::input) {
      const PlanAccess& access = accesses_.input(i);
      if (staged_common(i) || (!accesses_.streams(access) && stages_.first_pass[i] == last)) continue;
      const LaneMode mode = accesses_.lane_mode(access);
      array(mode == LaneMode::vector ? "Raw<" + bytes(access) + ">" : element(access), "raw" + n,
            "[" + slots() + "]" + (mode == LaneMode::strided ? "[" + lanes() + "]" : ""));
    } else if (stages_.first_pass[i] < last && !stages_.repeated[i]) {
      array(cuda_type(statement(i).type), "k" + n, "[" + slots() + "][" + lanes() + "]");
    }
  }
  for (int pass = 0; pass + 1 < last; ++pass) {
    for (const int i : stages_.reductions[pass]) {
      const bool waiting = joins(pass) && last == 2;  // for the pair of which this is the first
      if (waiting && joins_moments()) continue;
      array(cuda_type(statement(i).type), (waiting ? "own" : "v") + std::to_string(i), "");
    }
  }
  if (joins_softmax() && last > 2) array("f32", "factor" + std::to_string(stages_.softmax.exponential), "");
  if (raises_exponentials() && last > 2) array("f32", "inverse" + std::to_string(stages_.softmax.sum), "");
  return held;
}

// Copies what is held, from the variables whose names begin with `from` to those with `to`.
void BodyWriter::write_held(const std::vector<Held>& held, const std::string& from, const std::string& to) {
  for (const Held& each : held) {
    if (each.extents.empty()) {
      out_.line(to + each.name + " = " + from + each.name + ";");
      continue;
    }
    const bool lanes_too = each.extents.find("][") != std::string::npos;
    const std::string element = lanes_too ? "[k][w]" : "[k]";
    out_.unrolled("for (int k = 0; k < " + slots() + "; ++k) {");
    if (lanes_too) {
      out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) " + to + each.name + "[k][w] = " + from + each.name +
                    "[k][w];");
    } else {
      out_.line(to + each.name + element + " = " + from + each.name + element + ";");
    }
    out_.line("}");
  }
}

// From the elements of a row to the messages of the last exchange.
void BodyWriter::write_taking() {
  const std::string ahead = std::to_string(schedule_.rows_ahead);
  write_row_tiles("turn");
  write_bases();
  write_once(0);
  out_.line("wait_for_copies<" + std::to_string(schedule_.rows_ahead - 1) + ">();");
  write_early_loads();
  // The next copies go where these elements came from, which must be in registers then. Of several inputs, what the
  // first pass makes of them takes fewer.
  const bool several = staged_inputs(false).size() > 1;
  const auto copy = [&] {
    write_copies_of("row + " + (schedule_.rows_ahead == 1 ? "" : ahead + " * ") + "clusters", "turn");
  };
  if (!several) copy();
  for (int pass = 0; pass < stages_.passes; ++pass) {
    write_pass(pass);
    if (several && pass == 0) copy();
    if (joins(pass) && pass == 0) write_warp_result();
    if (joins(pass) && pass == 1) write_exchange();
    if (pass + 1 < stages_.passes) write_receipt(pass);
  }
}

// From there to what is stored.
void BodyWriter::write_storing(const std::vector<Held>& held) {
  for (const Held& each : held) {
    out_.line(each.type + " (&" + each.name + ")" + each.extents + " = held_" + each.name + ";");
  }
  write_bases();
  write_once(0);
  for (int pass = 0; pass + 1 < stages_.passes; ++pass) {
    if (!joins(pass) || stages_.passes > 2) write_once(pass + 1);
  }
  write_receipt(stages_.passes - 1);
  if (stages_.stores_points) write_pass(stages_.passes);
  write_row_stores();
}

std::string BodyWriter::write_rows(const std::string& name) {
  const std::string index = accesses_.index_type(), cluster = std::to_string(schedule_.cluster);
  const std::string reduced = accesses_.reduced_type(), threads = std::to_string(schedule_.threads);
  out_.line("extern \"C\" __global__ void __cluster_dims__(" + cluster + ", 1, 1) __launch_bounds__(" + threads +
            ", 1) " + name + "(const Parameters p) {");
  out_.line("wait_for_earlier_kernels();");
  out_.line("const int t = blockIdx.x % " + cluster + " * " + threads + " + threadIdx.x;");
  out_.line("constexpr bool valid = true;");
  write_length();
  out_.line("constexpr " + reduced + " start = 0;");
  out_.line("const " + reduced + " end = length;");
  declare_slices();
  declare_exchanges();
  out_.line("const " + index + " clusters = gridDim.x / " + cluster + ", first = blockIdx.x / " + cluster + ";");
  if (!staged_inputs(true).empty()) {
    out_.line("{");
    for (const int i : staged_inputs(true)) {
      accesses_.write_base(out_, accesses_.input(i), "b" + std::to_string(i), "x" + std::to_string(i));
    }
    write_row_copies(true);
    out_.line("}");
  }
  for (int k = 0; k < schedule_.rows_ahead; ++k) {
    write_copies_of("first + " + std::to_string(k) + " * clusters", std::to_string(k));
  }
  const std::vector<Held> held = held_for_storing();
  for (const Held& each : held) out_.line(each.type + " held_" + each.name + each.extents + ";");
  out_.line("u32 turns = 0;");
  out_.line("for (" + index + " row = first;; row += clusters) {");
  for (const Held& each : held) out_.line(each.type + " next_" + each.name + each.extents + ";");
  out_.line("if (row < p.points) {");
  out_.line("const " + index + " id = row;");
  out_.line("const u32 turn = turns;");
  write_taking();
  write_held(held, "", "next_");
  out_.line("}");
  out_.line("if (turns > 0) {");
  out_.line("const " + index + " id = row - clusters;");
  out_.line("const u32 turn = turns - 1;");
  write_storing(held);
  out_.line("}");
  out_.line("if (row >= p.points) break;");
  write_held(held, "next_", "held_");
  out_.line("++turns;");
  out_.line("}");
  out_.line("cluster_arrive();");
  out_.line("cluster_wait();");
  out_.line("}");
  return out_.text();
}

}  // namespace onnxfuse::cuda
