// Reductions of rows of floats, vector by vector. Included once for each instruction set, inside its namespace, by
// reduction_loops.h after the operations and fold.
#pragma once

// The floats of a row, and the products of two rows; rest fills up with a value.
struct Floats {
  const float* a;
  inline float at(size_t i) const { return a[i]; }
  inline Vector vector(size_t i) const { return load_vector(a + i); }
  inline Vector rest(size_t i, size_t n, float filling) const {
    Vector v = splat(filling);
    __builtin_memcpy(&v, a + i, n * sizeof(float));
    return v;
  }
};

struct Products {
  Floats a, b;
  inline float at(size_t i) const { return a.at(i) * b.at(i); }
  inline Vector vector(size_t i) const { return a.vector(i) * b.vector(i); }
  inline Vector rest(size_t i, size_t n, float) const { return a.rest(i, n, 0) * b.rest(i, n, 0); }
};

typedef float Quad __attribute__((vector_size(16)));

template <class R>
static inline float fold_vector(Vector v) {
  Quad q[kVector / 4];
  __builtin_memcpy(q, &v, sizeof v);
  for (size_t n = kVector / 8; n > 0; n /= 2)
    for (size_t j = 0; j < n; ++j) q[j] = R::join_vectors(q[j], q[j + n]);
  return R::join(R::join(q[0][0], q[0][2]), R::join(q[0][1], q[0][3]));
}

static constexpr size_t kHalf = kVector / 2;

// A double for each element.
static inline void add_to_sums(double* sums, Vector v) {
  HalfVector halves[2];
  __builtin_memcpy(halves, &v, sizeof v);
  for (size_t k = 0; k < 2; ++k) {
    Doubles s;
    __builtin_memcpy(&s, sums + k * kHalf, sizeof s);
    s += widen(halves[k]);
    __builtin_memcpy(sums + k * kHalf, &s, sizeof s);
  }
}

// Whether all are numbers of ordinary size.
static inline bool all_moderate(Vector v) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(_mm512_andnot_ps(splat(-0.0f), v), splat(3e38f), _CMP_LT_OQ) == 0xffff;
#else
  bool all = true;
  for (size_t j = 0; j < kVector; ++j) all &= __builtin_fabsf(v[j]) < 3e38f;
  return all;
#endif
}

static constexpr size_t kRunning = 4;  // vectors

// Joins the row's elements first to last in an order that depends on their number only.
template <class R, class Row>
static inline float fold_floats(const Row& row, size_t first, size_t last) {
  constexpr size_t running = kRunning;
  const float identity = R::template identity<float>();
  Vector v[running];
  for (size_t j = 0; j < running; ++j) v[j] = splat(identity);
  size_t i = first;
  for (; i + running * kVector <= last; i += running * kVector)
    for (size_t j = 0; j < running; ++j) v[j] = R::join_vectors(v[j], row.vector(i + j * kVector));
  for (; i + kVector <= last; i += kVector) v[0] = R::join_vectors(v[0], row.vector(i));
  if (i < last) v[1] = R::join_vectors(v[1], row.rest(i, last - i, identity));
  return fold_vector<R>(R::join_vectors(R::join_vectors(v[0], v[2]), R::join_vectors(v[1], v[3])));
}

// In float for short blocks, whose sums are added in double; again in double where a block overflows.
template <class Row>
static inline double sum_floats(const Row& row, size_t n) {
  constexpr size_t block = 16 * kRunning * kVector;  // so each running sum is of 16 numbers
  double sum = 0;
  for (size_t first = 0; first < n; first += block) {
    const size_t last = n - first < block ? n : first + block;
    const double s = fold_floats<Sum>(row, first, last);
    sum += __builtin_fabs(s) < 3e38
               ? s
               : fold<Sum, double>(last - first, [&](size_t i) { return static_cast<double>(row.at(first + i)); });
  }
  return sum;
}

#if defined(__AVX512F__)
// The maximum or minimum of a row; NaNs are noted beside it, which is less work than to carry them through.
template <class R>
static inline float extreme_of_floats(const float* a, size_t n) {
  constexpr size_t running = kRunning;
  const auto best = [](Vector x, Vector y) { return is_same<R, Maximum> ? greater(x, y) : less(x, y); };
  Vector v[running];
  for (size_t j = 0; j < running; ++j) v[j] = splat(R::template identity<float>());
  unsigned nan = 0;
  size_t i = 0;
  for (; i + running * kVector <= n; i += running * kVector) {
    Vector x[running];
    for (size_t j = 0; j < running; ++j) x[j] = load_vector(a + i + j * kVector);
    for (size_t j = 0; j < running; j += 2) nan |= _mm512_cmp_ps_mask(x[j], x[j + 1], _CMP_UNORD_Q);
    for (size_t j = 0; j < running; ++j) v[j] = best(v[j], x[j]);
  }
  for (size_t j = 0; i < n; i += kVector, ++j) {
    const size_t m = n - i < kVector ? n - i : kVector;
    const Vector x = Floats{a}.rest(i, m, R::template identity<float>());
    nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    v[j] = best(v[j], x);
  }
  if (nan) return kNaN;
  return fold_vector<R>(best(best(v[0], v[2]), best(v[1], v[3])));
}
#else
template <class R>
static inline float extreme_of_floats(const float* a, size_t n) {
  return fold_floats<R>(Floats{a}, 0, n);
}
#endif
