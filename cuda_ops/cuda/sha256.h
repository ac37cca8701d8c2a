// SHA-256 (FIPS 180-4), for names and checks in the kernel cache.
#pragma once

#include <cstddef>
#include <string>

namespace onnxfuse::cuda {

// 64 hexadecimal digits.
std::string sha256(const void* data, size_t size);

}  // namespace onnxfuse::cuda
