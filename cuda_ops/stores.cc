#include "stores.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "program_limits.h"

namespace onnxfuse {
namespace {

int64_t span_of(const AffineTerm& term, const std::vector<int64_t>& spans) {
  return spans[static_cast<size_t>(term.dim)];
}

// True where different indices of the entry's dimensions always give different values: in ascending order, each factor
// is larger than all that the smaller terms can add up to.
bool is_injective(const MapEntry& entry, const std::vector<int64_t>& spans) {
  const auto size = [](const AffineTerm& term) { return std::abs(term.scale); };
  std::vector<AffineTerm> terms = entry.terms;
  std::sort(terms.begin(), terms.end(), [&](const auto& a, const auto& b) { return size(a) < size(b); });
  Wide span = 0;
  for (const AffineTerm& term : terms) {
    const int64_t values = span_of(term, spans);
    if (values <= 1) continue;
    if (size(term) <= span) return false;
    span += static_cast<Wide>(size(term)) * (values - 1);
  }
  return true;
}

bool are_apart(const IndexRange& a, const IndexRange& b) {
  if (a.high < b.low || b.high < a.low) return true;
  const int64_t step = std::gcd(a.step, b.step);
  return step == 0 ? a.offset != b.offset : (a.offset - b.offset) % step != 0;
}

// The number of elements stored. Where the map lacks a dimension, the value is stored at its index 0, which a dimension
// of extent 0 does not have; the value of a row is there even where the reduced dimensions are empty.
Wide count(const Space& space, const std::vector<int64_t>& extents, const IndexMap& map) {
  uint32_t dims = 0;
  for (const MapEntry& entry : map)
    for (const AffineTerm& term : entry.terms) dims |= space.dims_of(term.dim);
  Wide result = 1;
  for (size_t d = 0; d < extents.size(); ++d) {
    const bool lacking = (dims >> d & 1) == 0;
    const bool reduced = (space.reduced_mask() >> d & 1) != 0;
    if (!lacking || (extents[d] == 0 && !reduced)) result *= extents[d];
  }
  return result;
}

}  // namespace

std::vector<int64_t> spans(const Space& space, const std::vector<int64_t>& extents) {
  std::vector<int64_t> result = extents;
  result.resize(kFirstRoll, 1);
  for (const Roll& roll : space.rolls) result.push_back(roll.points);
  return result;
}

int counted_dim(const MapEntry& entry, const Space& space, int64_t* times) {
  if (entry.terms.size() < 2 || entry.offset != 0 || entry.extent) return -1;
  Wide weight = 1;
  for (size_t i = entry.terms.size(); i-- > 0;) {
    const AffineTerm& term = entry.terms[i];
    if (term.dim >= space.rank() || term.scale != weight) return -1;
    const std::optional<int64_t>& extent = space.extents[static_cast<size_t>(term.dim)];
    if (i == 0) {
      *times = term.scale;
      return extent ? -1 : term.dim;
    }
    if (!extent || *extent == 0) return -1;
    weight *= *extent;
    if (weight > kMaxExtent) return -1;
  }
  return -1;
}

IndexRange index_range(const MapEntry& entry, const std::vector<int64_t>& spans) {
  IndexRange range{entry.offset, entry.offset, entry.offset, 0};
  for (const AffineTerm& term : entry.terms) {
    const Wide last = static_cast<Wide>(term.scale) * (span_of(term, spans) - 1);
    (last < 0 ? range.low : range.high) += last;
    if (span_of(term, spans) > 1) range.step = std::gcd(range.step, term.scale);
  }
  return range;
}

void OutputStores::add(const Space& space, const std::vector<int64_t>& extents, const IndexMap& map,
                       const std::string& name) {
  const Wide elements = count(space, extents, map);
  if (elements == 0) return;
  const std::vector<int64_t> values = spans(space, extents);
  std::vector<IndexRange> part;
  for (const MapEntry& entry : map) {
    if (!is_injective(entry, values)) throw ProgramError(name + ": two points may store to one element");
    part.push_back(index_range(entry, values));
  }
  for (const std::vector<IndexRange>& other : parts_)
    if (std::equal(part.begin(), part.end(), other.begin(),
                   [](const IndexRange& a, const IndexRange& b) { return !are_apart(a, b); }))
      throw ProgramError(name + ": two lines of the program may store to one element");
  parts_.push_back(std::move(part));
  stored_ += elements;
}

void OutputStores::check(int64_t elements, const std::string& name) const {
  if (stored_ != elements)
    throw ProgramError(name + " has " + std::to_string(elements) + " elements, of which the program stores " +
                       std::to_string(static_cast<int64_t>(stored_)));
}

}  // namespace onnxfuse
