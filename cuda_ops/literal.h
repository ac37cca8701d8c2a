// The constants of a program.
#pragma once

#include "program.h"
#include "scanner.h"

namespace onnxfuse {

// Reads the literal that ends the line, as a value of the type.  Independent of the process's locale.  The form of a
// decimal is checked, but not that it is the shortest of its value; the Python parser, which makes the texts, does
// that.
Literal parse_literal(Scanner& line, Type type);

}  // namespace onnxfuse
