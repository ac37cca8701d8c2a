// What a program's lines must satisfy beyond the grammar.
#pragma once

#include <vector>

#include "program.h"

namespace onnxfuse {

// The line on which each kernel starts: its `space`.  Rolls, statements and outputs follow it without gaps.
struct KernelLine {
  int space;
};
using ProgramLines = std::vector<KernelLine>;

// Checks types, index maps, dependence and numbering; fills in Statement::dims and the program's inputs and outputs.
// Throws ProgramError.
void verify(Program& program, const ProgramLines& lines);

}  // namespace onnxfuse
