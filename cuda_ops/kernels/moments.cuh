// Mean and squared deviations of a row in one exchange between its warps: each has those about a mean of its own.

// How many of a row's elements warp number `warp` of a group holds, as its threads take them slot by slot.
template <int SLOTS, int GROUP, int LANES>
DEVICE int elements_of_warp(int warp, int length) {
  int elements = 0;
#pragma unroll
  for (int k = 0; k < SLOTS; ++k) {
    const int left = length - (k * GROUP + warp * 32) * LANES;
    elements += left < 0 ? 0 : left < 32 * LANES ? left : 32 * LANES;
  }
  return elements;
}

struct Moments {
  f32 mean;
  f32 squares;  // the sum of squared deviations from it
};

// From what all WARPS warps left in shared memory: their means, and their squared deviations from those.
template <int WARPS, int SLOTS, int GROUP, int LANES>
DEVICE Moments combine_moments(const f32* means, const f32* squares, int length) {
  constexpr int TURNS = (WARPS + 31) / 32;
  const int lane = threadIdx.x % 32;
  f32 mean[TURNS], count[TURNS], sum = 0;
#pragma unroll
  for (int k = 0; k < TURNS; ++k) {
    const int warp = k * 32 + lane;
    count[k] = warp < WARPS ? static_cast<f32>(elements_of_warp<SLOTS, GROUP, LANES>(warp, length)) : 0;
    mean[k] = warp < WARPS ? means[warp] : 0;
    if (count[k] > 0) sum += mean[k] * count[k];
  }
  Moments result;
  result.mean = reduce_warp<Sum, 32>(sum) / static_cast<f32>(length);
  sum = 0;
#pragma unroll
  for (int k = 0; k < TURNS; ++k) {
    const f32 off = mean[k] - result.mean;
    if (count[k] > 0) sum += squares[k * 32 + lane] + off * off * count[k];
  }
  result.squares = reduce_warp<Sum, 32>(sum);
  return result;
}
