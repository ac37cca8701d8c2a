// A row's softmax as one loop, so that a row's loads and stores go on beside the arithmetic of its neighbours: done for
// many rows at once, its passes would wait for memory in turn. Included once for each instruction set, inside its
// namespace, after reduction_loops.h.
#pragma once

static constexpr size_t kLongRow = 2048;  // of longer ones the next row is asked for early: 8 % less time for 4096

#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
// The exponentials of a row less its maximum, and their sum: in float for 16 numbers, then in double.
template <bool ask>
static inline double exponentials(float* out, const float* a, Vector most, size_t n,
                                  [[maybe_unused]] const float* ahead) {
  constexpr size_t running = kRunning;
  constexpr size_t step = running * kVector;
  const auto value = [most](Vector x) { return exp_bounded(greater(splat(-104.5f), x - most)); };  // no more than 1
  Doubles sums[2] = {};
  const auto add = [&sums](Vector v) {
    HalfVector halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    for (size_t k = 0; k < 2; ++k) sums[k] += widen(halves[k]);
  };
  size_t i = 0;
  while (i + step <= n) {
    const size_t last = n - i < 16 * step ? n : i + 16 * step;
    Vector v[running] = {};
    for (; i + step <= last; i += step)
      for (size_t j = 0; j < running; ++j) {
        const Vector e = value(load_vector(a + i + j * kVector));
        if constexpr (ask) __builtin_prefetch(ahead + i + j * kVector, 0, 2);
        store_vector(out + i + j * kVector, e);
        v[j] += e;
      }
    add((v[0] + v[1]) + (v[2] + v[3]));
  }
  for (; i < n; i += kVector) {
    const auto mask = static_cast<__mmask16>(n - i < kVector ? (1u << (n - i)) - 1 : 0xffffu);
    const Vector e = value(_mm512_mask_loadu_ps(splat(-kInf), mask, a + i));  // 0 beyond the end, or all are NaN
    _mm512_mask_storeu_ps(out + i, mask, e);
    add(e);
  }
  const Doubles sum = sums[0] + sums[1];
  double all[kVector / 2];
  __builtin_memcpy(all, &sum, sizeof all);
  halve<Sum, double, kVector / 2>(all);
  return all[0];
}
#endif

static inline float exponentials_of_row(float* out, const float* a, float most, size_t n,
                                        [[maybe_unused]] const float* ahead) {
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
  return static_cast<float>(ahead ? exponentials<true>(out, a, splat(most), n, ahead)
                                  : exponentials<false>(out, a, splat(most), n, nullptr));
#else
  exp_of_difference_loop<2>(out, a, &most, nullptr, n);
  return static_cast<float>(fold_row<Sum, float>(out, n));
#endif
}

static void softmax_loop(void* out, const void* a, const void* b, const void* c, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  auto* pc = static_cast<const float*>(c);
  const auto row = static_cast<size_t>(*static_cast<const int64_t*>(b));
  const bool early = row < kLongRow;  // the next row's maximum does not wait for this row's sum
  const bool asks = pc != pa || !early;
  float most = early ? extreme_of_floats<Maximum>(pa, row) : 0;
  for (size_t i = 0; i < n; i += row) {
    if (!early) most = extreme_of_floats<Maximum>(pa + i, row);
    const float sum = exponentials_of_row(po + i, pa + i, most, row, asks ? pc + n + i : nullptr);
    if (early && i + row < n) most = extreme_of_floats<Maximum>(pa + i + row, row);
    share_loop(po + i, po + i, &sum, nullptr, row);
  }
}
