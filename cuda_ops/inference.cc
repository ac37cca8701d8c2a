#include "inference.h"

#include <atomic>
#include <optional>

#include "program_limits.h"
#include "stores.h"

namespace onnxfuse {
namespace {

// What the inputs say about one dimension of the space: they must agree, or be 1.
class Extent {
 public:
  explicit Extent(std::optional<int64_t> fixed) : fixed_(fixed), extent_(fixed.value_or(1)) {}

  // False where it contradicts what was seen before.
  bool see(const Dim& dim) {
    if (dim.extent < 0) {
      if (!unknown_) {
        name_ = dim.name;
      } else if (name_ != dim.name) {
        name_.clear();
      }
      unknown_ = true;
      return true;
    }
    if (dim.extent == 1) return true;
    if (fixed_) return dim.extent >= extent_;  // a part of a longer one may be read
    if (extent_ != 1) return dim.extent == extent_;
    extent_ = dim.extent;
    return true;
  }

  // An extent other than 1 decides, since what is not known must equal it or be 1.
  Dim dim() const { return fixed_ || extent_ != 1 || !unknown_ ? Dim{extent_, ""} : Dim{-1, name_}; }

 private:
  std::optional<int64_t> fixed_;
  int64_t extent_;
  bool unknown_ = false;
  std::string name_;
};

// A name that no other dimension has: ONNX Runtime has no dimension that is simply unknown here (it takes -1 for an
// extent, which then contradicts what the model declares).
std::string fresh_name() {
  static std::atomic<uint64_t> count{0};
  return "onnxfuse_dim_" + std::to_string(count++);
}

bool rank_unknown(const Program& program, const std::vector<SymbolicShape>& inputs, size_t tensor) {
  return inputs[tensor].empty() && program.inputs[tensor].rank > 0;
}

std::vector<Dim> infer_extents(const Program& program, const Kernel& kernel, const std::vector<SymbolicShape>& inputs) {
  std::vector<Extent> extents;
  for (const auto& fixed : kernel.space.extents) extents.emplace_back(fixed);
  for (const Statement& s : kernel.statements) {
    for (size_t i = 0; s.op == Op::input && i < s.map.size(); ++i) {
      int64_t times = 1;
      const int counted = counted_dim(s.map[i], kernel.space, &times);
      const int d = counted >= 0 ? counted : s.map[i].plain_dim();
      if (d < 0) continue;
      const size_t tensor = static_cast<size_t>(s.tensor);
      Dim dim = rank_unknown(program, inputs, tensor) ? Dim{} : inputs[tensor][i];
      if (counted >= 0) dim = dim.extent >= 0 ? Dim{dim.extent / times, ""} : Dim{};
      if (!extents[static_cast<size_t>(d)].see(dim))
        throw ProgramError("input " + std::to_string(tensor) + " has extent " + std::to_string(dim.extent) +
                           " in dimension " + std::to_string(i) + ", where the program has d" + std::to_string(d) +
                           "=" + std::to_string(extents[static_cast<size_t>(d)].dim().extent));
    }
  }
  std::vector<Dim> dims;
  for (const Extent& extent : extents) {
    dims.push_back(extent.dim());
    if (dims.back().extent < 0 && dims.back().name.empty()) dims.back().name = fresh_name();
  }
  return dims;
}

void check_ranks(const Program& program, const std::vector<SymbolicShape>& inputs) {
  if (inputs.size() != program.inputs.size())
    throw ProgramError("the program has " + std::to_string(program.inputs.size()) + " inputs, the node " +
                       std::to_string(inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!rank_unknown(program, inputs, i) && inputs[i].size() != static_cast<size_t>(program.inputs[i].rank))
      throw ProgramError("input " + std::to_string(i) + " has rank " + std::to_string(inputs[i].size()) +
                         "; the program reads it with rank " + std::to_string(program.inputs[i].rank));
}

Dim output_dim(const MapEntry& entry, const Space& space, const std::vector<Dim>& extents) {
  if (entry.extent) return {*entry.extent, ""};
  int64_t times = 1;
  const int counted = counted_dim(entry, space, &times);
  if (counted >= 0) {
    const int64_t extent = extents[static_cast<size_t>(counted)].extent;
    const Wide whole = Wide{times} * extent;
    return extent >= 0 && whole <= kMaxElements ? Dim{static_cast<int64_t>(whole), ""} : Dim{-1, fresh_name()};
  }
  const int d = entry.plain_dim();
  return d >= 0 ? extents[static_cast<size_t>(d)] : Dim{1, ""};
}

// Any dimension along which the value does not vary may be 1, or left out.
SymbolicShape shape_over_axes(const Kernel& kernel, const Output& o, const std::vector<Dim>& extents) {
  SymbolicShape shape;
  if (o.squeezed) {
    shape.resize(o.map.size() - static_cast<size_t>(kernel.axes->count.value_or(0)));
    for (Dim& dim : shape) dim.name = fresh_name();
    return shape;
  }
  const uint32_t varying = kernel.statements[static_cast<size_t>(o.value)].varying;
  for (const MapEntry& entry : o.map) {
    const size_t d = static_cast<size_t>(entry.plain_dim());
    shape.push_back((varying >> d & 1) != 0 || extents[d].extent == 1 ? extents[d] : Dim{-1, fresh_name()});
  }
  return shape;
}

}  // namespace

std::vector<SymbolicShape> infer_shapes(const Program& program, const std::vector<SymbolicShape>& inputs) {
  check_ranks(program, inputs);
  std::vector<SymbolicShape> outputs(program.outputs.size());
  for (const Kernel& kernel : program.kernels) {
    const std::vector<Dim> extents = infer_extents(program, kernel, inputs);
    for (const Output& o : kernel.outputs) {
      SymbolicShape& shape = outputs[static_cast<size_t>(o.tensor)];
      if (kernel.axes) {
        shape = shape_over_axes(kernel, o, extents);
        continue;
      }
      shape.resize(o.map.size());
      for (size_t i = 0; i < o.map.size(); ++i) {
        const Dim dim = output_dim(o.map[i], kernel.space, extents);
        if (shape[i].extent < 0 && (dim.extent >= 0 || shape[i].name.empty())) shape[i] = dim;
      }
    }
  }
  return outputs;
}

}  // namespace onnxfuse
