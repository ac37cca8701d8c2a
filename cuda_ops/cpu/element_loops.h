// The element-wise loops of TileKernels. Included once for each instruction set, inside its namespace.
#pragma once

// In memory: bool is a byte.
template <class T>
struct StoredAs {
  using type = T;
};
template <>
struct StoredAs<bool> {
  using type = uint8_t;
};
template <class T>
using Stored = typename StoredAs<T>::type;

template <class T>
static inline T load(const Stored<T>* p) {
  if constexpr (is_same<T, bool>)
    return *p != 0;
  else
    return *p;
}

// The primitives of the table, each as a struct with its expression.
#define ONNXFUSE_REDUCTION(...)
#define ONNXFUSE_PRIMITIVE(name, arity_, types_, result_bool_, ...)                              \
  struct P_##name {                                                                              \
    static constexpr Op op = Op::op_##name;                                                      \
    static constexpr int arity = arity_;                                                         \
    static constexpr uint32_t types = types_;                                                    \
    static constexpr bool result_bool = result_bool_;                                            \
    template <class A, class T>                                                                  \
    static inline auto value([[maybe_unused]] A a, [[maybe_unused]] T b, [[maybe_unused]] T c) { \
      return __VA_ARGS__;                                                                        \
    }                                                                                            \
  };
#include "primitives.inc"
#undef ONNXFUSE_PRIMITIVE

template <bool B, class X, class Y>
struct Choose {
  using type = X;
};
template <class X, class Y>
struct Choose<false, X, Y> {
  using type = Y;
};

template <class P, class T, unsigned scalars>
static void element_loop(void* out, const void* a, const void* b, const void* c, size_t n) {
  using A = typename Choose<P::arity == 3, bool, T>::type;
  using R = typename Choose<P::result_bool, bool, T>::type;
  auto* po = static_cast<Stored<R>*>(out);
  auto* pa = static_cast<const Stored<A>*>(a);
  [[maybe_unused]] auto* pb = static_cast<const Stored<T>*>(b);
  [[maybe_unused]] auto* pc = static_cast<const Stored<T>*>(c);
  [[maybe_unused]] const A a0 = scalars & 1 ? load<A>(pa) : A();
  [[maybe_unused]] const T b0 = scalars & 2 ? load<T>(pb) : T();
  [[maybe_unused]] const T c0 = scalars & 4 ? load<T>(pc) : T();
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) {
    const A va = scalars & 1 ? a0 : load<A>(pa + i);
    T vb = T(), vc = T();
    if constexpr (P::arity >= 2) vb = scalars & 2 ? b0 : load<T>(pb + i);
    if constexpr (P::arity >= 3) vc = scalars & 4 ? c0 : load<T>(pc + i);
    po[i] = static_cast<R>(P::value(va, vb, vc));
  }
}

// Sine and cosine: vectorized unless the tile has a large number in it, which the C library reduces.
template <float (*small)(float), float (*any)(float)>
static void trig_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  int large = 0;
  for (size_t i = 0; i < n; ++i) large |= __builtin_fabsf(pa[i]) > kTrigLimit ? 1 : 0;
  if (large) {
    for (size_t i = 0; i < n; ++i) po[i] = any(pa[i]);
  } else {
    ONNXFUSE_VECTORIZE
    for (size_t i = 0; i < n; ++i) po[i] = small(pa[i]);
  }
}

#define ONNXFUSE_VALUE_TYPES(X) \
  X(f32, float)                 \
  X(f64, double)                \
  X(i8, int8_t)                 \
  X(i16, int16_t)               \
  X(i32, int32_t) X(i64, int64_t) X(u8, uint8_t) X(u16, uint16_t) X(u32, uint32_t) X(u64, uint64_t) X(boolean, bool)

// The types that have loops with scalar operands; other types have them copied out into a tile.
template <class T>
inline constexpr bool has_scalar_loops = is_floating<T> || is_same<T, int32_t> || is_same<T, int64_t>;

template <class P, class T>
static TileFn pick_scalars(unsigned scalars) {
  if constexpr (is_same<T, float> && is_same<P, P_sin>) return scalars ? nullptr : trig_loop<small_sin, of_sin>;
  if constexpr (is_same<T, float> && is_same<P, P_cos>) return scalars ? nullptr : trig_loop<small_cos, of_cos>;
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
  if constexpr (is_same<T, float> && is_same<P, P_exp>) return scalars ? nullptr : vector_loop<vector_exp>;
  if constexpr (is_same<T, float> && is_same<P, P_sigmoid>) return scalars ? nullptr : vector_loop<vector_sigmoid>;
  if constexpr (is_same<T, float> && is_same<P, P_erf>) return scalars ? nullptr : vector_loop<vector_erf>;
  if constexpr (is_same<T, float> && is_same<P, P_tanh>) return scalars ? nullptr : vector_loop<vector_tanh>;
#endif
  if constexpr (is_same<T, float> && is_same<P, P_div>)
    if (scalars == 2) return divide_loop<&Divisor::divide>;
  if (scalars == 0) return element_loop<P, T, 0>;
  if constexpr (has_scalar_loops<T> && P::arity == 2) {
    if (scalars == 1) return element_loop<P, T, 1>;
    if (scalars == 2) return element_loop<P, T, 2>;
  }
  if constexpr (has_scalar_loops<T> && P::arity == 3) {
    if (scalars == 2) return element_loop<P, T, 2>;
    if (scalars == 4) return element_loop<P, T, 4>;
    if (scalars == 6) return element_loop<P, T, 6>;
  }
  return nullptr;
}

template <class P>
static TileFn pick_primitive(Type type, unsigned scalars) {
#define ONNXFUSE_CASE(tag, T)                                                                \
  case Type::tag:                                                                            \
    if constexpr ((P::types & type_bit(Type::tag)) != 0) return pick_scalars<P, T>(scalars); \
    return nullptr;
  switch (type) {
    ONNXFUSE_VALUE_TYPES(ONNXFUSE_CASE)
    default:
      return nullptr;
  }
#undef ONNXFUSE_CASE
}

static TileFn find_primitive(Op op, Type type, unsigned scalars) {
  switch (op) {
#define ONNXFUSE_REDUCTION(...)
#define ONNXFUSE_PRIMITIVE(name, ...) \
  case Op::op_##name:                 \
    return pick_primitive<P_##name>(type, scalars);
#include "primitives.inc"
#undef ONNXFUSE_PRIMITIVE
    default:
      return nullptr;
  }
}

template <unsigned scalars>
static void multiply_add_loop(void* out, const void* a, const void* b, const void* c, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  auto* pb = static_cast<const float*>(b);
  auto* pc = static_cast<const float*>(c);
  [[maybe_unused]] const float b0 = scalars & 2 ? *pb : 0;
  [[maybe_unused]] const float c0 = scalars & 4 ? *pc : 0;
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) po[i] = pa[i] * (scalars & 2 ? b0 : pb[i]) + (scalars & 4 ? c0 : pc[i]);
}

static TileFn find_multiply_add(unsigned scalars) {
  return scalars == 0   ? multiply_add_loop<0>
         : scalars == 2 ? multiply_add_loop<2>
         : scalars == 4 ? multiply_add_loop<4>
         : scalars == 6 ? multiply_add_loop<6>
                        : nullptr;
}

template <unsigned scalars>
static void exp_of_difference_loop(void* out, const void* a, const void* b, const void*, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const float*>(a);
  auto* pb = static_cast<const float*>(b);
  [[maybe_unused]] const float b0 = scalars & 2 ? *pb : 0;
#if defined(ONNXFUSE_VECTOR_FUNCTIONS)
  size_t i = 0;
  for (; i + kVector <= n; i += kVector)
    store_vector(po + i, exp_of_difference(load_vector(pa + i), scalars & 2 ? splat(b0) : load_vector(pb + i)));
  if (i == n) return;
  Vector va = {}, vb = splat(b0);
  __builtin_memcpy(&va, pa + i, (n - i) * sizeof(float));
  if (!(scalars & 2)) __builtin_memcpy(&vb, pb + i, (n - i) * sizeof(float));
  va = exp_of_difference(va, vb);
  __builtin_memcpy(po + i, &va, (n - i) * sizeof(float));
#else
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) po[i] = of_exp(pa[i] - (scalars & 2 ? b0 : pb[i]));
#endif
}

static TileFn find_exp_of_difference(unsigned scalars) {
  return scalars == 0 ? exp_of_difference_loop<0> : scalars == 2 ? exp_of_difference_loop<2> : nullptr;
}

template <class To, class From>
static void cast_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<Stored<To>*>(out);
  auto* pa = static_cast<const Stored<From>*>(a);
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) po[i] = convert<To>(load<From>(pa + i));
}

template <class From>
static TileFn cast_from(Type to) {
#define ONNXFUSE_CASE(tag, T) \
  case Type::tag:             \
    return cast_loop<T, From>;
  switch (to) {
    ONNXFUSE_VALUE_TYPES(ONNXFUSE_CASE)
    default:
      return nullptr;
  }
#undef ONNXFUSE_CASE
}

static TileFn find_cast(Type from, Type to) {
#define ONNXFUSE_CASE(tag, T) \
  case Type::tag:             \
    return cast_from<T>(to);
  switch (from) {
    ONNXFUSE_VALUE_TYPES(ONNXFUSE_CASE)
    default:
      return nullptr;
  }
#undef ONNXFUSE_CASE
}

template <class Out, class In, Out (*f)(In)>
static void convert_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<Out*>(out);
  auto* pa = static_cast<const In*>(a);
  ONNXFUSE_VECTORIZE
  for (size_t i = 0; i < n; ++i) po[i] = f(pa[i]);
}

#if defined(__AVX2__)
__attribute__((noinline)) static void load_half(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<float*>(out);
  auto* pa = static_cast<const uint16_t*>(a);
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(po + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pa + i))));
  for (; i < n; ++i) po[i] = half_to_float(pa[i]);
}

__attribute__((noinline)) static void store_half(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<uint16_t*>(out);
  auto* pa = static_cast<const float*>(a);
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(po + i), _mm256_cvtps_ph(_mm256_loadu_ps(pa + i), 0));
  for (; i < n; ++i) po[i] = float_to_half(pa[i]);
}
#else
static constexpr TileFn load_half = convert_loop<float, uint16_t, half_to_float>;
static constexpr TileFn store_half = convert_loop<uint16_t, float, float_to_half>;
#endif

static TileFn find_load(Type storage) {
  return storage == Type::f16 ? load_half : convert_loop<float, uint16_t, bfloat_to_float>;
}

static TileFn find_store(Type storage) {
  return storage == Type::f16 ? store_half : convert_loop<uint16_t, float, float_to_bfloat>;
}

template <class T>
static void copy_loop(void* out, const void* a, const void*, const void*, size_t n) {
  __builtin_memcpy(out, a, n * sizeof(T));
}

template <class T>
static void splat_loop(void* out, const void* a, const void*, const void*, size_t n) {
  auto* po = static_cast<T*>(out);
  const T v = *static_cast<const T*>(a);
  for (size_t i = 0; i < n; ++i) po[i] = v;
}

static TileFn find_copy(size_t size) {
  return size == 1   ? copy_loop<uint8_t>
         : size == 2 ? copy_loop<uint16_t>
         : size == 4 ? copy_loop<uint32_t>
                     : copy_loop<uint64_t>;
}

static TileFn find_splat(size_t size) {
  return size == 1   ? splat_loop<uint8_t>
         : size == 2 ? splat_loop<uint16_t>
         : size == 4 ? splat_loop<uint32_t>
                     : splat_loop<uint64_t>;
}
