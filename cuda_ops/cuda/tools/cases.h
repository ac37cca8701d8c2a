// The cases that the tools here read. Each begins with a line "case NAME ARCH[,ARCH...]", then one line for each input
// ("input TYPE ALIGNMENT EXTENT..."), one for each output ("output TYPE ALIGNMENT"), and the program up to a line
// "end".
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "cuda/generate_kernels.h"

namespace onnxfuse::cuda {

struct Case {
  std::string name, program;
  std::vector<int> architectures;
  std::vector<Shape> shapes;
  ActualTypes types;
  Alignments alignments;
};

// False at the end.
bool read_case(std::istream& in, Case& result);

}  // namespace onnxfuse::cuda
