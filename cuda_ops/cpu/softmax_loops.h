// Softmax of rows, row after row, so that a row's loads and stores go on beside the arithmetic of its neighbours: done
// for many rows at once, its passes would wait for memory in turn.
//
// Most rows are read once. In place of the maximum comes a power of two near three of the row's vectors, since a common
// factor cancels; the sum of the exponentials tells whether it was near enough, for a float's exponents leave room for
// what matters next to the maximum and for 2^40 above the guess. Rows that it does not serve (NaN, infinities, numbers
// beyond what the guess may be) are computed again with their maximum. Either way a result depends on its row alone.
//
// Included once for each instruction set, inside its namespace, after reduction_loops.h.
#pragma once

static constexpr size_t kLongRow = 2048;  // elements; longer ones are finished one by one, from the cache
static constexpr size_t kAhead = 1024;    // elements: so far ahead the next are asked for

// What a call of softmax_loop knows of its rows, in its operand b.
struct SoftmaxRows {
  int64_t length;
  int64_t far;  // whether they come from memory
};

// exp(a) * 2^(64 - shift), where 2^shift is near the exponential of the row's maximum. Elements below 2^(shift - 153)
// count as that: next to the maximum they share nothing. Far above 2^shift come infinities, or what makes a sum too
// large for holds().
class RowExponential {
 public:
  RowExponential() = default;
  // n >= kVector
  RowExponential(const float* a, size_t n) {
    const Vector some =
        greater(load_vector(a), greater(load_vector(a + n / 2 / kVector * kVector), load_vector(a + n - kVector)));
    float shift = largest(some) * kLog2E;
    shift = shift < 100.0f ? shift : 100.0f;  // also where it is NaN
    const auto whole = static_cast<int32_t>(shift > -60.0f ? shift : -60.0f);
    least_ = splat(static_cast<float>(whole - kRange) * kLn2);
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
    const Vector unit = splat(power_of_two(64 - whole));
    roots_[0] = load_vector(kRoots) * unit;
    roots_[1] = load_vector(kRoots + kVector) * unit;
#else
    most_ = splat(static_cast<float>(whole + 60) * kLn2);
    unit_ = power_of_two(64 - whole);
#endif
  }

  // Whether the row's maximum was near enough, by the row's sum.
  static bool holds(double sum) { return sum > 0x1p62 && sum < 0x1p104; }

  inline Vector of(Vector a) const {
    a = greater(least_, a);
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
    // As exp_bounded does, but for the second part of ln 2, which adds k * 2^-29: what this comes to for the maximum is
    // the same for all of the row, so that 2^-22 is left for the smallest shares of all.
    constexpr float rounder = kRounder / 32;
    const Vector t = _mm512_fmadd_ps(a, splat(kLog2E), splat(rounder));
    const Vector k = t - splat(rounder);
    const Vector r = _mm512_fnmadd_ps(k, splat(kLn2), a);
    const Vector root = _mm512_maskz_permutex2var_ps(0xffff, roots_[0], _mm512_castps_si512(t), roots_[1]);
    const Vector p = _mm512_fmadd_ps(splat(kExpQuadratic), r, splat(kExpLinear));
    return _mm512_maskz_scalef_ps(0xffff, _mm512_fmadd_ps(root * r, p, root), k);
#else
    return exp_times_unit(less(most_, a), unit_);
#endif
  }

 private:
  static constexpr float kLn2 = 0.693147182f;
  static constexpr int32_t kRange = 153;

  Vector least_ = {};
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
  Vector roots_[2] = {};  // of two, times 2^(64 - shift)
#else
  Vector most_ = {};
  float unit_ = 1;
#endif
};

// A row of exponentials that still are to be divided by their sum. The sum's own share, which is all of a row with one
// element that counts, is exactly 1.
class Unfinished {
 public:
  Unfinished() = default;
  Unfinished(float* row, double sum) : row_(row) {
#if defined(__AVX2__)
    const auto factor = static_cast<float>(1 / sum);
    factor_ = splat(factor);
    rest_ = splat(static_cast<float>(1 / sum - static_cast<double>(factor)));
#else
    factor_ = splat(static_cast<float>(sum));
#endif
  }
  explicit operator bool() const { return row_ != nullptr; }

  inline void finish(size_t i) const { store_vector(row_ + i, share(load_vector(row_ + i))); }
  inline void finish_part(size_t i, size_t n) const { store_part(row_ + i, n, share(load_part(row_ + i, n, 0))); }
  void finish_all(size_t n) const {
    size_t i = 0;
    for (; i + kVector <= n; i += kVector) finish(i);
    if (i < n) finish_part(i, n - i);
  }

 private:
  inline Vector share(Vector a) const {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, factor_, a * rest_);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, factor_, a * rest_);
#else
    return a / factor_;
#endif
  }

  float* row_ = nullptr;
  Vector factor_ = {}, rest_ = {};
};

// The exponentials of a row and their sum (in float for 16 numbers, then in double). Beside it, asks for what is read
// later, and finishes another row.
template <bool finishes>
static inline double exponentials(float* out, const float* a, size_t n, const RowExponential& e, const float* ahead,
                                  [[maybe_unused]] const Unfinished& other) {
  constexpr size_t running = kRunning;
  constexpr size_t step = running * kVector;
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
    for (; i + step <= last; i += step) {
      for (size_t j = 0; j < running; ++j) {
        const size_t at = i + j * kVector;
        const Vector x = e.of(load_vector(a + at));
        __builtin_prefetch(ahead + at, 0, 2);
        store_vector(out + at, x);
        v[j] += x;
        if constexpr (finishes) other.finish(at);
      }
    }
    add((v[0] + v[1]) + (v[2] + v[3]));
  }
  for (; i < n; i += kVector) {
    const size_t m = n - i < kVector ? n - i : kVector;
    const Vector x = e.of(load_part(a + i, m, -kInf));  // beyond the end as good as nothing
    store_part(out + i, m, x);
    add(x);
    if constexpr (finishes) other.finish_part(i, m);
  }
  return sum_of(sums[0] + sums[1]);
}

// Reads a row for no other reason than to have it in the cache. Real loads make the stores before them drain, where
// prefetches only join them in the queue: of rows from memory, this saves a quarter of the time.
static inline void touch(const float* a, size_t n) {
  Vector v = {};
  for (size_t i = 0; i + kVector <= n; i += kVector) v += load_vector(a + i);
  asm volatile("" : : "m"(v));
}

// The row once more, by its maximum.
__attribute__((noinline)) static void softmax_by_maximum(float* out, const float* a, size_t n) {
  const float most = extreme_of_floats<Maximum>(a, n);
  exp_of_difference_loop<2>(out, a, &most, nullptr, n);
  const auto sum = static_cast<float>(fold_row<Sum, float>(out, n));
  share_loop(out, out, &sum, nullptr, n);
}

// Of rows a to out, which lie apart. c: what the next rows are computed from, all of it in memory that may be read, or
// null.
static void softmax_loop(void* out, const void* a, const void* b, const void* c, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  const auto* rows = static_cast<const SoftmaxRows*>(b);
  const auto row = static_cast<size_t>(rows->length);
  auto* next = static_cast<const float*>(c);
  // Whether it is these rows that come from there, each after the one before. Else a loop before this one reads it.
  const bool direct = next == pa + n;
  if (direct) next = pa + row;
  const bool is_long = row >= kLongRow, touches = rows->far != 0 && !is_long;
  const float* ahead = next == nullptr || (direct && !is_long) ? pa + kAhead : next;
  if (row < kVector) {
    for (size_t i = 0; i < n; i += row) softmax_by_maximum(po + i, pa + i, row);
    return;
  }
  Unfinished last;
  RowExponential e, following(pa, row);
  for (size_t i = 0; i < n; i += row) {
    e = following;
    if (i + row < n) following = RowExponential(pa + i + row, row);  // early, since it takes long to know it
    const double sum = last ? exponentials<true>(po + i, pa + i, row, e, ahead + i, last)
                            : exponentials<false>(po + i, pa + i, row, e, ahead + i, last);
    last = {};
    if (touches && next != nullptr) touch(next + i, row);
    if (!RowExponential::holds(sum)) {
      softmax_by_maximum(po + i, pa + i, row);
      continue;
    }
    last = Unfinished(po + i, sum);
    if (is_long || touches || i + row == n) {
      last.finish_all(row);
      last = {};
    }
  }
}
