#include "literal.h"

#include <locale.h>
#include <stdlib.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace onnxfuse {
namespace {

bool take_digits(std::string_view& text) {
  const size_t end = text.find_first_not_of("0123456789");
  const size_t count = end == std::string_view::npos ? text.size() : end;
  text.remove_prefix(count);
  return count > 0;
}

// -?DIGITS[.DIGITS][e(+|-)DIGITS], with a point or an exponent.
bool is_decimal(std::string_view text) {
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  if (text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9') return false;
  if (!take_digits(text)) return false;
  bool marked = false;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    if (!take_digits(text)) return false;
    marked = true;
  }
  if (!text.empty() && text[0] == 'e') {
    text.remove_prefix(1);
    if (text.empty() || (text[0] != '+' && text[0] != '-')) return false;
    text.remove_prefix(1);
    if (!take_digits(text)) return false;
    marked = true;
  }
  return marked && text.empty();
}

// std::from_chars for floating point came to libstdc++ with g++ 11 only; strtod depends on the locale.
double read_decimal(const std::string& text, bool single) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", static_cast<locale_t>(nullptr));
  return single ? strtof_l(text.c_str(), nullptr, c_locale) : strtod_l(text.c_str(), nullptr, c_locale);
}

// Where the decimal does not read back to itself: it has become zero or an infinity.
bool out_of_range(const std::string& text, double value) {
  const std::string mantissa = text.substr(0, text.find('e'));
  return std::isinf(value) || (value == 0 && mantissa.find_first_of("123456789") != std::string::npos);
}

double parse_float(std::string_view word, bool single, int line) {
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "inf") return std::numeric_limits<double>::infinity();
  if (word == "-inf") return -std::numeric_limits<double>::infinity();
  if (!is_decimal(word)) fail_at_line(line, quoted(word) + " is not a decimal like 1.0 or 1e-05, inf, -inf or nan");
  const std::string text(word);
  const double value = read_decimal(text, single);
  if (out_of_range(text, value)) fail_at_line(line, quoted(word) + " does not fit the type of the constant");
  return value;
}

template <class Integer>
int64_t parse_integer(std::string_view word, int line) {
  Integer value = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
  const std::string_view digits = !word.empty() && word[0] == '-' ? word.substr(1) : word;
  const bool spelled = (digits.size() == 1 || (!digits.empty() && digits[0] != '0')) && word != "-0";
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size() || !spelled)
    fail_at_line(line, quoted(word) + " is not an integer from " + std::to_string(std::numeric_limits<Integer>::min()) +
                           " to " + std::to_string(std::numeric_limits<Integer>::max()) + " without leading zeros");
  return static_cast<int64_t>(value);
}

}  // namespace

Literal parse_literal(Scanner& line, Type type) {
  const std::string_view word = line.word("the value of the constant");
  const int number = line.line_number();
  Literal literal;
  switch (type) {
    case Type::f32:
      literal.f = parse_float(word, true, number);
      break;
    case Type::f64:
      literal.f = parse_float(word, false, number);
      break;
    case Type::i8:
      literal.i = parse_integer<int8_t>(word, number);
      break;
    case Type::i16:
      literal.i = parse_integer<int16_t>(word, number);
      break;
    case Type::i32:
      literal.i = parse_integer<int32_t>(word, number);
      break;
    case Type::i64:
      literal.i = parse_integer<int64_t>(word, number);
      break;
    case Type::u8:
      literal.i = parse_integer<uint8_t>(word, number);
      break;
    case Type::u16:
      literal.i = parse_integer<uint16_t>(word, number);
      break;
    case Type::u32:
      literal.i = parse_integer<uint32_t>(word, number);
      break;
    case Type::u64:
      literal.i = parse_integer<uint64_t>(word, number);
      break;
    case Type::boolean:
      if (word != "true" && word != "false") fail_at_line(number, quoted(word) + " is not true or false");
      literal.i = word == "true";
      break;
    case Type::f16:
    case Type::bf16:
      fail_at_line(number,
                   std::string("a constant cannot be ") + type_name(type) + ", a type of tensors only; use f32");
  }
  return literal;
}

}  // namespace onnxfuse
