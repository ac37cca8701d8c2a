// libFuzzer's hook for mutations that keep a program's form: most changes of single bytes only make a text that the
// parser refuses in the same place as before. One number, type, operation or operand is exchanged for another of its
// kind, a line is taken away, doubled or moved, a flag set or cleared, or a whole kernel doubled.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "program.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using Random = std::minstd_rand;

size_t below(Random& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

struct Token {
  size_t begin, end;
};

std::vector<Token> tokens_of(const std::string& text) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '%';
  };
  std::vector<Token> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at) tokens.push_back({at, end});
    at = std::max(end, at + 1);
  }
  return tokens;
}

std::string number(Random& random) {
  static const char* const kNumbers[] = {"0",
                                         "1",
                                         "2",
                                         "3",
                                         "4",
                                         "7",
                                         "8",
                                         "16",
                                         "31",
                                         "64",
                                         "65",
                                         "128",
                                         "1000",
                                         "4096",
                                         "65535",
                                         "2147483647",
                                         "2147483648",
                                         "4294967296",
                                         "140737488355328",
                                         "281474976710655",
                                         "281474976710656",
                                         "9223372036854775807"};
  return kNumbers[below(random, std::size(kNumbers))];
}

std::string type(Random& random) {
  return onnxfuse::type_name(
      static_cast<onnxfuse::Type>(below(random, 1 + static_cast<size_t>(onnxfuse::Type::boolean))));
}

std::string operation(Random& random) {
  static const std::vector<std::string> names = {
      "cast",
#define ONNXFUSE_PRIMITIVE(name, ...) #name,
#include "primitives.inc"
#undef ONNXFUSE_PRIMITIVE
  };
  return names[below(random, names.size())];
}

// Another token of the kind of this one.
std::string other(const std::string& token, Random& random) {
  if (token[0] == '%') return "%" + std::to_string(below(random, 12));
  if ((token[0] == 'd' || token[0] == 'r') && token.size() <= 2)
    return (below(random, 4) == 0 ? "r" : "d") + std::to_string(below(random, 4));
  if (std::isdigit(static_cast<unsigned char>(token[0])) != 0) return number(random);
  for (int k = 0; k <= static_cast<int>(onnxfuse::Type::boolean); ++k)
    if (token == onnxfuse::type_name(static_cast<onnxfuse::Type>(k))) return type(random);
  return operation(random);
}

void change_token(std::string& text, Random& random) {
  const std::vector<Token> tokens = tokens_of(text);
  if (tokens.empty()) return;
  const Token token = tokens[below(random, tokens.size())];
  text.replace(token.begin, token.end - token.begin, other(text.substr(token.begin, token.end - token.begin), random));
}

void change_line(std::string& text, Random& random) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  if (lines.empty()) return;
  const size_t from = below(random, lines.size());
  const std::string line = lines[from];
  const size_t what = below(random, 3);
  if (what != 1) lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(from));
  if (what != 0) lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(below(random, lines.size() + 1)), line);
  text.clear();
  for (const std::string& l : lines) text += l;
}

void change_entry(std::string& text, Random& random) {  // of an index map
  static const char* const kTails[] = {":8", "+1", "+d1", "+2*d1", "+-1*d2", ":0", ", 0", ", d2", "=3", "+r0", ", r0"};
  std::vector<size_t> places;
  for (size_t i = 1; i < text.size(); ++i)
    if ((text[i] == ',' || text[i] == ']' || text[i] == ' ') && std::isdigit(static_cast<unsigned char>(text[i - 1])))
      places.push_back(i);
  if (!places.empty()) text.insert(places[below(random, places.size())], kTails[below(random, std::size(kTails))]);
}

void change_flags(std::string& text, Random& random) {  // of a scan or an argument
  static const char* const kFlags[] = {" exclusive", " reverse", " last"};
  std::vector<size_t> places;
  for (const char* word : {"= scan_", "= reduce_arg"})
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
      places.push_back(text.find(' ', at + 2));
  if (places.empty()) return;
  const size_t place = places[below(random, places.size())];
  if (place == std::string::npos) return;
  const std::string flag = kFlags[below(random, std::size(kFlags))];
  if (text.compare(place, flag.size(), flag) == 0) {
    text.erase(place, flag.size());
  } else {
    text.insert(place, flag);
  }
}

void double_kernel(std::string& text, Random& random) {  // for launches that kernels share
  std::vector<size_t> begins;
  for (size_t at = text.find("space"); at != std::string::npos; at = text.find("\nspace", at + 1))
    begins.push_back(at + (text[at] == '\n' ? 1 : 0));
  if (begins.empty()) return;
  const size_t which = below(random, begins.size());
  const size_t begin = begins[which];
  std::string kernel = text.substr(begin, which + 1 < begins.size() ? begins[which + 1] - begin : std::string::npos);
  // Its tensors numbered as the next ones, so that what comes out may be a program.
  for (const std::string word : {" = input ", "\noutput "}) {
    unsigned long count = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
      count = std::max(count, std::strtoul(text.c_str() + at + word.size(), nullptr, 10) + 1);
    if (word == " = input " && below(random, 3) == 0) continue;  // the same inputs
    for (size_t at = kernel.find(word); at != std::string::npos; at = kernel.find(word, at + 1)) {
      const size_t digits = at + word.size();
      size_t after = digits;
      while (after < kernel.size() && std::isdigit(static_cast<unsigned char>(kernel[after])) != 0) ++after;
      const unsigned long number = std::strtoul(kernel.c_str() + digits, nullptr, 10);
      kernel.replace(digits, after - digits, std::to_string(number + count));
    }
  }
  text += kernel;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  Random random(seed);
  const uint8_t* const end = static_cast<const uint8_t*>(size > 0 ? std::memchr(data, 0, size) : nullptr);
  const size_t length = end != nullptr ? static_cast<size_t>(end - data) : size;
  if (below(random, 4) == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), length);
  std::string rest(reinterpret_cast<const char*>(data) + length, size - length);
  if (below(random, 6) == 0) {  // shapes
    if (rest.empty()) rest.assign(1, '\0');
    for (size_t n = 1 + below(random, 6); n-- > 0;) {
      rest += static_cast<char>(random() >> 8);
      rest += static_cast<char>(below(random, 16) == 0 ? 0xff : random() >> 8);
    }
  } else {
    for (size_t n = 1 + below(random, 3); n-- > 0;) {
      const size_t what = below(random, 10);
      if (what == 0) {
        change_line(text, random);
      } else if (what == 1) {
        change_entry(text, random);
      } else if (what == 2) {
        change_flags(text, random);
      } else if (what == 3 && below(random, 4) == 0 && text.size() < max_size / 2) {
        double_kernel(text, random);
      } else {
        change_token(text, random);
      }
    }
  }
  const std::string result = text + rest;
  const size_t count = std::min(result.size(), max_size);
  std::memcpy(data, result.data(), count);
  return count;
}
