#include "runtime_axes.h"

#include <algorithm>
#include <string>

#include "stores.h"

namespace onnxfuse {
namespace {

uint32_t all_dims(const RuntimeAxes& axes) { return (1u << axes.dims.size()) - 1; }

int64_t number_at(const RuntimeAxes& axes, const void* numbers, int64_t i) {
  return axes.type == Type::i32 ? static_cast<const int32_t*>(numbers)[i] : static_cast<const int64_t*>(numbers)[i];
}

bool any_squeezed(const Kernel& kernel) {
  return std::any_of(kernel.outputs.begin(), kernel.outputs.end(), [](const Output& o) { return o.squeezed; });
}

// How many numbers there are; throws where the program wants another number.
int64_t count_of(const RuntimeAxes& axes, const Shape& shape) {
  const int64_t count = shape.empty() ? 1 : shape[0];
  if (axes.count && count != *axes.count)
    throw ProgramError("input 0 holds " + std::to_string(count) + " axes; the program takes " +
                       std::to_string(*axes.count));
  return count;
}

// All sets that so many numbers can name.
std::vector<uint32_t> possible_dims(const Program& program, const Shape& shape) {
  const Kernel& kernel = program.kernels.front();
  const RuntimeAxes& axes = *kernel.axes;
  const int64_t count = count_of(axes, shape);
  if (count == 0) return {axes.noop ? 0 : all_dims(axes)};
  std::vector<uint32_t> sets;
  for (uint32_t set = 1; set <= all_dims(axes); ++set) {
    int64_t size = 0;
    for (uint32_t rest = set; rest != 0; rest &= rest - 1) ++size;
    if (any_squeezed(kernel) ? size == count : size <= count) sets.push_back(set);
  }
  return sets;
}

// A kernel with some dimensions reduced: they come to stand next to each other, in front of the last one's followers.
class Reducer {
 public:
  Reducer(const Kernel& kernel, uint32_t reduced) : kernel_(kernel), reduced_(reduced) {
    const int rank = kernel.space.rank();
    int last = rank;
    for (int d = 0; d < rank; ++d)
      if (is_reduced(d)) last = d;
    std::vector<int> order;
    const auto take = [&](int begin, int end, bool reduced_ones) {
      for (int d = begin; d < end; ++d)
        if (is_reduced(d) == reduced_ones) order.push_back(d);
    };
    take(0, last, false);
    result_.space.outer = static_cast<int>(order.size());
    take(0, rank, true);
    result_.space.reduced = static_cast<int>(order.size()) - result_.space.outer;
    take(last, rank, false);
    place_.resize(order.size());
    for (size_t k = 0; k < order.size(); ++k) {
      place_[static_cast<size_t>(order[k])] = static_cast<int>(k);
      result_.space.extents.push_back(kernel.space.extents[static_cast<size_t>(order[k])]);
    }
  }

  Kernel run() {
    for (const Statement& s : kernel_.statements) {
      // Of nothing reduced, each value is its own sum, product, maximum, minimum and mean.
      if (reduced_ == 0 && is_reduction(s.op)) {
        value_.push_back(value_[static_cast<size_t>(s.operands[0])]);
      } else {
        value_.push_back(static_cast<int>(result_.statements.size()));
        result_.statements.push_back(statement(s));
      }
    }
    for (const Output& o : kernel_.outputs) result_.outputs.push_back(output(o));
    return std::move(result_);
  }

 private:
  bool is_reduced(int d) const { return (reduced_ >> d & 1) != 0; }

  Statement statement(Statement s) const {
    const uint32_t mask = result_.space.reduced_mask();
    s.dims = 0;
    for (int i = 0; i < s.operand_count; ++i) {
      s.operands[i] = value_[static_cast<size_t>(s.operands[i])];
      s.dims |= result_.statements[static_cast<size_t>(s.operands[i])].dims;
    }
    if (is_reduction(s.op)) s.dims &= ~mask;
    if (is_scan(s.op)) s.dims |= mask;
    for (MapEntry& entry : s.map) {
      int64_t times = 1;
      const bool counts = counted_dim(entry, kernel_.space, &times) >= 0;
      for (AffineTerm& term : entry.terms) {
        term.dim = place_[static_cast<size_t>(term.dim)];
        s.dims |= 1u << term.dim;
      }
      if (counts) continue;  // the dimension that counts stands first, wherever it lies now
      std::sort(entry.terms.begin(), entry.terms.end(),
                [](const AffineTerm& a, const AffineTerm& b) { return a.dim < b.dim; });
    }
    return s;
  }

  Output output(const Output& o) const {
    const uint32_t varying = kernel_.statements[static_cast<size_t>(o.value)].varying;
    Output stored = o;
    stored.squeezed = false;
    stored.value = value_[static_cast<size_t>(o.value)];
    stored.map.clear();
    for (const MapEntry& entry : o.map) {
      const int d = entry.plain_dim();
      MapEntry moved;
      if (!is_reduced(d) || (varying >> d & 1) != 0) {
        moved.terms.push_back({place_[static_cast<size_t>(d)], 1});
      } else if (o.squeezed) {
        continue;
      }
      stored.map.push_back(std::move(moved));
    }
    return stored;
  }

  const Kernel& kernel_;
  const uint32_t reduced_;
  std::vector<int> place_;  // of each dimension, in the new space
  std::vector<int> value_;  // the new number of each statement's value
  Kernel result_;
};

}  // namespace

const RuntimeAxes* runtime_axes(const Program& program) {
  const auto& axes = program.kernels.front().axes;
  return axes ? &*axes : nullptr;
}

uint32_t named_dims(const Program& program, const Shape& shape, const void* numbers) {
  const Kernel& kernel = program.kernels.front();
  const RuntimeAxes& axes = *kernel.axes;
  const int64_t count = count_of(axes, shape), rank = static_cast<int64_t>(axes.dims.size());
  if (count == 0) return axes.noop ? 0 : all_dims(axes);
  uint32_t dims = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = number_at(axes, numbers, i);
    if (number < -rank || number >= rank)
      throw ProgramError("input 0 names axis " + std::to_string(number) + " of a tensor of rank " +
                         std::to_string(rank) + ", whose axes are " + std::to_string(-rank) + " to " +
                         std::to_string(rank - 1));
    const uint32_t bit = 1u << axes.dims[static_cast<size_t>(number < 0 ? number + rank : number)];
    if ((dims & bit) != 0 && any_squeezed(kernel))
      throw ProgramError("input 0 names axis " + std::to_string(number) +
                         " twice: the result would have another rank than the model promises");
    dims |= bit;
  }
  return dims;
}

std::shared_ptr<const Program> over_dims(const Program& program, uint32_t dims) {
  auto result = std::make_shared<Program>();
  result->kernels.push_back(Reducer(program.kernels.front(), dims).run());
  result->inputs = program.inputs;
  result->outputs = program.outputs;
  return result;
}

std::vector<std::shared_ptr<const Program>> possible_programs(const std::shared_ptr<const Program>& program,
                                                              const std::vector<Shape>& shapes) {
  if (runtime_axes(*program) == nullptr) return {program};
  if (shapes.empty()) throw ProgramError("the shape of the axes is missing");
  std::vector<std::shared_ptr<const Program>> result;
  for (const uint32_t dims : possible_dims(*program, shapes[0])) result.push_back(over_dims(*program, dims));
  return result;
}

}  // namespace onnxfuse
