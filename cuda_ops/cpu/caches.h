// What the engine knows of the machine's caches.
#pragma once

#include <cstdint>

namespace onnxfuse::cpu {

// Bytes of the last-level cache that one tensor of several may take and still be found there by what reads it next.
int64_t cache_share();

// Whether several threads that store past the caches do not slow each other more than through them.
bool threads_stream();

// Whether it pays to ask, row after row, for what the next row's first pass reads or its last one writes.
bool asks_for_rows();

}  // namespace onnxfuse::cpu
