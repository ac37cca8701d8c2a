// Vectors of floats as wide as the instruction set's registers. Included once for each instruction set, inside its
// namespace, after math.h.
#pragma once

#if defined(__AVX512F__)
#define ONNXFUSE_LIST(x) x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x
#elif defined(__AVX2__)
#define ONNXFUSE_LIST(x) x, x, x, x, x, x, x, x
#else
#define ONNXFUSE_LIST(x) x, x, x, x
#endif

static constexpr float kVectorOfZeros[] = {ONNXFUSE_LIST(0)};
static constexpr size_t kVector = sizeof kVectorOfZeros / sizeof(float);  // elements

typedef float Vector __attribute__((vector_size(kVector * sizeof(float))));

static inline Vector splat(float x) { return Vector{ONNXFUSE_LIST(x)}; }
#undef ONNXFUSE_LIST

static inline Vector load_vector(const float* p) {
  Vector v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
static inline void store_vector(float* p, Vector v) { __builtin_memcpy(p, &v, sizeof v); }

// The first n elements, at most kVector; the others are the filling, and are not stored.
static inline Vector load_part(const float* p, size_t n, Vector filling) {
#if defined(__AVX512F__)
  return _mm512_mask_loadu_ps(filling, static_cast<__mmask16>((1u << n) - 1), p);
#else
  __builtin_memcpy(&filling, p, n * sizeof(float));
  return filling;
#endif
}
static inline Vector load_part(const float* p, size_t n, float filling) { return load_part(p, n, splat(filling)); }
static inline void store_part(float* p, size_t n, Vector v) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
#else
  __builtin_memcpy(p, &v, n * sizeof(float));
#endif
}

// Past the caches, where the machine can; p is aligned.
static inline void stream_vector(float* p, Vector v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, v);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, v);
#else
  store_vector(p, v);
#endif
}

// The greater of a and b, or the less; b where they are equal or one is NaN.
static inline Vector greater(Vector a, Vector b) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
static inline Vector less(Vector a, Vector b) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

// To an integer: the nearest, of two the even one; the next below; the next above.
enum class Rounding { nearest = 0, down = 1, up = 2 };  // as the instructions have them
template <Rounding how>
static inline Vector rounded(Vector v) {
#if defined(__AVX512F__)
  return _mm512_maskz_roundscale_ps(0xffff, v, static_cast<int>(how) | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_ps(v, static_cast<int>(how) | _MM_FROUND_NO_EXC);
#else
  for (size_t j = 0; j < kVector; ++j)
    v[j] = how == Rounding::nearest ? __builtin_rintf(v[j])
           : how == Rounding::down  ? __builtin_floorf(v[j])
                                    : __builtin_ceilf(v[j]);
  return v;
#endif
}

// The largest element, where none is NaN.
static inline float largest(Vector v) {
#if defined(__AVX512F__)
  v = greater(v, _mm512_maskz_shuffle_f32x4(0xffff, v, v, 0x4e));
  v = greater(v, _mm512_maskz_shuffle_f32x4(0xffff, v, v, 0xb1));
  v = greater(v, _mm512_maskz_permute_ps(0xffff, v, 0x4e));
  return greater(v, _mm512_maskz_permute_ps(0xffff, v, 0xb1))[0];
#else
  float most = v[0];
  for (size_t j = 1; j < kVector; ++j) most = v[j] > most ? v[j] : most;
  return most;
#endif
}

// Half a vector of floats, as doubles and back; compilers convert these in pieces where they are not told how.
typedef float HalfVector __attribute__((vector_size(sizeof(Vector) / 2)));
typedef double Doubles __attribute__((vector_size(sizeof(Vector))));

static inline Doubles widen(HalfVector v) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtps_pd(0xff, v);
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(v);
#else
  return __builtin_convertvector(v, Doubles);
#endif
}

static inline double sum_of(Doubles v) {
#if defined(__AVX512F__)
  v += _mm512_maskz_shuffle_f64x2(0xff, v, v, 0x4e);
  v += _mm512_maskz_shuffle_f64x2(0xff, v, v, 0xb1);
  return v[0] + v[1];
#else
  double sum = v[0];
  for (size_t j = 1; j < kVector / 2; ++j) sum += v[j];
  return sum;
#endif
}

static inline HalfVector narrow(Doubles v) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtpd_ps(0xff, v);
#elif defined(__AVX2__)
  return _mm256_cvtpd_ps(v);
#else
  return __builtin_convertvector(v, HalfVector);
#endif
}

// One divisor for many: a / d rounded once, from the reciprocal and what its product leaves, where d is of ordinary
// size and the machine has FMA. Where a or the quotient is subnormal, or nearly so, it may be two units off.
class Divisor {
 public:
  explicit Divisor(float d) : d_(splat(d)), r_(splat(1.0f / d)) {
    const float size = __builtin_fabsf(d);
    ordinary_ = size > 0x1p-100f && size < 0x1p100f;
  }
  inline Vector divide(Vector a) const { return ordinary_ ? corrected(a) : a / d_; }
  // A share of the sum d: at most one and a half units off.
  inline Vector share(Vector a) const { return ordinary_ ? a * r_ : a / d_; }

 private:
  inline Vector corrected(Vector a) const {
#if defined(__AVX512F__)
    const Vector q = a * r_;
    constexpr int special = 0x9f;  // NaN, infinity, zero
    return _mm512_mask3_fmadd_ps(_mm512_fnmadd_ps(q, d_, a), r_, q,
                                 static_cast<__mmask16>(~_mm512_fpclass_ps_mask(q, special)));
#elif defined(__AVX2__)
    const Vector q = a * r_, number = q - q;
    const Vector corrected = _mm256_fmadd_ps(_mm256_fnmadd_ps(q, d_, a), r_, q);
    return _mm256_or_ps(number == number ? corrected : q, _mm256_and_ps(q, splat(-0.0f)));  // -0 stays
#else
    return a / d_;
#endif
  }

  Vector d_, r_;
  bool ordinary_;
};

template <Vector (Divisor::*divide)(Vector) const>
static void divide_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  const Divisor divisor(*static_cast<const float*>(b));
  size_t i = 0;
  for (; i + kVector <= n; i += kVector) store_vector(po + i, (divisor.*divide)(load_vector(pa + i)));
  if (i == n) return;
  Vector rest = {};
  __builtin_memcpy(&rest, pa + i, (n - i) * sizeof(float));
  rest = (divisor.*divide)(rest);
  __builtin_memcpy(po + i, &rest, (n - i) * sizeof(float));
}

static constexpr TileFn share_loop = divide_loop<&Divisor::share>;
