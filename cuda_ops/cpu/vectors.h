// Vectors of floats as wide as the instruction set's registers, and functions of them where that pays: AVX-512 has
// instructions that loops of scalar code don't use. The accuracy is that of math.h. Included once for each instruction
// set, inside its namespace, after math.h.
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

#if defined(__AVX512F__)
#define ONNXFUSE_VECTOR_FUNCTIONS

// 2^(j / 32) for j in [0, 32): the significands of the numbers between 1 and 2.
alignas(64) static constexpr float kRoots[] = {
    1.0f,        1.0218972f,  1.04427373f, 1.06714046f, 1.09050775f, 1.1143868f,  1.13878858f, 1.1637249f,
    1.18920708f, 1.21524739f, 1.24185777f, 1.26905096f, 1.29683959f, 1.32523668f, 1.35425556f, 1.38390994f,
    1.41421354f, 1.44518077f, 1.47682619f, 1.50916445f, 1.54221082f, 1.5759809f,  1.61049032f, 1.64575553f,
    1.68179286f, 1.71861935f, 1.75625217f, 1.79470909f, 1.8340081f,  1.87416768f, 1.91520655f, 1.95714414f};

// exp(a) for -2^15 < a < 2^15 (and NaN): a = (k + j / 32) * ln 2 + r, where r is so small that two terms do.
static inline Vector exp_bounded(Vector a) {
  constexpr float rounder = kRounder / 32;  // adding it rounds to 32nds, whose number is in the low bits
  const Vector t = a * splat(kLog2E) + splat(rounder);
  const Vector k = t - splat(rounder);
  const Vector r = (a - k * splat(0.693147182f)) - k * splat(-1.90465421e-09f);
  const Vector root =
      _mm512_maskz_permutex2var_ps(0xffff, load_vector(kRoots), _mm512_castps_si512(t), load_vector(kRoots + kVector));
  const Vector p = (splat(0.500004530f) * r + splat(1.00001466f)) * r;
  return _mm512_maskz_scalef_ps(0xffff, root * p + root, k);
}

static inline Vector vector_exp(Vector a) {
  return exp_bounded(less(splat(89.5f), greater(splat(-104.5f), a)));  // beyond it is infinity or 0
}

static inline Vector magnitude(Vector a) { return _mm512_andnot_ps(splat(-0.0f), a); }

static inline Vector vector_sigmoid(Vector a) {
  const Vector e = exp_bounded(greater(splat(-104.5f), _mm512_or_ps(a, splat(-0.0f))));
  const Vector d = splat(1) + e;
  Vector y = _mm512_maskz_rcp14_ps(0xffff, d);
  y = y + y * (splat(1) - d * y);
  return _mm512_mask_mul_ps(y, _mm512_cmp_ps_mask(a, splat(0), _CMP_LT_OQ), e, y);
}

static inline Vector vector_erf(Vector a) {
  const Vector x = magnitude(a);
  const Vector z = x * x;
  Vector p = splat(8.00277485e-05f);
  p = p * z + splat(-0.000805080403f);
  p = p * z + splat(0.00519246049f);
  p = p * z + splat(-0.0268557407f);
  p = p * z + splat(0.112836257f);
  p = p * z + splat(-0.376126289f);
  p = p * z + splat(0.128379166f);
  const Vector y = less(splat(4), x);
  Vector q = splat(-2.08235724e-05f);
  q = q * y + splat(0.000431344641f);
  q = q * y + splat(-0.00415606424f);
  q = q * y + splat(0.0250802319f);
  q = q * y + splat(-0.108219959f);
  q = q * y + splat(-0.633401096f);
  q = q * y + splat(-1.12948835f);
  q = q * y + splat(0.000169205188f);
  const Vector far = splat(1) - exp_bounded(q);
  const Vector near = x + x * p;
  const Vector r = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, splat(0.94f), _CMP_LT_OQ), far, near);
  return _mm512_or_ps(r, _mm512_and_ps(a, splat(-0.0f)));
}

static inline Vector exp_of_difference(Vector a, Vector b) { return vector_exp(a - b); }

template <Vector (*f)(Vector)>
static void vector_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  size_t i = 0;
  for (; i + kVector <= n; i += kVector) store_vector(po + i, f(load_vector(pa + i)));
  if (i == n) return;
  Vector rest = {};
  __builtin_memcpy(&rest, pa + i, (n - i) * sizeof(float));
  rest = f(rest);
  __builtin_memcpy(po + i, &rest, (n - i) * sizeof(float));
}
#endif
