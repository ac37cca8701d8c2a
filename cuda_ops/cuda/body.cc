#include "body.h"

#include <algorithm>

#include "expression.h"

namespace onnxfuse::cuda {

BodyWriter::BodyWriter(const Kernel& kernel, const Plan& plan, const Stages& stages, const Schedule& schedule,
                       const Accesses& accesses)
    : kernel_(kernel), plan_(plan), stages_(stages), schedule_(schedule), accesses_(accesses) {
  fast_ = approximable(kernel);
  brought_ = brought_constants(kernel);
  if (stages.passes > 0 && !stages.reductions[0].empty()) first_reduction_ = stages.reductions[0][0];
  reverse_ = scans() &&
             std::all_of(stages.scans.begin(), stages.scans.end(), [&](int i) { return kernel.statements[i].reverse; });
  if (scans() && schedule.launches_apart()) split_ = "split", splits_ = "p.splits";
  denominators_.assign(kernel.statements.size(), false);
  scaled_denominators_.assign(kernel.statements.size(), false);
  for (size_t i = 0; i < kernel.statements.size(); ++i) {
    if (!uses_denominator(static_cast<int>(i))) continue;
    (divides_vector(static_cast<int>(i)) ? denominators_ : scaled_denominators_)[kernel.statements[i].operands[1]] =
        true;
  }
}

std::string BodyWriter::write(const std::string& name, int first, int last) {
  std::string bounds = std::to_string(schedule_.threads);
  if (schedule_.blocks > 1) bounds += ", " + std::to_string(schedule_.blocks);
  const std::string cluster =
      schedule_.cluster > 1 ? "__cluster_dims__(" + std::to_string(schedule_.cluster) + ", 1, 1) " : "";
  out_.line("extern \"C\" __global__ void " + cluster + "__launch_bounds__(" + bounds + ") " + name +
            "(const Parameters p) {");
  out_.line("wait_for_earlier_kernels();");
  write_passes(first, last);
  out_.line("}");
  return out_.text();
}

std::string BodyWriter::write_part(const std::string& name) {
  block_ = "block";
  out_.line("DEVICE void " + name + "(const Parameters& p, const u32 block, [[maybe_unused]] char* const shared) {");
  write_passes(0, stages_.passes);
  out_.line("}");
  return out_.text();
}

void BodyWriter::write_passes(int first, int last) {
  write_prologue();
  write_once(0);
  for (int pass = 0; pass < first; ++pass) {
    read_partials(pass);
    write_once(pass + 1);
  }
  if (schedule_.resident) write_early_loads();
  if (schedule_.cluster > 1) out_.line("cluster_arrive();");
  const bool chunks = scans() && !schedule_.resident;
  for (int pass = first; pass <= last && !(chunks && pass >= stages_.fresh); ++pass) {
    if (pass == stages_.passes) {
      if (stages_.stores_points) write_pass(pass);
      continue;
    }
    write_pass(pass);
    if (schedule_.launches_apart()) {
      write_partials(pass);
    } else if (joins(pass) && pass == 0) {
      write_warp_result();
    } else if (joins(pass)) {
      write_exchange();
      write_once(1);
      write_once(2);
    } else {
      for (const int i : stages_.reductions[pass]) write_result(i);
      write_once(pass + 1);
    }
  }
  if (chunks && last >= stages_.fresh) write_chunks(last);
  if (last == stages_.passes && plan_.reduces) write_row_stores();
}

bool BodyWriter::looped(int pass) const {
  return !schedule_.resident && !elementwise() && !(scans() && pass >= stages_.fresh);
}

std::vector<int> BodyWriter::early_loads() const {
  std::vector<int> early;
  if (elementwise()) return early;
  for (size_t i = 0; i < kernel_.statements.size(); ++i) {
    if (stages_.first_pass[i] >= stages_.fresh && stages_.first_pass[i] >= 0 && statement(i).op == Op::input &&
        accesses_.streams(accesses_.input(i))) {
      early.push_back(static_cast<int>(i));
    }
  }
  return early;
}

void BodyWriter::write_prologue() {
  const bool split = schedule_.launches_apart();
  // Which of the blocks that share a row this one is.
  if (scans() && split) out_.line("const u32 block = blockIdx.x / p.splits, split = blockIdx.x % p.splits;");
  const std::string index = accesses_.index_type(), reduced = accesses_.reduced_type();
  const std::string group = std::to_string(schedule_.group), threads = std::to_string(schedule_.threads);
  const std::string across = std::to_string(schedule_.across());
  const std::string block = "static_cast<" + index + ">(" + (scans() && split ? "block" : block_) + ")";
  if (elementwise()) {
    out_.line("const " + index + " id = (" + block + " * " + threads + " + threadIdx.x) * " + lanes() + ";");
    out_.line("if (id >= p.points) return;");
    out_.line("constexpr int k = 0;");
    if (accesses_.has_tail()) {
      out_.line("const int left = p.points - id < " + lanes() + " ? static_cast<int>(p.points - id) : " + lanes() +
                ";");
    }
  } else if (row()) {
    if (schedule_.across() > 1) {
      out_.line("const int t = threadIdx.x % " + group + ";");
      const std::string own = block + " * " + across + " + threadIdx.x / " + group;
      out_.line("const bool valid = " + own + " < p.points;");
      out_.line("const " + index + " id = valid ? " + own + " : p.points - 1;");
    } else {
      const std::string cluster = std::to_string(schedule_.cluster);
      const std::string first = schedule_.cluster > 1 ? "blockIdx.x % " + cluster + " * " + threads + " + " : "";
      out_.line("const int t = " + first + "threadIdx.x;");
      out_.line("constexpr bool valid = true;");
      out_.line("const " + index + " id = " + block + (schedule_.cluster > 1 ? " / " + cluster : "") + ";");
    }
  } else {
    out_.line("const int t = threadIdx.x / " + across + ";");
    write_column(block);
  }
  if (plan_.reduces) {
    write_length();
    if (split) {
      out_.line("const " + reduced + " begin = static_cast<" + reduced + ">(" + split_ + " * p.piece);");
      out_.line("const " + reduced + " end = length - begin < p.piece ? length : static_cast<" + reduced +
                ">(begin + p.piece);");
    } else {
      out_.line("constexpr " + reduced + " begin = 0;");
      out_.line("const " + reduced + " end = length;");
    }
    if (schedule_.resident) out_.line("constexpr " + reduced + " start = begin;");
  }
  declare_shared();
  write_bases();
}

// Which of its block's neighbouring columns a thread has.
void BodyWriter::write_column(const std::string& block) {
  const std::string across = std::to_string(schedule_.across());
  const std::string own = "(" + block + " * " + across + " + threadIdx.x % " + across + ") * " + lanes();
  out_.line("const bool valid = " + own + " < p.points;");
  out_.line(std::string("const ") + accesses_.index_type() + " id = valid ? " + own + " : p.points - " + lanes() + ";");
}

void BodyWriter::write_length() {
  const std::string length = plan_.fixed_reduction ? std::to_string(plan_.reduced_points) : "p.length";
  out_.line(std::string("const ") + accesses_.reduced_type() + " length = " + length + ";");
}

// Where the points of this thread begin.
void BodyWriter::write_bases() {
  accesses_.write_parallel_coordinates(out_);
  for (size_t i = 0; i < kernel_.statements.size(); ++i) {
    const bool used = stages_.first_pass[i] >= 0 || stages_.needed_once[i];
    if (statement(i).op != Op::input || !used) continue;
    accesses_.write_base(out_, accesses_.input(i), "b" + std::to_string(i), "x" + std::to_string(i));
  }
  for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
    accesses_.write_base(out_, accesses_.output(k), "o" + std::to_string(k), "y" + std::to_string(k));
  }
}

std::vector<int> BodyWriter::loads_of(int pass) const {
  std::vector<int> inputs;
  for (const int i : stages_.needed[pass]) {
    if (statement(i).op != Op::input || staged_common(i)) continue;
    const bool early =
        !looped(pass) && !elementwise() && (accesses_.streams(accesses_.input(i)) || stages_.first_pass[i] != pass);
    if (!early) inputs.push_back(i);
  }
  return inputs;
}

// What all rows share is on its way while the last reduction is combined, as far as registers allow.
std::vector<int> BodyWriter::loads_ahead() const {
  std::vector<int> inputs;
  int left = schedule_.ahead;
  for (const int i : loads_of(stages_.passes)) {
    const PlanAccess& access = accesses_.input(i);
    const int size = static_cast<int>(type_size(access.storage));
    const int lanes = accesses_.lane_mode(access) == LaneMode::uniform ? 1 : schedule_.lanes;
    const int words = accesses_.lane_mode(access) == LaneMode::strided ? lanes * std::max(1, size / 4)
                                                                       : std::max(1, lanes * size / 4);
    if (words * schedule_.slots > left) continue;
    left -= words * schedule_.slots;
    inputs.push_back(i);
  }
  return inputs;
}

bool BodyWriter::guarded() const {
  return !masked_ && !(schedule_.resident && plan_.fixed_reduction && plan_.reduced_points == schedule_.step());
}

void BodyWriter::open_slot(bool needed_offsets) {
  if (elementwise()) return;
  const std::string group = std::to_string(schedule_.group);
  const int64_t step = int64_t{schedule_.group} * (row() ? schedule_.lanes : 1);
  std::string place = "k * " + group + " + t";
  if (scans()) {
    // Threads, or the warps of a row, have neighbouring points; so a scan's order is that of the threads.
    const std::string width = std::to_string(std::min(schedule_.group, 32));
    place = row() ? "t / " + width + " * " + std::to_string(schedule_.slots * std::min(schedule_.group, 32)) +
                        " + k * " + width + " + t % " + width
                  : "t * " + slots() + " + k";
  }
  const bool backwards = storing_ && reverse_ && !row();
  out_.unrolled("for (int " + std::string(backwards ? "j" : "k") + " = 0; " + (backwards ? "j" : "k") + " < " +
                slots() + "; ++" + (backwards ? "j" : "k") + ") {");
  if (backwards) out_.line("const int k = " + std::to_string(schedule_.slots - 1) + " - j;");
  out_.line("const " + std::string(accesses_.reduced_type()) + " r = start + (" + place + ")" +
            (row() ? " * " + lanes() : "") + ";");
  if (masked_) out_.line("const bool valid = r < end;");
  if (guarded()) {
    const int64_t full = schedule_.resident && plan_.fixed_reduction && !scans() ? plan_.reduced_points / step : 0;
    out_.line("if (" + (full > 0 ? "k < " + std::to_string(full) + " || " : std::string()) + "r < end) {");
  }
  if (needed_offsets) accesses_.write_reduced_coordinates(out_);
}

void BodyWriter::close_slot() {
  if (elementwise()) return;
  if (guarded()) out_.line("}");
  out_.line("}");
}

void BodyWriter::write_loads(const std::vector<int>& inputs) {
  if (inputs.empty()) return;
  declare_loads(inputs);
  open_slot(true);
  write_slot_loads(inputs);
  close_slot();
}

void BodyWriter::declare_loads(const std::vector<int>& inputs) {
  for (const int i : inputs) {
    const PlanAccess& access = accesses_.input(i);
    const std::string n = std::to_string(i);
    switch (accesses_.lane_mode(access)) {
      case LaneMode::vector:
        out_.line("Raw<" + bytes(access) + "> raw" + n + "[" + slots() + "];");
        break;
      case LaneMode::uniform:
        out_.line(element(access) + " raw" + n + "[" + slots() + "];");
        break;
      case LaneMode::strided:
        out_.line(element(access) + " raw" + n + "[" + slots() + "][" + lanes() + "];");
        break;
    }
  }
}

void BodyWriter::write_slot_loads(const std::vector<int>& inputs) {
  for (const int i : inputs) {
    const PlanAccess& access = accesses_.input(i);
    const std::string n = std::to_string(i), storage = cuda_type(access.storage);
    const std::string address = "b" + n + accesses_.reduced_offset(access);
    const std::string constant = accesses_.streams(access) ? "" : "_constant";
    switch (accesses_.lane_mode(access)) {
      case LaneMode::vector:
        if (accesses_.has_tail()) {
          out_.line("raw" + n + "[k] = load_first<" + storage + ", " + lanes() + ">(" + address + ", left);");
        } else if (staged(i)) {
          out_.line("raw" + n + "[k] = load<" + bytes(access) + ">(" + staged_slot(i) + ");");
        } else {
          out_.line("raw" + n + "[k] = load" + constant + "<" + bytes(access) + ">(" + address + ");");
        }
        break;
      case LaneMode::uniform:
        out_.line("raw" + n + "[k] = load_one" + constant + "(" + address + ");");
        break;
      case LaneMode::strided:
        out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
        if (accesses_.has_tail()) out_.line("if (w >= left) break;");
        out_.line("raw" + n + "[k][w] = load_one" + constant + "(" + address + " + w * " +
                  accesses_.lane_stride(access) + ");");
        out_.line("}");
        break;
    }
  }
}

void BodyWriter::write_pass(int pass) {
  const bool storing = pass == stages_.passes;
  storing_ = storing;
  if (!storing) declare_accumulators(pass);
  if (pass == stages_.scan_pass) declare_parts();
  const bool looped = this->looped(pass);
  if (looped) {
    const std::string type = accesses_.reduced_type();
    out_.line("for (" + type + " start = begin; start < end; start += " + std::to_string(schedule_.step()) + ") {");
  }
  // What every row of a block reads comes from the nearest cache: slot by slot, it takes few registers.
  std::vector<int> loads = loads_of(pass);
  const bool late = storing && !looped && !elementwise();
  if (late) {
    for (const int i : loads_ahead()) loads.erase(std::find(loads.begin(), loads.end(), i));
    declare_loads(loads);
  } else {
    write_loads(loads);
  }
  if (!looped) {
    for (const int i : stages_.needed[pass]) {
      if (stages_.kept[i] && stages_.first_pass[i] == pass && statement(i).op != Op::input) {
        out_.line(std::string(cuda_type(statement(i).type)) + " k" + std::to_string(i) + "[" + slots() + "][" +
                  lanes() + "];");
      }
    }
  }
  if (storing) declare_runs();
  open_slot(storing);
  if (late) write_slot_loads(loads);
  write_common_loads(pass);
  if (storing) {
    for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
      if (plan_.reduces && !accesses_.output(k).per_point) continue;
      out_.line(element(accesses_.output(k)) + " out" + std::to_string(k) + "[" + lanes() + "];");
    }
  }
  write_point_statements(pass);  // opens a loop over lanes
  if (!storing) write_accumulation(pass);
  if (pass == stages_.scan_pass) write_part_accumulation();
  out_.line("}");
  if (masked_ && pass == stages_.scan_pass) write_part_mask();
  if (storing) write_point_stores();
  close_slot();
  if (looped) {
    if (!storing) write_flush(pass);
    out_.line("}");
  }
  if (storing) return;
  if (!looped && pass == stages_.passes - 1 && stages_.stores_points) write_loads(loads_ahead());
  if (joins(pass)) return;
  for (const int i : stages_.reductions[pass]) write_combination(i);
  if (pass == stages_.scan_pass) write_scan_combination();
}

}  // namespace onnxfuse::cuda
