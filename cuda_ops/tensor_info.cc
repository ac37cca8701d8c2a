#include "tensor_info.h"

#include <string>
#include <vector>

namespace onnxfuse {

SymbolicShape symbolic_shape(const Api& api, const OrtTensorTypeAndShapeInfo* info) {
  size_t rank = 0;
  api.check(api.GetDimensionsCount(info, &rank));
  std::vector<int64_t> extents(rank);
  std::vector<const char*> names(rank, nullptr);
  api.check(api.GetDimensions(info, extents.data(), rank));
  api.check(api.GetSymbolicDimensions(info, names.data(), rank));
  SymbolicShape shape(rank);
  for (size_t d = 0; d < rank; ++d) {
    const std::string name = names[d] == nullptr ? "" : names[d];
    shape[d] = {name.empty() ? extents[d] : -1, name};
  }
  return shape;
}

}  // namespace onnxfuse
