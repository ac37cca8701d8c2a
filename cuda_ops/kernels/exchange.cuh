// Two reductions of a row in one exchange between its warps. Each warp has squared deviations from a mean of its own,
// or exponentials relative to a maximum of its own.

// How many of a row's elements warp number `warp` of a group holds, as its threads take them slot by slot.
template <int SLOTS, int GROUP, int LANES>
DEVICE int elements_of_warp(int warp, int length) {
  if (length == SLOTS * GROUP * LANES) return SLOTS * 32 * LANES;
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

// From what all WARPS warps left in shared memory, STRIDE apart: their means, and their squared deviations from those.
template <int WARPS, int SLOTS, int GROUP, int LANES, int STRIDE>
DEVICE Moments combine_moments(const f32* means, const f32* squares, int length) {
  constexpr int TURNS = (WARPS + 31) / 32;
  const int lane = threadIdx.x % 32;
  f32 mean[TURNS], count[TURNS], sum = 0;
#pragma unroll
  for (int k = 0; k < TURNS; ++k) {
    const int warp = k * 32 + lane;
    count[k] = warp < WARPS ? static_cast<f32>(elements_of_warp<SLOTS, GROUP, LANES>(warp, length)) : 0;
    mean[k] = warp < WARPS ? means[warp * STRIDE] : 0;
    if (count[k] > 0) sum += mean[k] * count[k];
  }
  Moments result;
  result.mean = reduce_warp<Sum, 32>(sum) / static_cast<f32>(length);
  sum = 0;
#pragma unroll
  for (int k = 0; k < TURNS; ++k) {
    const f32 off = mean[k] - result.mean;
    if (count[k] > 0) sum += squares[(k * 32 + lane) * STRIDE] + off * off * count[k];
  }
  result.squares = reduce_warp<Sum, 32>(sum);
  return result;
}

struct Exponentials {
  f32 maximum;
  f32 sum;  // of exp(x - maximum)
};

// Exponentials relative to the maximum of nothing, or of -inf alone, are taken relative to 0: they are 0.
DEVICE f32 finite_maximum(f32 maximum) { return maximum == lowest(f32()) ? 0 : maximum; }

// What turns exponentials relative to a warp's maximum into those relative to the row's. A row of -inf alone has NaN.
DEVICE f32 exponential_factor(f32 warp, f32 row) {
  return warp == lowest(f32()) && row != lowest(f32()) ? 0 : fast_exp(warp - row);
}

// From what all WARPS warps left in shared memory, STRIDE apart: their maxima, and their sums of exponentials relative
// to those.
template <int WARPS, int STRIDE>
DEVICE Exponentials combine_exponentials(const f32* maxima, const f32* sums) {
  constexpr int TURNS = (WARPS + 31) / 32;
  const int lane = threadIdx.x % 32;
  f32 maximum[TURNS], largest = lowest(f32());
#pragma unroll
  for (int k = 0; k < TURNS; ++k) {
    maximum[k] = k * 32 + lane < WARPS ? maxima[(k * 32 + lane) * STRIDE] : lowest(f32());
    largest = of_max(largest, maximum[k]);
  }
  Exponentials result;
  result.maximum = reduce_warp<Maximum, 32>(largest);
  f32 sum = 0;
#pragma unroll
  for (int k = 0; k < TURNS; ++k) {
    if (k * 32 + lane < WARPS) sum += sums[(k * 32 + lane) * STRIDE] * exponential_factor(maximum[k], result.maximum);
  }
  result.sum = reduce_warp<Sum, 32>(sum);
  return result;
}
