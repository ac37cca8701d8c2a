// The loops of scans. Included once for each instruction set, inside its namespace, after reduction_loops.h.
//
// Sums of floats, which take in doubles, and maxima and minima go vector by vector: within each by shifting it upon
// itself, so that only one operation a vector waits for the vector before. Integers go one by one, which costs them one
// cycle each; products of floats as well, since their parts may leave the range that the product stays in.
#pragma once

// What changes nothing: -0 in sums.
template <class R, class A>
static inline A neutral() {
  const A identity = R::template identity<A>();
  return is_same<R, Sum> && is_floating<A> ? -identity : identity;
}

// What a row begins with.
template <class R, class A, bool exclusive>
static inline A scan_start() {
  return exclusive ? R::template identity<A>() : neutral<R, A>();
}

template <class A>
struct LanesOf {
  static constexpr size_t count = sizeof(Vector) / sizeof(A);
  typedef A type __attribute__((vector_size(sizeof(Vector))));
};
template <class A>
using Lanes = typename LanesOf<A>::type;

template <size_t... i>
struct Indices {};
template <size_t n, size_t... i>
struct CountTo : CountTo<n - 1, n - 1, i...> {};
template <size_t... i>
struct CountTo<0, i...> {
  using type = Indices<i...>;
};

// v moved by some lanes, up or (reverse) down; the lanes that become free are those of filling.
template <size_t by, bool reverse, class V, size_t... i>
static inline V shifted_lanes(V v, V filling, Indices<i...>) {
  constexpr size_t n = sizeof...(i);
#if defined(__clang__)
  return __builtin_shufflevector(v, filling, (reverse ? (i + by < n ? i + by : n + i) : (i >= by ? i - by : n + i))...);
#else
  typedef decltype((v < v)[0] + 0) Index;
  typedef Index Mask __attribute__((vector_size(sizeof(V))));
  return __builtin_shuffle(
      v, filling, Mask{static_cast<Index>(reverse ? (i + by < n ? i + by : n + i) : (i >= by ? i - by : n + i))...});
#endif
}

template <size_t by, bool reverse, class A>
static inline Lanes<A> shifted(Lanes<A> v, Lanes<A> filling) {
  return shifted_lanes<by, reverse>(v, filling, typename CountTo<LanesOf<A>::count>::type());
}

template <class A>
static inline Lanes<A> splat_lanes(A x) {
  return x - Lanes<A>{};  // keeps -0
}

template <class A, class T>
static inline Lanes<A> load_lanes(const T* p) {
  typedef T Elements __attribute__((vector_size(LanesOf<A>::count * sizeof(T))));
  Elements e;
  __builtin_memcpy(&e, p, sizeof e);
  if constexpr (is_same<A, T>)
    return e;
  else
    return widen(e);
}

template <class A, class T>
static inline void store_lanes(T* p, Lanes<A> v) {
  typedef T Elements __attribute__((vector_size(LanesOf<A>::count * sizeof(T))));
  if constexpr (is_same<A, T>) {
    __builtin_memcpy(p, &v, sizeof v);
  } else {
    const Elements e = narrow(v);
    __builtin_memcpy(p, &e, sizeof e);
  }
}

template <class R, class A, bool reverse, size_t by = 1>
static inline Lanes<A> scan_lanes(Lanes<A> v) {
  if constexpr (by < LanesOf<A>::count) {
    const Lanes<A> before = shifted<by, reverse, A>(v, splat_lanes(neutral<R, A>()));
    return scan_lanes<R, A, reverse, 2 * by>(R::join_vectors(before, v));
  } else {
    return v;
  }
}

// Takes one vector in; gives what stands before each element (exclusive) or up to it, in this part of the row.
template <class R, class A, bool exclusive, bool reverse>
static inline Lanes<A> take_lanes(Lanes<A> v, A& running) {
  constexpr size_t last = reverse ? 0 : LanesOf<A>::count - 1;
  const Lanes<A> local = scan_lanes<R, A, reverse>(v);
  const Lanes<A> before = exclusive ? shifted<1, reverse, A>(local, splat_lanes(neutral<R, A>())) : local;
  const Lanes<A> result = R::join_vectors(splat_lanes(running), before);
  running = R::join(running, static_cast<A>(local[last]));
  return result;
}

// visit(i, m) for the vectors of a row, m elements from i on, in the direction's order; only the last may be short.
template <size_t lanes, bool reverse, class Visit>
static inline void visit_lanes(size_t n, const Visit& visit) {
  if constexpr (reverse) {
    size_t i = n;
    for (; i >= lanes; i -= lanes) visit(i - lanes, lanes);
    if (i > 0) visit(0, i);
  } else {
    size_t i = 0;
    for (; i + lanes <= n; i += lanes) visit(i, lanes);
    if (i < n) visit(i, n - i);
  }
}

template <class R, class T>
inline constexpr bool scans_lanes = is_floating<T> && !is_same<R, Product>;

template <class R, class T, bool exclusive, bool reverse, bool store>
static inline void scan_part(T* out, const T* a, Accumulator<R, T>* state, size_t n) {
  using A = Accumulator<R, T>;
  const A base = state[0];
  A running = state[1];
  if constexpr (scans_lanes<R, T>) {
    constexpr size_t lanes = LanesOf<A>::count;
    visit_lanes<lanes, reverse>(n, [&](size_t i, size_t m) {
      T part[lanes];
      if (m < lanes) {
        for (T& x : part) x = neutral<R, T>();
        __builtin_memcpy(part, a + i, m * sizeof(T));
      }
      const Lanes<A> v = take_lanes<R, A, exclusive, reverse>(load_lanes<A>(m < lanes ? part : a + i), running);
      if constexpr (store) {
        const Lanes<A> result = R::join_vectors(splat_lanes(base), v);
        if (m == lanes) return store_lanes<A>(out + i, result);
        store_lanes<A>(part, result);
        __builtin_memcpy(out + i, part, m * sizeof(T));
      }
    });
  } else {
    for (size_t k = 0; k < n; ++k) {
      const size_t i = reverse ? n - 1 - k : k;
      const A x = static_cast<A>(a[i]);
      const A before = running;
      running = R::join(running, x);
      if constexpr (store) out[i] = static_cast<T>(R::join(base, exclusive ? before : running));
    }
  }
  state[1] = running;
}

template <class A>
struct ScanState {  // its two words
  A values[2];
  explicit ScanState(const void* p) {
    __builtin_memcpy(values, p, sizeof(A));
    __builtin_memcpy(values + 1, static_cast<const char*>(p) + 8, sizeof(A));
  }
  ScanState(A base, A running) : values{base, running} {}
  void write(void* p) const {
    __builtin_memcpy(p, values, sizeof(A));
    __builtin_memcpy(static_cast<char*>(p) + 8, values + 1, sizeof(A));
  }
};

template <class R, class T, bool exclusive>
static void scan_init(void* out, const void*, const void*, const void*, size_t) {
  using A = Accumulator<R, T>;
  ScanState<A>(scan_start<R, A, exclusive>(), neutral<R, A>()).write(out);
}

template <class R, class T, bool exclusive, bool reverse>
static void scan_row_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  ScanState<Accumulator<R, T>> state(b);
  scan_part<R, T, exclusive, reverse, true>(static_cast<T*>(out), static_cast<const T*>(a), state.values, n);
  state.write(const_cast<void*>(b));
}

template <class R, class T, bool reverse>
static void scan_total_loop(void* out, const void* a, const void*, const void*, size_t n) {
  ScanState<Accumulator<R, T>> state(out);
  scan_part<R, T, false, reverse, false>(static_cast<T*>(nullptr), static_cast<const T*>(a), state.values, n);
  state.write(out);
}

template <class R, class T>
static void scan_join(void* out, const void* a, const void* b, const void*, size_t) {
  using A = Accumulator<R, T>;
  *static_cast<A*>(out) = R::join(*static_cast<const A*>(a), *static_cast<const A*>(b));
}

template <class R, class T, bool exclusive, bool reverse>
static void scan_whole_loop(void* out, const void* a, const void*, const void*, size_t n) {
  uint64_t state[2];
  scan_init<R, T, exclusive>(state, nullptr, nullptr, nullptr, 1);
  scan_row_loop<R, T, exclusive, reverse>(out, a, state, nullptr, n);
}

template <class R, class T, bool exclusive>
static void scan_column_init(void* out, const void*, const void*, const void*, size_t n) {
  using A = Accumulator<R, T>;
  for (size_t i = 0; i < n; ++i) static_cast<A*>(out)[i] = scan_start<R, A, exclusive>();
}

template <class R, class T, bool exclusive>
static void scan_column_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  using A = Accumulator<R, T>;
  auto* po = static_cast<T*>(out);
  auto* pa = static_cast<const T*>(a);
  auto* state = static_cast<A*>(const_cast<void*>(b));
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) {
    const A before = state[i];
    const A after = R::join(before, static_cast<A>(pa[i]));
    state[i] = after;
    po[i] = static_cast<T>(exclusive ? before : after);
  }
}

template <class R, class T, bool exclusive, bool reverse>
static ScanFns scan_of() {
  return {scan_init<R, T, exclusive>,
          scan_row_loop<R, T, exclusive, reverse>,
          scan_total_loop<R, T, reverse>,
          scan_join<R, T>,
          scan_whole_loop<R, T, exclusive, reverse>,
          scan_column_init<R, T, exclusive>,
          scan_column_loop<R, T, exclusive>};
}

template <class R, bool exclusive, bool reverse>
static ScanFns pick_scan(Type type) {
#define ONNXFUSE_CASE(tag, T)                                                    \
  case Type::tag:                                                                \
    if constexpr (!is_same<T, bool>) return scan_of<R, T, exclusive, reverse>(); \
    break;
  switch (type) {
    ONNXFUSE_VALUE_TYPES(ONNXFUSE_CASE)
    default:
      break;
  }
#undef ONNXFUSE_CASE
  return {};
}

template <class R>
static ScanFns pick_scan_by_flags(Type type, bool exclusive, bool reverse) {
  if (exclusive) return reverse ? pick_scan<R, true, true>(type) : pick_scan<R, true, false>(type);
  return reverse ? pick_scan<R, false, true>(type) : pick_scan<R, false, false>(type);
}

static ScanFns find_scan(Op op, Type type, bool exclusive, bool reverse) {
  switch (op) {
    case Op::op_scan_sum:
      return pick_scan_by_flags<Sum>(type, exclusive, reverse);
    case Op::op_scan_prod:
      return pick_scan_by_flags<Product>(type, exclusive, reverse);
    case Op::op_scan_max:
      return pick_scan_by_flags<Maximum>(type, exclusive, reverse);
    case Op::op_scan_min:
      return pick_scan_by_flags<Minimum>(type, exclusive, reverse);
    default:
      return {};
  }
}
