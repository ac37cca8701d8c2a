// Scans of columns by blocks that take tiles in turns: what differs from those of rows (body_tiles.cc).
//
// A tile is a few neighbouring columns wide. What a warp's points of each column add up to is noted in shared memory;
// a scout turns that into what all warps before do, gives the sum of all to the other blocks, and later looks up what
// comes before the tile, column by column.
#include "body.h"
#include "expression.h"
#include "footprint.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kWarp = 32;

}  // namespace

// For each record of each scan a row of sums for each warp, and the prefixes. The widest come first.
void BodyWriter::declare_column_records() {
  int begin = staged_bytes_of_tiles();
  const auto declare = [&](const std::string& type, const std::string& name, size_t bytes) {
    out_.line(type + "* const " + name + " = reinterpret_cast<" + type + "*>(staged + " + std::to_string(begin) + ");");
    begin += static_cast<int>(bytes) * kTileRecords * columns();
  };
  const size_t rows = static_cast<size_t>(schedule_.threads / kWarp);
  for (const size_t size : {8, 4, 2, 1}) {
    each_scan([&](int i, const std::string& n, const std::string&, const std::string& sum, const std::string& total) {
      if (type_size(scan_total_type(statement(i))) == size) declare(total, "prefix" + n, size);
      if (type_size(scan_type(statement(i))) == size) declare(sum, "shared" + n, rows * size);
    });
  }
}

// The rows of sums of a scan.
std::string BodyWriter::column_record(int scan) const {
  const int elements = schedule_.threads / kWarp * columns();
  return "shared" + std::to_string(scan) + " + record * " + std::to_string(elements);
}

void BodyWriter::write_sums_of_columns() {
  const std::string across = std::to_string(schedule_.across()), count = std::to_string(columns());
  const std::string in_warp = std::to_string(kWarp / schedule_.across());
  each_scan([&](int i, const std::string& n, const std::string& scan, const std::string& sum, const std::string&) {
    out_.line(sum + " before" + n + "[" + lanes() + "];");
    out_.line("if (scan_in_warp<" + scan + ", " + across + ", " + in_warp + ", " +
              (statement(i).reverse ? "true" : "false") + ">(part" + n + ", before" + n + ")) {");
    out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) (" + column_record(i) + ")[threadIdx.x / 32 * " + count +
                  " + threadIdx.x % " + across + " * " + lanes() + " + w] = part" + n + "[w];");
    out_.line("}");
  });
}

void BodyWriter::write_scans_of_columns() {
  const std::string across = std::to_string(schedule_.across()), count = std::to_string(columns());
  const std::string in_warp = std::to_string(kWarp / schedule_.across());
  out_.line("const int first_column = threadIdx.x % " + across + " * " + lanes() + ";");
  each_scan(
      [&](int i, const std::string& n, const std::string& scan, const std::string& sum, const std::string& total) {
        const std::string part = "part" + n, before = "before" + n, prefix = "prefix" + n;
        out_.line(sum + " " + before + "[" + lanes() + "];");
        out_.line("scan_in_warp<" + scan + ", " + across + ", " + in_warp + ", " +
                  (statement(i).reverse ? "true" : "false") + ">(" + part + ", " + before + ");");
        out_.unrolled("for (int w = 0; w < " + lanes() + "; ++w) {");
        out_.line("const " + sum + " own = " + scan + "::apply((" + column_record(i) + ")[threadIdx.x / 32 * " + count +
                  " + first_column + w], " + before + "[w]);");
        out_.line("const " + total + " all = " + prefix + "[record * " + count + " + first_column + w];");
        out_.line(part + "[w] = static_cast<" + sum + ">(" + scan + "::apply(all, static_cast<" + total + ">(own)));");
        out_.line("}");
      });
}

// The nodes of a scan.
std::string BodyWriter::nodes_of_columns(int scan) const {
  std::string words;
  const auto rows = [](const std::string& each) { return "(p.tiles + " + each + " - 1) / " + each; };
  for (const int i : stages_.scans) {
    if (i == scan) break;
    const int own = type_size(scan_type(statement(i))) > 4 ? 2 : 1;
    const int total = type_size(scan_total_type(statement(i))) > 4 ? 2 : 1;
    words += " + (" + std::to_string(own) + " * static_cast<i64>(p.tiles) + " + std::to_string(total) + " * (" +
             rows("BRANCH") + " + " + rows("BRANCHES") + ")) * p.points";
  }
  const Statement& s = statement(scan);
  return std::string("column_nodes<") + cuda_type(scan_type(s)) + ", " + cuda_type(scan_total_type(s)) +
         ">(p.nodes + 2" + words + ", p.points, p.tiles)";
}

// A scout has a column for each of its threads.
void BodyWriter::open_column(const std::string& tile) {
  const std::string count = std::to_string(columns());
  out_.line("const i64 column = static_cast<i64>(" + tile + ".row) * " + count + " + c;");
  out_.line("if (c < " + count + " && column < p.points) {");
}

void BodyWriter::write_column_look_back() {
  open_column("storing");
  each_scan(
      [&](int i, const std::string& n, const std::string& scan, const std::string& sum, const std::string& total) {
        const Statement& s = statement(i);
        const std::string found = "look_back_column<" + scan + ", " + sum + ", " + total + ">(" + nodes_of_columns(i) +
                                  ", storing.number, column)";
        // An exclusive sum begins with 0, not with the identity -0.
        const bool zero = s.exclusive && s.op == Op::op_scan_sum;
        out_.line("prefix" + n + "[record * " + std::to_string(columns()) +
                  " + c] = " + (zero ? scan + "::apply(static_cast<" + total + ">(0), " + found + ")" : found) + ";");
      });
  out_.line("}");
}

void BodyWriter::write_column_giving() {
  const std::string count = std::to_string(columns()), rows = std::to_string(schedule_.threads / kWarp);
  open_column("summing");
  each_scan([&](int i, const std::string& n, const std::string& scan, const std::string& sum, const std::string&) {
    out_.line("const " + sum + " sum" + n + " = scan_rows<" + scan + ", " + rows + ", " + count + ", " +
              (statement(i).reverse ? "true" : "false") + ">(" + column_record(i) + " + c);");
    out_.line("give(" + nodes_of_columns(i) +
              ".tiles + (summing.number * static_cast<i64>(p.points) + column) * NODE_WORDS<" + sum + ">, sum" + n +
              ");");
  });
  out_.line("}");
}

}  // namespace onnxfuse::cuda
