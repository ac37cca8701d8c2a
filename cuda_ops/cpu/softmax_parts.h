// What a softmax is made of: the exponentials of a row near its maximum, and the shares of their sum. Included once for
// each instruction set, inside its namespace, after reduction_loops.h.
#pragma once

// exp(a) * 2^(64 - shift), where 2^shift is near the exponential of the row's maximum. Far above 2^shift come
// infinities, or what makes a sum too large for holds().
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

#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
  static constexpr bool kCanDoWithoutBound = true;
#else
  static constexpr bool kCanDoWithoutBound = false;
#endif

  // bounded: elements below 2^(shift - 153) count as that; next to the maximum they share nothing. Without the bound
  // they come to less or to 0, so that the sum and the shares are the same, but from about -1e20 down, as in a mask, to
  // NaN or infinities, which the sum tells.
  template <bool bounded>
  inline Vector of(Vector a) const {
    if constexpr (bounded || !kCanDoWithoutBound) a = greater(least_, a);
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
    // As exp_bounded does, but for the second part of ln 2, which adds k * 2^-29: what this comes to for the maximum is
    // the same for all of the row, so that 2^-22 is left for the smallest shares of all. No r makes 1 + r * p negative,
    // so there is no -0.
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

// In the place of an Unfinished, where there is none.
struct Nothing {
  static constexpr bool kFinishes = false;
  static size_t vectors() { return 0; }
  static void finish(size_t) {}
  static void finish_rest(size_t) {}
};

// A row of n exponentials that still are to be divided by their sum, and where their shares go: in its place, or past
// the caches, where an aligned vector at a time is stored. The sum's own share, which is all of a row with one element
// that counts, is exactly 1.
template <bool streams>
class Unfinished {
 public:
  static constexpr bool kFinishes = true;

  Unfinished(float* out, const float* row, double sum, size_t n) : out_(out), row_(row), n_(n) {
#if defined(__AVX2__)
    const auto factor = static_cast<float>(1 / sum);
    factor_ = splat(factor);
    rest_ = splat(static_cast<float>(1 / sum - static_cast<double>(factor)));
#else
    factor_ = splat(static_cast<float>(sum));
#endif
    if constexpr (streams) {
      constexpr size_t align = kVector * sizeof(float);
      const size_t first = (align - reinterpret_cast<uintptr_t>(out) % align) % align / sizeof(float);
      if (first == 0) return;  // n >= kVector
      store_part(out_, first, share(load_part(row_, first, 0)));
      out_ += first;
      row_ += first;
      n_ -= first;
    }
  }

  // Finish whole vectors, by number of elements before them; what is left from such a number on.
  size_t vectors() const { return n_ / kVector * kVector; }
  inline void finish(size_t i) const {
    const Vector y = share(load_vector(row_ + i));
    streams ? stream_vector(out_ + i, y) : store_vector(out_ + i, y);
  }
  void finish_rest(size_t i) const {
    for (; i + kVector <= n_; i += kVector) finish(i);
    if (i < n_) store_part(out_ + i, n_ - i, share(load_part(row_ + i, n_ - i, 0)));
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

  float* out_;
  const float* row_;
  size_t n_;
  Vector factor_, rest_ = {};
};
