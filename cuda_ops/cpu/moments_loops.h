// The mean of a row and the mean square of what its elements are off it, by one reading. Included once for each
// instruction set, inside its namespace, after reduction_loops.h.
//
// The elements are taken from a center near the mean, so that the squares are those of small numbers; what the center
// is off comes out of both sums at the end. Each element of a vector has a center of its own, the mean of two of the
// row's, for which nothing has to be waited. Rows that this does not serve (NaN, infinities, elements that lie far
// apart but for the centers) are read again, once for each mean. Either way a result depends on its row alone.
#pragma once

// Squares of what a row is off a number.
struct SquaredDeviations {
  Floats a;
  float center;
  inline float at(size_t i) const { return (a.at(i) - center) * (a.at(i) - center); }
  inline Vector vector(size_t i) const { return square(a.vector(i) - splat(center)); }
  inline Vector rest(size_t i, size_t n, float) const { return square(a.rest(i, n, center) - splat(center)); }

 private:
  static inline Vector square(Vector v) { return v * v; }
};

// Vectors of floats, added up in double.
struct WideSum {
  Doubles halves[2] = {};
  inline void add(Vector v) {
    HalfVector parts[2];
    __builtin_memcpy(parts, &v, sizeof v);
    for (size_t k = 0; k < 2; ++k) halves[k] += widen(parts[k]);
  }
};

// 0, 1, 2, ...
static inline Vector ascending() {
  Vector v;
  for (size_t j = 0; j < kVector; ++j) v[j] = static_cast<float>(j);
  return v;
}

// Whether it is exact enough: false, and the results are nothing. n >= kVector.
static inline bool moments_by_centers(const float* a, size_t n, double* mean, double* squares) {
  constexpr size_t running = kRunning, step = running * kVector;
  const Vector center = (load_vector(a) + load_vector(a + n / 2 / kVector * kVector)) * splat(0.5f);
  WideSum sum, sum_of_squares;
  size_t i = 0;
  while (i + step <= n) {
    const size_t last = n - i < 16 * step ? n : i + 16 * step;  // so each running sum is of 16 numbers
    Vector s[running] = {}, q[running] = {};
    for (; i + step <= last; i += step)
      for (size_t j = 0; j < running; ++j) {
        const Vector d = load_vector(a + i + j * kVector) - center;
        s[j] += d;
        q[j] += d * d;
      }
    sum.add((s[0] + s[1]) + (s[2] + s[3]));
    sum_of_squares.add((q[0] + q[1]) + (q[2] + q[3]));
  }
  Vector s = {}, q = {};
  for (; i < n; i += kVector) {
    const size_t m = n - i < kVector ? n - i : kVector;
    const Vector d = load_part(a + i, m, center) - center;
    s += d;
    q += d * d;
  }
  sum.add(s);
  sum_of_squares.add(q);
  // Of n numbers each element of a vector has had as many as the whole vectors, and those of the rest one more.
  const Vector whole = splat(static_cast<float>(n / kVector)), rest = splat(static_cast<float>(n % kVector));
  WideSum centers, counts;
  centers.add(center);
  counts.add(ascending() < rest ? whole + splat(1) : whole);
  const double count = static_cast<double>(n);
  Doubles total = {};
  for (size_t k = 0; k < 2; ++k) total += counts.halves[k] * centers.halves[k] + sum.halves[k];
  *mean = sum_of(total) / count;
  Doubles about = {};
  for (size_t k = 0; k < 2; ++k) {
    const Doubles off = centers.halves[k] - *mean;
    about += sum_of_squares.halves[k] + off * (2 * sum.halves[k] + counts.halves[k] * off);
  }
  *squares = sum_of(about);
  return sum_of(sum_of_squares.halves[0] + sum_of_squares.halves[1]) <= 8 * *squares && *squares < 0x1p100;
}

__attribute__((noinline, cold)) static void moments_by_reading_twice(const float* a, size_t n, float* mean,
                                                                     double* squares) {
  *mean = finish<double, float, true>(sum_floats(Floats{a}, n), static_cast<int64_t>(n));
  *squares = sum_floats(SquaredDeviations{{a}, *mean}, n);
}

template <bool mean_of_squares>
static void moments_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  auto* pa = static_cast<const float*>(a);
  auto* mean = static_cast<float*>(out);
  auto* variance = static_cast<float*>(const_cast<void*>(b));
  double exact_mean = 0, squares = 0;
  if (n >= kVector && moments_by_centers(pa, n, &exact_mean, &squares)) {
    *mean = static_cast<float>(exact_mean);
    const double off = exact_mean - *mean;
    squares += static_cast<double>(n) * off * off;  // about the mean that the differences are from
  } else {
    moments_by_reading_twice(pa, n, mean, &squares);
  }
  *variance = finish<double, float, mean_of_squares>(squares, static_cast<int64_t>(n));
}
