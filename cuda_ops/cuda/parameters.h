// The parameters of a generated kernel: one struct, written out for its source and filled for its launches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan.h"

namespace onnxfuse::cuda {

enum class ParameterKind : uint8_t { input, output, scratch, queue, wide, narrow, divisor, number };

struct Parameter {
  ParameterKind kind = ParameterKind::wide;
  std::string type, name;
  int64_t value = 0;  // pointers: the offset in bytes; numbers: the bits of an f32
  int tensor = -1;    // pointers
};

// Names and order depend on what the generator adds only, values on the plan; so equal sources have equal layouts.
class Parameters {
 public:
  void add(Parameter parameter) { list_.push_back(std::move(parameter)); }
  std::string struct_text() const;  // "struct Parameters {...};"
  // The struct's bytes, without what a run brings: its pointers (for a queue, a number). pointers() says where they go.
  std::vector<uint8_t> bytes() const;
  struct Pointer {
    size_t position;  // in bytes()
    ParameterKind kind;
    int tensor;
    int64_t offset;
  };
  std::vector<Pointer> pointers() const;

 private:
  std::vector<Parameter> ordered() const;
  std::vector<Parameter> list_;
};

// q = (n * factor >> 32) >> shift for all n < 2^31; value is at least 2 and below 2^31.
struct HostDivisor {
  uint32_t value, factor, shift;
};
HostDivisor make_divisor(uint32_t value);

}  // namespace onnxfuse::cuda
