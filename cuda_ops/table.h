// What the table of primitives says of each operation.
#pragma once

#include <cstdint>
#include <string_view>

#include "program.h"

namespace onnxfuse {

// An argument is a reduction too, one that gives an index.
enum class OpKind : uint8_t { element, reduction, argument, scan };

struct OpInfo {
  const char* name;
  int arity;
  uint32_t types;  // mask of the operands' types, bit 1u << Type
  bool result_bool;
  OpKind kind;
};

constexpr uint32_t type_bit(Type type) { return 1u << static_cast<unsigned>(type); }

const OpInfo& op_info(Op op);

// Both look up a name of the language; false where there is no such name.
bool find_op(std::string_view name, Op* op);
bool find_type(std::string_view name, Type* type);

}  // namespace onnxfuse
