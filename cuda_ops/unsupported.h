// What an engine does not run yet.
#pragma once

#include <stdexcept>
#include <string>

#include "program.h"

namespace onnxfuse {

// Throws where the program has a scan or an argument.
inline void refuse_scans_and_arguments(const Program& program, const char* engine) {
  for (const Kernel& kernel : program.kernels)
    for (const Statement& s : kernel.statements)
      if (is_scan(s.op) || is_argument(s.op))
        throw std::runtime_error(std::string(op_name(s.op)) + " is not supported by the " + engine + " engine");
}

}  // namespace onnxfuse
