// The constants of a program.
#pragma once

#include "program.h"
#include "scanner.h"

namespace onnxfuse {

// Reads the literal that ends the line, as a value of the type.  Independent of the process's locale.
Literal parse_literal(Scanner& line, Type type);

}  // namespace onnxfuse
