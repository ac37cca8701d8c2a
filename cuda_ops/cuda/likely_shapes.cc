#include "likely_shapes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "../program_limits.h"
#include "../stores.h"

namespace onnxfuse::cuda {
namespace {

// Of an extent of which nothing is known: of a reduced dimension, of the outermost of several (a batch, as a rule), or
// of another one.
enum class Role : uint8_t { reduced, leading, other };

// The extents of the inputs' axes and of the dimensions of the kernels' spaces, with those as one that are equal in
// every run.
class Extents {
 public:
  Extents(const Program& program, const std::vector<SymbolicShape>& declared) : program_(program) {
    for (const TensorInfo& input : program.inputs) axes_.push_back(add(input.rank));
    for (const Kernel& kernel : program.kernels) dims_.push_back(add(kernel.space.rank()));
    for (size_t i = 0; i < declared.size() && i < axes_.size(); ++i) declare(axes_[i], declared[i]);
    for (size_t k = 0; k < dims_.size(); ++k) relate(program.kernels[k], dims_[k]);
    for (size_t i = 0; i < parent_.size(); ++i) {
      if (known_[i] && !known_[root(i)]) known_[root(i)] = known_[i];
    }
  }

  // The most that a kernel has of them.
  int count(Role role) const {
    int most = 0;
    for (size_t k = 0; k < dims_.size(); ++k) {
      std::vector<size_t> seen;
      for (int d = 0; d < program_.kernels[k].space.rank(); ++d) {
        const size_t i = root(dims_[k] + d);
        if (!known_[i] && role_[i] == role && std::count(seen.begin(), seen.end(), i) == 0) seen.push_back(i);
      }
      most = std::max(most, static_cast<int>(seen.size()));
    }
    return most;
  }

  // of_role(Role): the extent of what is not known.
  template <class OfRole>
  std::vector<Shape> shapes(const OfRole& of_role) const {
    const auto extent = [&](size_t i) { return known_[root(i)] ? *known_[root(i)] : of_role(role_[root(i)]); };
    std::vector<Shape> result;
    for (size_t t = 0; t < axes_.size(); ++t) {
      result.emplace_back();
      for (int a = 0; a < program_.inputs[t].rank; ++a)
        result.back().push_back(known_[root(axes_[t] + a)] || plain_[axes_[t] + a] ? extent(axes_[t] + a) : 1);
    }
    for (size_t k = 0; k < dims_.size(); ++k) {
      for (const Statement& s : program_.kernels[k].statements) {
        for (size_t a = 0; s.op == Op::input && a < s.map.size(); ++a) {
          if (known_[root(axes_[s.tensor] + a)]) continue;
          Wide last = s.map[a].offset;
          for (const AffineTerm& term : s.map[a].terms) {
            const int roll = term.dim - kFirstRoll;
            const int64_t values =
                roll >= 0 ? program_.kernels[k].space.rolls[roll].points : extent(dims_[k] + term.dim);
            last += term.scale > 0 ? Wide{term.scale} * (values - 1) : 0;
          }
          const Wide shown = std::min<Wide>(last + 1, kMaxElements);  // too large a one does not suit any tensor
          result[s.tensor][a] = std::max(result[s.tensor][a], static_cast<int64_t>(shown));
        }
      }
    }
    return result;
  }

 private:
  size_t add(int count) {
    const size_t first = parent_.size(), size = first + static_cast<size_t>(count);
    parent_.resize(size);
    std::iota(parent_.begin() + static_cast<std::ptrdiff_t>(first), parent_.end(), first);
    known_.resize(size);
    plain_.resize(size, false);
    role_.resize(size, Role::other);
    return first;
  }

  size_t root(size_t i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }

  void join(size_t a, size_t b) {
    a = root(a), b = root(b);
    role_[a] = std::min(role_[a], role_[b]);
    parent_[b] = a;
  }

  void declare(size_t axes, const SymbolicShape& shape) {
    for (size_t a = 0; a < shape.size(); ++a) {
      if (shape[a].extent >= 0) {
        known_[axes + a] = shape[a].extent;
      } else if (!shape[a].name.empty()) {
        join(names_.emplace(shape[a].name, axes + a).first->second, axes + a);
      }
    }
  }

  void relate(const Kernel& kernel, size_t dims) {
    const Space& space = kernel.space;
    for (int d = 0; d < space.rank(); ++d) {
      const size_t dim = dims + static_cast<size_t>(d);
      known_[dim] = space.extents[d];
      if ((space.reduced_mask() >> d & 1u) != 0) {
        role_[dim] = Role::reduced;
      } else if (d == 0 && space.rank() > 1) {
        role_[dim] = Role::leading;
      }
    }
    for (const Statement& s : kernel.statements) {
      for (size_t a = 0; s.op == Op::input && a < s.map.size(); ++a) {
        const size_t axis = axes_[s.tensor] + a;
        if (s.map[a].extent) known_[axis] = s.map[a].extent;
        const int d = s.map[a].plain_dim();
        if (d < 0 || s.map[a].extent || known_[axis] == 1) continue;  // 1: broadcast
        plain_[axis] = true;
        join(dims + static_cast<size_t>(d), axis);
      }
    }
  }

  const Program& program_;
  std::vector<size_t> axes_, dims_;  // the first of each input and of each kernel
  std::vector<size_t> parent_;       // union-find
  std::vector<std::optional<int64_t>> known_;
  std::vector<bool> plain_;  // axes that a dimension of a space runs along
  std::vector<Role> role_;
  std::map<std::string, size_t> names_;
};

}  // namespace

std::vector<LikelyShapes> likely_shapes(const Program& program, const std::vector<SymbolicShape>& declared) {
  const Extents extents(program, declared);
  const int free = extents.count(Role::other);
  const int64_t most = free <= 2 ? 64 : free <= 4 ? 16 : 4;  // offsets fit into 32 bits, as they nearly always do
  const bool single = extents.count(Role::reduced) <= 1;
  const int64_t row = single ? 128 : 16, long_row = single ? 512 : 64;
  std::vector<LikelyShapes> result;
  int number = 0;
  const auto add = [&](int64_t leading, int64_t other, int64_t reduced) {
    auto shapes = extents.shapes([=](Role role) {
      return role == Role::leading ? leading : role == Role::reduced ? reduced : other;
    });
    const auto same = [&](const LikelyShapes& known) { return known.inputs == shapes; };
    if (std::none_of(result.begin(), result.end(), same)) result.push_back({number, std::move(shapes)});
    ++number;
  };
  add(8, most, row);
  add(1, most, row);
  add(8, most + 1, row + 1);  // vectors do not divide them
  add(1, most + 1, row + 1);
  add(8, most, long_row);
  add(1, most, long_row);
  if (free == 1) add(1, 1, row);  // a step of a decoder; with more, it would be an image of one pixel
  return result;
}

}  // namespace onnxfuse::cuda
