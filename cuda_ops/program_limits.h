// The limits of the program language (docs/program.md, "Limits").
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnxfuse {

constexpr size_t kMaxText = 64 * 1024;
constexpr size_t kMaxKernels = 16;
constexpr int kMaxDims = 8;
constexpr int kMaxRolls = 8;
constexpr int64_t kMaxRollParts = 1024;  // that the rolls of a kernel cut its space into: twice the dimensions of each
constexpr size_t kMaxStatements = 1024;
constexpr int kMaxTensors = 64;                         // inputs, and outputs
constexpr int64_t kMaxExtent = (int64_t{1} << 48) - 1;  // and coefficients
constexpr int64_t kMaxElements = int64_t{1} << 62;      // of a tensor or a space

}  // namespace onnxfuse
