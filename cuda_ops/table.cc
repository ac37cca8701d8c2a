#include "table.h"

#include <algorithm>
#include <iterator>

namespace onnxfuse {
namespace {

constexpr uint32_t kAnyValue = 0x1ffc;  // all types but f16 and bf16

constexpr OpInfo kOps[] = {
    {"input", 0, 0, false, OpKind::element},
    {"const", 0, 0, false, OpKind::element},
    {"cast", 1, kAnyValue, false, OpKind::element},
#define ONNXFUSE_PRIMITIVE(name, arity, types, result_bool, ...) {#name, arity, types, result_bool, OpKind::element},
#define ONNXFUSE_REDUCTION(name, arity, types, result_bool, ...) {#name, arity, types, result_bool, OpKind::reduction},
#define ONNXFUSE_ARGUMENT(name, arity, types, result_bool, ...) {#name, arity, types, result_bool, OpKind::argument},
#define ONNXFUSE_SCAN(name, arity, types, result_bool, ...) {#name, arity, types, result_bool, OpKind::scan},
#include "primitives.inc"
#undef ONNXFUSE_PRIMITIVE
};

struct TypeRow {
  const char* name;
  size_t size;
};
constexpr TypeRow kTypes[] = {{"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"i8", 1},  {"i16", 2}, {"i32", 4},
                              {"i64", 8}, {"u8", 1},   {"u16", 2}, {"u32", 4}, {"u64", 8}, {"bool", 1}};

}  // namespace

const OpInfo& op_info(Op op) { return kOps[static_cast<size_t>(op)]; }

bool find_op(std::string_view name, Op* op) {
  const auto row =
      std::find_if(std::begin(kOps), std::end(kOps), [&](const OpInfo& info) { return name == info.name; });
  *op = static_cast<Op>(row - std::begin(kOps));
  return row != std::end(kOps);
}

bool find_type(std::string_view name, Type* type) {
  const auto row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& t) { return name == t.name; });
  *type = static_cast<Type>(row - std::begin(kTypes));
  return row != std::end(kTypes);
}

const char* type_name(Type type) { return kTypes[static_cast<size_t>(type)].name; }
size_t type_size(Type type) { return kTypes[static_cast<size_t>(type)].size; }
bool is_16bit_float(Type type) { return type == Type::f16 || type == Type::bf16; }
bool is_float(Type type) { return is_16bit_float(type) || type == Type::f32 || type == Type::f64; }
bool is_reduction(Op op) { return op_info(op).kind == OpKind::reduction || is_argument(op); }
bool is_argument(Op op) { return op_info(op).kind == OpKind::argument; }
bool is_scan(Op op) { return op_info(op).kind == OpKind::scan; }
const char* op_name(Op op) { return op_info(op).name; }

}  // namespace onnxfuse
