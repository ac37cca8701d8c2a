#include "parameters.h"

#include <algorithm>
#include <cstring>

namespace onnxfuse::cuda {
namespace {

size_t size_of(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::narrow:
    case ParameterKind::queue:
    case ParameterKind::number:
      return 4;
    case ParameterKind::divisor:
      return sizeof(HostDivisor);
    default:
      return 8;
  }
}

bool is_of_run(ParameterKind kind) {
  return kind == ParameterKind::input || kind == ParameterKind::output || kind == ParameterKind::scratch ||
         kind == ParameterKind::queue;
}

}  // namespace

HostDivisor make_divisor(uint32_t value) {
  uint32_t bits = 1;  // 2^(bits - 1) < value <= 2^bits
  while ((uint64_t{1} << bits) < value) ++bits;
  return {value, static_cast<uint32_t>((uint64_t{1} << (31 + bits)) / value + 1), bits - 1};
}

// What takes 8 bytes comes first, so that nothing is padded.
std::vector<Parameter> Parameters::ordered() const {
  std::vector<Parameter> list = list_;
  std::stable_partition(list.begin(), list.end(), [](const Parameter& p) { return size_of(p.kind) == 8; });
  return list;
}

std::string Parameters::struct_text() const {
  std::string text = "struct Parameters {\n";
  for (const Parameter& p : ordered()) text += "  " + p.type + " " + p.name + ";\n";
  return text + "};\n";
}

std::vector<uint8_t> Parameters::bytes() const {
  std::vector<uint8_t> result;
  const auto append = [&](const void* data, size_t size) {
    const uint8_t* bytes = static_cast<const uint8_t*>(data);
    result.insert(result.end(), bytes, bytes + size);
  };
  for (const Parameter& p : ordered()) {
    if (size_of(p.kind) == 4) {
      const int32_t value = is_of_run(p.kind) ? 0 : static_cast<int32_t>(p.value);
      append(&value, sizeof value);
    } else if (p.kind == ParameterKind::divisor) {
      const HostDivisor divisor = make_divisor(static_cast<uint32_t>(p.value));
      append(&divisor, sizeof divisor);
    } else {
      const int64_t value = is_of_run(p.kind) ? 0 : p.value;
      append(&value, sizeof value);
    }
  }
  result.resize((result.size() + 7) / 8 * 8);
  return result;
}

std::vector<Parameters::Pointer> Parameters::pointers() const {
  std::vector<Pointer> result;
  size_t position = 0;
  for (const Parameter& p : ordered()) {
    if (is_of_run(p.kind)) result.push_back({position, p.kind, p.tensor, p.value});
    position += size_of(p.kind);
  }
  return result;
}

}  // namespace onnxfuse::cuda
