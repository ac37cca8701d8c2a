// CUDA C++ for single values: types, constants, primitive operations.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "../program.h"

namespace onnxfuse::cuda {

const char* cuda_type(Type type);  // the name in kernels/types.cuh
std::string cuda_constant(Type type, const Literal& literal);

// The function that computes a primitive for operands of one type: op_<name>_<type>.
std::string function_name(Op op, Type operand_type);
std::string function_text(Op op, Type operand_type, Type result_type);

// Sets of statements that may be approximated, as kernels/fast.cuh does, in a program whose outputs are all f16 or
// bf16.
struct Approximable {
  std::vector<bool> division;     // to 2 units of f32: nothing behind it jumps or magnifies without bound
  std::vector<bool> exponential;  // to 2^-16: everything behind it keeps relative errors small
};
Approximable approximable(const Kernel& kernel);

// Where dividing by the constant is multiplying by its reciprocal, exactly: powers of two.
bool exact_reciprocal(const Literal& divisor, Literal* reciprocal);

}  // namespace onnxfuse::cuda
