#include "in_place.h"

#include <algorithm>

namespace onnxfuse {
namespace {

bool reads(const Kernel& kernel, int input) {
  return std::any_of(kernel.statements.begin(), kernel.statements.end(),
                     [&](const Statement& s) { return s.op == Op::input && s.tensor == input; });
}

bool writes(const Kernel& kernel, int output) {
  return std::any_of(kernel.outputs.begin(), kernel.outputs.end(), [&](const Output& o) { return o.tensor == output; });
}

// Whether a point's element is no other point's: the output has all dimensions along which there is more than one.
bool has_all_dims(const BoundKernel& bound, const Access& output) {
  if (std::any_of(output.rolled.begin(), output.rolled.end(), [](int64_t stride) { return stride != 0; })) return false;
  for (size_t d = 0; d < bound.extents.size(); ++d)
    if (bound.extents[d] != 1 && output.strides[d] == 0) return false;
  return true;
}

bool same_places(const BoundKernel& bound, const Access& a, const Access& b) {
  if (a.offset != b.offset || a.rolled != b.rolled) return false;
  for (size_t d = 0; d < bound.extents.size(); ++d)
    if (bound.extents[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

}  // namespace

bool is_pointwise(const Program& program, const BoundProgram& bound, int input, int output) {
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    const BoundKernel& sizes = bound.kernels[k];
    if (!reads(kernel, input)) continue;
    const bool elementwise = std::none_of(kernel.statements.begin(), kernel.statements.end(),
                                          [](const Statement& s) { return is_reduction(s.op) || is_scan(s.op); });
    if (!elementwise || !writes(kernel, output)) return false;
    for (size_t o = 0; o < kernel.outputs.size(); ++o) {
      if (kernel.outputs[o].tensor != output) continue;
      if (!has_all_dims(sizes, sizes.outputs[o])) return false;
      for (size_t s = 0; s < kernel.statements.size(); ++s) {
        const Statement& statement = kernel.statements[s];
        const bool read = statement.op == Op::input && statement.tensor == input;
        if (read && !same_places(sizes, sizes.inputs[s], sizes.outputs[o])) return false;
      }
    }
  }
  return true;
}

}  // namespace onnxfuse
