// Programs by their text: inference parses each node's several times over, and networks repeat their layers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program.h"

namespace onnxfuse {

// As parse_program, but remembers. Thread-safe.
std::shared_ptr<const Program> cached_program(const std::string& text);

// The element types of the outputs for those of the inputs (docs/program.md, "Actual types").
// Throws ProgramError where an input is of a wrong type or the number of inputs is wrong.
std::vector<Type> actual_output_types(const Program& program, const std::vector<Type>& inputs);

}  // namespace onnxfuse
