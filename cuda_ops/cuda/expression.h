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

// Set of the constants that a launch brings along as parameters, so that kernels that differ in these alone are one:
// f32 that are added, subtracted or multiplied in a kernel that does not reduce. An instruction takes a parameter as it
// takes a number. Kernels that reduce have little but an epsilon to bring, and registers to spare for nothing.
std::vector<bool> brought_constants(const Kernel& kernel);

}  // namespace onnxfuse::cuda
