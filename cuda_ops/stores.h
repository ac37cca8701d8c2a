// That a program stores every element of an output, and each once: what is not stored would be somebody's old memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program.h"

namespace onnxfuse {

__extension__ typedef __int128 Wide;  // holds every sum of products of a map's coefficients and extents

// The indices that one entry of a map takes.
struct IndexRange {
  Wide low;
  Wide high;
  int64_t offset;
  int64_t step;  // greatest common divisor of the factors; 0 where there is one index only
};

// How many values each index that a map may name takes: the space's dimensions first, rolls from kFirstRoll on.
std::vector<int64_t> spans(const Space& space, const std::vector<int64_t>& extents);

// The dimension of unknown extent (else -1), where an entry counts row-major through it, first, and others of known
// extents: the tensor's extent is then *times that of the dimension.
int counted_dim(const MapEntry& entry, const Space& space, int64_t* times);

IndexRange index_range(const MapEntry& entry, const std::vector<int64_t>& spans);

// All that is stored to one of the node's outputs, by any of the program's kernels.
class OutputStores {
 public:
  // One line `output`. Throws ProgramError where two of its points, or one of its points and one of an earlier line,
  // may store to the same element.
  void add(const Space& space, const std::vector<int64_t>& extents, const IndexMap& map, const std::string& name);
  // Throws ProgramError where fewer than all elements are stored.
  void check(int64_t elements, const std::string& name) const;

 private:
  std::vector<std::vector<IndexRange>> parts_;
  Wide stored_ = 0;
};

}  // namespace onnxfuse
