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
};

template <class R, class T>
using Accumulator = typename Choose<R::widens && is_same<T, float>, double, T>::type;

template <class R, class A>
static void init_loop(void* out, const void*, const void*, const void*, size_t n) {
  auto* po = static_cast<Stored<A>*>(out);
  for (size_t i = 0; i < n; ++i) po[i] = R::template identity<A>();
}

// Joins n elements in an order that depends on n only: kLanes running values, then in halves.
static constexpr size_t kLanes = 128;

template <class R, class A, class T>
static inline A fold(const Stored<T>* a, size_t n) {
  Stored<A> lanes[kLanes];
  size_t width = n < kLanes ? n : kLanes;
  if (width == 0) return R::template identity<A>();
  for (size_t j = 0; j < width; ++j) lanes[j] = static_cast<A>(load<T>(a + j));
  size_t i = width;
  for (; i + kLanes <= n; i += kLanes) {
    ONNXFUSE_VECTORIZE
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = R::join(load<A>(lanes + j), static_cast<A>(load<T>(a + i + j)));
  }
  for (size_t j = 0; i + j < n; ++j) lanes[j] = R::join(load<A>(lanes + j), static_cast<A>(load<T>(a + i + j)));
  while (width > 1) {
    const size_t half = width / 2;
    width -= half;
    ONNXFUSE_VECTORIZE
    for (size_t j = 0; j < half; ++j) lanes[j] = R::join(load<A>(lanes + j), load<A>(lanes + j + width));
  }
  return load<A>(lanes);
}

template <class R, class T>
static void row_loop(void* out, const void* a, const void*, const void*, size_t n) {
  using A = Accumulator<R, T>;
  auto* po = static_cast<Stored<A>*>(out);
  auto* pa = static_cast<const Stored<T>*>(a);
  if constexpr (is_same<R, Sum> && is_same<T, float>) {
    // In float within the tile, which is short; again in double where that overflows.
    double s = fold<R, float, float>(pa, n);
    if (!(__builtin_fabs(s) < 3e38)) s = fold<R, double, float>(pa, n);
    *po += s;
  } else {
    *po = R::join(load<A>(po), fold<R, A, T>(pa, n));
  }
}

template <class R, class A, class T>
static void column_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<Stored<A>*>(out);
  auto* pa = static_cast<const Stored<T>*>(a);
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) po[i] = R::join(load<A>(po + i), static_cast<A>(load<T>(pa + i)));
}

template <class A, class T, bool mean>
static void finish_loop(void* out, const void* a, [[maybe_unused]] const void* b, const void*, size_t n) {
  auto* po = static_cast<Stored<T>*>(out);
  auto* pa = static_cast<const Stored<A>*>(a);
  if constexpr (mean) {
    const int64_t count = *static_cast<const int64_t*>(b);
    for (size_t i = 0; i < n; ++i) {
      if constexpr (is_floating<T>)
        po[i] = static_cast<T>(pa[i] / static_cast<A>(count));
      else if constexpr (is_signed<T>)
        po[i] = count == 0 ? 0 : static_cast<T>(static_cast<int64_t>(pa[i]) / count);
      else
        po[i] = count == 0 ? 0 : static_cast<T>(static_cast<uint64_t>(pa[i]) / static_cast<uint64_t>(count));
    }
  } else {
    ONNXFUSE_VECTORIZE
    for (size_t i = 0; i < n; ++i) po[i] = static_cast<T>(load<A>(pa + i));
  }
}

template <class R, class T, bool mean>
static ReductionFns reduction_of() {
  using A = Accumulator<R, T>;
  return {init_loop<R, A>, row_loop<R, T>, column_loop<R, A, T>, column_loop<R, A, A>, finish_loop<A, T, mean>};
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

static ReductionFns find_reduction(Op op, Type type) {
  switch (op) {
    case Op::op_reduce_sum:
      return pick_reduction<Sum, false>(type);
    case Op::op_reduce_mean:
      return pick_reduction<Sum, true>(type);
    case Op::op_reduce_prod:
      return pick_reduction<Product, false>(type);
    case Op::op_reduce_max:
      return pick_reduction<Maximum, false>(type);
    case Op::op_reduce_min:
      return pick_reduction<Minimum, false>(type);
    default:
      return {};
  }
}
