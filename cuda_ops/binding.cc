#include "binding.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "program_limits.h"
#include "stores.h"

namespace onnxfuse {
namespace {

[[noreturn]] void fail(const std::string& message) { throw ProgramError(message); }

// Product of the extents, at most kMaxElements; 0 where one of them is 0.
int64_t product(const std::vector<int64_t>& extents, const std::string& what) {
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return 0;
  Wide result = 1;
  for (const int64_t extent : extents) {
    result *= extent;
    if (result > kMaxElements) fail(what + " has more than 2^62 elements");
  }
  return static_cast<int64_t>(result);
}

std::string extent_text(int d, int64_t extent) { return "d" + std::to_string(d) + "=" + std::to_string(extent); }

// Row-major strides, in elements.
std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

std::vector<int64_t> resolve_extents(const Kernel& kernel, const std::vector<Shape>& shapes) {
  constexpr int64_t kUnknown = -1;
  const Space& space = kernel.space;
  std::vector<int64_t> extents;
  for (const auto& extent : space.extents) extents.push_back(extent.value_or(kUnknown));
  for (const Statement& s : kernel.statements) {
    for (size_t i = 0; s.op == Op::input && i < s.map.size(); ++i) {
      int64_t shown = shapes[static_cast<size_t>(s.tensor)][i], times = 1;
      const int counted = counted_dim(s.map[i], space, &times);
      const int d = counted >= 0 ? counted : s.map[i].plain_dim();
      if (d < 0) continue;
      if (shown % times != 0)
        fail("input " + std::to_string(s.tensor) + " has extent " + std::to_string(shown) + " in dimension " +
             std::to_string(i) + ", which must be a multiple of " + std::to_string(times));
      shown /= times;
      int64_t& extent = extents[static_cast<size_t>(d)];
      const bool fixed = space.extents[static_cast<size_t>(d)].has_value();
      if (!fixed && (extent == kUnknown || extent == 1)) {
        extent = shown;
      } else if (shown != 1 && shown != s.map[i].extent.value_or(extent)) {  // where a part is read, the map says so
        fail("input " + std::to_string(s.tensor) + " has extent " + std::to_string(shown) + " in dimension " +
             std::to_string(i) + ", where the program has " + extent_text(d, extent));
      }
    }
  }
  return extents;
}

class KernelBinder {
 public:
  KernelBinder(const Space& space, std::vector<int64_t> extents)
      : space_(space), extents_(std::move(extents)), spans_(spans(space_, extents_)) {}

  // Where each point finds its element in a tensor of the shape. A plain index into an input's dimension of extent 1
  // broadcasts. Where an index runs over a dimension of extent 0, no point asks: the strides then only show on which
  // dimensions the access depends, so that nobody hoists it to a place that is reached.
  Access access(const IndexMap& map, const Shape& shape, bool input, const std::string& what) const {
    product(shape, what);
    const auto broadcasts = [&](size_t i) { return input && map[i].plain_dim() >= 0 && shape[i] == 1; };
    bool reached = true;
    for (size_t i = 0; i < map.size(); ++i)
      for (const AffineTerm& term : map[i].terms) reached = reached && (broadcasts(i) || spans_[dim(term)] != 0);
    Access result;
    result.strides.assign(extents_.size(), 0);
    result.rolled.assign(space_.rolls.size(), 0);
    const std::vector<int64_t> strides = strides_of(shape);
    for (size_t i = 0; i < map.size(); ++i) {
      if (broadcasts(i)) continue;
      if (reached) {
        check_range(map[i], shape[i], i, what);
        result.offset += map[i].offset * strides[i];
      }
      for (const AffineTerm& term : map[i].terms) {
        if (!reached) {
          for (size_t d = 0; d < extents_.size(); ++d)
            if ((space_.dims_of(term.dim) >> d & 1) != 0 && extents_[d] != 1) ++result.strides[d];
        } else if (term.dim >= kFirstRoll) {
          result.rolled[dim(term) - kFirstRoll] += term.scale * strides[i];
        } else if (extents_[dim(term)] != 1) {
          result.strides[dim(term)] += term.scale * strides[i];
        }
      }
    }
    return result;
  }

  const std::vector<int64_t>& extents() const { return extents_; }

 private:
  static size_t dim(const AffineTerm& term) { return static_cast<size_t>(term.dim); }

  void check_range(const MapEntry& entry, int64_t extent, size_t position, const std::string& what) const {
    const IndexRange range = index_range(entry, spans_);
    if (range.low < 0 || range.high >= extent)
      fail(what + " has extent " + std::to_string(extent) + " in dimension " + std::to_string(position) +
           ", and the program's index leaves it (" +
           std::to_string(static_cast<int64_t>(range.low < 0 ? range.low : range.high)) + ")");
  }

  const Space& space_;
  std::vector<int64_t> extents_, spans_;
};

Shape output_shape(const IndexMap& map, const Space& space, const std::vector<int64_t>& extents) {
  Shape shape;
  for (const MapEntry& entry : map) {
    int64_t times = 1;
    const int counted = counted_dim(entry, space, &times);
    const int d = counted >= 0 ? counted : entry.plain_dim();
    const Wide extent = entry.extent ? Wide{*entry.extent} : d >= 0 ? Wide{times} * extents[static_cast<size_t>(d)] : 1;
    if (extent > kMaxElements) throw ProgramError("an output's extent is above what a tensor can have");
    shape.push_back(static_cast<int64_t>(extent));
  }
  return shape;
}

std::string tensor_name(const char* kind, int number) { return std::string(kind) + " " + std::to_string(number); }

void check_inputs(const Program& program, const std::vector<Shape>& shapes) {
  if (shapes.size() != program.inputs.size())
    fail("the program has " + std::to_string(program.inputs.size()) + " inputs, the node " +
         std::to_string(shapes.size()));
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string name = tensor_name("input", static_cast<int>(i));
    if (shapes[i].size() != static_cast<size_t>(program.inputs[i].rank))
      fail(name + " has rank " + std::to_string(shapes[i].size()) + "; the program reads it with rank " +
           std::to_string(program.inputs[i].rank));
    for (const int64_t extent : shapes[i])
      if (extent < 0 || extent > kMaxExtent) fail(name + " has an extent of " + std::to_string(extent));
  }
}

// Kernels store what varies along reduced dimensions point by point, so that another one must not be empty.
void check_stored(const Space& space, const std::vector<int64_t>& extents, const Access& access,
                  const std::string& name) {
  bool varies = false, lacks_empty = false;
  for (size_t d = 0; d < extents.size(); ++d) {
    if ((space.reduced_mask() >> d & 1) == 0) continue;
    const bool moves = access.strides[d] != 0;
    if (extents[d] == 0 && moves) return;  // it is empty itself
    varies |= moves;
    lacks_empty |= extents[d] == 0;
  }
  if (varies && lacks_empty)
    fail(name + " varies along a reduced dimension, but not along another one, which is empty: it would not be stored");
}

}  // namespace

int64_t BoundKernel::points() const { return product(extents, "the space of a kernel"); }

BoundProgram bind(const Program& program, const std::vector<Shape>& input_shapes) {
  check_inputs(program, input_shapes);
  static std::atomic<uint64_t> count{0};
  BoundProgram bound;
  bound.number = ++count;
  bound.output_shapes.resize(program.outputs.size());
  std::vector<OutputStores> stores(program.outputs.size());
  std::vector<bool> seen(program.outputs.size(), false);
  for (const Kernel& kernel : program.kernels) {
    const KernelBinder binder(kernel.space, resolve_extents(kernel, input_shapes));
    BoundKernel result;
    result.extents = binder.extents();
    result.points();  // throws where the space is too large
    for (const Statement& s : kernel.statements) {
      result.inputs.emplace_back();
      if (s.op != Op::input) continue;
      result.inputs.back() =
          binder.access(s.map, input_shapes[static_cast<size_t>(s.tensor)], true, tensor_name("input", s.tensor));
    }
    for (const Output& o : kernel.outputs) {
      const size_t tensor = static_cast<size_t>(o.tensor);
      const std::string name = tensor_name("output", o.tensor);
      const Shape shape = output_shape(o.map, kernel.space, result.extents);
      if (seen[tensor] && shape != bound.output_shapes[tensor])
        fail(name + " has different shapes in different lines of the program");
      seen[tensor] = true;
      bound.output_shapes[tensor] = shape;
      result.outputs.push_back(binder.access(o.map, shape, false, name));
      check_stored(kernel.space, result.extents, result.outputs.back(), name);
      stores[tensor].add(kernel.space, result.extents, o.map, name);
    }
    bound.kernels.push_back(std::move(result));
  }
  for (size_t i = 0; i < stores.size(); ++i) {
    const std::string name = tensor_name("output", static_cast<int>(i));
    stores[i].check(product(bound.output_shapes[i], name), name);
  }
  return bound;
}

}  // namespace onnxfuse
