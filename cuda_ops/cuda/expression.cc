#include "expression.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>

namespace onnxfuse::cuda {
namespace {

struct Row {
  const char* name;
  int arity;
  const char* expression;
};

const Row* find_row(Op op) {
  static const Row rows[] = {
#define ONNXFUSE_PRIMITIVE(name, arity, types, result_bool, ...) {#name, arity, #__VA_ARGS__},
#include "primitives.inc"
#undef ONNXFUSE_PRIMITIVE
  };
  constexpr int kFirst = static_cast<int>(Op::cast) + 1;
  return &rows[static_cast<int>(op) - kFirst];
}

bool is_signed_integer(Type type) {
  return type == Type::i8 || type == Type::i16 || type == Type::i32 || type == Type::i64;
}

}  // namespace

const char* cuda_type(Type type) { return type == Type::boolean ? "bool" : type_name(type); }

std::string cuda_constant(Type type, const Literal& literal) {
  char text[64];
  if (type == Type::boolean) return literal.i != 0 ? "true" : "false";
  if (is_float(type)) {
    const std::string cast = type == Type::f64 ? "static_cast<f64>" : "";
    if (std::isnan(literal.f)) return cast + "(NOT_A_NUMBER)";
    if (std::isinf(literal.f)) return cast + (literal.f > 0 ? "(INFINITE)" : "(-INFINITE)");
    std::snprintf(text, sizeof text, type == Type::f64 ? "%.17g" : "%.9g", literal.f);
    std::string digits = text;
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
    return digits + (type == Type::f64 ? "" : "f");
  }
  std::snprintf(text, sizeof text, "static_cast<%s>(%" PRIu64 "ull)", cuda_type(type),
                static_cast<uint64_t>(literal.i));
  return text;
}

std::string function_name(Op op, Type operand_type) {
  return std::string("op_") + op_name(op) + "_" + cuda_type(operand_type);
}

std::string function_text(Op op, Type operand_type, Type result_type) {
  const Row* row = find_row(op);
  const std::string type = cuda_type(operand_type), result = cuda_type(result_type);
  std::string text = "DEVICE " + result + " " + function_name(op, operand_type) + "(";
  // Sums and negatives of signed integers are taken in their unsigned type, where overflow wraps.
  const bool wraps = is_signed_integer(operand_type) && (op == Op::op_add || op == Op::op_sub || op == Op::op_neg);
  const std::string suffix = wraps ? "_" : "";
  for (int k = 0; k < row->arity; ++k) {
    const bool condition = op == Op::op_where && k == 0;
    text += std::string(k > 0 ? ", " : "") + (condition ? "bool" : type) + " " + static_cast<char>('a' + k) + suffix;
  }
  text += ") {\n";
  for (int k = 0; wraps && k < row->arity; ++k) {
    const std::string name(1, static_cast<char>('a' + k));
    text += "  const Unsigned<" + type + "> " + name + " = static_cast<Unsigned<" + type + ">>(" + name + "_);\n";
  }
  return text + "  return static_cast<" + result + ">(" + row->expression + ");\n}\n";
}

bool exact_reciprocal(const Literal& divisor, Literal* reciprocal) {
  int exponent = 0;
  if (!std::isfinite(divisor.f) || std::fabs(std::frexp(divisor.f, &exponent)) != 0.5) return false;
  if (exponent < -120 || exponent > 120) return false;
  reciprocal->f = 1.0 / divisor.f;
  return true;
}

}  // namespace onnxfuse::cuda
