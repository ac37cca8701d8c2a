#include "scanner.h"

#include <charconv>

#include "table.h"

namespace onnxfuse {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string quoted(std::string_view text) {
  constexpr size_t kShown = 40;
  std::string result = "'";
  for (const char c : text.substr(0, kShown)) result += c >= 0x20 && c < 0x7f ? c : '?';
  return result + (text.size() > kShown ? "...'" : "'");
}

void fail_at_line(int number, const std::string& message) {
  throw ProgramError("program line " + std::to_string(number) + ": " + message);
}

void Scanner::fail_at(size_t position, const std::string& right) const {
  const std::string_view rest = line_.substr(position);
  const std::string found = rest.empty() ? "the end of the line" : quoted(rest);
  fail_at_line(number_, "expected " + right + ", found " + found + " (column " + std::to_string(position + 1) + ")");
}

bool Scanner::accept(std::string_view text) {
  if (!peek(text)) return false;
  position_ += text.size();
  return true;
}

void Scanner::expect(std::string_view text, const char* what) {
  if (!accept(text)) fail(quoted(text) + " (" + what + ")");
}

void Scanner::expect_end() {
  if (!at_end()) fail("the end of the line");
}

int64_t Scanner::number(const char* what, int64_t largest) {
  const std::string_view rest = line_.substr(position_);
  size_t length = 0;
  while (length < rest.size() && is_digit(rest[length])) ++length;
  if (length == 0) fail(std::string(what) + ", a number");
  if (length > 1 && rest[0] == '0') fail(std::string(what) + ", a number without leading zeros");
  int64_t value = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + length, value);
  if (parsed.ec != std::errc() || value > largest) fail(std::string(what) + ", at most " + std::to_string(largest));
  position_ += length;
  return value;
}

int Scanner::numbered(std::string_view prefix, const char* what, int64_t largest) {
  if (!accept(prefix)) fail(std::string(what) + ", '" + std::string(prefix) + "' and a number");
  return static_cast<int>(number(what, largest));
}

std::string_view Scanner::word(const char* what) {
  const std::string_view rest = line_.substr(position_);
  const std::string_view result = rest.substr(0, rest.find(' '));
  if (result.empty()) fail(what);
  position_ += result.size();
  return result;
}

Type Scanner::type(const char* what) {
  const size_t start = position_;
  Type type;
  if (find_type(word(what), &type)) return type;
  fail_at(start, std::string(what) + ", one of f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool");
}

}  // namespace onnxfuse
