// The loops of arguments: where a row's greatest or smallest element is. Included once for each instruction set, inside
// its namespace, after reduction_loops.h.
//
// An accumulator has three words: the best element, its index, and how many elements were seen; n accumulators lie as n
// words of each kind. Indices count from the first element seen, so parts of a row are joined without knowing where
// they stand in it.
#pragma once

static constexpr size_t kArgumentWords = 3;

template <class T>
struct Arguments {
  T* best;
  int64_t *index, *seen;
  Arguments(void* p, size_t n)
      : best(static_cast<T*>(p)), index(static_cast<int64_t*>(p) + n), seen(static_cast<int64_t*>(p) + 2 * n) {}
};

// Whether a takes b's place, which comes before it. NaN wins over numbers.
template <class R, bool last, class T>
static inline bool takes(T a, T b) {
  const bool better = is_same<R, Maximum> ? a > b : a < b;
  if constexpr (last)
    return better | (a == b) | (a != a);
  else
    return better | ((a != a) & (b == b));
}

template <class R, class T>
static void argument_init_loop(void* out, const void*, const void*, const void*, size_t n) {
  const Arguments<T> o(out, n);
  for (size_t i = 0; i < n; ++i) o.best[i] = R::template identity<T>(), o.index[i] = 0;
  if (n > 0) *o.seen = 0;
}

// The index of the first or last element that equals the value, or that is NaN as the value is; there is one.
template <bool last, class T>
static inline size_t find_element(const T* a, size_t n, T value) {
  constexpr size_t block = 64;
  const auto is_it = [=](T x) { return (x == value) | ((x != x) & (value != value)); };
  size_t first = 0, end = n;
  while (end - first > block) {
    const size_t start = last ? end - block : first;
    int any = 0;
    for (size_t i = 0; i < block; ++i) any |= is_it(a[start + i]);
    if (any) {
      first = start;
      end = start + block;
    } else {
      (last ? end : first) = last ? start : start + block;
    }
  }
  if constexpr (last) {
    while (end > first + 1 && !is_it(a[end - 1])) --end;
    return end - 1;
  } else {
    while (first + 1 < end && !is_it(a[first])) ++first;
    return first;
  }
}

template <class R, class T, bool last>
static void argument_row_loop(void* out, const void* a, const void*, const void*, size_t n) {
  const Arguments<T> o(out, 1);
  const T best = fold_row<R, T>(a, n);
  if (takes<R, last>(best, *o.best)) {
    *o.index = *o.seen + static_cast<int64_t>(find_element<last>(static_cast<const T*>(a), n, best));
    *o.best = best;
  }
  *o.seen += static_cast<int64_t>(n);
}

template <class R, class T, bool last>
static void argument_column_loop(void* out, const void* a, const void*, const void*, size_t n) {
  const Arguments<T> o(out, n);
  auto* pa = static_cast<const T*>(a);
  const int64_t at = *o.seen;
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) {
    const bool take = takes<R, last>(pa[i], o.best[i]);
    o.best[i] = take ? pa[i] : o.best[i];
    o.index[i] = take ? at : o.index[i];
  }
  *o.seen = at + 1;
}

// One accumulator into another, whose elements come before.
template <class R, class T, bool last>
static void argument_merge(void* out, const void* a, const void*, const void*, size_t) {
  const Arguments<T> o(out, 1), later(const_cast<void*>(a), 1);
  if (*later.seen > 0 && takes<R, last>(*later.best, *o.best)) {
    *o.best = *later.best;
    *o.index = *o.seen + *later.index;
  }
  *o.seen += *later.seen;
}

static void argument_finish(void* out, const void* a, const void*, const void*, size_t n) {
  __builtin_memcpy(out, static_cast<const int64_t*>(a) + n, n * sizeof(int64_t));
}

template <class R, class T, bool last>
static void argument_whole_loop(void* out, const void* a, const void*, const void*, size_t n) {
  *static_cast<int64_t*>(out) =
      static_cast<int64_t>(find_element<last>(static_cast<const T*>(a), n, fold_row<R, T>(a, n)));
}

template <class R, bool last>
static ReductionFns pick_argument(Type type) {
#define ONNXFUSE_CASE(tag, T)                   \
  case Type::tag:                               \
    if constexpr (!is_same<T, bool>)            \
      return {kArgumentWords,                   \
              argument_init_loop<R, T>,         \
              argument_row_loop<R, T, last>,    \
              argument_column_loop<R, T, last>, \
              nullptr,                          \
              argument_merge<R, T, last>,       \
              argument_finish,                  \
              argument_whole_loop<R, T, last>,  \
              nullptr,                          \
              nullptr};                         \
    break;
  switch (type) {
    ONNXFUSE_VALUE_TYPES(ONNXFUSE_CASE)
    default:
      break;
  }
#undef ONNXFUSE_CASE
  return {};
}

static ReductionFns find_reduction(Op op, Type type, bool last) {
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
    case Op::op_reduce_argmax:
      return last ? pick_argument<Maximum, true>(type) : pick_argument<Maximum, false>(type);
    case Op::op_reduce_argmin:
      return last ? pick_argument<Minimum, true>(type) : pick_argument<Minimum, false>(type);
    default:
      return {};
  }
}
