// Scans of long rows in one launch: blocks take tiles in turns.
//
// A tile goes through four turns of its block: its elements are copied into shared memory; they are read for the first
// time, and what they add up to is given to all other blocks; if that completes a group of tiles, so is what the group
// adds up to; it is looked up what comes before the tile, the elements are read again, scanned and stored. The four
// turns of neighbouring tiles of a block happen at a time, so that copies are always under way and what a tile looks up
// has been given by the others a turn or two before.
#include "body.h"
#include "expression.h"
#include "footprint.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kBuffers = 3;  // a tile's buffer is free once it is stored, and filled at once
constexpr int kWarp = 32;

int node_words(Type type) { return type_size(type) > 4 ? 2 : 1; }

}  // namespace

bool BodyWriter::staged(int i) const {
  if (in_turns()) return staged_row(i) || staged_common(i);
  return scans() && schedule_.long_scan == LongScan::look_back && in_tiles_ &&
         staged_bytes(plan_, accesses_.input(i), schedule_.lanes) > 0;
}

int BodyWriter::tile_bytes(int i) const {
  const size_t bytes = type_size(accesses_.input(i).storage) * static_cast<size_t>(schedule_.lanes);
  return schedule_.slots * schedule_.threads * static_cast<int>(bytes);
}

std::vector<int> BodyWriter::staged_inputs() const {
  std::vector<int> inputs;
  for (size_t i = 0; i < kernel_.statements.size(); ++i) {
    const bool used = stages_.first_pass[i] >= 0 && statement(i).op == Op::input;
    bool later = false;
    for (int pass = stages_.fresh; used && pass <= stages_.passes; ++pass) {
      for (const int needed : stages_.needed[pass]) later = later || needed == static_cast<int>(i);
    }
    if (later && staged(static_cast<int>(i))) inputs.push_back(static_cast<int>(i));
  }
  return inputs;
}

// The nodes of a scan for the row of a tile.
std::string BodyWriter::nodes_of(int scan, const std::string& tile) const {
  int words = 0;
  for (const int i : stages_.scans) {
    if (i == scan) break;
    words += node_words(scan_total_type(statement(i)));
  }
  return "p.nodes + 2 + (" + std::to_string(words) + " * static_cast<i64>(p.points) + " +
         std::to_string(node_words(scan_total_type(statement(scan)))) + " * static_cast<i64>(" + tile +
         ".row)) * p.row_nodes";
}

// What follows, up to a closing brace, is for the tile.
void BodyWriter::open_tile(const std::string& tile) {
  const std::string reduced = accesses_.reduced_type();
  out_.line("if (" + tile + ".exists) {");
  out_.line(std::string("const ") + accesses_.index_type() + " id = " + tile + ".row;");
  out_.line("const u32 order = " + tile + ".number;");
  out_.line("const " + reduced + " start = static_cast<" + reduced + ">(" +
            (reverse_ ? "p.tiles - 1 - order" : "order") + ") * " + std::to_string(schedule_.step()) + ";");
  for (const int i : staged_inputs()) {
    const std::string n = std::to_string(i);
    out_.line("char* const tile" + n + " = staged" + n + " + " + tile + ".buffer * " + std::to_string(tile_bytes(i)) +
              " + t * " + bytes(accesses_.input(i)) + ";");
  }
  write_bases();
}

void BodyWriter::write_copies() {
  open_slot(true);
  for (const int i : staged_inputs()) {
    const PlanAccess& access = accesses_.input(i);
    const std::string n = std::to_string(i);
    out_.line("copy_ahead<" + bytes(access) + ">(" + staged_slot(i) + ", b" + n + accesses_.reduced_offset(access) +
              ");");
  }
  close_slot();
}

std::string BodyWriter::staged_slot(int i) const {
  return "tile" + std::to_string(i) + " + k * " + std::to_string(tile_bytes(i) / schedule_.slots);
}

// The results of the reductions before. Tiles of a block often are of one row.
void BodyWriter::write_row_values(const std::string& tile) {
  const auto value = [&](int i) { return "row_value" + std::to_string(i) + "_" + tile; };
  if (stages_.scan_pass > 0) {
    out_.line("if (" + tile + ".row != row_of_" + tile + ") {");
    write_once(0);
    for (int pass = 0; pass < stages_.scan_pass; ++pass) {
      read_partials(pass);
      write_once(pass + 1);
      for (const int i : stages_.reductions[pass]) {
        out_.line("if (t == 0) " + value(i) + " = v" + std::to_string(i) + ";");
      }
    }
    out_.line("row_of_" + tile + " = " + tile + ".row;");
    out_.line("__syncthreads();");
    out_.line("}");
  }
  write_once(0);
  for (int pass = 0; pass < stages_.scan_pass; ++pass) {
    for (const int i : stages_.reductions[pass]) {
      out_.line(std::string("const ") + cuda_type(statement(i).type) + " v" + std::to_string(i) + " = " + value(i) +
                ";");
    }
    write_once(pass + 1);
  }
}

void BodyWriter::declare_row_values() {
  for (const char* tile : {"storing", "summing"}) {
    if (stages_.scan_pass > 0) out_.line(std::string("u32 row_of_") + tile + " = 0xffffffffu;");
    for (int pass = 0; pass < stages_.scan_pass; ++pass) {
      for (const int i : stages_.reductions[pass]) {
        out_.line(std::string("__shared__ ") + cuda_type(statement(i).type) + " row_value" + std::to_string(i) + "_" +
                  tile + ";");
      }
    }
  }
}

// From the elements of a tile to its sums or its results.
void BodyWriter::write_passes_of_tile(bool summing) {
  summing_ = summing;
  write_row_values(summing ? "summing" : "storing");
  write_early_loads();
  write_pass(stages_.scan_pass);
  if (summing) return;
  write_pass(stages_.passes);
  write_row_stores();
}

// The scans take turns among the warps. Calls write(scan, template arguments, type of the sums, name of the nodes).
template <class Write>
void BodyWriter::each_by_a_warp(const std::string& tile, int first_warp, const Write& write) {
  const int warps = schedule_.threads / kWarp;
  int number = first_warp;
  for (const int i : stages_.scans) {
    out_.line("if (t / 32 == " + std::to_string(number++ % warps) + ") {");
    out_.line("u64* const nodes = " + nodes_of(i, tile) + ";");
    write(std::to_string(i), scanner(statement(i).op), cuda_type(scan_total_type(statement(i))), i);
    out_.line("}");
  }
}

std::string BodyWriter::write_tiles(const std::string& name) {
  in_tiles_ = true;
  const std::string reduced = accesses_.reduced_type(), warps = std::to_string(schedule_.threads / kWarp);
  const std::string levels = std::to_string(levels_);
  const auto sum_of_tile = [&](int i, const std::string& tile) {
    const std::string n = std::to_string(i), type = cuda_type(scan_type(statement(i)));
    out_.line(type + " sum;");
    out_.line("scan_shared<" + scanner(statement(i).op) + ", " + warps + ", " +
              (statement(i).reverse ? "true" : "false") + ">(shared" + n + "[" + tile + ".buffer], 0, sum);");
  };
  out_.line("extern \"C\" __global__ void __launch_bounds__(" + std::to_string(schedule_.threads) + ") " + name +
            "(const Parameters p) {");
  out_.line("wait_for_earlier_kernels();");
  out_.line("const int t = threadIdx.x;");
  out_.line("constexpr bool valid = true;");
  write_length();
  out_.line("const " + reduced + " end = length;");
  for (const int i : staged_inputs()) {
    out_.line("alignas(16) __shared__ char staged" + std::to_string(i) + "[" +
              std::to_string(kBuffers * tile_bytes(i)) + "];");
  }
  for (const int i : stages_.scans) {
    const std::string n = std::to_string(i);
    out_.line(std::string("__shared__ ") + cuda_type(scan_type(statement(i))) + " shared" + n + "[" +
              std::to_string(kBuffers) + "][" + warps + "];");
    out_.line(std::string("__shared__ ") + cuda_type(scan_total_type(statement(i))) + " prefix" + n + ";");
  }
  declare_row_values();
  out_.line("__shared__ u32 tickets[3];");
  out_.line("if (t == 0) {");
  out_.line("tickets[0] = take_ticket(p.nodes);");
  out_.line("tickets[1] = take_ticket(p.nodes);");
  out_.line("}");
  out_.line("__syncthreads();");
  out_.line("Tile storing = {0, 0, 0, false}, closing = {0, 0, 1, false};");
  out_.line(
      "Tile summing = tile_of(tickets[0], p.tiles, p.points, 2), copying = tile_of(tickets[1], p.tiles, p.points, 0);");
  open_tile("summing");
  write_copies();
  out_.line("}");
  out_.line("end_copies();");
  out_.line("while (storing.exists || closing.exists || summing.exists) {");
  out_.line("u32 ticket = 0;");
  out_.line("if (t == 0) ticket = take_ticket(p.nodes);");
  out_.line("if (storing.exists) {");
  each_by_a_warp("storing", 0, [&](const std::string& n, const std::string& scan, const std::string& total, int) {
    out_.line("const " + total + " before = look_back<" + scan + ", " + levels + ", " + total +
              ">(nodes, p.tiles, storing.number);");
    out_.line("if (t % 32 == 0) prefix" + n + " = before;");
  });
  out_.line("}");
  if (levels_ > 1) {
    out_.line("if (closing.exists && closing.number % 32 == 31) {");
    each_by_a_warp("closing", 1, [&](const std::string&, const std::string& scan, const std::string& total, int i) {
      sum_of_tile(i, "closing");
      out_.line("close_groups<" + scan + ", " + levels + ">(nodes, p.tiles, closing.number, static_cast<" + total +
                ">(sum));");
    });
    out_.line("}");
  }
  out_.line("if (t == 0) tickets[2] = ticket;");
  out_.line("__syncthreads();");
  out_.line("const Tile next = tile_of(tickets[2], p.tiles, p.points, closing.buffer);");
  open_tile("storing");
  write_passes_of_tile(false);
  out_.line("}");
  open_tile("copying");
  write_copies();
  out_.line("}");
  out_.line("end_copies();");
  out_.line("wait_for_copies<1>();");
  open_tile("summing");
  write_passes_of_tile(true);
  out_.line("}");
  out_.line("__syncthreads();");
  out_.line("if (summing.exists) {");
  each_by_a_warp("summing", 0, [&](const std::string&, const std::string&, const std::string& total, int i) {
    sum_of_tile(i, "summing");
    out_.line("if (t % 32 == 0) give(nodes + summing.number * NODE_WORDS<" + total + ">, static_cast<" + total +
              ">(sum));");
  });
  out_.line("}");
  out_.line("storing = closing;");
  out_.line("closing = summing;");
  out_.line("summing = copying;");
  out_.line("copying = next;");
  out_.line("}");
  out_.line("}");
  return out_.text();
}

}  // namespace onnxfuse::cuda
