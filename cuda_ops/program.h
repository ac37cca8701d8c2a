// The program language of docs/program.md: data structures, parser, verifier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace onnxfuse {

enum class Type : uint8_t { f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean };

// The operations of primitives.toml (op_<name>, generated), and the three that the language itself has.
enum class Op : uint16_t {
  input,
  constant,
  cast,
#define ONNXFUSE_PRIMITIVE(name, ...) op_##name,
#include "primitives.inc"
#undef ONNXFUSE_PRIMITIVE
};

// What r0 is numbered as among the indices that a map's terms name; those below are dimensions of the space.
constexpr int kFirstRoll = 8;

// offset + sum of scale * (index along space dimension dim, or of a roll)
struct AffineTerm {
  int dim;
  int64_t scale;
};
struct MapEntry {
  int64_t offset = 0;
  std::vector<AffineTerm> terms;
  std::optional<int64_t> extent;  // as written after the colon

  // The dimension, where the entry is a plain dk; else -1.
  int plain_dim() const {
    const bool plain = offset == 0 && terms.size() == 1 && terms[0].scale == 1 && terms[0].dim < kFirstRoll;
    return plain ? terms[0].dim : -1;
  }
};
using IndexMap = std::vector<MapEntry>;

// A constant's bits: f for f32 (already rounded to float) and f64, i for integers and bool (u64 wraps).
struct Literal {
  double f = 0;
  int64_t i = 0;
};

struct Statement {
  Op op = Op::constant;
  Type type = Type::f32;  // of the value: never f16 or bf16
  int operands[3] = {-1, -1, -1};
  int operand_count = 0;
  int tensor = -1;           // input: number of the node's input
  Type storage = Type::f32;  // input: type of the tensor's elements
  IndexMap map;              // input
  Literal literal;           // constant
  bool exclusive = false;    // scan: of all operands before this one
  bool reverse = false;      // scan: from the last point of the reduced dimensions to the first
  bool last = false;         // argument: of equal operands the last one's index
  bool scanned = false;      // a scan, or computed from one: no reduction and no scan has it for an operand
  uint32_t dims = 0;         // set of the space dimensions that the value depends on
  uint32_t varying = 0;      // of these, those along which it varies also where they are reduced (RuntimeAxes)
};

struct Output {
  int tensor = -1;
  Type storage = Type::f32;
  IndexMap map;
  int value = -1;
  bool squeezed = false;  // without the dimensions that are reduced (RuntimeAxes)
};

// (row-major index over the dimensions + shift) % points: an index that starts elsewhere and wraps around.
struct Roll {
  int64_t shift = 0;
  std::vector<int> dims;  // of the space: their extents are known, and none is reduced
  int64_t points = 0;     // the product of their extents
};

// dims[0, outer) | dims[outer, outer + reduced) | the rest
struct Space {
  std::vector<std::optional<int64_t>> extents;
  int outer = 0;
  int reduced = 0;
  std::vector<Roll> rolls;
  int rank() const { return static_cast<int>(extents.size()); }
  uint32_t reduced_mask() const { return ((1u << reduced) - 1) << outer; }
  // The set of the space's dimensions that an index of a map depends on.
  uint32_t dims_of(int index) const {
    if (index < kFirstRoll) return 1u << index;
    uint32_t dims = 0;
    for (const int d : rolls[static_cast<size_t>(index - kFirstRoll)].dims) dims |= 1u << d;
    return dims;
  }
};

// Axes that arrive with a run, as the node's input 0: the dimensions that are reduced, or that scans go along.
struct RuntimeAxes {
  Type type = Type::i64;         // i32 or i64
  bool scalar = false;           // one number, in a tensor without dimensions
  std::optional<int64_t> count;  // how many numbers; none: a run shows it
  bool noop = false;             // no numbers mean that nothing is reduced, and not that everything is
  std::vector<int> dims;         // of the space, which the axes 0, 1, ... are
};

struct Kernel {
  Space space;
  std::optional<RuntimeAxes> axes;
  std::vector<Statement> statements;
  std::vector<Output> outputs;
};

struct TensorInfo {
  Type type = Type::f32;
  int rank = 0;
};

struct Program {
  std::string text;
  std::vector<Kernel> kernels;
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
};

// what() says the line, what is wrong there, and what would be right.
class ProgramError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Parses and verifies; throws ProgramError.
std::shared_ptr<const Program> parse_program(std::string_view text);

const char* type_name(Type type);
size_t type_size(Type type);
bool is_float(Type type);  // f16, bf16, f32, f64
bool is_16bit_float(Type type);
bool is_reduction(Op op);  // arguments included
bool is_argument(Op op);   // reduce_argmax, reduce_argmin
bool is_scan(Op op);       // scan_sum, scan_prod, scan_max, scan_min
const char* op_name(Op op);

}  // namespace onnxfuse
