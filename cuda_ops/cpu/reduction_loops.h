// The loops of reductions. Included once for each instruction set, inside its namespace, after element_loops.h.
#pragma once

struct Sum {
  static constexpr bool widens = true;  // f32 accumulates in double
  template <class T>
  static inline T identity() {
    return 0;
  }
  template <class T>
  static inline T join(T a, T b) {
    return static_cast<T>(a + b);
  }
  template <class V>
  static inline V join_vectors(V a, V b) {
    return a + b;
  }
};

struct Product {
  static constexpr bool widens = true;
  template <class T>
  static inline T identity() {
    return 1;
  }
  template <class T>
  static inline T join(T a, T b) {
    return of_mul(a, b);
  }
};

template <class T>
static inline T lowest() {
  if constexpr (is_floating<T>)
    return static_cast<T>(-kInf);
  else if constexpr (is_signed<T>)
    return static_cast<T>(static_cast<uint64_t>(1) << (sizeof(T) * 8 - 1));
  else
    return 0;
}

struct Maximum {
  static constexpr bool widens = false;
  template <class T>
  static inline T identity() {
    return lowest<T>();
  }
  template <class T>
  static inline T join(T a, T b) {
    return of_max(a, b);
  }
  template <class V>
  static inline V join_vectors(V a, V b) {
    if constexpr (is_same<V, Vector>) return a != a ? a : greater(a, b);
    const V m = a > b ? a : b;
    return a != a ? a : m;
  }
};

struct Minimum {
  static constexpr bool widens = false;
  template <class T>
  static inline T identity() {
    if constexpr (is_floating<T>)
      return static_cast<T>(kInf);
    else if constexpr (is_same<T, bool>)
      return true;
    else
      return static_cast<T>(~lowest<T>());
  }
  template <class T>
  static inline T join(T a, T b) {
    return of_min(a, b);
  }
  template <class V>
  static inline V join_vectors(V a, V b) {
    if constexpr (is_same<V, Vector>) return a != a ? a : less(a, b);
    const V m = a < b ? a : b;
    return a != a ? a : m;
  }
};

template <class R, class T>
using Accumulator = typename Choose<R::widens && is_same<T, float>, double, T>::type;

template <class R, class A>
static void init_loop(void* out, const void*, const void*, const void*, size_t n) {
  auto* po = static_cast<Stored<A>*>(out);
  for (size_t i = 0; i < n; ++i) po[i] = R::template identity<A>();
}

// Joins all of the values into the first.
template <class R, class A, size_t width>
static inline void halve(Stored<A>* values) {
  if constexpr (width > 1) {
    for (size_t j = 0; j < width / 2; ++j) values[j] = R::join(load<A>(values + j), load<A>(values + j + width / 2));
    halve<R, A, width / 2>(values);
  }
}

// Joins get(0) ... get(n - 1) in an order that depends on n only: kLanes running values, then in halves.
template <class A>
inline constexpr size_t kLanes = 256 / sizeof(A);

template <class R, class A, class Get>
static inline A fold(size_t n, const Get& get) {
  constexpr size_t lanes = kLanes<A>;
  Stored<A> running[lanes];
  if (n < lanes) {
    for (size_t j = 0; j < lanes; ++j) running[j] = R::template identity<A>();
    for (size_t j = 0; j < n; ++j) running[j] = get(j);
  } else {
    ONNXFUSE_VECTORIZE
    for (size_t j = 0; j < lanes; ++j) running[j] = get(j);
    size_t i = lanes;
    for (; i + lanes <= n; i += lanes) {
      ONNXFUSE_VECTORIZE
      for (size_t j = 0; j < lanes; ++j) running[j] = R::join(load<A>(running + j), get(i + j));
    }
    for (size_t j = 0; i + j < n; ++j) running[j] = R::join(load<A>(running + j), get(i + j));
  }
  halve<R, A, lanes>(running);
  return load<A>(running);
}

#include "float_folds.h"

template <class R, class T>
static inline Accumulator<R, T> fold_row(const void* a, size_t n) {
  using A = Accumulator<R, T>;
  auto* pa = static_cast<const Stored<T>*>(a);
  if constexpr (is_same<R, Sum> && is_same<T, float>)
    return sum_floats(Floats{pa}, n);
  else if constexpr (!R::widens && is_same<T, float>)
    return extreme_of_floats<R>(pa, n);
  else
    return fold<R, A>(n, [=](size_t i) { return static_cast<A>(load<T>(pa + i)); });
}

static inline double fold_products(const void* a, const void* b, size_t n) {
  return sum_floats(Products{{static_cast<const float*>(a)}, {static_cast<const float*>(b)}}, n);
}

template <class R, class T>
static void row_loop(void* out, const void* a, const void*, const void*, size_t n) {
  using A = Accumulator<R, T>;
  auto* po = static_cast<Stored<A>*>(out);
  *po = R::join(load<A>(po), fold_row<R, T>(a, n));
}

static void products_row_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  *static_cast<double*>(out) += fold_products(a, b, n);
}

template <class A, class T, bool mean>
static inline T finish(A a, int64_t count) {
  if constexpr (!mean)
    return static_cast<T>(a);
  else if constexpr (is_floating<T>)
    return static_cast<T>(a / static_cast<A>(count));
  else if constexpr (is_signed<T>)
    return count == 0 ? static_cast<T>(0) : static_cast<T>(static_cast<int64_t>(a) / count);
  else
    return count == 0 ? static_cast<T>(0) : static_cast<T>(static_cast<uint64_t>(a) / static_cast<uint64_t>(count));
}

template <class R, class T, bool mean>
static void whole_loop(void* out, const void* a, const void*, const void*, size_t n) {
  using A = Accumulator<R, T>;
  *static_cast<Stored<T>*>(out) = finish<A, T, mean>(fold_row<R, T>(a, n), static_cast<int64_t>(n));
}

template <bool mean>
static void products_whole_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  *static_cast<float*>(out) = finish<double, float, mean>(fold_products(a, b, n), static_cast<int64_t>(n));
}

template <class R, class A, class T>
static void column_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<Stored<A>*>(out);
  auto* pa = static_cast<const Stored<T>*>(a);
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) po[i] = R::join(load<A>(po + i), static_cast<A>(load<T>(pa + i)));
}

#include "band_loops.h"

template <class A, class T, bool mean>
static void finish_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  auto* po = static_cast<Stored<T>*>(out);
  auto* pa = static_cast<const Stored<A>*>(a);
  const int64_t count = *static_cast<const int64_t*>(b);
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) po[i] = finish<A, T, mean>(load<A>(pa + i), count);
}

template <class R, class T, bool mean>
static ReductionFns reduction_of() {
  using A = Accumulator<R, T>;
  ReductionFns fns = {1,
                      init_loop<R, A>,
                      row_loop<R, T>,
                      column_loop<R, A, T>,
                      band_loop<R, T>,
                      column_loop<R, A, A>,
                      finish_loop<A, T, mean>,
                      whole_loop<R, T, mean>,
                      nullptr,
                      nullptr};
  if constexpr (is_same<R, Sum> && is_same<T, float>) {
    fns.row_of_products = products_row_loop;
    fns.whole_of_products = products_whole_loop<mean>;
  }
  return fns;
}

template <class R, bool mean>
static ReductionFns pick_reduction(Type type) {
#define ONNXFUSE_CASE(tag, T)                                                          \
  case Type::tag:                                                                      \
    if constexpr (!(R::widens && is_same<T, bool>)) return reduction_of<R, T, mean>(); \
    break;
  switch (type) {
    ONNXFUSE_VALUE_TYPES(ONNXFUSE_CASE)
    default:
      break;
  }
#undef ONNXFUSE_CASE
  return {};
}
