// What the engine knows of the machine's caches.
#pragma once

#include <cstdint>

namespace onnxfuse::cpu {

// Bytes that a tensor which so many threads write may have and still be in the caches when the next operator reads it.
int64_t cache_share(int threads);

// The same where the number of threads does not matter: of those that the machine has.
int64_t cache_share();

// Whether a softmax of what is computed first, tile by tile, had better go past the caches where others do.
bool tiles_stream();

// Whether it pays to ask, row after row, for what the next row's first pass reads or its last one writes.
bool asks_for_rows();

}  // namespace onnxfuse::cpu
