// Reads one line of a program, token by token.  Every failure throws a ProgramError that names the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "program.h"

namespace onnxfuse {

class Scanner {
 public:
  Scanner(std::string_view line, int number) : line_(line), number_(number) {}

  bool at_end() const { return position_ == line_.size(); }
  bool peek(std::string_view text) const { return line_.substr(position_, text.size()) == text; }
  // Takes the text where it stands next.
  bool accept(std::string_view text);
  // Takes the text, which must stand next; `what` names the place in the grammar.
  void expect(std::string_view text, const char* what);
  void expect_end();

  // A decimal number without sign or leading zeros, at most `largest`.
  int64_t number(const char* what, int64_t largest);
  // "%7" or "d7": the prefix, then a number.
  int numbered(std::string_view prefix, const char* what, int64_t largest);
  // Everything up to the next space, or to the end.
  std::string_view word(const char* what);
  Type type(const char* what);

  int line_number() const { return number_; }
  size_t position() const { return position_; }
  // `right` says what would have been right at the position, or at the one that the scanner has reached.
  [[noreturn]] void fail_at(size_t position, const std::string& right) const;
  [[noreturn]] void fail(const std::string& right) const { fail_at(position_, right); }

 private:
  std::string_view line_;
  size_t position_ = 0;
  int number_;
};

// Throws: "program line 7: message".
[[noreturn]] void fail_at_line(int number, const std::string& message);

// Text for a message: at most 40 characters, with everything unprintable shown as '?'.
std::string quoted(std::string_view text);

}  // namespace onnxfuse
