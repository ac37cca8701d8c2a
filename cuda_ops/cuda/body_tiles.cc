// Scans of long rows, or of columns (body_tile_columns.cc), in one launch: blocks take tiles in turns.
//
// In each turn, three tiles of a block are at work. The newest is copied into shared memory, from where it is read
// twice: kTurnsAhead turns later its points are added up, and what they add up to is given to all other blocks;
// kTurnsBehind turns after that they are scanned and stored. So copies are always under way, and what a tile looks up
// was given by the others some turns ago. Two more warps (columns: two for each 32), the scouts, do all that waits for
// other blocks: they give the sums and look up what comes before the tiles, each in every second turn, so that it has
// the time of two.
//
// What the blocks note for each other has to be 0 before. For rows, the block with the first tile sees to that while
// the first copies of all are under way; no scout gives or looks up anything before that is told.
//
// Barriers: before a turn all that add up and store wait for its scout, which has then found what the turn needs; in
// the middle the scout waits for the sums.
#include "body.h"
#include "expression.h"
#include "footprint.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kMaskedLanes = 8;  // of 16 bits or fewer each
static_assert(kTileBuffers + 1 < kTileRecords, "");
static_assert(kTurnsAhead % 2 == 0, "a scout has turns of its parity, the first of all included");
// Barriers: the first of two for each, by the parity of the turn.
constexpr int kTurnBegins = 1, kSumsAreThere = 3, kAmongThemselves = 5;

int node_words(Type type) { return type_size(type) > 4 ? 2 : 1; }

std::string record(const std::string& turn) { return "(" + turn + ") % " + std::to_string(kTileRecords) + "u"; }

}  // namespace

bool BodyWriter::staged(int i) const {
  if (in_turns()) return staged_row(i) || staged_common(i);
  return scans() && schedule_.long_scan == LongScan::look_back && in_tiles_ &&
         staged_bytes(plan_, accesses_.input(i), row(), schedule_.lanes) > 0;
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

// Whether vectors beyond the end are computed as well, from whatever is in shared memory: without branches around them,
// 64 Mi take 0.96 of the time where elements have 16 bits, but 1.01 where they have 32 (H200).
bool BodyWriter::maskable() const {
  const auto all_staged = [&](const std::vector<int>& loads) {
    return std::all_of(loads.begin(), loads.end(), [&](int i) { return staged(i); });
  };
  return row() && schedule_.lanes >= kMaskedLanes && all_staged(early_loads()) &&
         all_staged(loads_of(stages_.scan_pass)) && all_staged(loads_of(stages_.passes));
}

// The nodes of a scan for the row of a tile.
std::string BodyWriter::nodes_of(int scan, const std::string& tile) const {
  int words = 0;
  for (const int i : stages_.scans) {
    if (i == scan) break;
    words += node_words(scan_type(statement(i)));
  }
  return "p.nodes + 2 + (" + std::to_string(words) + " * static_cast<i64>(p.points) + " +
         std::to_string(node_words(scan_type(statement(scan)))) + " * static_cast<i64>(" + tile + ".row)) * p.tiles";
}

// What follows, up to a closing brace, is for the tile.
void BodyWriter::open_tile(const std::string& tile, const std::string& turn) {
  const std::string reduced = accesses_.reduced_type();
  out_.line("if (" + tile + ".exists) {");
  out_.line("const u32 record = " + record(turn) + ";");
  if (row()) {
    out_.line(std::string("const ") + accesses_.index_type() + " id = " + tile + ".row;");
  } else {
    write_column("static_cast<" + std::string(accesses_.index_type()) + ">(" + tile + ".row)");
  }
  out_.line("const u32 order = " + tile + ".number;");
  out_.line("const " + reduced + " start = static_cast<" + reduced + ">(" +
            (reverse_ ? "p.tiles - 1 - order" : "order") + ") * " + std::to_string(schedule_.step()) + ";");
  int begin = 0;
  for (const int i : staged_inputs()) {
    out_.line("char* const tile" + std::to_string(i) + " = staged + " + std::to_string(begin) + " + " + tile +
              "_buffer * " + std::to_string(tile_bytes(i)) + " + threadIdx.x * " + bytes(accesses_.input(i)) + ";");
    begin += kTileBuffers * tile_bytes(i);
  }
  write_bases();
}

// Where what the scans of columns note begins.
int BodyWriter::staged_bytes_of_tiles() const {
  int sum = 0;
  for (const int i : staged_inputs()) sum += kTileBuffers * tile_bytes(i);
  return sum;
}

int BodyWriter::staged_bytes_of_block() const {
  int sum = staged_bytes_of_tiles();
  for (const int i : stages_.scans)
    sum += row() ? 0 : kTileRecords * column_record_bytes(statement(i), schedule_.threads, columns());
  return sum;
}

// Among all threads that compute.
void BodyWriter::write_block_barrier() {
  out_.line(in_tiles_ ? "sync_at(" + std::to_string(kAmongThemselves) + ", " + std::to_string(schedule_.threads) + ");"
                      : "__syncthreads();");
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
    write_block_barrier();
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
  masked_ = maskable();
  write_early_loads();
  write_pass(stages_.scan_pass);
  if (!summing) write_pass(stages_.passes);
  masked_ = false;
  if (!summing) write_row_stores();
}

// Calls write(scan, its number, the struct that combines its operands, the types of its sums and of their totals).
void BodyWriter::each_scan(const WriteScan& write) const {
  for (const int i : stages_.scans) {
    write(i, std::to_string(i), scanner(statement(i).op), std::string(cuda_type(scan_type(statement(i)))),
          std::string(cuda_type(scan_total_type(statement(i)))));
  }
}

std::string BodyWriter::write_tiles(const std::string& name) {
  in_tiles_ = true;
  const std::string warps = std::to_string(schedule_.threads / kWarp);
  const std::string threads = std::to_string(schedule_.threads), records = std::to_string(kTileRecords);
  out_.line("extern \"C\" __global__ void __launch_bounds__(" + std::to_string(schedule_.threads_in_turns()) + ", 1) " +
            name + "(const Parameters p) {");
  out_.line("wait_for_earlier_kernels();");
  out_.line(row() ? "const int t = threadIdx.x;"
                  : "const int t = threadIdx.x / " + std::to_string(schedule_.across()) + ";");
  write_length();
  if (staged_bytes_of_block() > 0) out_.line("extern __shared__ __align__(16) char staged[];");
  out_.line("__shared__ Tile tiles[" + records + "];");
  if (!row()) declare_column_records();
  if (row())
    each_scan([&](int, const std::string& n, const std::string&, const std::string& sum, const std::string& total) {
      out_.line("__shared__ " + sum + " shared" + n + "[" + records + "][" + warps + "];");
      out_.line("__shared__ " + total + " prefix" + n + "[" + records + "];");
    });
  declare_row_values();
  out_.line("Counters* const counters = counters_of(" + std::string(row() ? "p.queue" : "-1") + ", p.nodes);");
  out_.line("if (threadIdx.x < " + threads + ") {");
  write_turns();
  out_.line("} else {");
  write_scouts();
  out_.line("}");
  out_.line("}");
  return out_.text();
}

// By all but the scouts. The first of them takes the tickets, one after the other, so that a block's tiles come in the
// order of the rows, and each a turn before it is needed.
void BodyWriter::write_turns() {
  const std::string ahead = std::to_string(kTurnsAhead), behind = std::to_string(kTurnsBehind);
  const std::string all = std::to_string(schedule_.threads + kWarp * schedule_.scouts()),
                    buffers = std::to_string(kTileBuffers);
  const auto ticket = [&](const std::string& turn, const std::string& number) {
    out_.line(
        "tiles[" + record(turn) + "] = " +
        (row() ? "tile_of(" + number + ", p.tiles, p.points);" : "tile_of_strip(" + number + ", p.tiles, p.strips);"));
  };
  if (row()) out_.line("constexpr bool valid = true;");
  out_.line(std::string("const ") + accesses_.reduced_type() + " end = length;");
  for (const char* tile : {"storing", "summing"}) {
    if (stages_.scan_pass > 0) out_.line(std::string("u32 row_of_") + tile + " = 0xffffffffu;");
  }
  out_.line("u32 ticket = 0;");
  if (row()) out_.line("bool clears = false;");
  out_.line("if (threadIdx.x < " + std::to_string(kTileRecords) + ") tiles[threadIdx.x] = {0, 0, false};");
  out_.line("if (threadIdx.x == 0) {");
  out_.line("const u32 first = take_ticket(counters);");
  ticket("0u", "first");
  out_.line("ticket = take_ticket_behind(counters, first);");
  out_.line("}");
  out_.line("int copying_buffer = 0, summing_buffer = 0, storing_buffer = 0;");
  out_.line("for (int turn = -" + ahead + ";; ++turn) {");
  out_.line("sync_at(" + std::to_string(kTurnBegins) + " + (turn & 1), " + all + ");");
  out_.line("const Tile copying = tiles[" + record("turn + " + ahead) + "], summing = tiles[" + record("turn") +
            "], storing = tiles[" + record("turn - " + behind) + "];");
  out_.line("if (turn >= " + behind + " && !storing.exists) break;");
  if (row()) {
    out_.line("if (turn == " + std::to_string(1 - kTurnsAhead) + " && clears) tell_cleared(counters);");
  }
  out_.line("wait_for_copies<" + std::to_string(kTurnsAhead - 1) + ">();");
  open_tile("summing", "turn");
  write_passes_of_tile(true);
  out_.line("}");
  out_.line("if (threadIdx.x == 0) {");
  ticket("turn + " + std::to_string(kTurnsAhead + 1), "ticket");
  out_.line("}");
  out_.line("arrive_at(" + std::to_string(kSumsAreThere) + " + (turn & 1), " + all + ");");
  out_.line("if (threadIdx.x == 0) ticket = take_ticket(counters);");
  open_tile("storing", "turn - " + behind);
  write_passes_of_tile(false);
  out_.line("}");
  open_tile("copying", "turn + " + ahead);
  write_copies();
  out_.line("}");
  out_.line("end_copies();");
  if (row()) write_clearing();
  const auto advance = [&](const std::string& buffer) {
    out_.line(buffer + " = " + buffer + " + 1 == " + buffers + " ? 0 : " + buffer + " + 1;");
  };
  advance("copying_buffer");
  out_.line("if (turn >= 0) {");
  advance("summing_buffer");
  out_.line("}");
  out_.line("if (turn >= " + behind + ") {");
  advance("storing_buffer");
  out_.line("}");
  out_.line("}");
  if (row()) out_.line("if (threadIdx.x == 0) leave(counters);");
}

// By the block that has the first tile of all, behind its first copies.
void BodyWriter::write_clearing() {
  out_.line("const bool first_of_all = copying.exists && copying.row == 0 && copying.number == 0;");
  out_.line("if (turn == -" + std::to_string(kTurnsAhead) + " && p.queue >= 0 && first_of_all) {");
  out_.line("clear_nodes<" + std::to_string(schedule_.threads) + ">(p.nodes, p.words);");
  out_.line("clears = threadIdx.x == 0;");
  out_.line("}");
}

// The warps that give sums and look up what comes before the tiles, in every second turn each.
void BodyWriter::write_scouts() {
  const std::string all = std::to_string(schedule_.threads + kWarp * schedule_.scouts()),
                    behind = std::to_string(kTurnsBehind);
  out_.line("const int parity = threadIdx.x / 32 % 2;");
  if (!row())
    out_.line("const int c = (threadIdx.x - " + std::to_string(schedule_.threads) + ") / 64 * 32 + threadIdx.x % 32;");
  if (row()) {
    each_scan([&](int, const std::string& n, const std::string&, const std::string&, const std::string& total) {
      out_.line("Known<" + total + "> known" + n + " = {0xffffffffu, 0, 0};");
    });
  }
  out_.line("for (int turn = parity - " + std::to_string(kTurnsAhead) + ";; turn += 2) {");
  out_.line("Tile storing = {0, 0, false};");
  out_.line("if (turn >= " + behind + ") storing = tiles[" + record("turn - " + behind) + "];");
  out_.line("if (storing.exists) {");
  out_.line("const u32 record = " + record("turn - " + behind) + ";");
  row() ? write_look_back() : write_column_look_back();
  out_.line("}");
  out_.line("__syncwarp();");
  out_.line("arrive_at(" + std::to_string(kTurnBegins) + " + parity, " + all + ");");
  out_.line("if (turn >= " + behind + " && !storing.exists) break;");
  if (row()) out_.line("if (turn == parity && p.queue >= 0) wait_until_cleared(counters);");
  out_.line("sync_at(" + std::to_string(kSumsAreThere) + " + parity, " + all + ");");
  out_.line("const Tile summing = tiles[" + record("turn") + "];");
  out_.line("if (summing.exists) {");
  out_.line("const u32 record = " + record("turn") + ";");
  row() ? write_giving() : write_column_giving();
  out_.line("}");
  out_.line("}");
}

void BodyWriter::write_look_back() {
  each_scan(
      [&](int i, const std::string& n, const std::string& scan, const std::string& sum, const std::string& total) {
        out_.line("const " + total + " before" + n + " = look_back<" + scan + ", " + sum + ", " + total + ">(" +
                  nodes_of(i, "storing") + ", known" + n + ", storing.row, storing.number);");
        out_.line("if (t % 32 == 0) prefix" + n + "[record] = before" + n + ";");
      });
}

void BodyWriter::write_giving() {
  const std::string warps = std::to_string(schedule_.threads / kWarp);
  each_scan([&](int i, const std::string& n, const std::string& scan, const std::string& sum, const std::string&) {
    out_.line(sum + " sum" + n + ";");
    out_.line("scan_shared<" + scan + ", " + warps + ", " + (statement(i).reverse ? "true" : "false") + ">(shared" + n +
              "[record], 0, sum" + n + ");");
    out_.line("if (t % 32 == 0) give(" + nodes_of(i, "summing") + " + summing.number * NODE_WORDS<" + sum + ">, sum" +
              n + ");");
  });
}

}  // namespace onnxfuse::cuda
