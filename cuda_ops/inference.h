// Shapes of outputs where some extents are known only by name, or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program.h"

namespace onnxfuse {

// A dimension as ONNX Runtime knows it before a run: an extent, else (-1) a name, which may be empty.
struct Dim {
  int64_t extent = -1;
  std::string name;
};
using SymbolicShape = std::vector<Dim>;

// An input with no dimensions may as well be one of unknown rank. Every dimension of the result has an extent or a name
// (where nothing is known, one that no other dimension has). Throws ProgramError where the inputs' shapes
// contradict the program.
std::vector<SymbolicShape> infer_shapes(const Program& program, const std::vector<SymbolicShape>& inputs);

}  // namespace onnxfuse
