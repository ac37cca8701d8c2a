// What the engine knows of the machine's caches.
#pragma once

#include <cstdint>

namespace onnxfuse::cpu {

int64_t last_level_cache();  // bytes

}  // namespace onnxfuse::cpu
