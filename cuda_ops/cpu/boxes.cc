#include "boxes.h"

#include <algorithm>

namespace onnxfuse::cpu {
namespace {

// first[d] to first[d] + extents[d] along each dimension; wraps: for each roll seen so far, whether it is past its end.
struct Region {
  std::vector<int64_t> first, extents;
  std::vector<bool> wraps;
};

// Cuts a region where a roll wraps: at the point whose digits are `start`. Its digits before `place` are those.
void cut(const Roll& roll, const std::vector<int64_t>& start, size_t place, const Region& region,
         std::vector<Region>& result) {
  const size_t d = static_cast<size_t>(roll.dims[place]);
  const int64_t low = region.first[d], high = low + region.extents[d], at = start[place];
  const auto add = [&](int64_t from, int64_t to, bool wraps) {
    from = std::max(from, low), to = std::min(to, high);
    if (from >= to) return;
    result.push_back(region);
    result.back().first[d] = from;
    result.back().extents[d] = to - from;
    result.back().wraps.push_back(wraps);
  };
  const bool whole = std::all_of(start.begin() + static_cast<int64_t>(place) + 1, start.end(),
                                 [](int64_t digit) { return digit == 0; });
  add(low, at, false);
  add(whole ? at : at + 1, high, true);
  if (whole || at < low || at >= high) return;
  Region equal = region;
  equal.first[d] = at;
  equal.extents[d] = 1;
  cut(roll, start, place + 1, equal, result);
}

std::vector<int64_t> digits(const Roll& roll, const std::vector<int64_t>& extents, int64_t number) {
  std::vector<int64_t> result(roll.dims.size());
  for (size_t place = roll.dims.size(); place-- > 0;) {
    const int64_t extent = extents[static_cast<size_t>(roll.dims[place])];
    result[place] = number % extent;
    number /= extent;
  }
  return result;
}

Access within(const Access& access, const Space& space, const std::vector<int64_t>& extents, const Region& region) {
  Access result;
  result.offset = access.offset;
  result.strides = access.strides;
  for (size_t r = 0; r < space.rolls.size(); ++r) {
    const Roll& roll = space.rolls[r];
    result.offset += access.rolled[r] * (roll.shift - (region.wraps[r] ? roll.points : 0));
    int64_t stride = access.rolled[r];
    for (size_t place = roll.dims.size(); place-- > 0;) {
      const size_t d = static_cast<size_t>(roll.dims[place]);
      result.strides[d] += stride;
      stride *= extents[d];
    }
  }
  for (size_t d = 0; d < extents.size(); ++d) {
    result.offset += result.strides[d] * region.first[d];
    if (region.extents[d] == 1) result.strides[d] = 0;
  }
  return result;
}

// Whether some dimension that the output's map lacks starts behind its index 0.
bool is_stored_elsewhere(const Output& output, const Space& space, const Region& region) {
  uint32_t dims = 0;
  for (const MapEntry& entry : output.map)
    for (const AffineTerm& term : entry.terms) dims |= space.dims_of(term.dim);
  for (size_t d = 0; d < region.first.size(); ++d)
    if ((dims >> d & 1) == 0 && region.first[d] > 0) return true;
  return false;
}

}  // namespace

std::vector<Box> unrolled(const Kernel& kernel, const BoundKernel& bound) {
  const Space& space = kernel.space;
  std::vector<Region> regions = {{std::vector<int64_t>(bound.extents.size(), 0), bound.extents, {}}};
  for (const Roll& roll : space.rolls) {
    const std::vector<int64_t> start = digits(roll, bound.extents, roll.points - roll.shift);
    std::vector<Region> next;
    for (const Region& region : regions) cut(roll, start, 0, region, next);
    regions = std::move(next);
  }
  std::vector<Box> boxes;
  for (const Region& region : regions) {
    Box box{kernel, {region.extents, {}, {}}};
    box.kernel.outputs.clear();
    for (const Access& access : bound.inputs) {
      box.bound.inputs.push_back(access.strides.empty() ? access : within(access, space, bound.extents, region));
    }
    for (size_t k = 0; k < kernel.outputs.size(); ++k) {
      if (is_stored_elsewhere(kernel.outputs[k], space, region)) continue;
      box.kernel.outputs.push_back(kernel.outputs[k]);
      box.bound.outputs.push_back(within(bound.outputs[k], space, bound.extents, region));
    }
    if (!box.kernel.outputs.empty()) boxes.push_back(std::move(box));
  }
  return boxes;
}

}  // namespace onnxfuse::cpu
