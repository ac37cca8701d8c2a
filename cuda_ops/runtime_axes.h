// Programs whose axes arrive with a run: the program for the axes at hand, which is one like any other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "binding.h"
#include "program.h"

namespace onnxfuse {

// The axes of the program, or nullptr where none arrive with a run.
const RuntimeAxes* runtime_axes(const Program& program);

// The set of the space's dimensions that input 0, of this shape and in host memory, names. Axes count from the end
// where they are negative; one that is named twice counts once. Throws ProgramError where one is out of range, or
// their number is not what the program says.
uint32_t named_dims(const Program& program, const Shape& shape, const void* numbers);

// The program that reduces these dimensions. It has the same inputs, though none of its statements reads input 0.
std::shared_ptr<const Program> over_dims(const Program& program, uint32_t dims);

// All that a run with inputs of these shapes can make of the program; where no axes arrive with a run, the program.
std::vector<std::shared_ptr<const Program>> possible_programs(const std::shared_ptr<const Program>& program,
                                                              const std::vector<Shape>& shapes);

}  // namespace onnxfuse
